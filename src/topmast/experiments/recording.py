"""A run as a state folder: what its machines decided, for `topmast replay`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from topmast.adapters.store import JOURNAL, PROFILE, SqlJournal, open_journal
from topmast.fast.queue import GlobalQueue
from topmast.model.errors import InvalidInput
from topmast.model.ids import Address
from topmast.model.messages import Message
from topmast.policies.options import Profile
from topmast.ports import Audit, Record
from topmast.runtime.audit import AuditLog
from topmast.runtime.codec import encode_event, encode_facts
from topmast.sim.simulation import Simulation

RECORDS_PER_COMMIT = 5_000


class Recording:
    """Writes what the machines of one run decide."""

    def __init__(self, journal: SqlJournal, queue: GlobalQueue) -> None:
        self._journal = journal
        self._queue = queue
        self._records: list[Record] = []
        self._audit_log = AuditLog(queue)
        self._seq = 0

    def note(self, to: Address, event: Message, facts: Sequence[Struct], now: float) -> None:
        """Take what a machine has just decided."""
        self._seq += 1
        record = Record(self._seq, now, to, encode_event(event), encode_facts(facts))
        self._records.append(record)
        self._audit_log.add(event, facts, now)
        if len(self._records) >= RECORDS_PER_COMMIT:
            self.write()

    def write(self) -> None:
        """Bring what was noted to the disk."""
        records, self._records = self._records, []
        log, self._audit_log = self._audit_log, AuditLog(self._queue)
        self._journal.append(records, Audit(log.history, log.attempts, log.jobs))


@contextmanager
def recorded(folder: Path | None, profile: Profile, simulation: Simulation) -> Iterator[None]:
    """Write a run into a folder while it lasts; None: nowhere. Raises InvalidInput."""
    if folder is None:
        yield
        return
    if (folder / JOURNAL).exists():
        raise InvalidInput(
            f"{folder} has a journal already", field="--record", remedy="name a new folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / PROFILE).write_bytes(msgspec.json.encode(profile))
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written: {error.strerror or error}", field="--record",
            remedy="name a folder that can be made",
        ) from error  # fmt: skip
    journal = open_journal(folder / JOURNAL)
    try:
        recording = Recording(journal, simulation.machines.queue)
        simulation.loop.note = recording.note
        yield
        recording.write()
    finally:
        journal.close()
