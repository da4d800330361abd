"""Tasks that harm the server, by bad luck or on purpose: what they write, and whom they stop.

One real server for the whole file, which must be the same process to its end.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import Server, eventually, live, tasks, until_state
from topmast import Client

FLEET = """
regions:
  north:
    clusters:
      spoil: {hosts: [{count: 1, gpu: SPOIL, gpus: 2}]}
      halt: {hosts: [{count: 1, gpu: HALT, gpus: 1}]}
"""
SETTINGS = {"min_runtime_s": "0", "backoff_s": "0.4", "suspect_s": "1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """The server of this file; each test begins and ends with it alive."""
    with live(tmp_path_factory.mktemp("hostile"), FLEET, SETTINGS) as both:
        yield both


@pytest.fixture
def server(running: tuple[Server, Client]) -> Iterator[Server]:
    """The server, which must not have ended."""
    yield running[0]
    assert running[0].running, running[0].log_tail()


@pytest.fixture
def client(running: tuple[Server, Client]) -> Client:
    """A client of the server."""
    return running[1]


def submit(client: Client, run: str, **more: object) -> str:
    """A job on one GPU that is not tried again."""
    document = {"name": "spoil", "run": run, "max_restarts": 0, **more}
    document.setdefault("resources", {"accelerators": "SPOIL:1"})
    return client.submit(document).id


def test_a_metric_whose_name_is_no_text_is_left_out(server: Server, client: Client) -> None:
    """JSON can say half a character, and names of files are often used for metrics."""
    report = r'{"step": 1, "metrics": {"loss": 0.5, "\ud800": 1.0, "file \udcff.bin": 2.0}}'
    job = submit(
        client,
        f"""echo '{report}' >> "$TOPMAST_PROGRESS_FILE"
        until [ -e "$TOPMAST_CHECKPOINT_DIR/go" ]; do sleep 0.05; done""",
    )
    eventually(lambda: client.job(job).step == 1, "the step is shown while the job runs")
    assert client.job(job).metrics == {"loss": 0.5}
    assert job in [view.id for view in client.jobs()]
    (server.state / "checkpoints" / job / "go").touch()
    assert until_state(client, job, "SUCCEEDED").metrics == {"loss": 0.5}


def test_a_job_that_halts_its_supervisor_can_be_cancelled_and_limited(
    server: Server, client: Client
) -> None:
    """Both stops reach it: by its owner, and by the time limit."""
    run = "kill -STOP $PPID; while true; do sleep 0.05 || true; done"
    gpu = {"accelerators": "HALT:1"}
    limited = submit(client, run, resources=gpu, time_limit=2, checkpoint={"grace": 1})
    assert "time limit" in until_state(client, limited, "FAILED").cause
    cancelled = submit(client, run, resources=gpu, checkpoint={"grace": 1})
    until_state(client, cancelled, "RUNNING")
    client.cancel(cancelled)
    until_state(client, cancelled, "CANCELLED")
    assert not tasks(server.state)


def states(client: Client) -> dict[str, str]:
    """The state of each host by name."""
    return {host.name: host.state for host in client.hosts()}


def test_a_host_whose_agent_is_halted_is_shown_so(server: Server, client: Client) -> None:
    """It is neither healthy nor down: nothing starts there, and what runs goes on."""
    eventually(lambda: states(client)["halt-0"] == "healthy", "the host is up")
    host = next(host for host in client.hosts() if host.name == "halt-0")
    assert host.agent_pid is not None
    os.kill(host.agent_pid, signal.SIGSTOP)
    try:
        eventually(lambda: states(client)["halt-0"] == "stopped", "the host is shown as stopped")
        assert states(client)["spoil-0"] == "healthy"
    finally:
        os.kill(host.agent_pid, signal.SIGCONT)
    eventually(lambda: states(client)["halt-0"] == "healthy", "the host goes on")


def test_a_record_of_an_end_that_a_task_spoiled_is_read_for_what_it_says(tmp_path: Path) -> None:
    """Whatever is in the file when a server starts, the server starts, and other jobs are told."""
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        held = submit(
            client, 'until [ -e "$TOPMAST_CHECKPOINT_DIR/go" ]; do sleep 0.05; done; exit 3'
        )
        until_state(client, held, "RUNNING")
        server.kill()
        (server.state / "checkpoints" / held / "go").touch()
        record = server.state / "engines" / "spoil" / "tasks" / f"{held}.1.0.end"
        eventually(record.exists, "the job ends while no server runs")
        spoiled = {"error": "\ud800", "step": [], "metrics": {"\ud800": 1, "loss": 2}}
        record.write_text(json.dumps({**json.loads(record.read_bytes()), **spoiled}))
        with server.up() as again:
            view = until_state(again, held, "FAILED")
            assert view.metrics == {"loss": 2.0}
            until_state(again, submit(again, "exit 0"), "SUCCEEDED")
        assert server.running


def test_names_that_a_task_made_do_not_keep_a_server_from_numbering_jobs(tmp_path: Path) -> None:
    """Neither its checkpoints folder nor the claims of an engine push numbers to where nothing fits."""
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        run = """far=99999999999999999999
        mkdir -p "$TOPMAST_CHECKPOINT_DIR/../j$far" "$TOPMAST_CHECKPOINT_DIR/../j999999999999"
        touch "$(dirname "$TOPMAST_TASK")/$TOPMAST_JOB_ID.$far.0"
        touch "$(dirname "$TOPMAST_TASK")/$TOPMAST_JOB_ID.999999999.0"
        echo made; until [ -e "$TOPMAST_CHECKPOINT_DIR/go" ]; do sleep 0.05; done
        [ "$TOPMAST_EPOCH" = 2 ]"""
        job = submit(client, run, max_restarts=1)
        made = server.state / "engines" / "spoil" / "tasks" / f"{job}.999999999.0"
        eventually(made.exists, "the task made its names")
        server.kill()
        (server.state / "checkpoints" / job / "go").touch()
        with server.up() as again:
            assert "too far ahead" in server.log_tail()
            assert submit(again, "exit 0") == "j2"
            assert until_state(again, job, "SUCCEEDED").attempts == 2
            until_state(again, "j2", "SUCCEEDED")
        assert server.running
