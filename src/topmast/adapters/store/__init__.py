"""The journal in a SQL database: SQLite beside the server, or PostgreSQL.

`open_journal` is the way in. `tables` says what is stored, `migrations` how it came to be so,
`sqlite` and `postgresql` hold all that differs between the two.
"""

from __future__ import annotations

from topmast.adapters.store.database import Claim, Leader
from topmast.adapters.store.errors import JournalFailure, LeadershipLost
from topmast.adapters.store.journal import SqlJournal, open_journal
from topmast.adapters.store.sqlite import require_free

JOURNAL = "journal.sqlite"
"""Its name in a state folder."""

__all__ = [
    "JOURNAL",
    "Claim",
    "JournalFailure",
    "Leader",
    "LeadershipLost",
    "SqlJournal",
    "open_journal",
    "require_free",
]
