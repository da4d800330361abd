"""What the journal needs of a database, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Engine


class Owner(Protocol):
    """The right to write, as long as it is held."""

    def release(self) -> None:
        """Let the next owner in."""
        ...


@dataclass(frozen=True)
class Database:
    """An opened database, with engines to read and to write."""

    place: str
    """Its name in messages."""
    reader: Engine
    writer: Engine | None
    owner: Owner | None
    """None where the writer's connection itself is the right to write."""
