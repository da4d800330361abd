"""What people do to jobs: held, suspended, stopped, requeued and changed, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue import JUDGES, Effect, judge_edit, judge_requeue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict, InvalidInput
from topmast.model.fleet import TenantSpec
from topmast.model.fleet_changes import fleet_changes, fleet_version
from topmast.model.job import Band, JobChanges
from topmast.model.reason import PendingReason, no_start
from topmast.model.states import JobState
from topmast.service.sentences import standing


def told(world: World, message: m.Message) -> object:
    """What the queue answers."""
    return world.tell(ids.QUEUE, message)


def full() -> World:
    """All GPUs are taken by j1, and j2 waits."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("first", gpus=8, count=2))
    world.submit(job("second", gpus=8, count=2))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING"}
    return world


def test_a_held_job_does_not_start_until_it_is_released() -> None:
    """Also when there is room, also in another process; and it says why it waits."""
    world = full()
    told(world, m.HoldJobs(("j2",), "ann", "wrong data"))
    world.finish("j1")
    world.advance(1_000)
    world.restart()
    assert world.state("j2") is JobState.PENDING
    verdict = world.queue.verdict_on(world.jobs["j2"])
    assert verdict is not None
    assert (verdict.reason, verdict.detail) == (PendingReason.HELD, "held by ann: wrong data")
    told(world, m.ReleaseJobs(("j2",), "ann"))
    assert world.state("j2") is JobState.RUNNING


def test_others_start_while_one_is_held() -> None:
    """It stands in nothing's way, though it came first."""
    world = full()
    world.submit(job("third", gpus=8, count=2))
    told(world, m.HoldJobs(("j2",)))
    world.finish("j1")
    assert world.states() == {"j1": "SUCCEEDED", "j2": "PENDING", "j3": "RUNNING"}


def test_a_running_job_that_is_held_goes_on_and_does_not_start_again() -> None:
    """The hold counts when it waits again."""
    world = full()
    told(world, m.HoldJobs(("j1",)))
    assert world.state("j1") is JobState.RUNNING
    told(world, m.PreemptJobs(("j1",)))
    world.advance(60)
    assert world.states() == {"j1": "PENDING", "j2": "RUNNING"}
    world.finish("j2")
    world.advance(1_000)
    assert world.state("j1") is JobState.PENDING


def test_a_suspended_job_lets_go_of_its_gpus_and_goes_on_when_resumed() -> None:
    """Another has them meanwhile."""
    world = full()
    told(world, m.HoldJobs(("j1",), "ann", stop=True))
    world.advance(60)
    assert world.states() == {"j1": "PENDING", "j2": "RUNNING"}
    assert world.jobs["j1"].preemptions == 1
    assert world.jobs["j1"].suspended
    assert standing(world.queue, world.jobs["j1"]).startswith("the job waits until it is resumed")
    world.finish("j2")
    assert world.state("j1") is JobState.PENDING
    told(world, m.ReleaseJobs(("j1",)))
    assert (world.state("j1"), world.jobs["j1"].epoch) == (JobState.RUNNING, 2)
    assert not world.jobs["j1"].suspended


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_held_while_it_runs_is_suspended_as_any_other(restarts: bool) -> None:
    """It says so, and nothing of it is left when it is resumed and waits again."""
    world = full()
    told(world, m.HoldJobs(("j1",), "ann", "first"))
    told(world, m.HoldJobs(("j1",), "ann", "second", stop=True))
    if restarts:
        world.restart()
    record = world.jobs["j1"]
    assert (record.suspended, record.hold) == (True, "suspended by ann: second")
    assert standing(world.queue, record).startswith("the job waits until it is resumed")
    told(world, m.ReleaseJobs(("j1",)))
    record = world.jobs["j1"]
    assert (record.state, record.cause, record.hold) == (JobState.PENDING, "", UNSET)


def test_a_held_job_is_one_to_release_whatever_the_reason() -> None:
    """Words of people are never read as the system's own."""
    world = full()
    told(world, m.HoldJobs(("j2",), "ann", "suspended until it is resumed"))
    record = world.jobs["j2"]
    assert standing(world.queue, record).startswith("the job waits until it is released: held by")
    suspended = record.view(world.now, None).suspended
    assert no_start("Held", suspended=suspended) == "not before it is released"


def test_a_preempted_job_waits_again_and_comes_back() -> None:
    """Nothing keeps it from starting where it was."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(preemptible=False))
    told(world, m.PreemptJobs(("j1",), "ann"))
    world.advance(60)
    record = world.jobs["j1"]
    assert (record.state, record.epoch, record.preemptions) == (JobState.RUNNING, 2, 1)


def test_a_failed_job_is_requeued_under_its_id_with_all_its_restarts() -> None:
    """It is over for good again only when these are used up."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(max_restarts=0))
    world.finish("j1", 1)
    assert world.state("j1") is JobState.FAILED
    told(world, m.RequeueJobs(("j1",), "ann", "the disk was full"))
    record = world.jobs["j1"]
    assert (record.state, record.epoch, record.finish_s) == (JobState.RUNNING, 2, None)
    assert list(world.queue.jobs.ended.names) == []
    world.restart()
    world.finish("j1", 1)
    assert world.state("j1") is JobState.FAILED
    assert list(world.queue.jobs.ended.names) == ["j1"]


def test_a_cancelled_job_can_be_requeued() -> None:
    """The cancellation is forgotten with its flag."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    world.cancel("j1")
    assert world.state("j1") is JobState.CANCELLED
    told(world, m.RequeueJobs(("j1",)))
    assert world.state("j1") is JobState.RUNNING
    world.finish("j1")
    assert world.state("j1") is JobState.SUCCEEDED


def test_a_job_that_waits_out_a_delay_is_tried_at_once() -> None:
    """And forgets the hosts that it avoids."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    world.finish("j1", 1)
    assert world.state("j1") is JobState.RECOVERING
    told(world, m.RequeueJobs(("j1",)))
    assert world.state("j1") is JobState.RUNNING


def test_a_waiting_job_with_a_higher_band_comes_first() -> None:
    """The order is anew at once."""
    world = full()
    world.submit(job("third", gpus=8, count=2))
    told(world, m.EditJobs(("j3",), JobChanges(band=Band.HIGH)))
    world.advance(200)
    assert world.state("j3") is not JobState.PENDING or world.states()["j1"] == "PREEMPTING"
    assert world.jobs["j3"].spec.band is Band.HIGH


def test_a_running_job_is_changed_from_its_next_attempt_on() -> None:
    """What runs keeps the band that its region knows; also in another process."""
    world = full()
    told(world, m.EditJobs(("j1",), JobChanges(band=Band.LOW, max_restarts=7)))
    told(world, m.EditJobs(("j1",), JobChanges(time_limit_s=60.0)))
    assert world.jobs["j1"].spec.band is Band.NORMAL
    world.restart()
    told(world, m.PreemptJobs(("j1",)))
    world.advance(60)
    spec = world.jobs["j1"].spec
    assert (spec.band, spec.max_restarts, spec.time_limit_s) == (Band.LOW, 7, 60.0)


def test_what_is_expected_of_a_running_job_holds_at_once() -> None:
    """It is no request: only what is asked for waits until the job does."""
    world = full()
    both = JobChanges(band=Band.LOW, duration_s=50.0)
    assert judge_edit(world.jobs["j1"], both).why == (
        "has GPUs: but for the expected duration it takes effect when the job waits again"
    )
    told(world, m.EditJobs(("j1",), both))
    told(world, m.EditJobs(("j1",), JobChanges(duration_s=70.0)))
    assert (world.jobs["j1"].spec.band, world.jobs["j1"].spec.duration_s) == (Band.NORMAL, 70.0)
    world.restart()
    told(world, m.PreemptJobs(("j1",)))
    world.advance(60)
    assert (world.jobs["j1"].spec.band, world.jobs["j1"].spec.duration_s) == (Band.LOW, 70.0)


def test_what_is_expected_of_a_job_and_nothing_else_asks_for_nothing() -> None:
    """Nothing is left to be taken up when it waits again."""
    world = full()
    assert judge_edit(world.jobs["j1"], JobChanges(duration_s=50.0)).why == ""
    told(world, m.EditJobs(("j1",), JobChanges(duration_s=50.0)))
    assert world.jobs["j1"].next_spec is UNSET
    told(world, m.EditJobs(("j1",), JobChanges(duration_s=None)))
    assert world.jobs["j1"].spec.duration_s is None


@dataclass
class Judged:
    """What an act would do to a job that stands somewhere."""

    story: str
    verb: str
    bring_there: Callable[[World], object]
    want: Effect


JUDGED = [
    Judged("held twice", "hold", lambda w: told(w, m.HoldJobs(("j2",))), Effect.UNCHANGED),
    Judged("not held", "release", lambda w: None, Effect.UNCHANGED),
    Judged("waits", "preempt", lambda w: None, Effect.UNCHANGED),
    Judged("waits", "requeue", lambda w: None, Effect.UNCHANGED),
    Judged("waits", "suspend", lambda w: None, Effect.DONE),
    Judged("over", "hold", lambda w: w.cancel("j2"), Effect.REFUSED),
    Judged("over", "cancel", lambda w: w.cancel("j2"), Effect.UNCHANGED),
    Judged("cancelled", "requeue", lambda w: w.cancel("j2"), Effect.DONE),
    Judged("waits", "cancel", lambda w: None, Effect.DONE),
]


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: f"{case.verb}: {case.story}")
def test_a_judgement_says_what_is_done(case: Judged) -> None:
    """People are told before the act what the act does."""
    world = full()
    case.bring_there(world)
    judge = JUDGES.get(case.verb, partial(judge_requeue, tenants=()))
    assert judge(world.jobs["j2"]).effect is case.want
    orders: dict[str, type] = {
        "hold": m.HoldJobs, "release": m.ReleaseJobs, "preempt": m.PreemptJobs,
        "requeue": m.RequeueJobs, "cancel": m.CancelJobs,
    }  # fmt: skip
    message = orders.get(case.verb, m.HoldJobs)(("j2",))
    written = len(world.journal.written)
    told(world, message)
    assert (len(world.journal.written) > written) == (case.want is Effect.DONE)


TWO = (TenantSpec("default"), TenantSpec("nlp"))


def tenants_now(world: World, *tenants: TenantSpec) -> object:
    """Ask a running system for other tenants."""
    now = world.queue.fleet
    return told(world, m.ConfigureFleet(replace(now, tenants=tenants), fleet_version(now)))


def test_a_tenant_does_not_leave_while_a_job_of_it_goes_on() -> None:
    """A job may have come after the request was looked at: the machine judges, not the request."""
    world = World(replace(fleet(cluster("east-1")), tenants=TWO))
    world.submit(job(tenant="nlp"))
    refused = tenants_now(world, TWO[0])
    assert isinstance(refused, Conflict)
    assert "tenant nlp is left out, which removes it, and has jobs that have not ended (j1)" in str(
        refused
    )
    world.finish("j1")
    assert tenants_now(world, TWO[0]) is None


def test_all_that_keeps_a_fleet_from_being_taken_up_is_told_at_once() -> None:
    """Jobs of two tenants: one answer names both."""
    world = World(replace(fleet(cluster("east-1")), tenants=(*TWO, TenantSpec("vision"))))
    world.submit(job(tenant="nlp"))
    world.submit(job(tenant="vision"))
    told_at_once = str(tenants_now(world, TWO[0]))
    assert (
        "tenant nlp is left out, which removes it, and has jobs that have not ended (j1)"
        in told_at_once
    )
    assert (
        "tenant vision is left out, which removes it, and has jobs that have not ended (j2)"
        in told_at_once
    )


def test_a_host_that_grows_is_used_at_once_and_keeps_its_jobs() -> None:
    """It has as much again: what runs there holds what it held, and what waits starts."""
    world = full()
    (region,) = world.queue.fleet.regions
    (home,) = region.clusters
    host, *others = home.hosts
    grown = replace(home, hosts=(replace(host, gpus=24), *others))
    after = replace(world.queue.fleet, regions=(replace(region, clusters=(grown,)),))
    (change,) = fleet_changes(world.queue.fleet, after)
    assert (change.what, change.change, change.live) == (f"host {host.name}", "gpus 8 -> 24", True)
    assert told(world, m.ConfigureFleet(after, fleet_version(world.queue.fleet))) is None
    world.advance(60)
    assert world.states() == {"j1": "RUNNING", "j2": "RUNNING"}
    assert world.jobs["j1"].epoch == 1
    assert set(world.jobs["j2"].hosts) == {host.name}
    world.snapshot()
    world.crash()
    world.finish("j1")
    world.finish("j2")
    assert world.placer("east").columns.unheld_by_host().tolist() == [24_000, 8_000]


def test_a_job_of_a_tenant_that_has_left_is_neither_admitted_nor_tried_anew() -> None:
    """It would run without any quota."""
    world = World(replace(fleet(cluster("east-1")), tenants=TWO))
    world.submit(job(tenant="nlp"))
    world.cancel("j1")
    world.advance(60)
    assert tenants_now(world, TWO[0]) is None
    refused = told(world, m.SubmitJobs((job(tenant="nlp"),), known_tenants_only=True))
    assert isinstance(refused, InvalidInput)
    assert (refused.field, refused.message) == ("tenant", "unknown tenant 'nlp'")
    judged = judge_requeue(world.jobs["j1"], world.queue.tenancy.ledger.tenants)
    assert (judged.effect, judged.why) == (Effect.REFUSED, "tenant nlp has left the fleet")
    told(world, m.RequeueJobs(("j1",), "ann"))
    assert world.states() == {"j1": "CANCELLED"}


def test_an_opportunistic_job_must_make_way() -> None:
    """As in a job file."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(preemptible=False))
    found = judge_edit(world.jobs["j1"], JobChanges(band=Band.OPPORTUNISTIC))
    assert found.effect is Effect.REFUSED


def test_a_fleet_change_on_a_stale_base_changes_nothing() -> None:
    """Two that looked at the same fleet do not overwrite each other."""
    world = World(fleet(cluster("east-1")))
    before = fleet_version(world.queue.fleet)
    more = fleet(cluster("east-1", hosts=3))
    assert told(world, m.ConfigureFleet(more, before)) is None
    written = len(world.journal.written)
    refused = told(world, m.ConfigureFleet(fleet(cluster("east-1", hosts=1)), before))
    assert isinstance(refused, Conflict)
    assert (world.queue.fleet, len(world.journal.written)) == (more, written)
