"""The profile of a running server: what decides, and what the next start takes up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.entrance import entrance, run
from tests.support.live import PATIENCE_S, Server
from topmast import Client
from topmast.bench.fake_engine import FakeEngine
from topmast.model.access import Role
from topmast.model.errors import InvalidInput
from topmast.ports import Capability

PROGRAM = (sys.executable, "-m", "topmast.app")


def told(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that can be started again and again; afterwards nothing is left."""
    made = Server(tmp_path / "state", None)
    try:
        yield made
    finally:
        made.end()


def test_what_is_set_decides_from_the_next_start_on(server: Server) -> None:
    """By REST, Python and the command line; a start that names a profile goes before it."""
    with server.up() as client:
        assert client.profile().now.name == client.profile().later.name == "mast"
        tried = client.set_profile("sjf", {"default_duration_s": "600"}, dry_run=True)
        assert (tried.effect, tried.later.name, client.profile().later.name) == (
            "done", "sjf", "mast",
        )  # fmt: skip
        with pytest.raises(InvalidInput, match="unknown profile"):
            client.set_profile("sjff")
        words = [
            "policies",
            "set",
            "sjf",
            "--set",
            "default_duration_s=600",
            "--server",
            server.url,
        ]
        assert "decides by: sjf (default_duration_s=600.0)" in told(*words)
        found = json.loads(told("policies", "show", "--json", "--server", server.url))
        assert found["now"] == {"name": "mast", "options": {}}
        assert found["later"] == {"name": "sjf", "options": {"default_duration_s": 600.0}}
        assert client.set_profile("sjf", {"default_duration_s": "600"}).effect == "unchanged"
    server.stop()
    with server.up() as client:
        assert client.profile().now == client.profile().later
        assert client.profile().now.options == {"default_duration_s": 600.0}
    server.stop()
    for arguments in (("--profile", "fifo"), ()):
        server.arguments = arguments
        with server.up() as client:
            assert client.profile().now.name == "fifo"
        server.stop()


ONE_GPU = "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 1}]}}}}\n"
SLEEPS = {"run": "sleep 600", "expected_duration": "500s", "resources": {"accelerators": "G:1"}}


def test_forecasts_go_by_what_was_calibrated_also_after_a_restart(
    server: Server, tmp_path: Path
) -> None:
    """A start of 120 s, on GPUs of half the speed: the next job waits for 1,120 s instead of 500."""
    server.fleet, found = tmp_path / "fleet.yaml", tmp_path / "lab.set"
    server.fleet.write_text(ONE_GPU)
    found.write_text("# fitted to jobs.csv\nsim.startup_s=120\nsim.gpu_speed.G=0.5\n")
    kept = {"sim.startup_s": "120", "sim.gpu_speed.G": "0.5"}
    with server.up() as client:
        for _ in range(2):
            client.submit(SLEEPS)
        assert expected_wait_s(client) == pytest.approx(500.0, abs=60.0)
        assert client.profile().foreseen == {}
    server.stop()
    for arguments in (("--set", f"@{found}"), ()):
        server.arguments = arguments
        with server.up() as client:
            assert expected_wait_s(client) == pytest.approx(1_120.0, abs=60.0)
            assert client.profile().foreseen == kept
            shown = told("policies", "show", "--server", server.url)
            assert "told:         sim.startup_s=120, sim.gpu_speed.G=0.5\n" in shown
        server.stop()


def expected_wait_s(client: Client) -> float:
    """How long the second job will wait, counted from the start of the first."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        start_s, start = client.job("j1").start_s, client.explain("j2").expected_start
        if start_s is not None and start is not None and start.at_s is not None:
            return start.at_s - start_s
        time.sleep(0.1)
    raise AssertionError("no forecast")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["sim.host_mtbf_s=9"], "is not an option of up"),
        (["sim.startup_s=-1"], "out of range"),
        (["sim.gpu_speed.H=2"], "no such GPU model"),
    ],
)
def test_what_no_forecast_goes_by_is_refused(tmp_path: Path, words: list[str], want: str) -> None:
    """Before anything is started."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(ONE_GPU)
    options = ["--fleet", str(fleet), "--state", str(tmp_path / "state"), "--port", "0"]
    done = subprocess.run(
        [*PROGRAM, "up", *options, "--set", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, (tmp_path / "state").exists()) == (2, False)
    assert want in done.stderr


def test_a_profile_is_set_by_those_that_may_and_the_audit_log_has_it(tmp_path: Path) -> None:
    """With what was before, and why."""
    with entrance(tmp_path) as door:

        async def story() -> None:
            reader = await door.token("reader", (Role.VIEWER, "vision"))
            admin = await door.token("chief", (Role.ADMIN, "/"))
            wanted = {"profile": "fifo", "options": {}, "reason": "simple is fair"}
            async with door.client(reader) as client:
                assert (await client.get("/profile")).json()["now"]["name"] == "mast"
                assert (await client.put("/profile", json=wanted)).status_code == 403
            async with door.client(admin) as client:
                wrong = await client.put("/profile", json={"profile": "fifo", "options": {"a": 1}})
                assert (wrong.status_code, wrong.json()["field"]) == (422, "options")
                options = {"score.dtaa": "1", "rounds_s": "x"}
                wrong = await client.put("/profile", json={"profile": "mast", "options": options})
                fields = [one["field"] for one in wrong.json()["errors"]]
                assert fields == ["options.score.dtaa", "options.rounds_s"]
                assert (await client.put("/profile", json=wanted)).json()["effect"] == "done"
            (line,) = door.acts(verb="set profile", actor="sa:chief")
            assert json.loads(line.before) == {"profile": "mast", "options": {}}
            assert json.loads(line.after) == {
                "profile": "fifo", "options": {}, "reason": "simple is fair",
            }  # fmt: skip
            async with door.client(admin) as client:
                for again in ({"dry_run": True, "profile": "sjf"}, {"profile": "fifo"}):
                    assert (await client.put("/profile", json=again)).status_code == 200
            caller = door.service.directory.caller(reader)
            assert caller is not None
            (event,) = door.service.recent_events(caller, 10, "profile-set")
            assert event.text == (
                "the next leader is to decide by fifo, as sa:chief wants: simple is fair"
            )
            assert event.detail == {"profile": "fifo", "by": "sa:chief"}
            assert event.at_s == pytest.approx(line.at_s)

        run(story)


def test_a_profile_by_which_no_leader_could_lead_is_refused(tmp_path: Path) -> None:
    """One that the fleet's engines cannot keep."""
    host = {"gpu": "H100", "gpus": 2}
    able = {"regions": {"east": {"clusters": {"east-a": {"hosts": [{"count": 2, **host}]}}}}}

    assert Capability.SUSPEND not in FakeEngine.capabilities
    with entrance(tmp_path, able) as door:

        async def story() -> None:
            admin = await door.token("chief", (Role.ADMIN, "/"))
            async with door.client(admin) as client:
                for dry_run in (True, False):
                    wanted = {"profile": "gandiva", "dry_run": dry_run}
                    answer = await client.put("/profile", json=wanted)
                    assert answer.status_code == 422, answer.text
                    assert "needs engines that can suspend tasks" in answer.json()["detail"]
                assert (await client.get("/profile")).json()["later"]["name"] == "mast"

        run(story)


@pytest.mark.parametrize(
    "options",
    [
        {"rounds_s": "1e-300"},
        {"rounds_s": "1" + "0" * 400},
        {"score.data": "[" * 8_000},
        {"name": "fifo"},
        {f"x{at}": "1" for at in range(1_000)},
    ],
)
def test_options_that_no_leader_can_decide_by_are_refused(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """At once, and in words."""
    with entrance(tmp_path) as door:

        async def story() -> None:
            admin = await door.token("chief", (Role.ADMIN, "/"))
            async with door.client(admin) as client:
                wanted = {"profile": "mast", "options": options}
                answer = await client.put("/profile", json=wanted)
                assert answer.status_code == 422, answer.text
                assert answer.json()["field"]

        run(story)


def test_of_changes_at_once_each_knows_what_was_before_it(tmp_path: Path) -> None:
    """As the audit log says."""
    with entrance(tmp_path) as door:

        async def story() -> None:
            admin = await door.token("chief", (Role.ADMIN, "/"))
            async with door.client(admin) as client:
                names = ["fifo", "sjf", "srtf", "easy"]
                await asyncio.gather(
                    *(client.put("/profile", json={"profile": name}) for name in names)
                )
            lines = door.acts(verb="set profile")[::-1]
            assert len(lines) == len(names)
            before = [json.loads(line.before)["profile"] for line in lines]
            after = [json.loads(line.after)["profile"] for line in lines]
            assert before == ["mast", *after[:-1]]

        run(story)
