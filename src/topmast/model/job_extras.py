"""What a view of a job says beside where it stands: what its user wrote on it."""

from __future__ import annotations

import msgspec
from msgspec import Struct, UnsetType


class JobExtras(Struct, frozen=True, kw_only=True):
    """The part of a view of a job that most jobs have nothing in."""

    labels: dict[str, str] = {}
    """By key, as its user gave them."""
    depends_on: dict[str, str] = {}
    """What other jobs must have come to before it may start: ``started``, ``ok`` or ``any``."""
    waits_for: dict[str, str] = {}
    """The part of ``depends_on`` that is still missing; ``turn``: of its sweep."""
    sweep: str = ""
    """The sweep that it belongs to."""
    sweep_index: int | None = None
    """Its place there, from 0."""

    @property
    def in_sweep(self) -> str:
        """The same as ``sweep``, as a spec has it too."""
        return self.sweep


def labels_text(labels: dict[str, str] | UnsetType) -> str:
    """Labels as a row of the tables has them: JSON, or nothing without any."""
    return msgspec.json.encode(labels, order="sorted").decode() if labels else ""


def label_in(text: str, key: str) -> str:
    """The value of a label in such a text; empty without it."""
    labels: dict[str, str] = msgspec.json.decode(text) if text else {}
    return labels.get(key, "")
