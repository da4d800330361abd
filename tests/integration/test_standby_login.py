"""Two servers with a login on one database: what was proved to the one is known to the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support import postgresql
from tests.support.live import Server, eventually, free_ports
from topmast.api.standby import Hindrance

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
tenants: {default: {quota: {H100: 1}}}
"""


class Side:
    """One of the two."""

    def __init__(self, folder: Path, store: str, *more: str) -> None:
        """``more`` arguments for `topmast up`."""
        folder.mkdir()
        (folder / "fleet.yaml").write_text(FLEET)
        (folder / "accounts.yaml").write_text("")  # no provider, and no limits of its own
        (folder / "secret").write_text("a-secret-of-links-for-tests\n")
        (folder / "secret").chmod(0o600)
        nowhere, port = free_ports(2)
        arguments = [
            "--accounts", str(folder / "accounts.yaml"), "--store", store, "--standby",
            "--role", "queue", "--placer", f"east=http://127.0.0.1:{nowhere}",
            "--token-file", str(folder / "secret"), *more,
        ]  # fmt: skip
        self.state = folder / "state"
        self.url = f"http://127.0.0.1:{port}"
        self.server = Server(self.state, folder / "fleet.yaml", arguments=arguments, port=port)

    def start(self) -> None:
        """Returns when it answers, as a leader or not."""
        self.server.start()
        eventually(self._answers, "it answers")

    def _answers(self) -> bool:
        assert self.server.running, self.server.log_tail()
        try:
            return httpx.get(f"{self.url}/livez", timeout=20).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, token: str = "") -> httpx.Response:
        """An answer of it."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"{self.url}/api/v1{path}", headers=shown, timeout=20)

    def post(self, path: str, token: str, body: object) -> httpx.Response:
        """The same, of a request that changes something."""
        shown = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{self.url}/api/v1{path}", headers=shown, json=body, timeout=20)

    def leads(self, token: str) -> bool:
        """Whether it is the one that answers."""
        return self.get("/whoami", token).status_code == 200


def test_tokens_and_the_audit_log_go_over_to_the_next_leader(tmp_path: Path) -> None:
    """Also what was revoked; a standby tells strangers nothing but where the leader is."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        first, second = Side(tmp_path / "a", url), Side(tmp_path / "b", url)
        try:
            _story(first, second)
        finally:
            first.server.end()
            second.server.end()


def _story(first: Side, second: Side) -> None:
    first.start()
    chief = break_glass(first.state)
    eventually(lambda: first.leads(chief), "the first leads")
    assert first.post("/accounts", chief, {"name": "ci", "tenant": "default"}).status_code == 201
    role = {"subject": "sa:ci", "role": "submitter", "tenant": "default"}
    assert first.post("/roles/grant", chief, role).status_code == 201
    made = [first.post("/tokens", chief, {"account": "ci"}).json() for _ in range(2)]
    good, gone = (one["token"] for one in made)
    second.start()
    eventually(lambda: second.get("/jobs").json()["leader"] == first.url, "it knows the leader")
    assert second.server.stop() == 0
    assert second.server.log_tail().splitlines()[-1] == "stopped; it stood by"
    second.start()
    eventually(lambda: second.get("/jobs").json()["leader"] == first.url, "it knows the leader")
    for path, token in (("/jobs", ""), ("/jobs", good), ("/audit", chief), ("/events", good)):
        answer = second.get(path, token)
        assert (answer.status_code, answer.json()["leader"]) == (503, first.url), path
    assert [second.get("/health", token).status_code for token in ("", gone[:-1], good)] == [
        401, 401, 200,
    ]  # fmt: skip
    job = {"job": {"run": "true", "tenant": "default"}}
    sent = first.post("/jobs", good, job)
    assert sent.status_code == 201, sent.text
    revoked = made[1]["view"]["id"]
    answer = httpx.delete(
        f"{first.url}/api/v1/tokens/{revoked}", headers={"Authorization": f"Bearer {chief}"}
    )
    assert answer.status_code == 200
    first.server.kill()
    eventually(lambda: second.leads(good), "the second leads")
    assert second.get("/jobs", gone).status_code == 401
    assert second.get("/jobs", chief).status_code == 401, "it belongs to the other's machine"
    assert second.post("/jobs", good, job).status_code == 201
    assert [row["role"] for row in second.get("/whoami", good).json()["roles"]] == ["submitter"]
    own = break_glass(second.state)
    acts = second.get("/audit?limit=100", own).json()["acts"]
    verbs = [act["verb"] for act in acts if act["outcome"] == "done"]
    assert verbs.count("submit") == 2
    assert {"grant-role", "add-account", "create-token", "revoke-token"} <= set(verbs)
    told = json.dumps(acts)
    assert not [token for token in (good, gone, chief, own) if token in told]


def test_a_standby_whose_leader_has_the_same_url_says_so(tmp_path: Path) -> None:
    """It called itself without a leader, and cannot name one: the URL would lead back to it."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        shared = ("--public-url", "http://topmast.example.com", "--everyone-is-trusted")
        first, second = Side(tmp_path / "a", url, *shared), Side(tmp_path / "b", url, *shared)
        try:
            first.start()
            chief = break_glass(first.state)
            eventually(lambda: first.leads(chief), "the first leads")
            second.start()
            answer = second.get("/jobs")
            assert (answer.status_code, answer.json()["leader"]) == (503, "")
            assert "the leader has the same URL" in answer.json()["detail"]
            assert (
                second.get("/health", break_glass(second.state)).json()["why"] == Hindrance.SHARED
            )
            assert second.server.log_tail().count(Hindrance.SHARED) == 1
            assert Hindrance.SHARED not in first.server.log_tail()
        finally:
            first.server.end()
            second.server.end()


def test_what_had_a_login_is_not_opened_without_one(tmp_path: Path) -> None:
    """By a start that forgets the option, nor by a standby: on loopback there is none by default."""
    side = Side(tmp_path / "a", str(tmp_path / "journal.sqlite"))
    given = side.server.arguments  # without --store FILE --standby: a journal of its own
    place = given.index("--store")
    side.server.arguments = (*given[:place], *given[place + 3 :])
    side.start()
    side.server.end()
    said = refused(side)
    assert "--accounts: this server has had a login until now" in said
    assert "an empty file will do" in said
    side.start()
    side.server.end()
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        first, second = Side(tmp_path / "b", url), Side(tmp_path / "c", url, "--reads")
        try:
            first.start()
            eventually(lambda: first.leads(break_glass(first.state)), "the first leads")
            assert "--accounts: this server has had a login until now" in refused(second)
        finally:
            first.server.end()


def refused(side: Side) -> str:
    """What a start without the option says, before it ends."""
    place = side.server.arguments.index("--accounts")
    without = [*side.server.arguments[:place], *side.server.arguments[place + 2 :]]
    command = [
        sys.executable, "-m", "topmast.app", "up", "--state", str(side.state), "--port",
        str(side.server.port), "--fleet", str(side.state.parent / "fleet.yaml"), *without,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ)
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    return done.stderr


def break_glass(state: Path) -> str:
    words = ["accounts", "break-glass", "--state", str(state), "--for", "15m"]
    done = subprocess.run(
        [sys.executable, "-m", "topmast.app", *words], capture_output=True, text=True, check=True,
        env=dict(os.environ), timeout=60,
    )  # fmt: skip
    return done.stdout.strip()
