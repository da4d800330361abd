"""Rebuilding the machines from a journal: the newest snapshot, then the recorded facts."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from topmast.model.errors import UnknownRecord
from topmast.model.messages import Message
from topmast.ports import Journal, Record
from topmast.runtime.codec import decode_event, decode_facts
from topmast.runtime.machines import Machines


class Rebuilt(Struct, frozen=True):
    """What a recovery read."""

    seq: int
    """The last record."""
    replayed: int
    """How many records came after the snapshot."""
    snapshot_seq: int
    at_s: float
    """The latest recorded time."""


class Follower:
    """Machines that follow a journal: recorded facts are applied, and nothing is decided anew.

    Up to the end of the journal, or to its state at ``until_s``.
    """

    def __init__(self, machines: Machines, until_s: float | None = None) -> None:
        self.machines = machines
        self.rebuilt = Rebuilt(0, 0, 0, 0.0)
        self._until_s = until_s
        self._restored = False

    def _restore(self, journal: Journal) -> None:
        """Take up the newest snapshot. O(snapshot)."""
        snapshot = journal.latest_snapshot(self._until_s)
        if snapshot is None:
            return
        for address, blob in snapshot.machines.items():
            machine = self.machines.at(address)
            if machine is not None:
                machine.restore(blob)
        self.rebuilt = Rebuilt(snapshot.seq, 0, snapshot.seq, snapshot.at_s)

    def follow(self, journal: Journal) -> Rebuilt:
        """Apply the newest snapshot, once, and the records since the last call. O(these)."""
        if not self._restored:
            self._restore(journal)
            self._restored = True
        before = self.rebuilt
        seq, at_s, replayed = before.seq, before.at_s, before.replayed
        for record in journal.records(after=seq, until_s=self._until_s):
            machine = self.machines.at(record.machine)
            if machine is not None:
                event, facts = _read(record)
                for fact in facts:
                    machine.apply(event, fact, record.at_s)
            seq, at_s = record.seq, max(at_s, record.at_s)
            replayed += 1
            self.rebuilt = Rebuilt(seq, replayed, before.snapshot_seq, at_s)
        return self.rebuilt


def _read(record: Record) -> tuple[Message, list[Struct]]:
    """The event of a record, and its facts."""
    try:
        return decode_event(record.event), decode_facts(record.machine, record.facts)
    except msgspec.ValidationError as error:
        raise UnknownRecord(
            f"record {record.seq} is not of this version of Topmast: install the one that wrote it "
            f"({error})"
        ) from error


def rebuild(machines: Machines, journal: Journal, until_s: float | None = None) -> Rebuilt:
    """Bring fresh ``machines`` to the end of the journal, or to its state at ``until_s``."""
    return Follower(machines, until_s).follow(journal)
