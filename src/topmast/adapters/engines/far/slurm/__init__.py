"""Slurm, asked by its own commands: which parts of attempts it holds, and what hosts it has.

`launcher` makes the calls; `batch` says what is submitted, `listings` reads what is answered, and
`commands` runs a command and tells a refusal from silence. Nothing here needs a shared file system,
a plugin, or more rights than those of the account that submits.
"""

from typing import Any

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.slurm.launcher import SlurmLauncher
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.model.fleet import ClusterSpec
from topmast.ports import Deadlines, Finding

__all__ = ["SlurmEngine", "SlurmLauncher", "SlurmOptions"]


class SlurmEngine(FarEngine):
    """Gangs on a Slurm cluster."""

    launcher_type = SlurmLauncher
    deadlines = Deadlines(start_within_s=600.0, stop_within_s=60.0)
    """Slurm starts jobs by its own timetable (``batch_sched_delay``, prologs, a busy controller),
    and ends one that its runner does not after ``KillWait``.
    """

    @classmethod
    def examine(cls, cluster: ClusterSpec, options: Any) -> tuple[Finding, ...]:
        """Compare the hosts, and ask whether Slurm would take jobs of each tenant."""
        from topmast.adapters.engines.far.slurm.examine import examine

        return examine(cluster, options)
