"""What a site may have otherwise than the fleet file says, on a real Slurm, as people see it."""

import secrets
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.sitefaults import Fault, Site, play
from tests.support.slurmlab import SlurmCluster, other_clock

PYTHON = "/usr/bin/python3"
"""That any account may run."""


@pytest.fixture
def site(lab: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster with two partitions that do not take our jobs; afterwards as it was."""
    for name, more in (
        ("guarded", "AllowAccounts=bio"), ("shut", "State=DOWN"), ("small", "State=UP"),
        ("grouped", "AllowGroups=root"),
    ):  # fmt: skip
        lab.run("scontrol", "create", f"PartitionName={name}", "Nodes=lab0", more)
    yield lab
    for job, *_ in lab.jobs():
        lab.run("scancel", job, check=False)
    lab.until(lambda: all(row[2] not in ("RUNNING", "COMPLETING") for row in lab.jobs()), "busy")
    lab.run("scontrol", "delete", "ReservationName=ours", check=False)
    for name in ("guarded", "shut", "small", "grouped", "later"):
        lab.run("scontrol", "delete", f"PartitionName={name}", check=False)


def faults(lab: SlurmCluster, bin: Path) -> list[Fault]:
    """Each cluster maps its GPU model to the type that Slurm knows, but for one.

    ``bin`` has Slurm's commands for an account without rights: to root nothing is refused.
    """

    def slurm(*argv: str) -> Callable[[], object]:
        return partial(lab.run, "scontrol", *argv)

    return [
        Fault(
            "the partition is not there", "P1", {"gpu.P1": "h100", "partition": "later"},
            closed="is not in partition later|(?i:invalid partition).*option `partition`",
            mend=slurm("create", "PartitionName=later", "Nodes=lab0", "State=UP"),
        ),
        Fault(
            "the partition takes other accounts", "P2",
            {"gpu.P2": "h100", "partition": "guarded"},
            closed="refuses whatever is submitted: .*(?i:account).*option `account`",
            told="(?i)account.*option `account`",
            mend=slurm("update", "PartitionName=guarded", "AllowAccounts=ALL"),
        ),
        Fault(
            "the partition is closed", "P3", {"gpu.P3": "h100", "partition": "shut"},
            closed="in partition shut, which is (down|inact)",
            mend=slurm("update", "PartitionName=shut", "State=UP"),
        ),
        Fault(
            "the reservation is not there", "P4", {"gpu.P4": "h100", "reservation": "ours"},
            ("lab2",),
            closed="refuses whatever is submitted: .*(?i:reservation).*option `reservation`",
            told="(?i)reservation.*option `reservation`",
            mend=slurm(
                "create", "reservation", "ReservationName=ours", "Users=root", "StartTime=now",
                "Duration=60", "Nodes=lab2",
            ),
        ),
        Fault(
            "Slurm calls the GPUs otherwise", "P5",
            closed="GPUs of type h100, and jobs ask for P5 .set option `gpu.P5: h100`",
        ),
        Fault("a host is called otherwise", "P6", hosts=("lab7",), closed="knows no host lab7"),
        Fault(
            "the commands are not there", "P7", {"bin": "/nowhere"},
            closed="no complete answer: /nowhere/sbatch: No such file.*option `bin`",
        ),
        Fault(
            "the host is in another partition", "P8", {"gpu.P8": "h100", "partition": "small"},
            ("lab1",), closed="is not in partition small, to which jobs go, but in main",
            mend=slurm("update", "PartitionName=small", "Nodes=lab0,lab1"),
        ),
        Fault(
            "the account may not submit", "P9",
            {"gpu.P9": "h100", "partition": "grouped", "bin": str(bin), "python": PYTHON},
            closed="refuses whatever is submitted: .*(?i:group).*needs the right to submit",
            mend=slurm("update", "PartitionName=grouped", "AllowGroups=ALL"),
        ),
        Fault(
            "the credentials are of another key", "P10",
            {"gpu.P10": "h100", "conf": str(lab.conf_by_munged("other"))},
            closed="no complete answer: .*munged here: .*the cluster's key, and clocks",
            mend=partial(lab.start_munged, "other"),
        ),
        Fault(
            "the clock is an hour late", "P11",
            {"gpu.P11": "h100", "conf": str(lab.conf_by_munged("late"))},
            closed="no complete answer: .*munged here: .*the cluster's key, and clocks",
            mend=partial(lab.start_munged, "late"),
        ),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_site_has_otherwise_is_told_and_waited_for(
    site: SlurmCluster, tmp_path: Path
) -> None:
    """Closed with the reason, or the job told; nothing runs before it can, and then once."""

    def hang() -> Callable[[], object]:
        site.signal_controller(signal.SIGSTOP)
        return lambda: site.signal_controller(signal.SIGCONT)

    if not other_clock():
        pytest.skip("no Slurm: libfaketime not found (run `make slurm-tools`)")
    (bin := tmp_path / "bin").mkdir()
    for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel"):
        be = "exec setpriv --reuid=65534 --regid=65534 --clear-groups"
        (bin / name).write_text(f'#!/bin/sh\n{be} /usr/bin/{name} "$@"\n')
        (bin / name).chmod(0o755)
    site.start_munged("other", secrets.token_bytes(128))
    site.start_munged("late", late_s=3600)
    options = {"conf": str(site.conf), "poll_s": "0.5", "command_s": "5"}
    play(Site("slurm", options, "lab0", True, faults(site, bin)), tmp_path, hang)
