"""What can go wrong with a database, in one line for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from topmast.adapters.store.logins import refusal_of, told
from topmast.model.errors import Conflict, TopmastError


class InUse(Conflict):
    """Another process has the right to write. ``told``: that alone, without a remedy."""

    def __init__(self, place: str, holder: str) -> None:
        self.told = f"{place} is in use by another process ({holder})"
        remedy = "stop it first, or let this one stand by (--standby)"
        super().__init__(f"{self.told[:-1]}; {remedy})")


class JournalFailure(TopmastError):
    """The journal could not be opened, read or written.

    After one of these from ``append`` or ``save_snapshot`` the process has to end: memory may be
    ahead of the disk.
    """


class Full(JournalFailure):
    """The disk of the database has no room: nothing is written until there is some."""


class LeadershipLost(JournalFailure):
    """Another process leads: nothing of this transaction was written."""


class WrittenByNewer(JournalFailure):
    """A newer program wrote the database: this one would not know all that is in it."""


class NotAdmitted(JournalFailure):
    """The database knows this process and lets it do nothing: waiting does not help."""


class Retired(JournalFailure):
    """Records that were asked for are deleted: a newer snapshot has what they led to."""


USE_ANOTHER = "use another backup"
Explain = Callable[[BaseException, str], JournalFailure]

_OF_SEVERAL = "Multiple connection attempts failed. All failures were: - "
"""What the driver says between the last failure and all of them."""
_NO_ROOM = "No space left on device"
# A part of the driver's message -> what a person should know.
_MEANINGS = (
    ("file is not a database", "this file is not a SQLite database: name another, or move it away"),
    ("database disk image is malformed", "the database is damaged: restore a backup"),
    ("malformed database schema", "the database is damaged: restore a backup"),
    ("codec can't decode", "the database is damaged: restore a backup"),
    ("database or disk is full", "the disk is full: make room and start again"),
    ("disk I/O error", "the disk refused a read or write (I/O error; full, or a quota reached?)"),
    ("database is locked", "another program holds a lock on the database: end it and start again"),
    ("readonly database", "no permission to write the database"),
    ("unable to open database file", "the database cannot be opened: do folder and rights fit?"),
    ("UNIQUE constraint failed", "a second writer: this record is already in the journal"),
    ("duplicate key", "a second writer: this record is already in the journal"),
)


def explain(error: BaseException, place: str) -> JournalFailure:
    """The failure to report for a driver's error at ``place``."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(cause).split())
    text = text.partition(_OF_SEVERAL)[2] or text
    refusal = refusal_of(text) if place.startswith("postgresql") else None
    if refusal is not None:
        kind = JournalFailure if refusal.waits else NotAdmitted
        return kind(told(refusal, place, text))
    if _NO_ROOM in text:
        return Full(f"{place}: the disk of the database is full: make room there [{text}]")
    for part, meaning in _MEANINGS:
        if part in text:
            return JournalFailure(f"{place}: {meaning} [{text}]")
    return JournalFailure(f"{place}: {text}")


# The same of a backup, from which nothing can be restored then. All else is damage.
_MEANINGS_OF_BACKUP = (
    ("unable to open database file", "the backup cannot be opened: may this user read it?"),
    ("disk I/O error", "the disk refused to read the backup: try again, or use another one"),
    ("database is locked", "another program holds a lock on the backup: end it and try again"),
)


def explain_backup(error: BaseException, place: str) -> JournalFailure:
    """The failure to report for a driver's error while a backup at ``place`` is read."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(cause).split())
    if isinstance(cause, OSError):
        return JournalFailure(f"{place}: the backup cannot be read: {cause.strerror or text}")
    meanings = (meaning for part, meaning in _MEANINGS_OF_BACKUP if part in text)
    meaning = next(meanings, f"the backup is damaged: {USE_ANOTHER}")
    return JournalFailure(f"{place}: {meaning} [{text}]")


@contextmanager
def explained(place: str, explain: Explain = explain) -> Iterator[None]:
    """Turn errors of the driver or the file system into `JournalFailure`."""
    try:
        yield
    except (SQLAlchemyError, OSError, UnicodeDecodeError) as error:
        raise explain(error, place) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("psycopg", "sqlite3"):
            raise
        raise explain(error, place) from error  # of an insert, which does not pass SQLAlchemy
