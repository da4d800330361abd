"""What jobs read and took, written down as they end, and looked back at by periods.

An entry belongs to the time at which its job was submitted, and jobs that wait or run count as
they are expected to end: what a full region has served would say little of what it was asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.slow.arrays import Floats, Ints
from topmast.slow.data.demand import Kind
from topmast.slow.data.gangs import ALONE, Gang
from topmast.slow.forecast.history import History

DAY_S = 86_400.0
LEAST_AGE_S = 60.0
COLUMNS = ("_at_s", "_gpu_s", "_reading", "_kind")
Bars = Callable[[str, Gang], tuple[str, ...]]
"""The regions that cannot hold a gang on GPUs of a model."""


class Entry(Struct, frozen=True):
    """One attempt of a job: when the job was submitted, what it reads, its GPU-seconds of a
    model, its gang.
    """

    at_s: float
    tables: tuple[str, ...]
    kind: Kind
    gpu_s: float
    gang: Gang = ALONE


class Looked(Struct, frozen=True):
    """A history by periods, how long these are, and what its items and models stand for."""

    history: History
    period_s: float
    readings: tuple[tuple[str, ...], ...]
    kinds: tuple[Kind, ...]


class AccessLog:
    """Entries in the order in which they came. A *reading* is a set of tables that one job read."""

    def __init__(self) -> None:
        self._at_s = array("d")
        self._gpu_s = array("d")
        self._reading = array("q")
        self._kind = array("q")
        self._readings: dict[tuple[str, ...], int] = {}
        self._kinds: dict[tuple[Kind, Gang], int] = {}

    def __len__(self) -> int:
        return len(self._at_s)

    def note(self, entry: Entry) -> None:
        """Write an entry down. O(tables)."""
        tables = tuple(sorted(entry.tables))
        self._at_s.append(entry.at_s)
        self._gpu_s.append(entry.gpu_s)
        self._reading.append(self._readings.setdefault(tables, len(self._readings)))
        self._kind.append(self._kinds.setdefault((entry.kind, entry.gang), len(self._kinds)))

    def forget(self, before_s: float) -> None:
        """Strike out entries of jobs that were submitted before a time. O(entries)."""
        kept = [i for i, at_s in enumerate(self._at_s) if at_s >= before_s]
        if len(kept) < len(self):
            for name in COLUMNS:
                column = getattr(self, name)
                setattr(self, name, array(column.typecode, (column[i] for i in kept)))

    def look(
        self,
        tables: tuple[str, ...],
        now_s: float,
        periods: int,
        unfinished: Sequence[Entry] = (),
        period_s: float = DAY_S,
        bars: Bars = lambda model, gang: (),
    ) -> Looked:
        """The last ``periods`` whole periods before ``now_s``, of what reads nothing but
        ``tables``.

        A younger access_log has fewer, or one that is as long as the access_log is old. Tables
        that no job read are items too: their namespace says what to expect. O(entries + tables).
        """
        all_of_them = self._with(unfinished)
        at_s, gpu_s, reading, kind = all_of_them._columns()
        age_s = max(LEAST_AGE_S, now_s - float(at_s.min())) if len(at_s) else period_s
        period_s = min(period_s, age_s)
        days = max(1, min(periods, int(age_s // period_s)))
        known = set(tables)
        readings = [r for r in all_of_them._readings if r and known.issuperset(r)]
        seen = set(readings)
        readings += [(table,) for table in tables if (table,) not in seen]
        number = {r: i for i, r in enumerate(readings)}
        item_of = np.array([number.get(r, -1) for r in all_of_them._readings], np.int64)
        item = item_of[reading] if len(reading) else reading
        day = days - 1 - np.maximum(0, (now_s - at_s) // period_s).astype(np.int64)
        # The oldest entry of a young access_log is a period old to the second.
        day = np.where((day < 0) & (now_s - at_s <= days * period_s), 0, day)
        kept = (item >= 0) & (day >= 0)
        kinds, kind_of = all_of_them._told_apart(bars)
        history = History(
            days=days,
            namespace=_namespaces(readings),
            first_day=_first(day[kept], item[kept], len(readings), days),
            gone_day=np.full(len(readings), days + 1),
            day=day[kept],
            item=item[kept],
            model=kind_of[kind[kept]],
            gpu_s=gpu_s[kept],
            models=len(kinds),
        )
        return Looked(history, period_s, tuple(readings), kinds)

    def _with(self, entries: Sequence[Entry]) -> AccessLog:
        """A copy with more entries."""
        found = AccessLog()
        for name in COLUMNS:
            setattr(found, name, array(getattr(self, name).typecode, getattr(self, name)))
        found._readings, found._kinds = dict(self._readings), dict(self._kinds)
        for entry in entries:
            found.note(entry)
        return found

    def _told_apart(self, bars: Bars) -> tuple[tuple[Kind, ...], Ints]:
        """The kinds by the regions that cannot hold their gangs, and the number of each that was
        noted.
        """
        number: dict[Kind, int] = {}
        known = [replace(kind, barred=bars(kind.model, gang)) for kind, gang in self._kinds]
        of_noted = [number.setdefault(kind, len(number)) for kind in known]
        return tuple(number) or (Kind("", False),), np.array(of_noted, np.int64)

    def _columns(self) -> tuple[Floats, Floats, Ints, Ints]:
        """Times, GPU-seconds, readings and kinds [n]."""
        return (
            np.array(self._at_s, np.float64),
            np.array(self._gpu_s, np.float64),
            np.array(self._reading, np.int64),
            np.array(self._kind, np.int64),
        )


def namespace_of(table: str) -> str:
    """What a table's kin share with it: its name up to the last dot, slash or dash."""
    cut = max(table.rfind(mark) for mark in "./-")
    return table[:cut] if cut > 0 else ""


def _namespaces(readings: list[tuple[str, ...]]) -> Ints:
    number: dict[tuple[str, bool], int] = {}
    keys = [(namespace_of(r[0]), len(r) > 1) for r in readings]
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)


def _first(day: Ints, item: Ints, count: int, days: int) -> Ints:
    """The first period in which each item was read; ``days`` if it never was."""
    found = np.full(count, days, np.int64)
    np.minimum.at(found, item, day)
    return found
