"""How much of the past a journal keeps: snapshots thinned by age, and all records since then."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
PAST_S = 7 * DAY_S
PAST_RECORDS = 1_000_000
PAST_BYTES = 2**30


class Kept(Struct, frozen=True):
    """A snapshot: its record, its time, and the bytes of all records ever written before it."""

    seq: int
    at_s: float
    total_bytes: int


class Past(Struct, frozen=True):
    """How many snapshots are kept."""

    newest: int = 2
    """So many are kept, however old and large."""
    age_s: float = PAST_S
    """Older snapshots are kept up to this age,"""
    records: int = PAST_RECORDS
    """up to so many records,"""
    bytes: int = PAST_BYTES
    """and up to so many bytes of records."""

    def keep(self, found: Sequence[Kept]) -> list[Kept]:
        """Those to keep of all snapshots, newest first.

        The oldest of each hour of the last day, and of each day before: that choice never changes,
        so each gets old. O(snapshots).
        """
        if not found:
            return []
        last, times = found[0], {}
        for one in found:
            if self._reaches(last, one):
                times[_span(last.at_s, one.at_s)] = one.seq
        chosen = list(times.values())
        return [one for n, one in enumerate(found) if n < self.newest or one.seq in chosen]

    def _reaches(self, last: Kept, one: Kept) -> bool:
        return (
            last.at_s - one.at_s <= self.age_s
            and last.seq - one.seq <= self.records
            and last.total_bytes - one.total_bytes <= self.bytes
        )


def _span(now_s: float, at_s: float) -> tuple[float, int]:
    """The hour or day of a time."""
    length_s = HOUR_S if now_s - at_s <= DAY_S else DAY_S
    return length_s, int(at_s // length_s)
