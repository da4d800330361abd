"""What an explanation claims is true: every host is counted once, and each change really gives a place.

A change is checked by bringing it about in a world like the one that was explained, with the real
machines: before it the job waits, after it the job is placed (or its data is on the way).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.properties.test_search import used_columns
from tests.support.build import ask, cluster, fleet, job, profile
from tests.support.strategies import bounded, jobs, small_fleets
from tests.support.world import World
from topmast.fast.region.explain.changes.hosts import fewest_to_gain
from topmast.fast.region.explain.rejections import Verdicts
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search.domains import Space
from topmast.model.dataset import ReplicaState
from topmast.model.fleet import Fleet, TenantSpec
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Level, TaskGroup
from topmast.model.reason import Change, ChangeKind
from topmast.model.states import WAITING, HostState, JobState
from topmast.model.views import Explanation
from topmast.policies.options import Preemption
from topmast.service.explain import explain_spec

# --- hosts ------------------------------------------------------------------------------------------------


@bounded(400)
@given(used_columns(), jobs(), st.booleans())
def test_every_host_is_counted_once(columns: Columns, spec: JobSpec, avoids: bool) -> None:
    """Rejections and the hosts that fit add up to the hosts of the cluster, whatever was found.

    The hosts that a map colours are those that are counted.
    """
    avoid_hosts = (columns.hosts[0].name,) if avoids else ()
    question = ask(spec, avoid_hosts=avoid_hosts)
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    for name, rows in columns.clusters.items():
        found = search.best(question, name)
        verdicts = Verdicts(search, question, preempt=True)
        told, rejected = verdicts.of(name, found), verdicts.rejected(name, found)
        assert Counter(rejected.values()) == {one.reason: one.count for one in told.rejections}
        assert set(rejected) <= {columns.hosts[row].name for row in rows}
        assert sum(count.count for count in told.rejections) + told.fitting_hosts == told.hosts
        assert told.hosts == len(rows)
        assert (told.fitting_hosts > 0) is (found is not None)
        assert all(count.count > 0 for count in told.rejections)


@bounded(400)
@given(used_columns(), jobs())
def test_a_place_is_seen_where_the_search_finds_a_plan(columns: Columns, spec: JobSpec) -> None:
    """The quick look and the search agree, for gangs of one group; of several, it claims no more."""
    question = ask(spec)
    found = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0).best(question)
    seen = Space(columns).place_for(question)
    event("fits" if found else "fits nowhere")
    if len(spec.groups) == 1 or seen is not None:
        assert (found is None) == (seen is None)


@bounded(300)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=7
    ),
    st.integers(1, 9),
)
def test_no_fewer_hosts_would_do(hosts: list[tuple[int, int, int]], count: int) -> None:
    """The hosts named are the fewest of one domain that bring its tasks up to the count."""
    domain, now, gain = (np.array(part, dtype=np.int64) for part in zip(*hosts, strict=True))
    found = fewest_to_gain(domain, now, gain, count)
    fewest = []
    for number in sorted(set(domain.tolist())):
        here = np.flatnonzero(domain == number)
        missing = count - int(now[here].sum())
        gains = sorted(gain[here].tolist(), reverse=True)
        enough = [n for n in range(len(gains) + 1) if sum(gains[:n]) >= missing]
        fewest += enough[:1] if missing > 0 else []
    assert (None if found is None else len(found)) == min(fewest, default=None)
    if found is not None:
        assert len(set(domain[found].tolist())) == 1
        assert len(set(found.tolist())) == len(found)


# --- changes ----------------------------------------------------------------------------------------------


@dataclass
class Story:
    """A fleet, the jobs that run in it, and one that comes too late."""

    fleet: Fleet
    before: list[JobSpec]
    down: list[str]
    spec: JobSpec
    after_s: float

    def world(self, **options: Any) -> World:
        """The fleet with all that runs; no job waits, so that what comes free is the last one's."""
        world = World(self.fleet, profile(**{"min_runtime_s": 100.0, **options}))
        for spec in self.before:
            world.submit(spec)
        world.advance(self.after_s)
        for host in self.down:
            world.set_host(host, HostState.CORDONED)
        for name in [name for name, record in world.jobs.items() if record.state in WAITING]:
            world.cancel(name)
        return world


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A small fleet, rather full."""
    fleet = draw(small_fleets())
    if draw(st.booleans()):
        fleet = replace(fleet, links=())
    if draw(st.booleans()):
        first, *others = fleet.datasets
        fleet = replace(fleet, datasets=(replace(first, allowed=("east",)), *others))
    hosts = [h.name for r in fleet.regions for c in r.clusters for h in c.hosts]
    before = draw(st.lists(jobs(), min_size=2, max_size=8))
    down = draw(st.lists(st.sampled_from(hosts), max_size=1))
    spec = draw(jobs())
    if draw(st.booleans()):
        spec = replace(spec, datasets=("here",))
    return Story(fleet, before, down, spec, draw(st.sampled_from([0.0, 50.0, 200.0])))


def _told(world: World, spec: JobSpec) -> Explanation:
    return explain_spec(world.queue, world.machines.placers, spec, world.now)


def _placed(world: World, spec: JobSpec) -> bool:
    """Whether a job gets a place now, or its data is on the way to one."""
    (name,) = world.submit(spec)
    copies = [c for c in world.queue.data.catalogue.copies.values() if c.dataset in spec.datasets]
    waits = world.reason(name) == "WaitingForData"
    return world.jobs[name].epoch > 0 or (waits and bool(copies))


def _resized(spec: JobSpec, change: Change, of: Callable[[TaskGroup, int], TaskGroup]) -> JobSpec:
    assert isinstance(change.to, float)
    value = int(change.to)
    groups = tuple(of(g, value) if g.name == change.group else g for g in spec.groups)
    return replace(spec, groups=groups)


def _with_gpus(group: TaskGroup, gpus: int) -> TaskGroup:
    listed = group.resources.accelerators
    fewer = tuple(replace(a, gpus_milli=min(a.gpus_milli, gpus * MILLI)) for a in listed)
    return replace(group, resources=replace(group.resources, accelerators=fewer))


def _with_model(spec: JobSpec, model: str) -> JobSpec:
    def other(group: TaskGroup) -> TaskGroup:
        listed = group.resources.accelerators
        instead = (Accelerator(model, listed[0].gpus_milli),) if listed else ()
        return replace(group, resources=replace(group.resources, accelerators=instead))

    return replace(spec, groups=tuple(other(group) for group in spec.groups))


def changed_spec(spec: JobSpec, change: Change) -> JobSpec:
    """The job as a change would have it."""
    to = change.to
    match change.kind:
        case ChangeKind.TOPOLOGY:
            return replace(spec, topology=replace(spec.topology, required=Level[str(to).upper()]))
        case ChangeKind.TASKS:
            return _resized(spec, change, lambda g, n: replace(g, count=n))
        case ChangeKind.GPUS:
            return _resized(spec, change, _with_gpus)
        case ChangeKind.CPUS:
            cpus = float(to or 0.0)
            groups = tuple(
                replace(g, resources=replace(g.resources, cpus=cpus))
                if g.name == change.group
                else g
                for g in spec.groups
            )
            return replace(spec, groups=groups)
        case ChangeKind.MODEL:
            return _with_model(spec, str(to))
        case ChangeKind.PRIORITY:
            return replace(spec, band=Band[str(to).upper()])
        case ChangeKind.PREEMPTIBLE:
            return replace(spec, preemptible=True)
    return spec


def change_world(world: World, change: Change) -> None:
    """Bring about what a change says of the world."""
    match change.kind:
        case ChangeKind.ENDS | ChangeKind.HOSTS:
            for name in change.jobs:
                world.start(name)
                world.finish(name)
        case ChangeKind.SERVICE:
            for host in change.hosts:
                world.set_host(host, HostState.HEALTHY)
        case ChangeKind.PATIENCE:
            assert change.at_s is not None
            world.advance(change.at_s - world.now)
        case ChangeKind.QUOTA | ChangeKind.BORROW:
            field = "quota" if change.kind is ChangeKind.QUOTA else "borrow_limit"
            world.configure(replace(world.fleet, tenants=_raised(world.fleet, change, field)))
        case ChangeKind.RESIDENCY:
            record = world.queue.data.catalogue.datasets[str(change.was)]
            record.spec = replace(record.spec, allowed=None)
        case ChangeKind.DATA:
            for name in str(change.was).split(", "):
                world.queue.data.catalogue.datasets[name].replicas[str(change.to)] = (
                    ReplicaState.COMPLETE
                )


def _raised(fleet: Fleet, change: Change, field: str) -> tuple[TenantSpec, ...]:
    tenants = []
    for spec in fleet.tenants:
        limits = dict(getattr(spec, field) or {})
        for model, more in change.added_gpus.get(spec.name, {}).items():
            limits[model] = limits.get(model, 0) + more
        tenants.append(replace(spec, **{field: limits}) if spec.name in change.added_gpus else spec)
    return tuple(tenants)


@bounded(120)
@given(stories())
def test_after_each_change_the_job_has_a_place(story: Story) -> None:
    """Before it the job waits; after it, and it alone, the job is placed."""
    told = _told(story.world(), story.spec)
    if told.changes:
        world = story.world()
        (name,) = world.submit(story.spec)
        assert world.jobs[name].epoch == 0
    for change in told.changes:
        event(change.kind + (", and also" if change.also else ""))
        if change.also or change.kind is ChangeKind.COPY:
            continue
        world = story.world()
        change_world(world, change)
        assert _placed(world, changed_spec(story.spec, change)), change.text


@bounded(100)
@given(stories())
def test_a_job_that_waits_is_told_what_would_help(story: Story) -> None:
    """There is something to say of every job that cannot start, and nothing of one that can."""
    told = _told(story.world(), story.spec)
    event(told.reason or "starts")
    assert bool(told.would_help) is (told.reason is not None)
    assert told.reason is not None or not told.changes
    assert list(told.changes) == sorted(told.changes, key=lambda change: change.size)


@bounded(100)
@given(stories())
def test_the_prices_of_victims_add_up(story: Story) -> None:
    """Who would be stopped, with tenant, band and loss; the prices make up the term of the score."""
    told = _told(story.world(), story.spec)
    for plan in told.plans:
        assert sum(v["price"] for v in plan.victims) == (pytest.approx(plan.terms["preemption"]))
        for victim in plan.victims:
            assert set(victim) == {"job", "tenant", "band", "lost_gpu_s", "restart_gpu_s", "price"}


MOVING: dict[str, Any] = {
    "defragment": True,
    "defragment_after_s": 30.0,
    "defragment_gain": 0.1,
    "min_runtime_s": 1.0,
    "preemption": Preemption.NONE,
}


@st.composite
def fragmented(draw: st.DrawFn) -> Callable[[], World]:
    """A region whose free GPUs are spread over its hosts, as a story that can be told twice."""
    hosts = draw(st.integers(2, 4))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=2 * hosts, max_size=4 * hosts))
    stays = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    over = draw(st.lists(st.sampled_from(range(1, len(sizes) + 1)), unique=True, min_size=hosts))
    saved = draw(st.lists(st.sampled_from(range(1, len(sizes) + 1)), unique=True))

    def tell() -> World:
        world = World(fleet(cluster("east-1", hosts=hosts, gpus=4)), profile(**MOVING))
        for gpus, must in zip(sizes, stays, strict=True):
            world.submit(job(gpus=gpus, preemptible=not must))
        world.advance(50.0)
        for number in over:
            world.cancel(f"j{number}")
        for name in [name for name, record in world.jobs.items() if record.state in WAITING]:
            world.cancel(name)
        for number in saved:
            if world.jobs[f"j{number}"].state is JobState.RUNNING:
                world.checkpoint(f"j{number}", 1)
        return world

    return tell


@bounded(100)
@given(fragmented(), st.sampled_from([(1, 4), (1, 3), (2, 2), (2, 3), (2, 4)]))
def test_moves_that_are_foretold_are_made(
    tell: Callable[[], World], wanted: tuple[int, int]
) -> None:
    """The job waits, and when the time has come these very jobs make room for it; else none moves."""
    spec = job(count=wanted[0], gpus=wanted[1])
    foretold = [c for c in _told(tell(), spec).changes if c.kind is ChangeKind.MOVES]
    event(f"{len(foretold)} foretold")
    world = tell()
    (name,) = world.submit(spec)
    waits = world.jobs[name].epoch == 0
    world.advance(MOVING["defragment_after_s"])
    made = [f for f in world.plans() if f.job == name] if waits else []
    assert [[v.job for v in one.plan.victims] for one in made] == [list(c.jobs) for c in foretold]
    for change in foretold:
        assert change.at_s == world.now
