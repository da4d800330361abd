"""What the journal needs of a database, whichever it is."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct
from sqlalchemy import Connection, Engine

import topmast


class Claim(Struct, frozen=True):
    """What a process that wants to lead says of itself."""

    holder: str = ""
    """The process, for people."""
    address: str = ""
    """Where clients find it."""
    folder: str = ""
    """Tells its state folder from all others."""
    above: int = 0
    """The highest epoch that its engines remember: its own is higher."""
    waits: bool = False
    """Wait until no other process leads, instead of raising Conflict."""
    version: str = topmast.__version__


class Leader(Struct, frozen=True):
    """The process that leads, or was the last to lead, as the database has it."""

    epoch: int
    holder: str
    address: str
    folder: str
    version: str


class Lease(Protocol):
    """The right to write: taken once, proven in every transaction, gone when another takes it."""

    epoch: int
    """Higher than that of every leader before; 0 until it is taken."""
    lasts_s: float | None
    """How long a proof holds; None: as long as the process lives."""
    before: Leader | None
    """The leader before this one, if there was one."""
    shared_by: str
    """Tells the database from all others if several processes may come to lead; else empty."""

    def take(self, connection: Connection) -> None:
        """Become the leader, in a transaction of its own."""
        ...

    def prove(self, connection: Connection) -> None:
        """The first statement of a transaction. Raises `LeadershipLost` when another leads."""
        ...

    def confirm(self, begun_s: float) -> None:
        """A transaction that began then, by `elapsed_s`, is committed."""
        ...

    def due(self) -> bool:
        """Whether it is time to prove it again, if nothing else is written."""
        ...

    def leads(self) -> bool:
        """Whether no other process can lead yet, as far as this one can tell by itself."""
        ...

    def release(self) -> None:
        """Let the next leader in."""
        ...


class Database(Struct, frozen=True):
    """An opened database, with engines to read and to write."""

    place: str
    """Its name in messages."""
    reader: Engine
    writer: Engine | None
    lease: Lease | None
    """None where nothing is written."""
