"""Files of other schedulers, made into job files: what is lost is noted.

`IMPORTERS` is the one place that knows the kinds: a new one is a module and a line here. Modules
are loaded when they are needed, because each call of the command line reads the table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from topmast.importers.notes import Imported


class Importer(NamedTuple):
    """A kind of file that can be imported."""

    what: str
    """What such a file is, for people."""
    example: str
    """The name of one."""
    module: str
    """The module of this package with the function ``import_MODULE``."""

    def read(self, data: bytes, where: str) -> Imported:
        """The job file of a text; ``where`` names it in errors. Raises InvalidInput."""
        function = getattr(import_module(f"{__name__}.{self.module}"), f"import_{self.module}")
        found: Imported = function(data, where)
        return found


IMPORTERS = {
    "sbatch": Importer("a batch script of Slurm", "job.sbatch", "sbatch"),
    "skypilot": Importer("a task file of SkyPilot", "task.yaml", "skypilot"),
    "kubernetes": Importer("a Job or PyTorchJob of Kubernetes", "manifest.yaml", "kubernetes"),
}
"""By the word behind `topmast import`."""
