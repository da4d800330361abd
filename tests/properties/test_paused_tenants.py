"""Paused tenants: whatever comes and goes, nothing of a paused branch starts, and nothing is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import invariants
from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.reason import PendingReason
from topmast.model.states import TERMINAL, JobState

TENANTS = (
    tenant("a", H100=16), tenant("a.b", "a", H100=8), tenant("a.b.c", "a.b"), tenant("other"),
)  # fmt: skip
NAMES = tuple(spec.name for spec in TENANTS)

SUBMIT, PAUSE, DRAIN, RESUME, FINISH, HOLD, RELEASE, CRASH = range(8)
STEPS = st.lists(
    st.tuples(
        st.sampled_from((SUBMIT, SUBMIT, SUBMIT, PAUSE, DRAIN, RESUME, FINISH, HOLD, RELEASE, CRASH)),
        st.integers(0, 3), st.sampled_from((1, 4, 8)), st.booleans(),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


def above(name: str) -> set[str]:
    """A tenant and those above it, by the names of this file."""
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def step(world: World, what: int, which: int, gpus: int, preemptible: bool) -> None:
    """One thing that people or time do."""
    name = NAMES[which]
    alive = [j for j, r in world.jobs.items() if r.state not in TERMINAL]
    running = [j for j in alive if world.state(j) is JobState.RUNNING]
    some = (alive[which % len(alive)],) if alive else ()
    if what == SUBMIT:
        world.submit(job(gpus=gpus, tenant=name, preemptible=preemptible))
    elif what in (PAUSE, DRAIN):
        world.tell(ids.QUEUE, m.PauseTenant(name, "ann", drain=what == DRAIN))
    elif what == RESUME:
        world.tell(ids.QUEUE, m.ResumeTenant(name, "ann"))
    elif what == FINISH and running:
        world.finish(running[which % len(running)])
    elif what == HOLD and some:
        world.tell(ids.QUEUE, m.HoldJobs(some, "ann"))
    elif what == RELEASE and some:
        world.tell(ids.QUEUE, m.ReleaseJobs(some, "ann"))
    elif what == CRASH:
        world.snapshot() if preemptible else None
        world.crash()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_nothing_of_a_paused_branch_starts(steps: list[tuple[int, int, int, bool]]) -> None:
    """A job with GPUs had them before the pause; when all is resumed, all comes to its end."""
    world = World(fleet(cluster("east-1"), tenants=TENANTS))
    paused = set[str]()
    for what, which, gpus, flag in steps:
        before = {j: r.epoch for j, r in world.jobs.items()}
        step(world, what, which, gpus, flag)
        if what in (PAUSE, DRAIN):
            paused.add(NAMES[which])
        elif what == RESUME:
            paused.discard(NAMES[which])
        assert set(world.queue.tenancy.paused) == paused
        for name, record in world.jobs.items():
            if not paused & above(record.spec.tenant) or record.state in TERMINAL:
                continue
            assert record.epoch == before.get(name, 0), f"{name} started though it is paused"
            if record.plan is None and not record.hold:
                verdict = world.queue.verdict_on(record)
                assert verdict is not None
                assert verdict.reason is PendingReason.TENANT_PAUSED
        invariants.check_all(world)
    for name in NAMES:
        world.tell(ids.QUEUE, m.ResumeTenant(name, "ann"))
    world.tell(ids.QUEUE, m.ReleaseJobs(tuple(world.jobs), "ann"))
    while running := [j for j in world.jobs if world.state(j) is JobState.RUNNING]:
        world.finish(running[0])
    left = {name: world.state(name) for name in world.jobs if world.state(name) not in TERMINAL}
    assert not left, "it may start, and did not"
    invariants.check_rest(world)
    invariants.check_rebuilds(world)
