"""The journal in a SQL database: SQLite beside the server, or PostgreSQL.

`open_journal` is the way in. `tables` says what is stored, `migrations` how it came to be so,
`sqlite` and `postgresql` hold all that differs between the two.
"""

from __future__ import annotations

from topmast.adapters.store.backup import (
    Manifest,
    copy_database,
    examined,
    files_of,
    is_empty,
    restore,
    upgrade,
    verify,
    write_backup,
)
from topmast.adapters.store.database import Claim, Leader
from topmast.adapters.store.errors import (
    Full,
    InUse,
    JournalFailure,
    LeadershipLost,
    NotAdmitted,
    Retired,
    WrittenByNewer,
)
from topmast.adapters.store.integrity import Report, digest_of
from topmast.adapters.store.journal import SqlJournal, open_journal
from topmast.adapters.store.keeper import Keeper, Sweeper
from topmast.adapters.store.postgresql import Watch, clock_of
from topmast.adapters.store.sqlite import require_free
from topmast.adapters.store.target import (
    JOURNAL,
    PROFILE,
    STORE,
    checked,
    existing_store,
    follow,
    is_database,
    remember_store,
    store_of,
)

__all__ = [
    "JOURNAL",
    "PROFILE",
    "STORE",
    "Claim",
    "Full",
    "InUse",
    "JournalFailure",
    "Keeper",
    "Leader",
    "LeadershipLost",
    "Manifest",
    "NotAdmitted",
    "Report",
    "Retired",
    "SqlJournal",
    "Sweeper",
    "Watch",
    "WrittenByNewer",
    "checked",
    "clock_of",
    "copy_database",
    "digest_of",
    "examined",
    "existing_store",
    "files_of",
    "follow",
    "is_database",
    "is_empty",
    "open_journal",
    "remember_store",
    "require_free",
    "restore",
    "store_of",
    "upgrade",
    "verify",
    "write_backup",
]
