"""Clusters with an engine that cannot run a job count for nothing in its search."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.build import elastic, fleet, profile
from tests.support.invariants import check_all
from tests.support.strategies import bounded, clusters, jobs
from tests.support.world import World
from topmast.model.engines import PROCESSES, Capability
from topmast.model.fleet import ClusterSpec, TenantSpec
from topmast.model.job import JobSpec
from topmast.model.plan import capabilities_of
from topmast.policies.options import Preemption

TENANTS = (TenantSpec("a"), TenantSpec("b"))
ALL = tuple(sorted(Capability))
LACKING = {
    Capability.IMAGES: tuple(sorted(PROCESSES)),
    Capability.SHARES: tuple(c for c in ALL if c is not Capability.SHARES),
    Capability.ENV: tuple(c for c in ALL if c is not Capability.ENV),
}


@st.composite
def jobs_that_need(draw: st.DrawFn, capability: Capability) -> JobSpec:
    """Any job that needs an engine with the capability."""
    spec = replace(draw(jobs()), datasets=(), tenant=draw(st.sampled_from("ab")))
    if len(spec.groups) == 1 and draw(st.integers(0, 4)) == 0:
        spec = elastic(spec, 1, spec.tasks + 1)
    if capability is Capability.IMAGES:
        return replace(spec, image="site/train:1")
    if capability is Capability.ENV:
        return replace(spec, secrets={"TOKEN": "env:TOKEN"})
    group = spec.groups[0]
    listed = [replace(a, gpus_milli=300) for a in group.resources.accelerators]
    resources = replace(group.resources, accelerators=tuple(listed))
    return replace(spec, groups=(replace(group, resources=resources), *spec.groups[1:]))


@st.composite
def stories(
    draw: st.DrawFn,
) -> tuple[list[ClusterSpec], ClusterSpec, list[JobSpec], list[int], Preemption]:
    """Clusters that can, one that cannot, jobs that need it, which of them end, and a profile."""
    capability = draw(st.sampled_from(list(LACKING)))
    able = [replace(draw(clusters(name)), capabilities=ALL) for name in ("east-1", "east-2")]
    unfit = replace(
        draw(clusters(draw(st.sampled_from(["east-0", "east-3"])))),
        capabilities=LACKING[capability],
    )
    specs = draw(st.lists(jobs_that_need(capability), min_size=2, max_size=8))
    specs = [s for s in specs if capability in capabilities_of(s)]
    ends = draw(st.lists(st.integers(1, 8), max_size=3, unique=True))
    return able, unfit, specs, ends, draw(st.sampled_from(list(Preemption)))


def _played(
    given_clusters: list[ClusterSpec], specs: list[JobSpec], ends: list[int], stops: Preemption
) -> World:
    world = World(fleet(*given_clusters, tenants=TENANTS), profile(preemption=stops))
    for spec in specs:
        world.submit(spec)
        world.advance(1.0)
    for number in ends:
        name = f"j{number}"
        if name in world.jobs and world.jobs[name].cluster and not world.jobs[name].finished:
            world.finish(name)
        world.advance(1.0)
    return world


@bounded(120)
@given(stories())
def test_a_cluster_that_cannot_run_a_job_might_as_well_not_be_there(
    story: tuple[list[ClusterSpec], ClusterSpec, list[JobSpec], list[int], Preemption],
) -> None:
    """With preemption, moves, elastic jobs, several groups: each job sits as it would without."""
    able, unfit, specs, ends, stops = story
    there = _played([*able, unfit], specs, ends, stops)
    without = _played(able, specs, ends, stops)
    check_all(there)
    for name, record in without.jobs.items():
        found = there.jobs[name]
        assert (found.state, found.cluster, found.hosts, found.epoch) == (
            record.state, record.cluster, record.hosts, record.epoch,
        ), name  # fmt: skip
        assert there.reason(name) == without.reason(name), name
