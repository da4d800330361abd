"""Plans of many gangs in columns: thousands that are alike cost one message, and a few lists.

For common gangs only: equal tasks with whole GPUs, no victims, all data there. What a `Plan` says
of one gang is a row here. The plans themselves are made from the columns once, when they are asked
for first, and go along with them from machine to machine of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise
from operator import itemgetter
from typing import Any, TypeVar

from msgspec import UNSET, Struct

from topmast.model.job import MILLI, Level
from topmast.model.plan import Plan, Seat

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

LEVELS = tuple(Level)
DIFFER = {"fragmentation": 0.0, "balance": 0.0}
"""The terms of a score in which plans that are alike differ."""


class GangKind(Struct, frozen=True, gc=False):
    """What the seats of some gangs have in common."""

    group: str
    tasks: int
    gpus: int
    """Of one task."""


class SeatColumns(Struct, frozen=True, dict=True):
    """Where the tasks of several gangs sit."""

    jobs: tuple[str, ...]
    kinds: tuple[GangKind, ...]
    kind: tuple[int, ...]
    """By job, which of them."""
    spans: tuple[int, ...]
    """By job, on how many hosts its tasks sit."""
    hosts: tuple[str, ...]
    """These hosts, of all jobs in a row."""
    tasks: tuple[int, ...]
    """By host, how many tasks sit there."""
    slots: tuple[int, ...]
    """The GPUs of all tasks in a row."""

    @classmethod
    def of(cls, jobs: Sequence[str], seats: Sequence[tuple[Seat, ...]]) -> SeatColumns:
        """Seats of common gangs in columns, each gang a kind of its own. O(seats)."""
        on_hosts = [
            [list(those) for _, those in groupby(gang, lambda seat: seat.host)] for gang in seats
        ]
        return cls(
            jobs=tuple(jobs),
            kinds=tuple([GangKind(g[0].group, len(g), len(g[0].slots)) for g in seats]),
            kind=tuple(range(len(seats))),
            spans=tuple([len(hosts) for hosts in on_hosts]),
            hosts=tuple([those[0].host for hosts in on_hosts for those in hosts]),
            tasks=tuple([len(those) for hosts in on_hosts for those in hosts]),
            slots=tuple([slot for gang in seats for seat in gang for slot in seat.slots]),
        )

    @classmethod
    def chosen(
        cls, parts: Sequence[SeatColumns], rows: Sequence[tuple[int, int]], jobs: Sequence[str]
    ) -> SeatColumns:
        """The seats of some gangs of several columns: for each, of which, and which row."""
        kinds, kind_of = _joined([part.kinds for part in parts])
        kind, spans = [], []
        hosts, tasks, slots = list[str](), list[int](), list[int]()
        for number, row in rows:
            part = parts[number]
            kind.append(kind_of[number][part.kind[row]])
            spans.append(part.spans[row])
            first, end = part._host_at[row], part._host_at[row + 1]
            hosts += part.hosts[first:end]
            tasks += part.tasks[first:end]
            slots += part.slots[part._slot_at[row] : part._slot_at[row + 1]]
        return cls(
            tuple(jobs), kinds, tuple(kind), tuple(spans), tuple(hosts), tuple(tasks), tuple(slots)
        )

    @cached_property
    def _host_at(self) -> list[int]:
        """By job, where its hosts begin, and where the last ones end."""
        return list(accumulate(self.spans, initial=0))

    @cached_property
    def _slot_at(self) -> list[int]:
        """By job, where its slots begin, and where the last ones end."""
        kinds = [kind.tasks * kind.gpus for kind in self.kinds]
        return list(accumulate([kinds[at] for at in self.kind], initial=0))

    @cached_property
    def hosts_each(self) -> list[tuple[str, ...]]:
        """By job, its hosts in the order of ranks. O(hosts) once."""
        hosts = self.hosts
        return [hosts[first:end] for first, end in pairwise(self._host_at)]

    @cached_property
    def seats(self) -> list[tuple[Seat, ...]]:
        """By job, the seats of its tasks. O(slots) once."""
        found: list[tuple[Seat, ...]] = []
        host, slot = 0, 0
        for at, span in zip(self.kind, self.spans, strict=True):
            kind = self.kinds[at]
            group, gpus, rank = kind.group, kind.gpus, 0
            if kind.tasks == 1:  # as most are
                slots = self.slots[slot : slot + gpus]
                found.append((Seat(group, 0, self.hosts[host], slots, MILLI),))
                host, slot = host + 1, slot + gpus
                continue
            seats: list[Seat] = []
            for number in range(host, host + span):
                name = self.hosts[number]
                for _ in range(self.tasks[number]):
                    seats.append(Seat(group, rank, name, self.slots[slot : slot + gpus], MILLI))
                    rank, slot = rank + 1, slot + gpus
            host += span
            found.append(tuple(seats))
        return found

    def take(self, rows: Sequence[int]) -> SeatColumns:
        """Some of the jobs. O(their slots)."""
        kinds, kind = _used(self.kinds, self.kind, rows)
        host_at, slot_at = self._host_at, self._slot_at
        found = SeatColumns(
            jobs=some(self.jobs, rows),
            kinds=kinds,
            kind=kind,
            spans=some(self.spans, rows),
            hosts=_runs(self.hosts, host_at, rows),
            tasks=_runs(self.tasks, host_at, rows),
            slots=_runs(self.slots, slot_at, rows),
        )
        if "seats" in self.__dict__:
            found.__dict__["seats"] = [self.seats[row] for row in rows]
        return found


class Terms(Struct, frozen=True, gc=False):
    """What the plans of some gangs have in common."""

    model: str
    level: int
    terms: dict[str, float]
    """Of the score; those that differ are 0 here."""


class PlanColumns(Struct, frozen=True, dict=True):
    """Plans of several gangs, in the order in which they were made."""

    seats: SeatColumns
    clusters: tuple[tuple[str, str], ...]
    """Regions and clusters."""
    cluster: tuple[int, ...]
    """By job, which of them."""
    terms: tuple[Terms, ...]
    of_terms: tuple[int, ...]
    """By job, which of them."""
    fragmentation: tuple[float, ...]
    """By job, this term of the score."""
    balance: tuple[float, ...]
    """By job, this term of the score."""
    versions: dict[str, int]
    """By region, the version of its books for which the first of its plans was made; for the next
    it is one more, and so on."""

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanColumns:
        """Plans of common gangs in columns, each with tables of its own. O(seats)."""
        rows = tuple(range(len(plans)))
        versions: dict[str, int] = {}
        for plan in plans:
            versions.setdefault(plan.region, plan.region_version)
        return cls(
            seats=SeatColumns.of([p.job for p in plans], [p.seats for p in plans]),
            clusters=tuple([(p.region, p.cluster) for p in plans]),
            cluster=rows,
            terms=tuple([Terms(p.model, int(p.level), {**p.terms, **DIFFER}) for p in plans]),
            of_terms=rows,
            fragmentation=tuple([p.terms.get("fragmentation", 0.0) for p in plans]),
            balance=tuple([p.terms.get("balance", 0.0) for p in plans]),
            versions=versions,
        )

    @classmethod
    def chosen(
        cls,
        parts: Sequence[PlanColumns],
        rows: Sequence[tuple[int, int]],
        jobs: Sequence[str],
        fragmentation: Sequence[float],
        balance: Sequence[float],
    ) -> PlanColumns:
        """Some of the plans of several columns: for each job, of which, and which row.

        ``fragmentation``, ``balance``: for each job, these terms of the score. O(their slots).
        """
        clusters, cluster_of = _joined([part.clusters for part in parts])
        terms, terms_of = _joined([part.terms for part in parts], _terms_key)
        cluster, of_terms = [], []
        versions: dict[str, int] = {}
        for number, row in rows:
            part = parts[number]
            at = cluster_of[number][part.cluster[row]]
            cluster.append(at)
            of_terms.append(terms_of[number][part.of_terms[row]])
            region = clusters[at][0]
            if region not in versions:
                versions[region] = part.versions[region]
        return cls(
            seats=SeatColumns.chosen([part.seats for part in parts], rows, jobs),
            clusters=clusters,
            cluster=tuple(cluster),
            terms=terms,
            of_terms=tuple(of_terms),
            fragmentation=tuple(fragmentation),
            balance=tuple(balance),
            versions=versions,
        )

    def __len__(self) -> int:
        return len(self.cluster)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that they are for."""
        return self.seats.jobs

    @cached_property
    def plans(self) -> list[Plan]:
        """The plans, one by one. O(slots) once."""
        alike = [
            (t.model, LEVELS[t.level], t.terms, itemgetter(*sorted(t.terms))) for t in self.terms
        ]
        gpus_milli = [kind.tasks * kind.gpus * MILLI for kind in self.seats.kinds]
        versions = dict(self.versions)
        found: list[Plan] = []
        for job, kind, seats, cluster, of_terms, fragmentation, balance in zip(
            self.seats.jobs, self.seats.kind, self.seats.seats, self.cluster, self.of_terms,
            self.fragmentation, self.balance, strict=True,
        ):  # fmt: skip
            model, level, shared, in_order = alike[of_terms]
            terms = shared.copy()
            terms["fragmentation"], terms["balance"] = fragmentation, balance
            region, name = self.clusters[cluster]
            version = versions[region]
            versions[region] = version + 1
            plan = Plan(
                job, region, name, model, gpus_milli[kind], seats, level, sum(in_order(terms)),
                terms, (), version, 0.0, 0, {}, UNSET,
            )  # fmt: skip
            found.append(plan)
        return found

    def take(self, rows: Sequence[int]) -> PlanColumns:
        """Some of the plans, for each region those without a gap. O(their slots)."""
        clusters, cluster = _used(self.clusters, self.cluster, rows)
        terms, of_terms = _used(self.terms, self.of_terms, rows)
        plans = self.plans
        versions: dict[str, int] = {}
        for row in rows:
            versions.setdefault(plans[row].region, plans[row].region_version)
        found = PlanColumns(
            seats=self.seats.take(rows),
            clusters=clusters,
            cluster=cluster,
            terms=terms,
            of_terms=of_terms,
            fragmentation=some(self.fragmentation, rows),
            balance=some(self.balance, rows),
            versions=versions,
        )
        found.__dict__["plans"] = [plans[row] for row in rows]
        return found


def some(column: Sequence[T], rows: Iterable[int]) -> tuple[T, ...]:
    """Some rows of a column."""
    return tuple([column[row] for row in rows])


def _runs(column: tuple[T, ...], starts: list[int], rows: Iterable[int]) -> tuple[T, ...]:
    return tuple(chain.from_iterable([column[starts[row] : starts[row + 1]] for row in rows]))


def _terms_key(terms: Terms) -> Hashable:
    return terms.model, terms.level, tuple(sorted(terms.terms.items()))


def _joined(
    tables: Sequence[Sequence[T]], key: Callable[[T], Hashable] = lambda one: one
) -> tuple[tuple[T, ...], list[list[int]]]:
    """One table of all that is in several, each once; for each table, where its entries are."""
    numbers: dict[Hashable, int] = {}
    found: list[T] = []
    places: list[list[int]] = []
    for table in tables:
        places.append([])
        for one in table:
            at = numbers.setdefault(key(one), len(found))
            if at == len(found):
                found.append(one)
            places[-1].append(at)
    return tuple(found), places


def _used(
    table: Sequence[Any], column: Sequence[int], rows: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The part of a table that some rows of a column refer to, and the column for it."""
    if len(table) == 1:
        return tuple(table), (0,) * len(rows)
    wanted = some(column, rows)
    numbers = {number: at for at, number in enumerate(dict.fromkeys(wanted))}
    return some(table, numbers), tuple([numbers[one] for one in wanted])
