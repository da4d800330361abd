"""A database of one test, whichever it is."""

from dataclasses import dataclass

import sqlalchemy as sa

from topmast.adapters.store import Claim, SqlJournal, open_journal


@dataclass
class Store:
    """A database of one test, and ways in: the journal's own, and one behind its back."""

    target: str
    engine: sa.Engine

    def open(self, *, read_only: bool = False, claim: Claim | None = None) -> SqlJournal:
        """The journal in it."""
        return open_journal(self.target, read_only=read_only, claim=claim or Claim())

    def tamper(self, statement: sa.Executable) -> None:
        """Change something behind the back of whatever has it open."""
        with self.engine.begin() as connection:
            connection.execute(statement)
