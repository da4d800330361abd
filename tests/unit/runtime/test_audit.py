"""The audit trail: each fact that matters to people, told once, in words."""

import msgspec
import pytest

from tests.golden.story import tell
from tests.support.build import cluster, dataset, fleet, job, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.states import HostState
from topmast.model.views import JobView


def _story(world: World, name: str) -> list[str]:
    return [f"{row.kind}: {row.text}" for row in world.journal.history(name)]


def test_the_life_of_a_job_in_words() -> None:
    """From submission to success, with the place, the score and the checkpoint."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=8, user="ann"))
    world.checkpoint("j1", 100)
    world.finish("j1")
    told = _story(world, "j1")
    assert told[0] == "submitted: submitted by ann for tenant default, band normal"
    assert told[1].startswith("placed: placed in east/east-1 on 8 H100 (host), score ")
    assert told[2:] == [
        "STARTING: starting",
        "RUNNING: running",
        "checkpointed: checkpoint at step 100",
        "SUCCEEDED: attempt 1 ended (succeeded)",
    ]


def test_the_end_of_a_job_says_nothing_twice_and_why_it_is_not_tried_again() -> None:
    """Webhooks are told in these words, and know of no others."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job(max_restarts=0), job(gpus=8))
    world.tell(ids.QUEUE, m.CancelJobs(("j2",), "ann", "not needed"))
    assert _story(world, "j2")[-1] == "CANCELLED: cancelled by ann: not needed"
    world.finish("j1", 7)
    (text,) = _story(world, "j1")[-1:]
    assert text.startswith("FAILED: attempt 1 ended (failed): ")
    assert text.endswith("; not restarted: max_restarts is 0")


def test_a_preemption_is_told_to_both() -> None:
    """Who had to go, and for whom."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.submit(job("urgent", gpus=8, band=Band.HIGH))
    assert "PREEMPTING: preempting: preempted by j2" in _story(world, "j1")
    assert any("; preempts j1" in line for line in _story(world, "j2"))


def test_the_life_of_a_host_in_words() -> None:
    """Who put it aside and returned it, when it was lost, for which attempt it is suspected."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job(gpus=8))
    world.set_host("east-1-0", HostState.CORDONED)
    world.set_host("east-1-0", HostState.CORDONED)
    world.set_host("east-1-0", HostState.DRAINING)
    world.set_host("east-1-0", HostState.HEALTHY)
    world.lose("east-1-0")
    world.revive("east-1-0")
    told = _story(world, ids.host("east-1-0"))
    assert told[:3] == [
        "host-cordoned: east-1-0 was cordoned by ann",
        "host-drained: east-1-0 is drained by ann",
        "host-uncordoned: east-1-0 was uncordoned by ann",
    ]
    kinds = [line.split(":")[0] for line in told]
    assert "host-down" in kinds
    assert "host-up" in kinds
    row = world.journal.history(ids.host("east-1-0"))[0]
    assert msgspec.json.decode(row.detail) == {"host": "east-1-0", "by": "ann"}


def test_an_attempt_that_fails_for_its_host_is_told_of_the_host() -> None:
    """Why it takes no work for a while, and when it is trusted again."""
    world = World(fleet(cluster("east-1", hosts=2)))
    world.submit(job(gpus=8))
    world.finish("j1", None)
    host = "east-1-0"
    told = _story(world, ids.host(host))
    assert told[0].startswith(f"host-suspect: {host} takes no work for 60 s: attempt 1 of j1 ended")
    world.advance(61.0)
    assert _story(world, ids.host(host))[-1] == f"host-trusted: {host} takes work again"


def test_borrowing_is_told() -> None:
    """Whoever runs over quota is told that it may end any time."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("a", H100=0),)))
    world.submit(job(tenant="a"))
    assert any("over quota, so it runs opportunistically" in line for line in _story(world, "j1"))


def test_copies_are_told_to_the_job_that_wanted_them() -> None:
    """What people ordered belongs to no job."""
    spec = dataset("d", "west")
    world = World(fleet(cluster("east-1"), cluster("west-1", model="A100"), datasets=(spec,)))
    world.submit(job(datasets=("d",)))
    world.spoil("c1")
    world.advance(30)
    world.arrive("c2")
    kinds = [row.kind for row in world.journal.history("j1")]
    assert kinds[1:5] == ["copy-begun", "copy-failed", "copy-begun", "copy-done"]
    world.tell(ids.QUEUE, m.DropReplica("d", "west"))
    (dropped,) = world.journal.history("")
    assert (dropped.kind, dropped.text) == ("replica-dropped", "d dropped from west")


@pytest.mark.parametrize(
    ("code", "want", "kept_s"),
    [(0, "succeeded", 60.0), (1, "failed", 40.0), (None, "host_lost", 40.0)],
)
def test_an_attempt_is_accounted_for(code: int | None, want: str, kept_s: float) -> None:
    """Where it ran, on how many GPUs, how long, and how much of that was kept."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=4, count=2, max_restarts=0, user="ann"))
    world.advance(40)
    world.checkpoint("j1", 7)
    world.advance(20)
    world.finish("j1", code)
    row = world.journal.ended["j1", 1]
    assert (row.region, row.cluster, row.model, row.gpus_milli) == ("east", "east-1", "H100", 8_000)
    assert (row.start_s, row.end_s, row.kept_s) == (0.0, 60.0, kept_s)
    assert (row.outcome, row.tenant, row.user) == (want, "default", "ann")


def test_a_claim_that_was_never_used_costs_nothing() -> None:
    """It is accounted for with no time at all, or people would pay for waiting."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.start("j1")
    world.submit(job("urgent", gpus=8, band=Band.HIGH))
    world.advance(10)
    world.cancel("j2")
    assert world.jobs["j2"].held_s == 0.0


def test_finished_jobs_are_kept_as_people_saw_them_last() -> None:
    """One row for each, with the view at its end."""
    world = tell()
    over = [record for record in world.jobs.values() if record.finished]
    assert {row.job for row in world.journal.finished.values()} == {record.id for record in over}
    for record in over:
        view = msgspec.json.decode(world.journal.finished[record.id].view, type=JobView)
        assert view == record.view(world.now, None)


def test_details_are_documents() -> None:
    """Every line's detail can be read by a machine."""
    for row in tell().journal.rows:
        assert isinstance(msgspec.json.decode(row.detail), dict)
        assert row.text


def test_what_a_cluster_does_with_its_host_is_told() -> None:
    """When it was closed and why, and when it was opened."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.close_host("east-1-0", "drained: new disk")
    world.close_host("east-1-0", "")
    assert _story(world, ids.host("east-1-0")) == [
        "host-closed: east-1-0 is closed by its cluster: drained: new disk",
        "host-opened: east-1-0 is open again in its cluster",
    ]


def test_an_attempt_is_idle_while_it_starts_and_while_it_stops() -> None:
    """Before all of its tasks are up, and from when it was told to stop, across a crash as well."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job(gpus=4, count=2))
    world.advance(5.0)
    world.start("j1", 0)  # the other task still pulls its image
    world.advance(10.0)
    assert world.jobs["j1"].idle_s(world.now) == 15.0
    world.start("j1")
    world.snapshot()
    world.crash()
    world.recover()
    world.advance(20.0)
    world.cancel("j1")
    world.advance(4.0)
    assert world.jobs["j1"].idle_s(world.now) == 19.0
    world.finish("j1", None)
    [attempt] = world.journal.attempts_of("j1")
    assert attempt.end_s - attempt.start_s == 39.0
    assert attempt.idle_s == 19.0
    assert world.jobs["j1"].idle_s(world.now) == 0.0


def test_an_attempt_that_never_ran_was_idle_all_the_time() -> None:
    """Its GPUs were held for nothing."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job(gpus=8))
    world.advance(30.0)
    world.finish("j1", 1)
    attempt = world.journal.attempts_of("j1")[0]
    assert attempt.idle_s == attempt.end_s - attempt.start_s == 30.0
