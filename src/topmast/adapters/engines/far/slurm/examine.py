"""Whether Slurm has the hosts of a fleet file, and would take what is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topmast.adapters.engines.far.examine import examined
from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.slurm.batch import submission_options
from topmast.adapters.engines.far.slurm.commands import Commands
from topmast.adapters.engines.far.slurm.discover import discover
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.model.fleet import ClusterSpec
from topmast.ports import Finding, Level

CGROUP = "proctrack/cgroup"
_TRACKING = re.compile(r"^ProctrackType\s*=\s*(\S+)", re.MULTILINE)


def examine(cluster: ClusterSpec, options: SlurmOptions) -> tuple[Finding, ...]:
    """Ask the controller; nothing is submitted."""
    model = next((host.model for host in cluster.hosts if host.gpus), "")
    found = examined(cluster, lambda: discover(options, model=model))
    if found[0].level is Level.FAULT:
        return found
    return (*found, *_permissions(options), *_containment(options))


def _permissions(options: SlurmOptions) -> Iterator[Finding]:
    commands = Commands(options)
    for tenant in ("", *options.tenants):
        what = f"submit for tenant {tenant}" if tenant else "submit"
        said = submission_options(options, tenant)
        flags = [f"--{name}={value}" for name, value in said.items()]
        try:
            commands.ask("sbatch", "--test-only", *flags, text="#!/bin/sh\ntrue\n")
        except (Refused, Unreachable) as error:
            yield Finding(Level.FAULT, what, str(error))
        else:
            named = ", ".join(f"{name} {value}" for name, value in said.items())
            yield Finding(Level.OK, what, f"Slurm would take jobs ({named or 'its defaults'})")


def _containment(options: SlurmOptions) -> Iterator[Finding]:
    """Whether what left its session ends with its job: a hostile job can end its runner."""
    try:
        said = Commands(options).ask("scontrol", "show", "config")
    except (Refused, Unreachable) as error:
        yield Finding(Level.WARNING, "ends of jobs", str(error))
        return
    found = _TRACKING.search(said)
    kind = found[1] if found else "(not said)"
    if kind == CGROUP:
        yield Finding(Level.OK, "ends of jobs", f"Slurm ends all that jobs leave ({kind})")
    else:
        yield Finding(
            Level.WARNING, "ends of jobs",
            f"a process that a job hides can outlive it, with ProctrackType {kind}",
            f"set ProctrackType={CGROUP} in slurm.conf",
        )  # fmt: skip
