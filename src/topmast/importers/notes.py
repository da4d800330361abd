"""What an import notes: the fields that are lost, or that mean something else here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from topmast.model.files.jobfile import job_name
from topmast.model.files.source import Kind, Node, plain_of


class Note(Struct, frozen=True):
    """A field that is left out, or that means something else here."""

    line: int
    """0: it is about the whole file."""
    field: str
    message: str
    remedy: str = ""

    def of(self, where: str) -> str:
        """The note as one line, for a file of this name."""
        place = f"{where}:{self.line}" if self.line else where
        field = f"{self.field}: " if self.field else ""
        return f"{place}: {field}{self.message}" + (f" ({self.remedy})" if self.remedy else "")


class Imported(Struct, frozen=True):
    """A job file, and what is lost."""

    job: dict[str, Any]
    """The document of a job file."""
    notes: tuple[Note, ...]
    """In the order of the lines."""
    more: tuple[dict[str, Any], ...] = ()
    """Those of the jobs that follow it, in one submission."""


class Notes:
    """Collects the notes of one import."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], Note] = {}

    def add(self, line: int, field: str, message: str, remedy: str = "") -> None:
        """Note something once."""
        self._notes.setdefault((field, message), Note(line, field, message, remedy))

    def imported(self, job: Mapping[str, Any]) -> Imported:
        """A job file with the notes: fields without a value are left out."""
        document = {field: value for field, value in job.items() if value not in (None, "", {}, [])}
        return Imported(document, tuple(sorted(self._notes.values(), key=lambda note: note.line)))

    def name(self, line: int, field: str, text: str) -> str:
        """A name that a job can have."""
        name = job_name(text)
        if name != text:
            self.add(line, field, f"{text!r} is not a name here", f"it becomes {name}")
        return name


class Part:
    """A mapping of a YAML document, of which each field is used or noted."""

    def __init__(self, node: Node, field: str, notes: Notes, line: int = 0) -> None:
        self.node, self.field, self.notes = node, field, notes
        self.line = line or node.line
        self._used: set[str] = set()

    def get(self, key: str) -> Part | None:
        """A field with a value; it counts as used."""
        self._used.add(key)
        node = self.node.entries.get(key)
        if node is None or node.kind is Kind.NOTHING:
            return None
        field = f"{self.field}.{key}" if self.field else key
        return Part(node, field, self.notes, self.node.key_lines.get(key, 0))

    def keys(self) -> list[str]:
        """The names of its fields."""
        return list(self.node.entries)

    def items(self) -> list[Part]:
        """The items of a list; none of anything else."""
        listed = enumerate(self.node.items)
        return [Part(item, f"{self.field}[{index}]", self.notes) for index, item in listed]

    @property
    def plain(self) -> Any:
        """Its plain value."""
        return plain_of(self.node)

    @property
    def text(self) -> str:
        """The text of a scalar as it is written; empty of anything else."""
        return self.node.text

    @property
    def is_mapping(self) -> bool:
        """Whether it has fields."""
        return self.node.kind is Kind.MAPPING

    @property
    def is_list(self) -> bool:
        """Whether it has items."""
        return self.node.kind is Kind.LIST

    def note(self, message: str, remedy: str = "") -> None:
        """Note something about it."""
        self.notes.add(self.line, self.field, message, remedy)

    def leave(self, remedies: Mapping[str, str], ignored: tuple[str, ...] = ()) -> None:
        """Note each field that was not used; ``ignored`` ones mean nothing here."""
        for key in self.node.entries:
            part = None if key in self._used or key in ignored else self.get(key)
            if part is not None:
                known = key in remedies
                part.note("is left out" if known else "is not known here", remedies.get(key, ""))
