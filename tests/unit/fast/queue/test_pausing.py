"""A tenant that is paused: nothing of its branch starts, whatever comes to it, until it is resumed."""

from __future__ import annotations

from msgspec import UNSET

from tests.support.build import cluster, fleet, job, tenant
from tests.support.invariants import check_all, check_rebuilds
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.reason import PendingReason
from topmast.model.states import JobState

TENANTS = (tenant("a", H100=16), tenant("a.b", "a", H100=8), tenant("other", H100=16))
WHY = "tenant a is paused by ann: over budget"


def world() -> World:
    """Two hosts of eight GPUs; b is below a."""
    return World(fleet(cluster("east-1"), tenants=TENANTS))


def tell(there: World, message: m.Message) -> object:
    """The queue's answer."""
    return there.tell(ids.QUEUE, message)


def pause(there: World, name: str = "a", *, drain: bool = False) -> object:
    """Pause a tenant."""
    return tell(there, m.PauseTenant(name, "ann", "over budget", drain))


def reason(there: World, name: str) -> tuple[PendingReason, str]:
    """Why a job waits."""
    verdict = there.queue.verdict_on(there.jobs[name])
    assert verdict is not None
    return verdict.reason, verdict.detail


def test_nothing_of_the_branch_starts_and_others_do() -> None:
    """Neither what waited, nor what comes; what runs goes on."""
    there = world()
    there.submit(job(gpus=8, tenant="a"))
    there.submit(*[job(gpus=8, tenant="other") for _ in range(2)])
    there.submit(job(gpus=8, tenant="a.b"))
    pause(there)
    there.submit(job(gpus=8, tenant="a"))
    assert there.state("j1") is JobState.RUNNING
    there.finish("j1")
    assert there.state("j3") is JobState.RUNNING, "it is not of the branch"
    there.finish("j2")
    for name in ("j4", "j5"):
        assert reason(there, name) == (PendingReason.TENANT_PAUSED, WHY)
    assert there.jobs["j4"].view(there.now, None).hold == WHY
    check_all(there)
    tell(there, m.ResumeTenant("a", "ann"))
    assert there.state("j4") is JobState.RUNNING
    check_all(there)


def test_a_drain_stops_what_may_be_preempted() -> None:
    """It waits again; what may not runs to its end."""
    there = world()
    there.submit(job(gpus=8, tenant="a"), job(gpus=8, tenant="a.b", preemptible=False))
    pause(there, drain=True)
    there.settle()
    assert there.state("j1") is JobState.PENDING
    assert reason(there, "j1") == (PendingReason.TENANT_PAUSED, WHY)
    assert there.state("j2") is JobState.RUNNING
    check_all(there)


def test_each_pause_of_a_branch_counts() -> None:
    """To resume the tenant above is not to resume the one below."""
    there = world()
    pause(there)
    pause(there, "a.b")
    there.submit(job(gpus=8, tenant="a.b"))
    tell(there, m.ResumeTenant("a", "ann"))
    assert reason(there, "j1")[1].startswith("tenant a.b is paused")
    tell(there, m.ResumeTenant("a.b", "ann"))
    assert there.state("j1") is JobState.RUNNING


def test_a_repetition_changes_nothing_and_an_unknown_tenant_is_refused() -> None:
    """Nor does it take the reason of the first."""
    there = world()
    pause(there)
    seq = len(there.journal.written)
    tell(there, m.PauseTenant("a", "bob"))
    assert len(there.journal.written) == seq
    assert there.queue.tenancy.paused == {"a": WHY}
    assert isinstance(pause(there, "c"), NotFound)
    assert isinstance(tell(there, m.ResumeTenant("c")), NotFound)


def test_a_pause_survives_a_crash_and_a_change_of_the_fleet() -> None:
    """From snapshot and journal alike; a tenant that goes takes its pause along."""
    there = world()
    there.submit(job(gpus=8, tenant="a.b"))
    pause(there)
    there.submit(job(gpus=8, tenant="a"))
    for restored in (False, True):
        if restored:
            there.snapshot()
        there.crash()
        assert reason(there, "j2") == (PendingReason.TENANT_PAUSED, WHY)
    check_rebuilds(there)
    moved = (tenant("a", H100=16), tenant("a.b", H100=8), tenant("other", H100=16))
    there.submit(job(gpus=8, tenant="a.b"))
    assert reason(there, "j3")[0] is PendingReason.TENANT_PAUSED
    there.configure(fleet(cluster("east-1"), tenants=moved))
    assert there.state("j3") is JobState.RUNNING, "it is not below a any more"
    assert there.jobs["j3"].paused is UNSET
    check_all(there)
