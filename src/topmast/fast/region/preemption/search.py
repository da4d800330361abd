"""The search with preemption: plans for which running attempts are stopped to make room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Floats
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.preemption import mixed as displacement
from topmast.fast.region.preemption.greedy import Chooser
from topmast.fast.region.preemption.plain import PlainPreemption
from topmast.fast.region.preemption.price import STOP, cost_gpu_s, eligible_victims, may_of
from topmast.fast.region.search import compiled, mixed, scoring
from topmast.fast.region.search.compiled import Spread
from topmast.fast.region.search.domains import Space, domains
from topmast.fast.region.search.packing import Seated
from topmast.fast.region.search.search import Search, order_of
from topmast.model.plan import PlacementRequest, Plan, Victim
from topmast.policies.options import Profile, ScoreWeights


def best_spread(
    index: Index,
    ask: PlacementRequest,
    profile: Profile,
    weights: ScoreWeights,
    cluster_cost: Floats,
    now: float,
) -> Spread | None:
    """The place of least score in clusters of finite cost (C), by stopping others if allowed."""
    if not ask.preempt:
        return compiled.best_spread(index, ask, weights, cluster_cost)
    may = may_of(ask)
    return PlainPreemption(index, ask, profile, weights, cluster_cost, now, may).best()


class PreemptiveSearch(Search):
    """A search that also stops attempts, where the request allows it."""

    def _best(self, ask: PlacementRequest, cluster: str | None) -> Plan | None:
        if not ask.preempt:
            return super()._best(ask, cluster)
        # Whether the index of the columns knows the attempts that this search may stop.
        is_indexed = self.columns.allocations is self.allocations
        if is_indexed and compiled.applies(ask, self.profile.score):
            return self._compiled(ask, cluster)
        eligible = eligible_victims(self.allocations, ask, self.profile, self.now)
        if not eligible:
            return None
        if mixed.applies(self.columns, ask, self.profile.score):
            return self._displacing(ask, cluster, eligible)
        return min(self._clearing(ask, cluster, eligible), key=order_of, default=None)

    def _spread(self, index: Index, ask: PlacementRequest, costs: Floats) -> Spread | None:
        return best_spread(index, ask, self.profile, self.profile.score, costs, self.now)

    def plan_of(
        self, ask: PlacementRequest, index: Index, spread: Spread, victims: tuple[Victim, ...] = ()
    ) -> Plan:
        """The plan that sits where the kernels found that its victims make room."""
        if spread.victims:
            jobs = sorted(index.holders.jobs[row][1] for row in spread.victims)
            victims = self._victims(ask, [self.allocations[job] for job in jobs])
        return super().plan_of(ask, index, spread, victims)

    def _victims(self, ask: PlacementRequest, gone: Iterable[Allocation]) -> tuple[Victim, ...]:
        return tuple(Victim(a.job, a.epoch, self._cost_gpu_s(ask, a)) for a in gone)

    def _cost_gpu_s(self, ask: PlacementRequest, attempt: Allocation) -> float:
        return cost_gpu_s(attempt, self.profile, self.now, may_of(ask))

    def gains_milli(self, allocations: Iterable[Allocation]) -> dict[str, int]:
        """By job, the GPUs that come free if it stops; 0 for one that may not be stopped now."""
        min_s, now = self.profile.min_runtime_s, self.now
        return {
            a.job: a.plan.gpus_milli if a.may_stop and a.start_s + min_s <= now else 0
            for a in allocations
        }

    def _clearing(
        self, ask: PlacementRequest, cluster: str | None, eligible: list[Allocation]
    ) -> Iterator[Plan]:
        """A plan per domain that may hold the gang without its victims, and may be the best."""
        columns, weights = self.columns.avoiding(self.columns.excluded(ask)), self.profile.score
        costs = [self._cost_gpu_s(ask, attempt) for attempt in eligible]
        chooser = Chooser(columns, eligible, costs, by_band=may_of(ask) == STOP)
        table = scoring.stranded_table(ask.mix, columns.width)
        tasks = sum(group.count for group in ask.groups)
        best = float("inf")
        for domain in domains(Space(columns.without(eligible)), ask):
            if cluster not in (None, domain.cluster):
                continue
            spared = min(tasks, len(domain.rows)) * (float(table.max()) + columns.width)
            least = scoring.fixed_cost(ask.terms, weights)
            least += scoring.choice_cost(ask, weights, domain.choice)
            locality = scoring.locality_cost(ask, weights, domain.level)
            least += locality - weights.fragmentation * spared
            if least >= best:
                continue
            chosen = chooser.choose(domain.rows, ask.groups, domain.choice)
            if chosen is not None:
                seats, stopped = chosen
                gone = Overlay(self.columns, [self.allocations[v.job] for v in stopped])
                plan = self.plan_at(ask, gone, domain.seated(seats), stopped)
                best = min(best, plan.score)
                yield plan

    def _displacing(
        self, ask: PlacementRequest, cluster: str | None, eligible: list[Allocation]
    ) -> Plan | None:
        weights = self.profile.score
        question = mixed.question_of(self.columns, ask, self.profile, cluster)
        eligible = sorted(eligible, key=lambda attempt: attempt.job)
        prices = [points(self._cost_gpu_s(ask, a), weights.preemption) for a in eligible]

        def plan_of(found: Seated, columns: Overlay, gone: list[Allocation]) -> Plan:
            return self.plan_at(ask, columns, found, self._victims(ask, gone))

        attempts = displacement.attempts_of(self.columns, eligible, prices)
        return displacement.MixedPreemption(self.columns, ask, question, attempts, plan_of).plan()
