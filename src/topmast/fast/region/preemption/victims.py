"""The compiled search for victims: gangs of one group of tasks with whole GPUs, in all regions at once."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation_index import AllocationIndex
from topmast.fast.region.inventory.allocation_table import NONE, THRESHOLDS, threshold_of
from topmast.fast.region.inventory.arrays import Arrays
from topmast.fast.region.inventory.columns import Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.preemption import kernels as evictions
from topmast.fast.region.preemption.kernels import GOES, HAIR, OPEN_LIMIT, STAYS, UNDECIDED, Scratch
from topmast.fast.region.preemption.price import Terms, price_of
from topmast.fast.region.search.compiled import Choice, choices_in, question_of
from topmast.fast.region.search.kernels import NOWHERE, Question
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights

NODES_LIMIT = 200
"""How often a question branches on victims that sit on several hosts; exact if that suffices."""


class Cleared(Struct, frozen=True):
    """Where a gang would sit, and the rows of those who must go for it."""

    cluster: int
    choice: Choice
    rows: list[int]
    tasks: list[int]
    victims: list[int]


def cheapest(
    index: Index,
    ask: PlacementRequest,
    profile: Profile,
    weights: ScoreWeights,
    allowed: tuple[int, ...],
    cluster_cost: Floats,
    now: float,
) -> Cleared | None:
    """The place of least score, victims included, in all clusters of finite cost (C)."""
    if ask.band <= Band.OPPORTUNISTIC and ask.outranked is None:
        return None
    return hunt(index, ask, profile, weights, allowed, cluster_cost, now).best()


def hunt(
    index: Index,
    ask: PlacementRequest,
    profile: Profile,
    weights: ScoreWeights,
    allowed: tuple[int, ...],
    cluster_cost: Floats,
    now: float,
) -> Hunt:
    """A search for victims that has not begun."""
    choices = choices_in(index, ask, allowed)
    question = question_of(index, ask, weights, choices, cluster_cost)
    return Hunt(index, question, _terms(index, ask, profile, weights, now), choices)


def cheapest_among(
    index: Index,
    ask: PlacementRequest,
    profile: Profile,
    weights: ScoreWeights,
    allowed: tuple[int, ...],
    cluster_cost: Floats,
    now: float,
    among: NDArray[np.bool_],
) -> Cleared | None:
    """As `cheapest`, with victims of whatever band out of some rows (A), each at the weight of its band."""
    choices = choices_in(index, ask, allowed)
    if not choices:
        return None
    question = question_of(index, ask, weights, choices, cluster_cost)
    terms = _terms(index, ask, profile, weights, now)._replace(
        threshold=len(THRESHOLDS) - 1, by_name=True, named=among
    )
    return Hunt(index, question, terms, choices).best()


def _terms(
    index: Index, ask: PlacementRequest, profile: Profile, weights: ScoreWeights, now: float
) -> Terms:
    """On which terms attempts may be stopped for this gang."""
    holders, usable = index.holders, index.arrays.available
    if ask.avoid_hosts:
        usable = usable.copy()
        usable[index.rows_of(ask.avoid_hosts)] = False
    by_name = ask.outranked is not None
    threshold = len(THRESHOLDS) - 1 if by_name else threshold_of(ask.band)
    needs = ask.groups[0].resources
    return Terms(
        threshold=threshold,
        now=now,
        min_runtime_s=profile.min_runtime_s,
        restart_s=profile.restart_cost_s,
        per_gpu_hour=weights.preemption,
        by_name=by_name,
        named=holders.named(ask.outranked or ()),
        flat=by_name,
        usable=usable,
        cpus=cpus_of(needs),
        memory=float(needs.memory_bytes),
        shared=True,
    )


class Workspace:
    """Room for one search after the other; it grows with the attempts of the index."""

    def __init__(self, index: Index) -> None:
        self._holders = index.holders
        self._scratch: Scratch | None = None

    def scratch(self) -> Scratch:
        """Room for one search to work in."""
        size = len(self._holders.of_region)
        if self._scratch is None or len(self._scratch.fate) != size:
            self._scratch = Scratch(
                fate=np.zeros(size, np.int8),
                spread=np.zeros(size),
                charged=np.zeros(size),
                victim=np.zeros(size, np.bool_),
                gone=np.zeros(size, np.bool_),
                unsettled=np.zeros((OPEN_LIMIT, 5)),
            )
        return self._scratch


class Hunt:
    """One search; the best place so far, and what it costs."""

    def __init__(
        self, index: Index, question: Question, terms: Terms, choices: list[Choice]
    ) -> None:
        self.index = index
        self.arrays: Arrays = index.arrays
        self.holders: AllocationIndex = index.holders
        self.question = question
        self.terms = terms
        self.choices = choices
        self.scratch: Scratch = index.workspace(Workspace).scratch()
        self.nodes = 0
        self.score = np.inf
        self.found: Cleared | None = None

    def best(self) -> Cleared | None:
        """On one host, or on several of a section."""
        if self.choices:
            self._on_one_host()
        if self.choices and self.question.tasks > 1:
            self._in_a_section()
        return self.found

    def _on_one_host(self) -> None:
        q, p = self.question, self.terms
        gang = p._replace(cpus=p.cpus * q.tasks, memory=p.memory * q.tasks, shared=False)
        held = self.holders.held
        score, cluster, at, host = evictions.best_host(self.arrays, held, q, gang, self.scratch)
        if cluster == NOWHERE:
            return
        choice = self.choices[at]
        victims = evictions.victims_on(
            self.arrays, held, q, gang, self.scratch, host, choice.gpus * q.tasks
        )
        self.score = score
        self.found = Cleared(cluster, choice, [host], [q.tasks], victims.tolist())

    def _in_a_section(self) -> None:
        q, p, s = self.question, self.terms, self.scratch
        found = evictions.best_section(self.arrays, self.holders.held, q, p, s, self.score)
        score, cluster, at, level, section, count = found
        open_sections = sorted(s.unsettled[:count].tolist())
        if cluster != NOWHERE:
            self._settle(cluster, at, section, {})
            self.score = score
        for bound, cluster, at, level, section in open_sections:
            if bound < self.score - HAIR:
                self._branch(int(cluster), int(at), int(level), int(section))

    def _branch(self, cluster: int, at: int, level: int, section: int) -> None:
        """Decide about victims that sit on several hosts, one after the other."""
        q = self.question
        start = q.cluster_cost[cluster] + q.choice_cost[at] + q.level_cost[level]
        stack: list[dict[int, int]] = [{}]
        while stack and self.nodes < NODES_LIMIT:
            fates = stack.pop()
            self.nodes += 1
            base, bound, truth, branch = self.offer(at, section, fates)
            if start + base + truth < self.score - HAIR:
                self._settle(cluster, at, section, fates)
                self.score = start + base + truth
            if branch != NONE and start + base + bound < self.score - HAIR:
                stack += [{**fates, branch: STAYS}, {**fates, branch: GOES}]

    def offer(
        self, at: int, section: int, fates: dict[int, int]
    ) -> tuple[float, float, float, int]:
        """What is paid for those who go; bound, truth and branch of the rest."""
        hosts = self._hosts(section)
        taken: Ints = np.zeros(len(hosts), np.int64)
        return self._offer_to(hosts, taken, at, fates)

    def _offer_to(
        self, hosts: Ints, taken: Ints, at: int, fates: dict[int, int]
    ) -> tuple[float, float, float, int]:
        held, p, s = self.holders.held, self.terms, self.scratch
        base = 0.0
        for row, fate in fates.items():
            s.fate[row] = fate
            base += price_of(held, p, row) if fate == GOES else 0.0
        gpus = self.choices[at].gpus
        bound, truth, branch = evictions.section_offer(
            self.arrays, held, self.question, p, s, gpus, hosts, taken
        )
        for row in fates:
            s.fate[row] = UNDECIDED
        return base, bound, truth, branch

    def _settle(self, cluster: int, at: int, section: int, fates: dict[int, int]) -> None:
        """Write down the place that these decisions lead to."""
        hosts = self._hosts(section)
        taken: Ints = np.zeros(len(hosts), np.int64)
        self._offer_to(hosts, taken, at, fates)
        used = np.flatnonzero(taken)
        victims = set(evictions.marked(self.holders.held, self.scratch, hosts).tolist())
        victims |= {row for row, fate in fates.items() if fate == GOES}
        self.found = Cleared(
            cluster, self.choices[at], hosts[used].tolist(), taken[used].tolist(), sorted(victims)
        )

    def _hosts(self, section: int) -> Ints:
        start = self.arrays.member_start
        return self.arrays.members[start[section] : start[section + 1]]
