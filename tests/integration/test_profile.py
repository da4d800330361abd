"""The profile of a running server: what decides, and what the next start takes up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.entrance import entrance, run
from tests.support.live import Server
from topmast.model.access import Role
from topmast.model.errors import InvalidInput

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
                assert (await client.put("/profile", json=wanted)).json()["effect"] == "done"
            (line,) = door.acts(verb="set profile", actor="sa:chief")
            assert json.loads(line.before) == {"profile": "mast", "options": {}}
            assert json.loads(line.after) == {
                "profile": "fifo", "options": {}, "reason": "simple is fair",
            }  # fmt: skip

        run(story)
