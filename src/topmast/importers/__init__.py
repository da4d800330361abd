"""Files of other schedulers, made into job files: what is lost is noted.

`IMPORTERS` is the one place that knows the kinds: a new one is a module and a line here. Modules
are loaded when they are needed, because each call of the command line reads the table.
"""

from __future__ import annotations

import re
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
        _refuse_others(data, where, self.module)
        function = getattr(import_module(f"{__name__}.{self.module}"), f"import_{self.module}")
        found: Imported = function(data, where)
        return found


IMPORTERS = {
    "sbatch": Importer("a batch script of Slurm", "job.sbatch", "sbatch"),
    "skypilot": Importer("a task file of SkyPilot", "task.yaml", "skypilot"),
    "kubernetes": Importer("a Job or PyTorchJob of Kubernetes", "manifest.yaml", "kubernetes"),
}
"""By the word behind `topmast import`."""
_SIGNS = {
    "sbatch": (re.compile(rb"\A#!|^#SBATCH\b", re.MULTILINE),),
    "kubernetes": tuple(
        re.compile(rb"^%b:" % field, re.MULTILINE) for field in (b"apiVersion", b"kind")
    ),
}
"""What a kind of file has that no other has. A script may have a file of another kind in it."""


def _refuse_others(data: bytes, where: str, module: str) -> None:
    """Raise InvalidInput for a file that is of another kind, for all that can be seen of it."""
    from topmast.model.errors import InvalidInput

    kinds = (name for name, signs in _SIGNS.items() if all(one.search(data) for one in signs))
    found = next(kinds, module)
    if found != module:
        message, remedy = f"this looks like {IMPORTERS[found].what}", f"topmast import {found}"
        raise InvalidInput(message, where=where, remedy=remedy)
