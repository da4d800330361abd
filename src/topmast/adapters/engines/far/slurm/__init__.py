"""Slurm, asked by its own commands: which parts of attempts it holds, and what hosts it has.

`launcher` makes the calls; `batch` says what is submitted, `listings` reads what is answered, and
`commands` runs a command and tells a refusal from silence. Nothing here needs a shared file system,
a plugin, or more rights than those of the account that submits.
"""

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.slurm.launcher import SlurmLauncher
from topmast.adapters.engines.far.slurm.options import SlurmOptions

__all__ = ["SlurmEngine", "SlurmLauncher", "SlurmOptions"]


class SlurmEngine(FarEngine):
    """Gangs on a Slurm cluster."""

    launcher_type = SlurmLauncher
