"""`topmast up` at its beginning and its end, as a person at a terminal sees it."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.certificates import write_certificate
from tests.support.live import Server, live, until_state
from topmast.client.address import written_url
from topmast.model.errors import Unavailable

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}}
"""
PROGRAM = [sys.executable, "-m", "topmast.app"]


def test_a_second_server_is_told_of_the_first_not_of_its_port(tmp_path: Path) -> None:
    """Both would listen on the same port, but that is not what is wrong."""
    with live(tmp_path, FLEET) as (server, _):
        port = server.url.rpartition(":")[2]
        command = [*PROGRAM, "up", "--state", str(server.state), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert f"is in use by another process (pid {server.pid}): stop it first" in done.stderr
        assert "Address already in use" not in done.stderr


def test_a_first_start_decides_before_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job ends meanwhile; and what compiles ends with the server."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    with live(tmp_path, FLEET) as (server, client):
        job = client.submit({"run": "true", "resources": {"accelerators": "H100:1"}})
        until_state(client, job.id, "SUCCEEDED")
        log = server.log_tail()
        assert "until then decisions are the same, and slower" in log
        assert "kernels are compiled" not in log
        compilers = psutil.Process(server.pid).children()
        assert len(compilers) == 2
    _, left = psutil.wait_procs(compilers, timeout=20)
    assert left == []


def test_a_server_that_stops_says_what_runs_on(tmp_path: Path) -> None:
    """One line at the end: how many jobs were left running."""
    with live(tmp_path, FLEET) as (server, client):
        for _ in range(2):
            job = client.submit({"run": "sleep 600", "resources": {"accelerators": "H100:1"}})
            until_state(client, job.id, "RUNNING")
        client.submit({"run": "true", "resources": {"accelerators": "H100:2"}})
        assert server.stop() == 0
        assert server.log_tail().splitlines()[-1] == "stopped; 2 jobs run on"


def test_a_server_that_is_starting_is_told_of_until_it_is_there(tmp_path: Path) -> None:
    """A command beside it must not ask for another one to be started."""
    server = Server(tmp_path / "state", None)
    server.start()
    try:
        deadline_s = time.monotonic() + 60
        while not list(server.state.glob("starting.*.json")):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        with pytest.raises(Unavailable, match="is starting; try again in some seconds"):
            written_url(server.state)
        url = server.wait_ready()
        assert written_url(server.state) == url
        assert not list(server.state.glob("starting.*.json"))
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "closed", "want"),
    [
        (["queue"], "<&- >&-", 1),
        (["queue"], "<&- >&- 2>&-", 1),
        (["--version"], ">&-", 0),
        (["queue", "--json"], "2>&-", 1),
    ],
)
def test_without_standard_streams_there_is_no_traceback(
    tmp_path: Path, arguments: list[str], closed: str, want: int
) -> None:
    """Some programs start others with closed ones; an error is an exit code then, and a line if it can be written."""
    call = f'"$@" {closed}'
    command = ["bash", "-c", call, "bash", *PROGRAM, *arguments]
    if arguments[0] == "queue":
        command += ["--state", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == want, done.stderr
    assert "Traceback" not in done.stderr
    if "2>" not in closed and want:
        assert "no Topmast server runs on" in done.stderr


def test_all_that_is_wrong_with_the_options_is_told_at_once(tmp_path: Path) -> None:
    """Each names its option or file, and no folder is left behind."""
    state = tmp_path / "state"
    wrong = {
        "--set score.data": "score.data=abc", "--set data": "data=1", "--store": "mysql://x",
        "--otlp": "ftp://y", "--accounts": str(tmp_path / "no.yaml"),
        "--fleet": str(tmp_path / "nofleet.yaml"), "--checkpoints": "s4://z",
        "--notify-network": "10.0.0.0/99",
    }  # fmt: skip
    given = [word for name, value in wrong.items() for word in (name.split()[0], value)]
    run = [*PROGRAM, "up", "--state", str(state), *given]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    told = done.stderr.splitlines()
    assert len(told) == len(wrong), done.stderr
    for name in (
        "--set score.data",
        "did you mean 'score.data'",
        "--store",
        "--otlp",
        "no.yaml",
        "nofleet",
        "--checkpoints",
        "--notify-network: '10.0.0.0/99' is not a network",
    ):
        assert any(name in line for line in told), (name, done.stderr)
    assert not state.exists()


def test_what_engines_find_wrong_is_told_with_the_rest(tmp_path: Path) -> None:
    """Equal addresses and options with a slip, by line, beside faults of the options of `up`."""
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "regions:\n  east:\n    storage: much\n    clusters:\n      metal:\n        engine: ssh\n"
        "        options: {usr: me, address.a: 10.0.0.7, address.b: 10.0.0.7}\n"
        "        hosts: [{names: [a, b], gpu: H100, gpus: 8}]\n"
    )
    state = tmp_path / "state"
    run = [*PROGRAM, "up", "--state", str(state), "--fleet", str(file), "--set", "score.dato=1"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    told, metal = done.stderr.splitlines(), f"{file}:7: regions.east.clusters.metal.options"
    wanted = (
        f"topmast: {file}:3: regions.east.storage",
        f"topmast: {metal}.usr: engine 'ssh' has no such option (did you mean 'user'?)",
        f"topmast: {metal}.address.b: hosts a and b have the same address",
        "topmast: --set score.dato",
    )
    assert len(told) == len(wanted)
    assert all(line.startswith(want) for line, want in zip(told, wanted, strict=True)), told
    assert not state.exists()


def test_a_start_that_is_refused_leaves_no_folder_behind(tmp_path: Path) -> None:
    """Whatever it was that could not be: another start would find a folder that it did not make."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(cert, key)
    others = ["--tls-cert", str(cert), "--tls-key", str(key), "--port", "0"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for given, told in (
            (["--port", str(taken.getsockname()[1])], "cannot listen"),
            (["--standby"], "--standby: two servers"),
            (["--listen", "0.0.0.0:0", "--everyone-is-trusted", *others], "--public-url"),
            (["--listen", "127.0.0.1:0", *others], "run as the user of the server"),
        ):
            run = [*PROGRAM, "up", "--state", str(tmp_path / "state"), *given]
            done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode, done.stderr
            assert told in done.stderr
            assert not (tmp_path / "state").exists(), told


@pytest.mark.parametrize(
    "given",
    [
        ["replay", "--state", "nope"],
        ["replay", "--state", "nope", "--serve"],
        ["restore", "garbage", "--verify"],
        ["restore", "nope", "--state", "new"],
        ["backup", "new", "--state", "nope"],
    ],
    ids=" ".join,
)
def test_what_is_refused_is_refused_before_what_takes_long_to_import(
    given: list[str], tmp_path: Path
) -> None:
    """The machines, the service and the solvers: seconds, for a file that is not there."""
    (tmp_path / "garbage").write_text("x")
    run = [sys.executable, "-X", "importtime", "-m", "topmast.app", *given]
    done = subprocess.run(
        run, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode
    assert "topmast.model.errors" in done.stderr
    heavy = ("topmast.runtime.machines", "topmast.service", "scipy", "numpy", "fastapi")
    assert [name for name in heavy if f" {name}\n" in done.stderr] == []
