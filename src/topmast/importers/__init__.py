"""Files of other schedulers, made into job files. Nothing is lost in silence: each note says what.

`IMPORTERS` is the one place that knows the kinds: a new one is a module and a line here.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from topmast.importers.kubernetes import import_kubernetes
from topmast.importers.notes import Imported, Note
from topmast.importers.sbatch import import_sbatch
from topmast.importers.skypilot import import_skypilot

__all__ = ["IMPORTERS", "Imported", "Importer", "Note"]


class Importer(Struct, frozen=True):
    """A kind of file that can be imported."""

    what: str
    """What such a file is, for people."""
    example: str
    """The name of one."""
    read: Callable[[bytes, str], Imported]
    """Makes a job file of a text; the second argument is its name in errors."""


IMPORTERS = {
    "sbatch": Importer("a batch script of Slurm", "job.sbatch", import_sbatch),
    "skypilot": Importer("a task file of SkyPilot", "task.yaml", import_skypilot),
    "kubernetes": Importer("a Job or PyTorchJob of Kubernetes", "manifest.yaml", import_kubernetes),
}
"""By the word behind `topmast import`."""
