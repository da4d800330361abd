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
        re.compile(rb"^%b:|\A\s*\{(?s:.*)\"%b\"\s*:" % (field, field), re.MULTILINE)
        for field in (b"apiVersion", b"kind")
    ),
    "skypilot": (
        re.compile(
            rb"^(run|setup|resources|num_nodes):|"
            rb"\A\s*\{(?s:.*)\"(run|setup|resources|num_nodes)\"\s*:",
            re.MULTILINE,
        ),
    ),
}
"""What a kind of file has that none before it has. A script may have files of other kinds in it."""
_ALSO = {"skypilot": "; a job file is launched as it is"}
"""What else a file that looks like one of a kind may be, and what to do with it then."""


def _refuse_others(data: bytes, where: str, module: str) -> None:
    """Raise InvalidInput for a file that is of another kind, for all that can be seen of it."""
    from topmast.model.errors import InvalidInput

    kinds = (name for name, signs in _SIGNS.items() if all(one.search(data) for one in signs))
    found = next(kinds, module)
    if found != module:
        message = f"this looks like {IMPORTERS[found].what}"
        remedy = f"topmast import {found}{_ALSO.get(found, '')}"
        raise InvalidInput(message, where=where, remedy=remedy)
