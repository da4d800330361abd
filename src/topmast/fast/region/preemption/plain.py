"""The compiled preemption search: gangs of one group with whole GPUs, in all regions at once."""

from __future__ import annotations

from functools import partial

import numpy as np

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.allocation_table import (
    NONE,
    THRESHOLDS,
    AllocationTable,
    threshold_of,
)
from topmast.fast.region.inventory.arrays import Arrays
from topmast.fast.region.inventory.columns import Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.preemption import kernels
from topmast.fast.region.preemption.branching import (
    PREEMPT,
    UNDECIDED,
    BranchAndBound,
    Decisions,
    Offer,
)
from topmast.fast.region.preemption.host_offers import OPEN_LIMIT, Scratch
from topmast.fast.region.preemption.price import STOP, Terms, price_of
from topmast.fast.region.search.compiled import Spread, choices_in, question_of
from topmast.fast.region.search.kernels import EPSILON, NOWHERE
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights


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


class PlainPreemption:
    """One search for the victims of least cost, in all clusters of finite cost (C)."""

    def __init__(
        self,
        index: Index,
        ask: PlacementRequest,
        profile: Profile,
        weights: ScoreWeights,
        cluster_cost: Floats,
        now: float,
        may: int,
    ) -> None:
        needs, usable = ask.groups[0].resources, index.arrays.available
        if excluded := index.excluded(ask):
            usable = usable.copy()
            usable[excluded] = False
        self.index = index
        self.arrays: Arrays = index.arrays
        self.held: AllocationTable = index.holders.held
        self.choices = choices_in(index, ask)
        self.question = question_of(index, ask, weights, self.choices, cluster_cost)
        self.terms = Terms(
            threshold=threshold_of(ask.band) if may == STOP else len(THRESHOLDS) - 1,
            now=now,
            min_runtime_s=profile.min_runtime_s,
            restart_s=profile.restart_cost_s,
            per_gpu_s=points(1.0, weights.preemption),
            may=may,
            named=index.holders.named(ask.outranked or ()),
            usable=usable,
            cpus=cpus_of(needs),
            memory=float(needs.memory_bytes),
            shared=True,
        )
        """On which terms attempts may be stopped for this gang."""
        self.stops_any = bool(self.choices) and (ask.band > Band.OPPORTUNISTIC or may != STOP)
        self.scratch: Scratch = index.workspace(Workspace).scratch()
        self.search: BranchAndBound[Spread] = BranchAndBound()

    def best(self) -> Spread | None:
        """The place of least score, victims included: one host, or several of a section."""
        if not self.stops_any:
            return None
        self._on_one_host()
        if self.question.tasks > 1:
            self._in_a_section()
        return self.search.answer

    def _on_one_host(self) -> None:
        q, p = self.question, self.terms
        gang = p._replace(cpus=p.cpus * q.tasks, memory=p.memory * q.tasks, shared=False)
        found = kernels.best_host(self.arrays, self.held, q, gang, self.scratch)
        score, cluster, at, host = found
        if cluster == NOWHERE:
            return
        choice = self.choices[at]
        victims = kernels.victims_on(
            self.arrays, self.held, q, gang, self.scratch, host, choice.gpus * q.tasks
        )
        self.search.take(score, Spread(cluster, choice, [host], [q.tasks], victims.tolist()))

    def _in_a_section(self) -> None:
        q, p, s = self.question, self.terms, self.scratch
        found = kernels.best_section(self.arrays, self.held, q, p, s, self.search.score)
        score, cluster, at, _, section, count = found
        undecided = sorted(s.unsettled[:count].tolist())
        if cluster != NOWHERE:
            self.search.take(score, self._cleared(cluster, at, section, {}))
        for bound, *place in undecided:
            if bound < self.search.score - EPSILON:
                cluster, at, level, section = map(int, place)
                self.search.look_at(partial(self.offer, cluster, at, level, section))

    def offer(
        self, cluster: int, at: int, level: int, section: int, decisions: Decisions
    ) -> Offer[Spread]:
        """What a section offers for the gang under some decisions."""
        q = self.question
        start = q.cluster_cost[cluster] + q.choice_cost[at] + q.level_cost[level]
        hosts = self.index.hosts_in(section)
        taken: Ints = np.zeros(len(hosts), np.int64)
        paid, bound, truth, branch = self._offer_to(hosts, taken, at, decisions)
        return Offer(
            bound=start + paid + bound,
            score=start + paid + truth,
            branch=None if branch == NONE else branch,
            answer=partial(self._cleared, cluster, at, section, decisions),
        )

    def _offer_to(
        self, hosts: Ints, taken: Ints, at: int, decisions: Decisions
    ) -> tuple[float, float, float, int]:
        """What is paid for those decided to go; bound, truth and branch of the rest."""
        p, s, paid = self.terms, self.scratch, 0.0
        for row, fate in decisions.items():
            s.fate[row] = fate
            paid += price_of(self.held, p, row) if fate == PREEMPT else 0.0
        gpus = self.choices[at].gpus
        bound, truth, branch = kernels.section_offer(
            self.arrays, self.held, self.question, p, s, gpus, hosts, taken
        )
        for row in decisions:
            s.fate[row] = UNDECIDED
        return paid, bound, truth, branch

    def _cleared(self, cluster: int, at: int, section: int, decisions: Decisions) -> Spread:
        """The place that these decisions lead to."""
        hosts = self.index.hosts_in(section)
        taken: Ints = np.zeros(len(hosts), np.int64)
        self._offer_to(hosts, taken, at, decisions)
        used = np.flatnonzero(taken)
        victims = set(kernels.marked(self.held, self.scratch, hosts).tolist())
        victims |= {row for row, fate in decisions.items() if fate == PREEMPT}
        return Spread(
            cluster, self.choices[at], hosts[used].tolist(), taken[used].tolist(), sorted(victims)
        )
