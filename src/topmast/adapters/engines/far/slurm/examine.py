"""Whether Slurm has the hosts of a fleet file, and would take what is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from topmast.adapters.engines.far.discovery import Discovered
from topmast.adapters.engines.far.examine import calls_home, examined
from topmast.adapters.engines.far.launcher import Part, Refused, Ticket, Unreachable
from topmast.adapters.engines.far.slurm.batch import NO_OP, submission_options, trial
from topmast.adapters.engines.far.slurm.commands import Commands
from topmast.adapters.engines.far.slurm.discover import discover
from topmast.adapters.engines.far.slurm.launcher import SlurmLauncher
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Finding, Level

CGROUP = "proctrack/cgroup"
GRACE_S = 30.0
_TRACKING = re.compile(r"^ProctrackType\s*=\s*(\S+)", re.MULTILINE)


def examine(cluster: ClusterSpec, options: SlurmOptions) -> tuple[Finding, ...]:
    """Ask the controller; nothing is submitted."""
    model = next((host.model for host in cluster.hosts if host.gpus), "")
    try:
        closed = [h for h in SlurmLauncher(cluster, "doctor", options).hosts() if h.closed]
        found = discover(options, model=model, everywhere=True)
    except Unreachable as error:
        return (Finding(Level.FAULT, "reach it", str(error)),)
    except InvalidInput as error:
        return (Finding(Level.FAULT, "reach it", error.message, error.remedy),)
    away = {host.name for host in closed}
    usable = [host for host in cluster.hosts if host.name not in away]
    return (
        *examined(cluster, lambda: _with_gpus_of(cluster, found), closed),
        *_submissions(usable, options),
        *_listener(found, options),
        *calls_home(options),
        *_containment(options),
    )


def _with_gpus_of(cluster: ClusterSpec, found: Discovered) -> Discovered:
    """GPUs as the fleet file says: of these, the reason why a host is closed tells more."""
    told = {host.name: host for host in cluster.hosts}
    pairs = [(host, told.get(host.name, host)) for host in found.hosts]
    hosts = [structs.replace(real, model=host.model, gpus=host.gpus) for real, host in pairs]
    return structs.replace(found, hosts=tuple(hosts))


def _listener(found: Discovered, options: SlurmOptions) -> Iterator[Finding]:
    """Whether runners can call home, as far as that can be told from here."""
    if listen := found.options.get("listen"):
        yield Finding(
            Level.FAULT, "call home", f"no host reaches {options.listen} of this machine",
            f"set option `listen: {listen}` of the cluster",
        )  # fmt: skip


def _submissions(hosts: Sequence[HostSpec], options: SlurmOptions) -> Iterator[Finding]:
    """Whether Slurm would take a job on a whole host, for each GPU model and tenant."""
    by_model = {host.model: host for host in sorted(hosts, key=lambda host: host.gpus)}
    for tenant in ("", *options.tenants):
        for host in by_model.values() or (None,):
            yield _submission(host, tenant, options)


def _submission(host: HostSpec | None, tenant: str, options: SlurmOptions) -> Finding:
    what = f"submit for tenant {tenant}" if tenant else "submit"
    said = submission_options(options, tenant)
    named = ", ".join(f"{name} {value}" for name, value in said.items()) or "its defaults"
    if host is None:  # those there are get no work, of which more is told than a trial tells
        job, argv = "a job on any host", ["sbatch", "--test-only"]
        argv += [f"--{name}={value}" for name, value in said.items()]
    else:
        job = f"a job with {host.gpus} {host.model or 'GPUs'} of {host.name}"
        part = Part(
            "tm-doctor-j1-1-0", (host.name,), 1, host.gpus, host.model, 0.0, 0, None, tenant, "",
            Ticket("", "", "", "", None, GRACE_S),
        )  # fmt: skip
        argv = trial(part, [host.name.removeprefix(options.host_prefix)], options)
    try:
        Commands(options).ask(*argv, text=NO_OP)
    except (Refused, Unreachable) as error:
        return Finding(Level.FAULT, what, f"{job}: {error}")
    return Finding(Level.OK, what, f"Slurm would take {job} ({named})")


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
