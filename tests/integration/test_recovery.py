"""The server goes and comes back: jobs run on, and what was acknowledged stays so.

Each test tells what happened while nobody looked. `make crash-test` does it at random moments.
"""

import itertools
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.held import HOLD, Held
from tests.support.live import (
    PATIENCE_S,
    Server,
    end_agents,
    eventually,
    is_alive,
    kill,
    live,
    until_state,
)
from topmast import Client
from topmast.adapters.objects.mover import COPIES_AT_ONCE
from topmast.adapters.store import open_journal
from topmast.app.replay import replay_state
from topmast.model.errors import Conflict, Unavailable
from topmast.model.views import EventView
from topmast.service.event_stream import FIRST_EVENT

FLEET = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 2, gpu: H100, gpus: 2}]}
"""
SETTINGS = {"min_runtime_s": "0", "restart_cost_s": "1", "backoff_s": "0.2", "suspect_s": "1"}


@contextmanager
def server_on(folder: Path, fleet: str = FLEET) -> Iterator[tuple[Server, Client]]:
    """A server, and a client that finds it again wherever it is after a restart."""
    with live(folder, fleet, SETTINGS) as (server, _), Client(state=server.state) as client:
        yield server, client


def run(*arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """The command line."""
    command = [sys.executable, "-m", "topmast.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_jobs_run_on_while_the_server_is_away(tmp_path: Path, how: str) -> None:
    """The same process goes on; what ends meanwhile is known afterwards; what waits, still waits."""
    with server_on(tmp_path) as (server, client):
        stays = Held(client, tmp_path, "H100", 2, name="stays")
        ends = Held(client, tmp_path, "H100", 2, name="ends")
        waits = Held(client, tmp_path, "H100", 2, name="waits")
        pids = [stays.started().pid, ends.started().pid]
        stays.until("RUNNING")
        ends.until("RUNNING")
        if how == "SIGTERM":
            assert server.stop() == 0
            assert not (server.state / "server.json").exists()
        else:
            server.kill()
        (ends.folder / "go").touch()
        eventually(lambda: not is_alive(pids[1]), "it ends, and nobody sees it")
        time.sleep(0.5)
        back_s = time.time()
        server.start()
        server.wait_ready()
        assert ends.until("SUCCEEDED").attempts == 1
        record = server.state / "engines" / "east-a" / "tasks" / f"{ends.id}.1.0.end"
        ended_s = json.loads(record.read_bytes())["at_s"]
        story = client.story(ends.id)
        assert story.job.finish_s == story.attempts[0].end_s == ended_s < back_s
        assert (stays.until("RUNNING").attempts, is_alive(pids[0])) == (1, True)
        waits.started()
        waits.end()
        assert stays.end().attempts == 1
        assert len(stays.starts()) == 1


SLOW_LINK = """
regions:
  east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}
  west: {clusters: {west-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}
links: [{from: east, to: west, gbps: 0.001}]
"""


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_a_removed_dataset_is_deleted_after_a_restart(tmp_path: Path, how: str) -> None:
    """Slow copies keep the mover busy, so that the server ends before it begins to delete.

    The name is not free until the files are gone; then another dataset may have it.
    """
    large, old, new = (tmp_path / name for name in ("large", "old", "new"))
    for folder, size_bytes in ((large, 5_000_000), (old, 1000), (new, 2000)):
        folder.mkdir()
        (folder / "part").write_bytes(b"x" * size_bytes)
    with server_on(tmp_path, SLOW_LINK) as (server, client):
        names = [f"large-{n}" for n in range(COPIES_AT_ONCE)]
        for name in names:
            client.add_dataset(name, "east", source=large)
        client.add_dataset("words", "east", source=old)
        for name in names:
            client.replicate(name, "west")
        client.remove_dataset("words")
        with pytest.raises(Conflict, match="is being deleted in region 'east'"):
            client.add_dataset("words", "east")
        stored = server.state / "stores" / "east" / "datasets" / "words"
        if how == "SIGTERM":
            assert server.stop() == 0
        else:
            server.kill()
        assert stored.exists(), "the server ended too late to show anything"
        server.start()
        server.wait_ready()
        eventually(lambda: not stored.exists(), "the files are gone")
        new.rename(stored)

        def added() -> bool:
            with suppress(Conflict):
                return client.add_dataset("words", "east").size_bytes == 2000
            return False

        eventually(added, "the name is free")
        assert (stored / "part").stat().st_size == 2000


def test_what_was_decided_before_a_kill_is_carried_out_after_it(tmp_path: Path) -> None:
    """A victim in its grace period, a job being cancelled: both go on where they were."""
    slow = HOLD.replace("exit 143", f"sleep 1; touch {tmp_path}/let-go; exit 143")
    with server_on(tmp_path) as (server, client):
        victim = Held(client, tmp_path, "H100", 2, name="victim", priority="low", run=slow)
        unwanted = Held(client, tmp_path, "H100", 2, name="unwanted", run=slow)
        tasks = [victim.started(), unwanted.started()]
        victim.until("RUNNING")
        unwanted.until("RUNNING")
        urgent = Held(client, tmp_path, "H100", 2, name="urgent", priority="high")
        victim.until("PREEMPTING")
        assert client.cancel(unwanted.id).state == "CANCELLING"
        server.kill()
        assert not (tmp_path / "let-go").exists(), "the kill came too late to show anything"
        assert urgent.starts() == []
        server.start()
        server.wait_ready()
        urgent.started()
        unwanted.until("CANCELLED")
        victim.started(2)
        assert [is_alive(task.pid) for task in tasks] == [False, False]
        assert victim.until("RUNNING").preemptions == 1
        urgent.end()
        victim.end()


def test_a_host_and_a_supervisor_die_while_the_server_is_away(tmp_path: Path) -> None:
    """Whoever died unseen is missed at the next start, and the jobs run again."""
    with server_on(tmp_path) as (server, client):
        hosted = Held(client, tmp_path, "H100", 2, name="hosted")
        supervised = Held(client, tmp_path, "H100", 2, name="supervised")
        first, second = hosted.started(), supervised.started()
        hosted.until("RUNNING")
        supervised.until("RUNNING")
        agent = next(h.agent_pid for h in client.hosts() if h.name == first.host)
        assert agent is not None
        server.kill()
        kill(agent)
        kill(second.supervisor)
        server.start()
        server.wait_ready()
        for job, start in ((hosted, first), (supervised, second)):
            again = job.started(2)
            assert (again.epoch, is_alive(start.pid)) == (2, False)
            assert job.end().restarts == 0
            assert job.outcomes() == ["host_lost", "succeeded"]


def test_everything_dies_at_once(tmp_path: Path) -> None:
    """After a power cut every job that had not ended runs again, once; what had ended stays ended."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100", 1, num_nodes=2)
        done = client.submit({"name": "done", "run": "true"}).id
        gone = Held(client, tmp_path, "H100", name="gone")
        gone.started()
        until_state(client, done, "SUCCEEDED")
        client.cancel(gone.id)
        gone.until("CANCELLED")
        eventually(lambda: len(job.starts()) == 2, "the gang runs")
        job.until("RUNNING")
        server.kill()
        end_agents(server.state)
        server.start()
        server.wait_ready()
        eventually(lambda: len(job.starts()) == 4, "the gang runs again")
        epochs = [start.epoch for start in job.starts()]
        assert epochs[:2] == [1, 1]
        assert epochs[2] == epochs[3] == job.end().attempts
        assert len(job.starts()) == 4
        assert client.job(done).attempts == 1
        assert client.job(gone.id).state == "CANCELLED"
        assert len(gone.starts()) == 1


def test_time_limits_and_grace_periods_pass_while_the_server_is_away(tmp_path: Path) -> None:
    """A limit reached unseen is enforced as soon as somebody looks."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100", time_limit=1.5)
        task = job.started()
        job.until("RUNNING")
        server.kill()
        time.sleep(1.6)
        assert is_alive(task.pid)
        server.start()
        server.wait_ready()
        assert "time limit" in job.until("FAILED").cause
        assert not is_alive(task.pid)


def listen_until(stream: Iterator[EventView], kind: str, heard: list[EventView]) -> None:
    """Take events, up to the first of a kind."""
    for event in stream:
        heard.append(event)
        if event.kind == kind:
            return


def test_clients_live_through_a_restart(tmp_path: Path) -> None:
    """`wait` waits on, and the event stream goes on, though the server is another one."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100")
        job.started()
        job.until("RUNNING")
        heard: list[EventView] = []
        stream = client.events(after=0)
        listen_until(stream, "RUNNING", heard)
        server.kill()
        server.start()
        server.wait_ready()
        job.end()
        before = len(heard)
        listen_until(stream, "SUCCEEDED", heard)
        assert 2 < before < len(heard), "some of both servers"
        first = FIRST_EVENT + 1
        assert [event.seq for event in heard] == list(range(first, first + len(heard)))
        (view,) = client.wait(job.id, timeout_s=10)
        assert (view.state, view.attempts) == ("SUCCEEDED", 1)


def test_a_key_used_before_a_kill_is_known_after_it(tmp_path: Path) -> None:
    """A client that never got its answer asks again after the restart, and gets the same job."""
    document = {"name": "once", "run": "true"}
    with server_on(tmp_path) as (server, client):
        first = client.submit(document, key="k").id
        server.kill()
        server.start()
        server.wait_ready()
        assert client.submit(document, key="k").id == first
        assert server.stop() == 0, "which saves a snapshot"
        server.start()
        server.wait_ready()
        assert client.submit(document, key="k").id == first
        assert client.submit(document, key="other").id != first


def test_a_disk_that_is_full_ends_the_server_and_loses_nothing(tmp_path: Path) -> None:
    """It never goes on with more in memory than on the disk; what it acknowledged is there after."""
    with server_on(tmp_path) as (server, client):
        log_bytes = (server.state / "journal.sqlite-wal").stat().st_size
        enough_bytes = log_bytes + 400_000
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (enough_bytes, enough_bytes))
        acknowledged = []
        with Client(server.url, timeout_s=1.0) as hasty, suppress(Unavailable):
            for number in itertools.count():
                document = {"name": f"n{number}", "run": "true"}
                acknowledged.append((hasty.submit(document).id, f"n{number}"))
        assert server.ended() == 1
        assert "the runtime cannot go on" in server.log_tail()
        server.start()
        server.wait_ready()
        assert len(acknowledged) > 3
        for job, name in acknowledged:
            assert until_state(client, job, "SUCCEEDED").name == name


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    """One line that names the first; which does not notice."""
    with server_on(tmp_path) as (server, client):
        second = subprocess.run(
            server.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert second.returncode == 1
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert f"in use by another process (pid {server.pid})" in line
        assert client.health().journal_seq > 0
        assert (server.state / "server.json").exists()


def test_a_fleet_may_change_between_two_starts(tmp_path: Path) -> None:
    """Without a file the last fleet counts; a cluster that runs jobs may not be left out."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100", 2, run=f"echo began\n{HOLD}")
        task = job.started()
        job.until("RUNNING")
        server.stop()
        other = tmp_path / "other.yaml"
        other.write_text("regions: {west: {clusters: {west-a: {hosts: "
                         "[{count: 1, gpu: A100, gpus: 1}]}}}}")  # fmt: skip
        remembered, server.fleet = server.fleet, other
        refused = subprocess.run(
            server.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "cluster 'east-a' is gone" in refused.stderr
        server.fleet = None
        server.start()
        server.wait_ready()
        assert [region.name for region in client.regions()] == ["east"]
        assert is_alive(task.pid)
        assert job.end().attempts == 1
        assert remembered is not None
        remembered.write_text(
            other.read_text() + FLEET.replace("regions:\n", "").replace("  e", " e")
        )
        server.stop()
        server.fleet = other
        server.start()
        server.wait_ready()
        assert [region.name for region in client.regions()] == ["west"]
        assert client.job(job.id).state == "SUCCEEDED"
        assert "".join(map(str, client.logs(job.id))) == "began\n"
        rehearsal = client.dry_run({"resources": {"accelerators": 1}, "run": "true"})
        assert [region.region for region in rehearsal.regions] == ["west"]


def test_hosts_that_report_first_of_all_belong_to_their_region(tmp_path: Path) -> None:
    """Clusters too large to start every agent at once report hosts before anything else happens."""
    large = FLEET.replace("count: 2", "count: 40")
    with server_on(tmp_path, large) as (server, client):
        assert [(region.name, region.hosts) for region in client.regions()] == [("east", 40)]
        server.stop()
        journal = open_journal(server.state / "journal.sqlite", read_only=True)
        try:
            snapshot = journal.latest_snapshot()
        finally:
            journal.close()
        assert snapshot is not None
        assert sorted(snapshot.machines) == ["cluster/east-a", "placer/east", "queue"]


def replayed(server: Server, until_s: float | None) -> dict[str, Any]:
    """What `topmast replay` says, while the server runs."""
    document = replay_state(server.state, until_s)
    return dict(json.loads(msgspec.json.encode(document)))


def replayed_by_command(server: Server, until_s: float) -> dict[str, Any]:
    """The same, from the command line."""
    said = run("replay", "--state", str(server.state), "--json", "--until", repr(until_s))
    assert (said.returncode, said.stderr) == (0, "")
    return dict(json.loads(said.stdout))


def test_the_past_is_rebuilt(tmp_path: Path) -> None:
    """`topmast replay --until T` shows the jobs as they were at T, also before a restart."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100", 2)
        job.started()
        job.until("RUNNING")
        running_s = time.time()
        second = Held(client, tmp_path, "H100", 2, name="second")
        second.started()
        second.until("RUNNING")
        server.kill()
        server.start()
        server.wait_ready()
        job.end()
        second.end()
        before, then, now = (replayed(server, s) for s in (running_s - 3600, running_s, None))
        assert replayed_by_command(server, running_s) == then
        assert before["jobs"] == []
        assert {j["id"]: j["state"] for j in then["jobs"]} == {job.id: "RUNNING"}
        assert then["jobs"][0]["hosts"] == list(client.job(job.id).hosts)
        assert now["counts"] == {"SUCCEEDED": 2}
        assert 0 == before["seq"] < then["seq"] < now["seq"]


# --- a journal that is not the newest -----------------------------------------------------------


def put_back(server: Server, copy: Path | None) -> None:
    """Replace the journal by a copy, or by nothing."""
    for file in server.state.glob("journal.sqlite*"):
        file.unlink()
    if copy is not None:
        shutil.copy(copy, server.state / "journal.sqlite")


def test_new_jobs_inherit_nothing_from_those_of_a_lost_journal(tmp_path: Path) -> None:
    """They have other ids, and really run; what runs unknown is stopped; the start says so."""
    with server_on(tmp_path) as (server, client):
        for _ in range(2):
            document = {"name": "a", "run": "exit 0", "resources": {"accelerators": "H100:1"}}
            until_state(client, client.submit(document).id, "SUCCEEDED")
        stranger = Held(client, tmp_path, "H100", 2, name="stranger")
        pid = stranger.started().pid
        server.kill()
        put_back(server, None)
        with server.up() as again:
            assert "the journal does not know" in server.log_tail()
            fresh = Held(again, tmp_path, "H100", 2, name="fresh")
            assert (stranger.id, fresh.id) == ("j3", "j4")
            assert fresh.started().epoch == 1
            eventually(lambda: not is_alive(pid), "the unknown job is stopped")
            assert fresh.end().attempts == 1
            assert server.stop() == 0
        with server.up() as again:
            assert [view.id for view in again.jobs()] == ["j4"]
            assert server.log_tail().count("the journal does not know") == 1


def test_an_attempt_inherits_nothing_from_one_that_an_old_journal_forgot(tmp_path: Path) -> None:
    """Its epoch is one that no engine has seen."""
    with server_on(tmp_path) as (server, client):
        job = Held(client, tmp_path, "H100", 2)
        first = job.started()
        job.until("RUNNING")
        assert server.stop() == 0
        old = tmp_path / "old.sqlite"
        shutil.copy(server.state / "journal.sqlite", old)
        server.start()
        server.wait_ready()
        kill(first.pid)
        second = job.started(2)
        server.kill()
        put_back(server, old)
        server.start()
        server.wait_ready()
        third = job.started(3)
        assert (first.epoch, second.epoch, third.epoch) == (1, 2, 3)
        assert not is_alive(second.pid)
        job.end()
        assert f"{job.id}.2" in server.log_tail()


def test_a_restored_server_finds_the_tasks_where_they_write(tmp_path: Path) -> None:
    """As docs/guides/backup.md says: what runs goes on, and each job starts once."""
    restored, away = tmp_path / "restored", tmp_path / "away"
    with server_on(tmp_path) as (server, client):
        held = Held(client, tmp_path, "H100", 2, name="goes-on")
        pid = held.started().pid
        held.until("RUNNING")
        backed_up(server, restored)
        away.mkdir()
        for kept in server.state.iterdir():
            if kept.name not in ("engines", "checkpoints"):
                shutil.move(kept, away)
        for made in restored.iterdir():
            shutil.move(made, server.state)
        server.start()
        server.wait_ready()
        assert (held.until("RUNNING").attempts, is_alive(pid)) == (1, True)
        assert held.end().attempts == 1
        assert len(held.starts()) == 1


def backed_up(server: Server, into: Path) -> None:
    """Back up a server that runs, stop it, and restore the backup beside it."""
    file = str(into.with_suffix(".backup"))
    run("backup", file, "--state", str(server.state))
    assert server.stop() == 0
    run("restore", file, "--state", str(into))
