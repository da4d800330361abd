"""The days before a generated day: a history from which the experiment's placement is forecast.

A generated trace is one day. The days before it have the same tables and the same distributions
of jobs, and nothing else in common: each draws its jobs anew. How popular a table is, a day's
readers tell only roughly: its rate is drawn from what the readers of the day allow (a Gamma
posterior), and drifts from day to day. Tables come and go: some of the day's are new and have no
past, and others that are gone filled the days before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.random import Generator

from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, Band
from topmast.slow.arrays import Floats, Ints
from topmast.slow.data.access_log import DAY_S, Entry
from topmast.slow.data.demand import Kind
from topmast.slow.data.gangs import Gang, Rooms
from topmast.slow.forecast.history import History
from topmast.traces.generate import generate
from topmast.traces.trace import Trace

DRIFT = 0.1
"""The standard deviation, from one day to the next, of the logarithm of a table's rate."""
NEW_A_DAY = 0.1
"""Of the tables, the part that appears on any one day: so many have no past at all. As many go."""


LEAST_DRAWN = 2_000
"""Jobs that are drawn at least, from which those of the past are taken."""


class Past(Struct, frozen=True):
    """A history, what its items and models stand for, and the same jobs as an access log has
    them, but for those that read tables that are gone.
    """

    history: History
    readings: tuple[tuple[str, ...], ...]
    kinds: tuple[Kind, ...]
    entries: tuple[Entry, ...]


def past_of(trace: Trace, fleet: Fleet, workload: str, days: int, seed: int) -> Past:
    """The ``days`` before the first day of ``trace``. O(days x jobs log jobs)."""
    rng = np.random.default_rng((seed, 0x9A57))
    tables = Tables.of(fleet)
    span_days = max(1, round(float(trace.submit_s[-1] - trace.submit_s[0]) / DAY_S))
    jobs = max(LEAST_DRAWN, len(trace) * days // span_days)
    drawn, _ = generate(workload, jobs, int(rng.integers(1 << 31)), float(days))
    kinds, kind = kinds_of(drawn, fleet)
    lives = _lives(tables, _rates(trace, tables, rng) / span_days, days, rng)
    day, table = _reads(lives, days, rng)
    row = rng.integers(0, len(drawn), len(day))
    count, spaces = len(tables.names), int(tables.namespace.max()) + 1
    together = rng.random(len(day)) < _pairs(trace)
    later = np.where(table < count, table, table + spaces)
    always = np.zeros(spaces, np.int64)

    def with_spaces(of_tables: Ints, of_spaces: Ints) -> Ints:
        """Items: the tables of today, all tables of each namespace together, tables that are
        gone.
        """
        return np.concatenate([of_tables[:count], of_spaces, of_tables[count:]])

    history = History(
        days=days,
        # Tables read together are kin of all other such: they are few in one namespace.
        namespace=with_spaces(lives.namespace, always + spaces),
        first_day=with_spaces(lives.born, always),
        gone_day=with_spaces(lives.gone, always + days + 1),
        day=day,
        item=np.where(together, count + lives.namespace[table], later),
        model=kind[row],
        gpu_s=(drawn.gpus * drawn.tasks * drawn.duration_s)[row],
        models=len(kinds),
    )
    own = np.flatnonzero(table < count)
    at_s = float(trace.submit_s[0]) - DAY_S * (days - day[own] - rng.random(len(own)))
    beside = np.where(together, tables.others(table % count, rng), -1)[own]
    entries = _entries(tables.names, drawn, row[own], at_s, table[own], beside)
    return Past(history, tables.readings(), kinds, entries)


def _entries(
    names: Sequence[str], drawn: Trace, row: Ints, at_s: Floats, table: Ints, beside: Ints
) -> tuple[Entry, ...]:
    """One [n] for each job: its row of ``drawn``, when it came, its table, a second one or -1."""
    models = [text.split("|")[0] for text in drawn.gpu_models.names]
    found = []
    for at, n, first, second in zip(
        at_s.tolist(), row.tolist(), table.tolist(), beside.tolist(), strict=True
    ):
        kind = Kind(models[drawn.gpu_models.codes[n]], bool(drawn.band[n] >= Band.HIGH))
        gang = Gang(int(drawn.tasks[n]), round(float(drawn.gpus[n]) * MILLI))
        gpu_s = float(drawn.gpus[n] * drawn.tasks[n] * drawn.duration_s[n])
        tables = (names[first],) if second < 0 else (names[first], names[second])
        found.append(Entry(at, tables, kind, gpu_s, gang))
    return tuple(found)


class Lives(Struct, frozen=True):
    """Tables of today, then tables that are gone: rate a day, namespace, and the days between."""

    rate: Floats
    namespace: Ints
    born: Ints
    gone: Ints


def _lives(tables: Tables, rate: Floats, days: int, rng: Generator) -> Lives:
    """As many tables on every day, on average: those that went were like those that are there."""
    count = len(rate)
    age = rng.geometric(NEW_A_DAY, count) - 1
    went = rng.integers(0, count, round(NEW_A_DAY * count * days))
    gone = rng.integers(1, days + 1, len(went))
    born = gone - rng.geometric(NEW_A_DAY, len(went))
    return Lives(
        rate=np.concatenate([rate, rate[went]]),
        namespace=np.concatenate([tables.namespace, tables.namespace[went]]),
        born=np.maximum(0, np.concatenate([days - age, born])),
        gone=np.concatenate([np.full(count, days + 1), gone]),
    )


class Tables(Struct, frozen=True):
    """The datasets of a fleet by number, and the namespace [d] of each: its name up to the last
    dot.
    """

    names: tuple[str, ...]
    namespace: Ints

    @classmethod
    def of(cls, fleet: Fleet) -> Tables:
        """Those of a fleet."""
        names = tuple(d.name for d in fleet.datasets)
        number: dict[str, int] = {}
        spaces = [number.setdefault(name.rpartition(".")[0], len(number)) for name in names]
        return cls(names, np.array(spaces, np.int64))

    def others(self, table: Ints, rng: Generator) -> Ints:
        """For each [n] another table of its namespace, drawn evenly; -1 where it is alone."""
        order = np.argsort(self.namespace, kind="stable")
        begins = np.searchsorted(self.namespace[order], self.namespace)
        sizes = np.bincount(self.namespace)[self.namespace]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        place -= begins
        further = 1 + (rng.random(len(table)) * (sizes[table] - 1)).astype(np.int64)
        found = order[begins[table] + (place[table] + further) % sizes[table]]
        return np.where(sizes[table] > 1, found, -1)

    def readings(self) -> tuple[tuple[str, ...], ...]:
        """Each table alone, then all tables of each namespace together."""
        spaces: list[list[str]] = [[] for _ in range(int(self.namespace.max()) + 1)]
        for name, space in zip(self.names, self.namespace.tolist(), strict=True):
            spaces[space].append(name)
        return (*((name,) for name in self.names), *(tuple(space) for space in spaces))


def kinds_of(trace: Trace, fleet: Fleet) -> tuple[tuple[Kind, ...], Ints]:
    """The kinds of work there are, and that [n] of each job: its first model, its band, the
    regions that cannot hold its gang.
    """
    models, rooms = fleet.models(), Rooms(fleet)
    known = {Kind(m, pressing): i for i, (m, pressing) in enumerate(product(models, (False, True)))}
    first = [names.split("|")[0] for names in trace.gpu_models.names]
    named = [name if name in models else models[0] for name in first]
    milli = np.rint(trace.gpus * MILLI).astype(np.int64)
    columns = (trace.gpu_models.codes, trace.band >= Band.HIGH, trace.tasks, milli)
    rows, which = np.unique(
        np.stack([np.asarray(column, np.int64) for column in columns]), axis=1, return_inverse=True
    )
    numbers = []
    for code, high, tasks, each in rows.T.tolist():
        barred = rooms.barred(named[code], Gang(tasks, each))
        numbers.append(known.setdefault(Kind(named[code], bool(high), barred), len(known)))
    return tuple(known), np.array(numbers, np.int64)[which.ravel()]


def _rates(trace: Trace, tables: Tables, rng: Generator) -> Floats:
    """A rate [d] for the whole trace that its readers allow: Gamma, as if nothing had been known
    before.
    """
    number = {name: i for i, name in enumerate(tables.names)}
    first = np.array([number.get(text.split("|")[0], -1) for text in trace.datasets.names])
    reads = first[trace.datasets.codes]
    readers = np.bincount(reads[reads >= 0], minlength=len(tables.names))
    return rng.gamma(np.maximum(readers, 0.5))


def _pairs(trace: Trace) -> float:
    """The part of jobs that read more than one table."""
    several = np.array(["|" in text for text in trace.datasets.names], np.float64)
    return float(several[trace.datasets.codes].mean())


def _reads(lives: Lives, days: int, rng: Generator) -> tuple[Ints, Ints]:
    """The day and the table of every read: Poisson, with rates that drift backwards in time."""
    found_days, found_tables = [], []
    factor = np.ones(len(lives.rate))
    for day in range(days - 1, -1, -1):
        factor *= np.exp(rng.normal(0.0, DRIFT, len(factor)) - DRIFT**2 / 2)
        alive = (lives.born <= day) & (day < lives.gone)
        table = np.repeat(np.arange(len(factor)), rng.poisson(lives.rate * factor * alive))
        found_tables.append(table)
        found_days.append(np.full(len(table), day))
    return np.concatenate(found_days), np.concatenate(found_tables)
