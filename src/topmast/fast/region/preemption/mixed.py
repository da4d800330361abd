"""Room for gangs of several groups, of shares and of CPUs: their victims and seats.

Per domain, `branching` decides about the victims on several of its hosts; while one is undecided,
each of the hosts pays an equal part of the price.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns, Floats, Ints, cpus_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.preemption import variants
from topmast.fast.region.preemption.branching import (
    PREEMPT,
    UNDECIDED,
    BranchAndBound,
    Decisions,
    Offer,
)
from topmast.fast.region.preemption.variants import Held, HostVariants, Prices
from topmast.fast.region.search import host_options, mixed_kernels
from topmast.fast.region.search.host_options import Kinds
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE
from topmast.fast.region.search.mixed import (
    Question,
    everywhere,
    holds,
    hosts_of,
    micro,
    placed,
    tasks_on,
)
from topmast.fast.region.search.packing import Seated
from topmast.model.job import Level
from topmast.model.plan import PlacementRequest, Plan

PlanOf = Callable[[Seated, Overlay, list[Allocation]], Plan]
"""The plan for seats, on hosts from which the victims are gone, with its score."""


class Attempts(Struct, frozen=True):
    """The possible victims, the price of each, and what they hold."""

    victims: list[Allocation]
    prices: Floats
    held: Held
    host: Ints
    """(entries)"""


class Cheapest(Struct, frozen=True):
    """The least cost of a node, and which tasks and victims on which hosts it takes."""

    cost: float
    hosts: Ints
    tasks: Ints
    gone: list[tuple[int, int]]
    """(attempt, host)"""


class Domain(Struct, frozen=True):
    """A domain to be looked at, and the cost of being there."""

    choice: int
    hosts: Ints
    fixed: float


class MixedPreemption:
    """One question that needs room made."""

    def __init__(
        self,
        columns: Columns,
        ask: PlacementRequest,
        question: Question,
        attempts: Attempts,
        plan_of: PlanOf,
    ) -> None:
        self.columns = columns
        self.ask = ask
        self.q = question
        self.attempts = attempts
        self.plan_of = plan_of
        self.free = hosts_of(columns, ask)
        self.search = BranchAndBound()

    def plan(self) -> Plan | None:
        """The plan of least score; ties to the tightest level, then the first cluster, domain."""
        allowed = [level for level in Level if self.q.gang.level_cost[level] < INFINITE]
        wider = allowed[1:] if self.q.gang.total > 1 else []
        hosts = self._wanted()
        prices = self._prices(self.columns.domain[Level.HOST])
        kinds, _ = self._kinds(hosts, prices)
        self._look_at_level(Level.HOST, kinds)
        if wider:
            # A share of the widest domain is no more than one of a domain within it.
            shared = self._prices(self.columns.domain[wider[-1]])
            if not _equal(shared, prices):
                kinds, _ = self._kinds(hosts, shared)
        for level in wider:
            self._look_at_level(level, kinds)
        return self.search.plan

    def _look_at_level(self, level: Level, kinds: Kinds) -> None:
        """Go through the domains of a level, the least bound first, until none can be better."""
        gang, places = self.q.gang, self.q.places
        best, at = self.search.score, int(level)
        score, where = mixed_kernels.costs_at(gang, kinds, places, at, at + 1, best, False)
        rounded = np.round(score, 9)
        for n in np.lexsort((where[:, 3], where[:, 1], where[:, 0], rounded)).tolist():
            if score[n] >= self.search.score - EPSILON:
                break
            cluster, choice, _, place = where[n].tolist()
            hosts = self._hosts_of(level, cluster, place, kinds.of_host[choice])
            fixed = places.cost[cluster] + gang.choice_cost[choice] + gang.level_cost[level]
            self._look_at(Domain(choice, hosts, float(fixed)))

    def _hosts_of(self, level: Level, cluster: int, place: int, kind_of: Ints) -> Ints:
        """The useful hosts of a domain, numbered as by `mixed_kernels.costs_at`."""
        first, last = int(self.q.places.first[cluster]), int(self.q.places.last[cluster])
        numbers = self.columns.domain[level, first:last]
        wanted = numbers - numbers[0] == (place - first if level is Level.HOST else place)
        hosts: Ints = np.flatnonzero(wanted) + first
        useful: Ints = hosts[kind_of[hosts] != NOWHERE]
        return useful

    def _wanted(self) -> Ints:
        """The usable hosts of the clusters that may be used."""
        places = self.q.places
        spans = zip(places.first.tolist(), places.last.tolist(), places.cost.tolist(), strict=True)
        hosts = [np.arange(first, last) for first, last, cost in spans if cost < INFINITE]
        found: Ints = np.concatenate([*hosts, np.zeros(0, np.int64)])
        return found[self.free.usable[found]]

    def _prices(self, domain: Ints) -> Prices:
        """Each attempt's price shared by the hosts it is on in one domain."""
        held = self.attempts.held
        count = len(self.attempts.victims)
        keys = held.attempt * (len(domain) + 1) + domain[self.attempts.host]
        _, inverse, sharing = np.unique(keys, return_inverse=True, return_counts=True)
        on = sharing[inverse]
        price = self.attempts.prices[held.attempt] / on
        return Prices(np.full(count, UNDECIDED, np.int64), price, np.asarray(on == 1, np.bool_))

    def _kinds(self, hosts: Ints, prices: Prices) -> tuple[Kinds, HostVariants]:
        """What the hosts can take for which victims."""
        gang, total = self.q.gang, len(self.columns.hosts)
        seen = variants.variants_of(self.free, self.attempts.held, prices, hosts)
        count = len(seen.real)
        right = np.take(gang.right, seen.real, axis=2)
        kinds = host_options.kinds_of_hosts(
            seen.hosts, gang._replace(right=right), everywhere(count)
        )
        states = len(gang.vectors)
        options, start, of_host = variants.put_together(
            seen, kinds, prices.own, hosts, states, total
        )
        return host_options.summary(gang, options, start, of_host), seen

    # --- one domain -------------------------------------------------------------------------------

    def _look_at(self, domain: Domain) -> None:
        """Find the best plan of a domain, if it is better than that known."""
        numbers = np.arange(1, len(self.columns.hosts) + 1)
        numbers[domain.hosts] = 0
        self.search.look_at(partial(self._offer, domain, self._prices(numbers)))

    def _offer(self, domain: Domain, prices: Prices, decisions: Decisions) -> Offer | None:
        """A domain's offer for the gang under decisions; None if it is too dear or too small."""
        for attempt, fate in decisions.items():
            prices.settled[attempt] = fate
        seated = self._seat(domain, prices)
        going = [attempt for attempt, fate in decisions.items() if fate == PREEMPT]
        for attempt in decisions:
            prices.settled[attempt] = UNDECIDED
        bound = domain.fixed + sum(map(float, self.attempts.prices[going])) + seated.cost
        if bound >= self.search.score - EPSILON:
            return None
        plan = self._priced(domain, going, seated, prices)
        agreed = plan.score <= bound + EPSILON
        branch = None if agreed else self._contested(domain, seated)
        return Offer(bound, plan, branch)

    def _seat(self, domain: Domain, prices: Prices) -> Cheapest:
        kinds, seen = self._kinds(domain.hosts, prices)
        of_host = kinds.of_host[domain.choice]
        useful = domain.hosts[of_host[domain.hosts] >= 0]
        picked = np.empty(len(useful), np.int64)
        cost = mixed_kernels.seat(self.q.gang, kinds, domain.choice, useful, picked)
        tasks = tasks_on(self.q.gang, kinds, picked)
        at = {host: n for n, host in enumerate(domain.hosts.tolist())}
        gone: list[tuple[int, int]] = []
        for host, option in zip(useful.tolist(), picked.tolist(), strict=True):
            mask = int(kinds.options.mask[option]) if option >= 0 else 0
            entries = seen.entry[seen.entry_start[at[host]] :]
            taken = [int(entries[i]) for i in range(mask.bit_length()) if mask >> i & 1]
            gone += [(int(self.attempts.held.attempt[entry]), host) for entry in taken]
        return Cheapest(float(cost), useful, tasks, gone)

    def _contested(self, domain: Domain, seated: Cheapest) -> int | None:
        """The open victim of which most was not paid: it is wanted on some of its hosts alone."""
        wanted: dict[int, int] = {}
        for attempt, _ in seated.gone:
            wanted[attempt] = wanted.get(attempt, 0) + 1
        held, inside = self.attempts.held, set(domain.hosts.tolist())
        worst: tuple[float, int] | None = None
        for attempt in sorted(wanted):
            hosts = self.attempts.host[held.attempt == attempt].tolist()
            on = sum(host in inside for host in hosts)
            unpaid = float(self.attempts.prices[attempt]) * (1 - wanted[attempt] / on)
            if wanted[attempt] < on and (worst is None or unpaid > worst[0]):
                worst = (unpaid, attempt)
        return None if worst is None else worst[1]

    def _priced(self, domain: Domain, going: list[int], seated: Cheapest, prices: Prices) -> Plan:
        """The plan without all that a seating wants gone, except attempts that it does not need."""
        chosen = {attempt for attempt, _ in seated.gone}
        chosen |= set(going)
        shared = set(self.attempts.held.attempt[~prices.own].tolist())
        if chosen & shared:
            chosen = self._needed(domain.choice, chosen, seated)
        victims = [self.attempts.victims[n] for n in sorted(chosen)]
        free = Overlay(self.columns, victims)
        choice, hosts, tasks = domain.choice, seated.hosts, seated.tasks
        return self.plan_of(placed(free, self.ask, self.q, choice, hosts, tasks), free, victims)

    def _needed(self, choice: int, chosen: set[int], seated: Cheapest) -> set[int]:
        """Spare the victims without which the tasks fit on their hosts too, dearest first."""
        for attempt in sorted(chosen, key=lambda n: (-self.attempts.prices[n], n)):
            fewer = [self.attempts.victims[n] for n in sorted(chosen - {attempt})]
            free = hosts_of(self.columns.without(fewer), self.ask)
            if holds(free, self.q.gang, choice, seated.hosts, seated.tasks):
                chosen = chosen - {attempt}
        return chosen


def _equal(one: Prices, other: Prices) -> bool:
    return bool((one.price == other.price).all() and (one.own == other.own).all())


def attempts_of(columns: Columns, victims: list[Allocation], costs: list[float]) -> Attempts:
    """What the attempts hold, host by host. O(slots held)."""
    entries: dict[tuple[int, int], list[int]] = {}
    cpus: dict[tuple[int, int], int] = {}
    memory: dict[tuple[int, int], int] = {}
    ends = columns.offset.tolist()
    for number, victim in enumerate(victims):
        needs = victim.needs()
        sizes = {name: (micro(cpus_of(r)), r.memory_bytes) for name, r in needs.items()}
        for seat in victim.plan.seats:
            row = columns.find(seat.host, victim.plan.in_slice)
            if row is None:
                continue  # the host left the fleet
            key = (row, number)
            first, width = ends[row], ends[row + 1] - ends[row]
            held = entries.setdefault(key, [])
            for slot in seat.slots:
                if slot < width:  # the host may have lost GPUs in a new configuration
                    held += (first + slot, seat.slot_milli)
            size = sizes[seat.group]
            cpus[key] = cpus.get(key, 0) + size[0]
            memory[key] = memory.get(key, 0) + size[1]
    keys = sorted(entries)
    host = np.array([row for row, _ in keys], np.int64)
    pairs = np.array([x for key in keys for x in entries[key]], np.int64).reshape(-1, 2)
    lengths = [0, *(len(entries[key]) // 2 for key in keys)]
    held_by = Held(
        start=np.searchsorted(host, np.arange(len(columns.hosts) + 1)).astype(np.int64),
        attempt=np.array([number for _, number in keys], np.int64),
        cpus=np.array([cpus[key] for key in keys], np.int64),
        memory=np.array([memory[key] for key in keys], np.int64),
        slot_start=np.cumsum(lengths).astype(np.int64),
        slot=np.ascontiguousarray(pairs[:, 0]),
        milli=np.ascontiguousarray(pairs[:, 1]),
    )
    return Attempts(victims, np.array(costs, np.float64), held_by, host)
