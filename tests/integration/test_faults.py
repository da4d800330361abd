"""Faults on a running system: hosts, supervisors and tasks die, work is preempted, stopped, drained.

One real server for the whole file; each test has GPUs of a model of its own, so that none disturbs
another.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.held import HOLD, Held
from tests.support.live import Server, eventually, is_alive, kill, live, until_state
from topmast import Client
from topmast.model.errors import Conflict
from topmast.model.views import HostView

FLEET = """
regions:
  north:
    clusters:
      lost: {hosts: [{count: 2, gpu: LOST, gpus: 2}]}
      back: {hosts: [{count: 1, gpu: BACK, gpus: 1}]}
      orphan: {hosts: [{count: 1, gpu: ORPHAN, gpus: 1}]}
      fail: {hosts: [{count: 1, gpu: FAIL, gpus: 1}]}
      band: {hosts: [{count: 1, gpu: BAND, gpus: 2}]}
  south:
    clusters:
      drain: {hosts: [{count: 2, gpu: DRAIN, gpus: 1}]}
      cancel: {hosts: [{count: 1, gpu: CANCEL, gpus: 1}]}
      quota: {hosts: [{count: 1, gpu: QUOTA, gpus: 4}]}
tenants:
  default:
  red: {quota: {QUOTA: 2}}
  blue: {quota: {QUOTA: 2}}
"""
SETTINGS = {
    "min_runtime_s": "0", "restart_cost_s": "1", "backoff_s": "0.4", "suspect_s": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """The server of this file."""
    with live(tmp_path_factory.mktemp("faults"), FLEET, SETTINGS) as both:
        agent = eventually(lambda: host(both[1], "back-0").agent_pid, "the agent is up")
        kill(agent)  # it returns after a while, which the last test waits for
        yield both


@pytest.fixture
def client(running: tuple[Server, Client]) -> Client:
    """A client of the server."""
    return running[1]


def host(client: Client, name: str) -> HostView:
    """One host as it stands."""
    return next(view for view in client.hosts() if view.name == name)


# --- what dies -----------------------------------------------------------------------------------


def test_a_job_whose_host_dies_runs_again_elsewhere(client: Client, tmp_path: Path) -> None:
    """A killed agent is a dead host: its tasks are gone, and the job moves to another."""
    job = Held(client, tmp_path, "LOST", 2)
    first = job.started()
    agent = host(client, first.host).agent_pid
    assert agent is not None
    kill(agent)
    second = job.started(2)
    assert not is_alive(first.pid)
    assert (second.epoch, second.host != first.host) == (2, True)
    assert host(client, first.host).state == "down"
    view = job.end()
    assert (view.attempts, view.restarts) == (2, 0)
    assert job.outcomes() == ["host_lost", "succeeded"]


def test_a_job_whose_supervisor_dies_runs_again(client: Client, tmp_path: Path) -> None:
    """Nothing of the task outlives its supervisor, and the job is started anew."""
    job = Held(client, tmp_path, "ORPHAN")
    first = job.started()
    kill(first.supervisor)
    second = job.started(2)
    assert not is_alive(first.pid)
    assert second.epoch == 2
    assert job.end().restarts == 0, "it was not the fault of the job"
    assert job.outcomes() == ["host_lost", "succeeded"]


def test_a_failing_job_is_restarted_with_growing_delay_and_then_given_up(client: Client) -> None:
    """`max_restarts` restarts, each after twice the delay of the one before; then FAILED."""
    document = {"name": "fails", "run": "exit 7", "max_restarts": 2,
                "resources": {"accelerators": "FAIL:1"}}  # fmt: skip
    job = client.submit(document).id
    view = until_state(client, job, "FAILED")
    assert (view.attempts, view.restarts) == (3, 2)
    assert "status 7" in view.cause
    attempts = client.story(job).attempts
    assert [attempt.outcome for attempt in attempts] == ["failed"] * 3
    first_s = attempts[1].start_s - attempts[0].end_s
    second_s = attempts[2].start_s - attempts[1].end_s
    assert 0.4 <= first_s < 0.8 <= second_s < 2.0


def test_a_gang_of_which_one_task_fails_is_stopped_and_restarted_whole(
    client: Client, tmp_path: Path
) -> None:
    """No task of a gang goes on alone."""
    fails = 'until [ -s "$HELD/starts" ]; do sleep 0.02; done; exit 3'
    script = f'if [ "$TOPMAST_RANK$TOPMAST_EPOCH" = 11 ]; then {fails}; fi\n{HOLD}'
    job = Held(client, tmp_path, "BAND", num_nodes=2, run=script)
    alone = job.started()
    eventually(lambda: len(job.starts()) == 3, "both tasks of the second attempt")
    assert sorted((start.epoch, start.rank) for start in job.starts()) == [(1, 0), (2, 0), (2, 1)]
    assert not is_alive(alone.pid)
    assert job.end().restarts == 1


# --- what is stopped -----------------------------------------------------------------------------


def test_a_lower_band_makes_way_and_resumes_from_its_checkpoint(
    client: Client, tmp_path: Path
) -> None:
    """SIGTERM, a checkpoint, back to the queue; afterwards on from the step where it was."""
    low = Held(client, tmp_path, "BAND", 2, name="low", priority="low")
    low.started()
    eventually(lambda: (client.job(low.id).step or 0) > 3, "some steps")
    high = Held(client, tmp_path, "BAND", 2, name="high", priority="high")
    high.started()
    view = low.until("PENDING")
    assert (view.preemptions, view.reason) == (1, "InsufficientCapacity")
    high.end()
    low.started(2)
    resumed = eventually(lambda: client.job(low.id).resumed_from_step, "it says where it resumed")
    assert resumed > 3
    assert low.end().attempts == 2
    assert low.outcomes() == ["preempted", "succeeded"]


def test_work_over_quota_is_reclaimed_by_whoever_has_the_quota(
    client: Client, tmp_path: Path
) -> None:
    """Borrowed GPUs go back to their tenant; what runs within its quota is not touched."""
    own = Held(client, tmp_path, "QUOTA", 2, name="own", tenant="blue")
    own.started()
    extra = Held(client, tmp_path, "QUOTA", 2, name="extra", tenant="blue")
    extra.started()
    assert [client.job(job.id).over_quota for job in (own, extra)] == [False, True]
    assert quota(client, "blue") == (2, 2)
    rightful = Held(client, tmp_path, "QUOTA", 2, name="rightful", tenant="red")
    rightful.started()
    assert extra.until("PENDING").preemptions == 1
    assert (quota(client, "red"), quota(client, "blue")) == ((2, 0), (2, 0))
    rightful.end()
    extra.started(2)
    assert extra.end().over_quota
    assert own.end().preemptions == 0
    assert (quota(client, "red"), quota(client, "blue")) == ((0, 0), (0, 0))


def quota(client: Client, tenant: str) -> tuple[float, float]:
    """What a tenant uses of its quota, and what it borrows."""
    return next((t.used, t.borrowed) for t in client.tenants() if t.name == tenant)


def test_hosts_are_cordoned_drained_and_returned(client: Client, tmp_path: Path) -> None:
    """A cordoned host takes nothing new; a drained one lets go of what it has, by checkpoint."""
    for name in ("drain-0", "drain-1"):
        assert client.cordon(name).state == "cordoned"
    job = Held(client, tmp_path, "DRAIN")
    assert job.until("PENDING").reason == "InsufficientCapacity"
    assert client.uncordon("drain-0").state == "healthy"
    first = job.started()
    assert first.host == "drain-0"
    assert client.cordon("drain-0").state == "cordoned"
    assert is_alive(first.pid), "what runs there goes on"
    client.uncordon("drain-1")
    assert client.drain("drain-0").state == "draining"
    second = job.started(2)
    assert (second.host, is_alive(first.pid)) == ("drain-1", False)
    client.uncordon("drain-0")
    job.end()
    assert job.outcomes() == ["preempted", "succeeded"]


def test_pending_running_and_starting_jobs_are_cancelled(client: Client, tmp_path: Path) -> None:
    """Whatever a job does, a cancel ends it for good, and no process of it is left."""
    running = Held(client, tmp_path, "CANCEL", name="running")
    task = running.started()
    pending = Held(client, tmp_path, "CANCEL", name="pending")
    assert client.cancel(pending.id).state == "CANCELLED"
    client.cancel(running.id)
    assert running.until("CANCELLED").cause == "cancelled by ann"
    assert not is_alive(task.pid)
    agent = host(client, "cancel-0").agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)  # so that what is started there stays at its start
    try:
        starting = Held(client, tmp_path, "CANCEL", name="starting")
        starting.until("STARTING")
        client.cancel(starting.id)
        starting.until("CANCELLED")  # although its host is not heard
    finally:
        os.kill(agent, signal.SIGCONT)
    assert client.cancel(starting.id).state == "CANCELLED", "again changes nothing"
    after = Held(client, tmp_path, "CANCEL", name="after")
    after.started()
    after.end()
    assert (pending.starts(), starting.starts()) == ([], [])


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(
    client: Client, tmp_path: Path
) -> None:
    """Stopping ends, whatever a task thinks of it."""
    script = f"trap '' TERM\n{HOLD.replace('trap', ': ')}"
    job = Held(client, tmp_path, "FAIL", run=script, checkpoint={"grace": 0.5})
    task = job.started()
    client.cancel(job.id)
    job.until("CANCELLED")
    assert not is_alive(task.pid)


def test_a_job_ends_at_its_time_limit(client: Client, tmp_path: Path) -> None:
    """The limit counts all attempts, and the job does not start again."""
    job = Held(client, tmp_path, "FAIL", time_limit=1.0)
    task = job.started()
    view = job.until("FAILED")
    assert "time limit of 1 s" in view.cause
    assert (view.attempts, is_alive(task.pid)) == (1, False)
    assert view.finish_s is not None
    assert view.start_s is not None
    assert 1.0 <= view.finish_s - view.start_s < 6.0


# --- what waits ----------------------------------------------------------------------------------


def test_a_job_waits_for_a_dataset_until_it_is_added(client: Client, tmp_path: Path) -> None:
    """Data that nobody has heard of is a reason to wait, not to fail."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "words").write_text("hello\n")
    document = {"name": "reads", "run": 'grep -qx hello "$TOPMAST_DATASET_LATE_1/words"',
                "datasets": ["late-1"]}  # fmt: skip
    receipt = client.submit(document)
    assert "'late-1' is not in the catalogue" in receipt.warnings[0]
    eventually(lambda: client.job(receipt.id).reason == "UnknownDataset", "it waits for its data")
    assert "datasets add" in client.explain(receipt.id).would_help[0]
    client.add_dataset("late-1", "south", source=source)
    assert until_state(client, receipt.id, "SUCCEEDED").region == "south"


def test_one_key_is_one_job(client: Client) -> None:
    """A repeated submission is answered with the first job's id; another job is refused that key."""
    document = {"name": "once", "run": "true"}
    first = client.submit(document, key="key-1")
    assert client.submit(document, key="key-1").id == first.id
    with pytest.raises(Conflict, match="Idempotency-Key"):
        client.submit({"name": "other", "run": "true"}, key="key-1")
    assert client.submit(document, key="key-2").id != first.id
    names = [view.name for view in client.jobs() if view.name in ("once", "other")]
    assert names == ["once", "once"]


def test_a_host_that_died_comes_back_and_takes_work(client: Client) -> None:
    """A new agent is started after some time; until then jobs wait for the host."""
    document = {"run": "true", "resources": {"accelerators": "BACK:1"}}
    assert until_state(client, client.submit(document).id, "SUCCEEDED").attempts == 1
    assert host(client, "back-0").state == "healthy"
