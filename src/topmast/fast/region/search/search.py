"""The exhaustive search: every cluster, GPU model, level and domain of a region for one gang."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET, Struct

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns, Floats
from topmast.fast.region.inventory.index import Index, index_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.search import compiled, loads, mixed, one_task
from topmast.fast.region.search.compiled import Spread
from topmast.fast.region.search.domains import Space, domains
from topmast.fast.region.search.loads import Loads
from topmast.fast.region.search.packing import Seated, gpus_of_task, seat_gang
from topmast.fast.region.search.scoring import by_shapes, choices_of, score_terms, total
from topmast.model.job import Level
from topmast.model.plan import PlacementRequest, Plan, Victim
from topmast.policies.options import Profile


def fewest_gpus_milli(ask: PlacementRequest) -> int:
    """Thousandths of GPUs that the gang needs at least, whichever accelerator it takes."""
    needs_milli = (
        sum([group.count * gpus_of_task(group.resources, choice) for group in ask.groups])
        for choice in choices_of(ask)
    )
    return min(needs_milli, default=0)


def order_of(plan: Plan) -> tuple[float, str, int]:
    """The plan with the least is the best."""
    return plan.score, plan.cluster, plan.in_slice


class Search(Struct, eq=False):
    """One question to one region's columns; the columns are only read."""

    region: str
    columns: Columns
    allocations: Mapping[str, Allocation]
    profile: Profile
    version: int
    """Of the region's books."""
    now: float

    def best(self, ask: PlacementRequest, cluster: str | None = None) -> Plan | None:
        """The plan with the lowest score (in ``cluster``, if given); ties by cluster, slice, order.

        Only free capacity counts here; `preemption.search` also finds plans with victims.
        """
        return self._best(ask, ask.cluster if cluster is None else cluster)

    def _best(self, ask: PlacementRequest, cluster: str | None) -> Plan | None:
        assert not ask.preempt, "PreemptiveSearch is for requests that may stop others"
        if compiled.applies(ask, self.profile.score):
            return self._compiled(ask, cluster)
        return self._free(ask, cluster)

    def _compiled(self, ask: PlacementRequest, cluster: str | None) -> Plan | None:
        index, weights = index_of(self.columns), self.profile.score
        terms, price = {self.columns.region: ask.terms}, self.profile.slices.price
        costs = compiled.costs_of(index, terms, weights, price, cluster)
        spread = self._spread(index, ask, costs)
        return None if spread is None else self.plan_of(ask, index, spread)

    def _spread(self, index: Index, ask: PlacementRequest, costs: Floats) -> Spread | None:
        """The place of least score, in clusters of finite ``costs`` (C)."""
        return compiled.best_spread(index, ask, self.profile.score, costs)

    def plan_of(
        self, ask: PlacementRequest, index: Index, spread: Spread, victims: tuple[Victim, ...] = ()
    ) -> Plan:
        """The plan that sits where the kernels found room, without these victims."""
        columns: Columns | Overlay = self.columns
        if victims:
            columns = Overlay(self.columns, [self.allocations[victim.job] for victim in victims])
        seated = compiled.seated(index, columns, ask, spread)
        return self.plan_at(ask, columns, seated, victims, spread.stranding)

    def _free(self, ask: PlacementRequest, cluster: str | None) -> Plan | None:
        columns, weights = self.columns, self.profile.score
        if one_task.applies(ask, weights):
            places = mixed.places_of(columns, ask, self.profile, cluster)
            found = one_task.best_seat(columns, ask, weights, places)
        elif mixed.applies(columns, ask, weights):
            question = mixed.question_of(columns, ask, self.profile, cluster)
            found = mixed.best_seats(columns, ask, weights, question)
        else:
            return min(self._one_by_one(ask, cluster), key=order_of, default=None)
        return None if found is None else self.plan_at(ask, columns, found)

    def _one_by_one(self, ask: PlacementRequest, cluster: str | None) -> Iterator[Plan]:
        space = Space(self.columns, self.columns.excluded(ask))
        columns = space.columns
        seen: set[tuple[object, ...]] = set()
        alike = self._alike(columns, ask)
        one_task = sum(group.count for group in ask.groups) == 1
        for domain in domains(space, ask):
            if cluster not in (None, domain.cluster):
                continue
            if domain.level is Level.HOST:
                # Hosts with the same free shares of GPUs score alike; ties go to the first that
                # takes the gang: groups that fit one by one may not fit together.
                free = sorted(columns.slots(int(domain.rows[0])).tolist())
                where = (domain.cluster, domain.time_slice)
                kind = (*where, domain.choice, tuple(free), *alike(int(domain.rows[0])))
                if kind in seen:
                    continue
            elif one_task:
                continue  # the one host it would sit on was looked at as a domain of its own
            seats = seat_gang(columns, domain.rows, ask.groups, domain.choice)
            if seats is None:
                continue
            if domain.level is Level.HOST:
                seen.add(kind)
            yield self.plan_at(ask, columns, domain.seated(seats))

    def _alike(self, columns: Columns, ask: PlacementRequest) -> Callable[[int], tuple[float, ...]]:
        """What tells hosts with the same free shares of GPUs apart, as far as the score goes."""
        if by_shapes(ask, self.profile.score):
            rest = (columns.model_of, columns.free_cpus, columns.free_memory, columns.gpus > 0)
            return lambda row: tuple(float(column[row]) for column in rest)
        if not loads.counts(ask, self.profile.score):
            return lambda row: ()
        step = Loads(columns, ask, self.profile.score).step
        return lambda row: (int(step[row]), int(columns.size_of[row]))

    def plan_at(
        self,
        ask: PlacementRequest,
        columns: Columns | Overlay,
        found: Seated,
        stopped: tuple[Victim, ...] = (),
        stranding: float | None = None,
    ) -> Plan:
        """The plan with its score; in ``columns`` the ``stopped`` attempts are gone already.

        ``stranding``: what it pays for the GPUs that it strands, where that is known.
        """
        lost_gpu_s = sum([v.lost_gpu_s for v in stopped]) if stopped else 0
        weights, seats, time_slice = self.profile.score, found.seats, found.time_slice
        terms = score_terms(
            ask,
            weights,
            columns,
            seats,
            found.level,
            found.choice,
            lost_gpu_s,
            time_slice,
            stranding,
        )
        if time_slice:
            terms["layer"] = self.profile.slices.price * time_slice
        held = sum([g.count * gpus_of_task(g.resources, found.choice) for g in ask.groups])
        with_gpus = next((seat.host for seat in seats if seat.slots), None)
        model = str(self.columns.models[self.columns.index[with_gpus]]) if with_gpus else ""
        return Plan(
            job=ask.job,
            region=self.region,
            cluster=found.cluster,
            model=model,
            gpus_milli=held,
            seats=seats,
            level=found.level,
            score=total(terms),
            terms=terms,
            victims=stopped,
            region_version=self.version,
            data_s=ask.terms.data_s,
            data_bytes=ask.terms.data_bytes,
            time_slice=time_slice or UNSET,
        )
