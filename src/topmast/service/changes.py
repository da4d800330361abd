"""Which change would let a waiting job start: one at a time, each really tried.

The regions try what concerns their hosts (`fast/region/explain/changes/`). Here the job, its
tenant's quota and its data are changed. Every trial asks what the queue would ask, of copies of its
state.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import Catalogue, DataCost, DatasetRecord, GlobalQueue, JobRecord
from topmast.fast.region import RegionalPlacer, Spot, region_changes
from topmast.model.dataset import ReplicaState
from topmast.model.decided import named
from topmast.model.job import Accelerator, Band, JobSpec
from topmast.model.plan import Binding, PlacementRequest, Plan
from topmast.model.reason import Change, ChangeKind, ClusterVerdict, Rejection, by_size
from topmast.model.units import format_bytes, format_duration
from topmast.policies.options import Preemption
from topmast.service.turns import WHOLE, Turns

MODELS_TRIED = 16
HOURS_WITHOUT_LINK = 24.0
"""So large is the change that puts a dataset where no link leads."""
IN_GENERAL = 0.5
"""The size of a change that is neither large nor small: another model, say."""


class Start(Struct, frozen=True):
    """A place that a job would have, and what its data costs there."""

    place: Spot
    cost: DataCost

    def __str__(self) -> str:
        if not self.cost.missing:
            return str(self.place)
        size, wait = format_bytes(self.cost.bytes), format_duration(self.cost.seconds)
        return f"{self.place}, after a copy of {size} in {wait}"


class RegionQuestion(Struct, frozen=True):
    """A request to a region about a job, and what the job's data costs there."""

    region: str
    ask: PlacementRequest
    cost: DataCost

    @property
    def near(self) -> bool:
        """Whether all its data is there: only then may others be preempted for it."""
        return not self.cost.missing


class World(Struct, frozen=True):
    """What a trial looks at: the queue's state, the regions, the time."""

    queue: GlobalQueue
    placers: Mapping[str, RegionalPlacer]
    spec: JobSpec
    record: JobRecord | None
    now: float
    bound: Binding | None = None
    """The only place that the job may have."""
    turns: Turns = WHOLE
    """The slices in which it is looked at."""
    ends: Mapping[str, float] | None = None
    """When jobs will be over by a forecast, if there is one."""

    def costs(self) -> dict[str, DataCost]:
        """What the job's data costs by region, as the queue sees it; only the bound one is open."""
        costs, bound = self.queue.data_costs(self.spec), self.bound
        if bound is None or bound.region not in costs:
            return costs
        sent = _name_of(bound)
        elsewhere = DataCost(barred=Rejection.BOUND_ELSEWHERE, detail=sent)
        return {r: cost if r == bound.region else elsewhere for r, cost in costs.items()}

    def ruled_out(self, cost: DataCost, cluster: str) -> Rejection | None:
        """Why a cluster of a region is none for the job, whatever is free there."""
        only = None if self.bound is None else self.bound.cluster
        elsewhere = Rejection.BOUND_ELSEWHERE if only not in (None, cluster) else None
        return cost.barred or elsewhere

    def within_bounds(
        self,
        placer: RegionalPlacer,
        ask: PlacementRequest,
        verdict: ClusterVerdict,
        plan: Plan | None,
    ) -> tuple[ClusterVerdict, Plan | None]:
        """A verdict as it is, or that the job was sent to another cluster."""
        only = None if self.bound is None else self.bound.cluster
        if self.bound is None or only in (None, verdict.cluster):
            return verdict, plan
        why, sent = Rejection.BOUND_ELSEWHERE, _name_of(self.bound)
        others = placer.barred(ask, self.now, why, sent)
        return next(other for other in others if other.cluster == verdict.cluster), None

    def questions(self) -> Iterator[RegionQuestion]:
        """What the queue would ask: within quota, then beyond; of regions not ruled out."""
        queue, record, spec = self.queue, self.record, self.spec
        costs = self.costs()
        only = None if self.bound is None else self.bound.cluster
        for over_quota in (False, True):
            choices = queue.allowed(spec, record, queue.tenancy.choices(spec, over_quota))
            held = queue.held_from(spec, record, over_quota)
            request = queue.request(
                spec, over_quota, choices, record=record, held=held, cluster=only
            )
            for region in sorted(self.placers) if choices else ():
                cost = costs.get(region, DataCost())
                if cost.barred is None:
                    ask = request.in_region(queue.terms(region, cost))
                    yield RegionQuestion(region, ask, cost)

    def start(self, *, gone: tuple[str, ...] = (), only: str | None = None) -> Start | None:
        """Where the job would start, once jobs are gone: where its data is, else where it may come.

        O(regions x hosts).
        """
        there = [q for q in self.questions() if only in (None, q.region)]
        for question in sorted(there, key=lambda q: not q.near):
            self.turns.pause()
            placer, near = self.placers[question.region], question.near
            place = placer.place(question.ask, self.now, preempt=near, gone=gone)
            if place is not None:
                return Start(place, question.cost)
        return None

    def with_spec(self, **fields: object) -> World:
        """The same world for a job that differs in some fields."""
        return replace(self, spec=replace(self.spec, **fields))


def _name_of(place: Binding) -> str:
    return place.region if place.cluster is None else f"{place.region}/{place.cluster}"


def in_regions(world: World) -> list[Change]:
    """What each region found; of the results within quota and beyond, the smaller change.

    Each region is tried on a copy, while the machines go on.
    """
    best: dict[tuple[object, ...], Change] = {}
    for question in world.questions():
        placer, cost = world.placers[question.region], question.cost
        trials = placer.trials(question.ask, world.now, preempt=question.near, ends=world.ends)
        with world.turns.aside():
            found = list(region_changes(trials))
        for change in found:
            told = change
            if cost.missing:
                size, wait = format_bytes(cost.bytes), format_duration(cost.seconds)
                text = f"{change.text}, after a copy of {size} in {wait}"
                told = replace(change, text=text, size=change.size + cost.seconds / 3600.0)
            key = (change.kind, change.region, change.cluster, change.group)
            if key not in best or told.size < best[key].size:
                best[key] = told
    return sorted(best.values(), key=by_size)


def told(kind: ChangeKind, text: str, size: float, start: Start, **more: object) -> Change:
    """A change after which there is a place."""
    place = start.place
    said, stops = f"{text}: {start}", place.preempting
    return Change(
        kind, said, size, place.region, place.cluster, preempting=stops,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def moved(plan: Plan, at_s: float, now: float) -> Change:
    """The moves of running jobs that a plan makes, and the wait until then."""
    jobs, wait_s = tuple(victim.job for victim in plan.victims), max(0.0, at_s - now)
    move = "moves" if len(jobs) == 1 else "move"
    text = (
        f"a wait of {format_duration(wait_s)}: then {named(jobs)} {move} to other hosts, "
        f"and there is room in {plan.region}/{plan.cluster}"
    )
    return Change(
        ChangeKind.MOVES, text, wait_s / 3600.0, plan.region, plan.cluster, jobs=jobs, at_s=at_s
    )


# --- the job ------------------------------------------------------------------------------------


def of_the_job(world: World) -> Iterator[Change]:
    """Another model, a higher band, or permission to be preempted. O(models + bands) trials."""
    yield from _other_models(world)
    yield from _higher_bands(world)
    if not world.spec.preemptible:
        start = world.with_spec(preemptible=True).start()
        if start is not None:
            text = "`preemptible: true`, so that it may borrow quota"
            yield told(ChangeKind.PREEMPTIBLE, text, IN_GENERAL, start, was="false", to="true")


def _other_models(world: World) -> Iterator[Change]:
    """Each GPU model that the job does not list, in place of those it does."""
    spec = world.spec
    listed = {a.model for g in spec.groups for a in g.resources.accelerators}
    if not listed or None in listed:
        return
    others = [model for model in world.queue.fleet.models() if model not in listed]
    for model in others[:MODELS_TRIED]:
        groups = tuple(
            replace(g, resources=replace(g.resources, accelerators=_instead(model, accelerators)))
            for g in spec.groups
            for accelerators in [g.resources.accelerators]
        )
        start = world.with_spec(groups=groups).start()
        if start is not None:
            text = f"GPU model {model}, which it does not list"
            was = ", ".join(sorted(str(name) for name in listed))
            yield told(ChangeKind.MODEL, text, IN_GENERAL, start, was=was, to=model)


def _instead(model: str, listed: tuple[Accelerator, ...]) -> tuple[Accelerator, ...]:
    return (Accelerator(model, listed[0].gpus_milli),) if listed else ()


def _higher_bands(world: World) -> Iterator[Change]:
    """The next higher band that helps."""
    spec = world.spec
    if world.queue.profile.preemption is not Preemption.BAND:
        return
    for band in sorted(band for band in Band if band > spec.band):
        start = world.with_spec(band=band).start()
        if start is not None:
            was, to = spec.band.name.lower(), band.name.lower()
            size = (band - spec.band) / Band.CRITICAL
            text = f"`priority: {to}` instead of {was}"
            yield told(ChangeKind.PRIORITY, text, size, start, was=was, to=to)
            return


# --- its data -----------------------------------------------------------------------------------


def of_data(world: World) -> Iterator[Change]:
    """Each region where only the job's data is missing or not allowed. O(regions) trials."""
    for region, cost in world.costs().items():
        bound = cost.barred is Rejection.BOUND_ELSEWHERE
        if bound or region not in world.placers or not (cost.missing or cost.barred):
            continue
        change = _if_it_were_there(world, region, cost)
        if change is not None:
            yield change


def copied(region: str, cost: DataCost, now: float) -> Change:
    """The copy that a job waits for, or would."""
    text = (
        f"the copy of {format_bytes(cost.bytes)} to {region}: about {format_duration(cost.seconds)}"
    )
    hours, ready_s = cost.seconds / 3600.0, now + cost.seconds
    return Change(
        ChangeKind.COPY, text, hours, region, to=float(cost.bytes),
        at_s=ready_s if cost.copying else None,
    )  # fmt: skip


def _if_it_were_there(world: World, region: str, cost: DataCost) -> Change | None:
    """All data of the job in one region, whatever prevents it; residency is separate."""
    residency = cost.barred is Rejection.RESIDENCY
    trial = copy.copy(world.queue)
    trial.data = copy.copy(trial.data)
    trial.data.catalogue = _catalogue_with(world, region, forbidden=residency)
    start = replace(world, queue=trial).start(only=region)
    if start is None:
        return None
    catalogue = world.queue.data.catalogue
    names = [
        name
        for name in world.spec.datasets
        if catalogue.datasets[name].replicas.get(region) is not ReplicaState.COMPLETE
    ]
    shown = ", ".join(names)
    if residency:
        text = f"leave for {cost.detail} to be in {region}, which its residency forbids"
        return told(ChangeKind.RESIDENCY, text, 1.0, start, was=cost.detail, to=region)
    size_bytes = sum(catalogue.datasets[name].spec.size_bytes for name in names)
    hours, how = _way(world, region, names, cost)
    text = f"{shown} in {region} ({format_bytes(size_bytes)}{how})"
    return told(ChangeKind.DATA, text, hours, start, was=shown, to=region)


def _way(world: World, region: str, names: list[str], cost: DataCost) -> tuple[float, str]:
    """How long a copy would take (hours), and why there is none, in words."""
    catalogue = world.queue.data.catalogue
    seconds = 0.0
    for name in names:
        source = catalogue.source(name, region)
        if source is None:
            if ReplicaState.COMPLETE not in catalogue.datasets[name].replicas.values():
                return HOURS_WITHOUT_LINK, "; no region has a complete replica to copy from"
            return HOURS_WITHOUT_LINK, "; no link leads there from a replica"
        rate = catalogue.links[source, region].bytes_per_s
        seconds = max(seconds, catalogue.datasets[name].spec.size_bytes / rate)
    full = "; its store has no room" if cost.barred is Rejection.STORAGE_FULL else ""
    return seconds / 3600.0, f", a copy takes {format_duration(seconds)}{full}"


def _catalogue_with(world: World, region: str, *, forbidden: bool) -> Catalogue:
    """The catalogue if the job's data were in a region; or, ``forbidden``, if it might be there."""
    known = world.queue.data.catalogue
    trial = copy.copy(known)
    trial.datasets = dict(known.datasets)
    for name in world.spec.datasets:
        record = known.datasets[name]
        spec, replicas = record.spec, dict(record.replicas)
        if forbidden:
            allowed = None if spec.allowed is None else (*spec.allowed, region)
            spec = replace(spec, allowed=allowed)
        else:
            replicas[region] = ReplicaState.COMPLETE
        trial.datasets[name] = DatasetRecord(spec, replicas)
    return trial
