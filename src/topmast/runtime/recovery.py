"""Rebuilding the machines from a journal: the newest snapshot, then the recorded facts."""

from __future__ import annotations

from msgspec import Struct

from topmast.ports import Journal
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


def rebuild(machines: Machines, journal: Journal, until_s: float | None = None) -> Rebuilt:
    """Bring fresh ``machines`` to the end of the journal, or to its state at ``until_s``.

    Recorded facts are applied; nothing is decided anew. O(snapshot + records after it).
    """
    snapshot = journal.latest_snapshot(until_s)
    seq, at_s = 0, 0.0
    if snapshot is not None:
        seq, at_s = snapshot.seq, snapshot.at_s
        for address, blob in snapshot.machines.items():
            machine = machines.at(address)
            if machine is not None:
                machine.restore(blob)
    snapshot_seq, replayed = seq, 0
    for record in journal.records(after=seq, until_s=until_s):
        machine = machines.at(record.machine)
        if machine is not None:
            event = decode_event(record.event)
            for fact in decode_facts(record.machine, record.facts):
                machine.apply(event, fact, record.at_s)
        seq, at_s = record.seq, max(at_s, record.at_s)
        replayed += 1
    return Rebuilt(seq, replayed, snapshot_seq, at_s)
