"""Programs of two versions on one database: the older one stands off, the newer one reads on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_standby_login import Side, break_glass
from tests.support import postgresql
from tests.support.live import Server, eventually
from tests.support.newer import SCHEMA, VERSION
from topmast.adapters.store import WrittenByNewer, examined
from topmast.adapters.store.schema import VERSIONS

pytestmark = pytest.mark.always

JOB = {"job": {"run": "true", "tenant": "default", "name": "one"}}
REFUSED = f"written by a newer Topmast ({VERSION}, schema {SCHEMA}; this one is "


class NewerServer(Server):
    """The same command, of a later version."""

    @property
    def command(self) -> list[str]:
        """With the folder of its migrations."""
        python, _, program, *words = super().command
        assert program == "topmast.app"
        return [python, "-m", "tests.support.newer", str(self.state) + ".migrations", *words]


def _newer(folder: Path, store: str) -> Side:
    side = Side(folder, store)
    old = side.server
    side.server = NewerServer(old.state, old.fleet, arguments=old.arguments, port=old.port)
    return side


@pytest.fixture
def url() -> Iterator[str]:
    with postgresql.server() as found:
        if found is None:
            pytest.skip("PostgreSQL is not installed")
        yield found


def test_a_newer_server_takes_over_and_the_older_ones_stand_off(tmp_path: Path, url: str) -> None:
    """Whether they follow already, are started later, or have led: none writes, reads on, or spins."""
    with ExitStack() as stack:
        first, newer, third = (
            Side(tmp_path / "a", url), _newer(tmp_path / "b", url), Side(tmp_path / "c", url),
        )  # fmt: skip
        for side in (first, newer, third):
            stack.callback(side.server.end)
        token = _led_by(first)
        for side in (newer, third):
            side.start()
            eventually(lambda side=side: _follows(side, first, token), "it follows")  # type: ignore[misc]
        first.server.kill()
        eventually(lambda: newer.leads(token), "the newer one leads")
        with pytest.raises(WrittenByNewer):
            examined(url)
        assert newer.post("/jobs", token, JOB).status_code == 201
        _stands_off(third, token)
        newer.server.kill()
        first.start()
        _stands_off(first, token)
        assert not third.leads(token)
        assert REFUSED in _refusal(tmp_path / "d", url)
        newer.start()
        eventually(lambda: newer.leads(token), "it leads again")
        names = [job["name"] for job in newer.get("/jobs", token).json()["jobs"]]
        assert names == ["one", "one"]


def _led_by(side: Side) -> str:
    """It leads, and has a job; a token that every leader knows."""
    side.start()
    chief = break_glass(side.state)
    eventually(lambda: side.leads(chief), "the first leads")
    assert side.post("/accounts", chief, {"name": "ci", "tenant": "default"}).status_code == 201
    role = {"subject": "sa:ci", "role": "submitter", "tenant": "default"}
    assert side.post("/roles/grant", chief, role).status_code == 201
    token = str(side.post("/tokens", chief, {"account": "ci"}).json()["token"])
    assert side.post("/jobs", token, JOB).status_code == 201
    return token


def _health(side: Side, token: str) -> dict[str, Any]:
    answer = side.get("/health", token)
    return dict(answer.json()) if answer.status_code == 200 else {}


def _follows(side: Side, leader: Side, token: str) -> bool:
    """It has all records, also of a leader of an older version."""
    found = _health(side, token)
    last = _health(leader, token)["journal_seq"]
    return found.get("role") == "standby" and not found["why"] and found["journal_seq"] >= last


def _stands_off(side: Side, token: str) -> None:
    """It says why, and goes on to say so: the same process, and no line of the log after the other."""
    eventually(lambda: REFUSED in side.server.log_tail(), "it stands off")
    lines = len(side.server.log_tail().splitlines())
    before = side.get("/health", token)
    time.sleep(3.0)
    after = side.get("/health", token)
    if before.status_code == 200:  # it knows the account: it had followed
        assert REFUSED in after.json()["why"]
        assert before.json()["started_s"] == after.json()["started_s"]
    assert len(side.server.log_tail().splitlines()) <= lines + 4
    assert side.server.log_tail().count("begins again") == 0


def _refusal(folder: Path, url: str) -> str:
    """What a server of today says that asks to lead."""
    side = Side(folder, url)
    arguments = [word for word in side.server.arguments if word != "--standby"]
    server = Server(side.state, side.server.fleet, arguments=arguments)
    server.start()
    assert server.ended() != 0
    assert f"knows up to {VERSIONS[-1]}): install that version here" in server.log_tail()
    return server.log_tail()
