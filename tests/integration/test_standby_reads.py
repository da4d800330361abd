"""A standby that answers what only reads: as the leader has it, a moment later, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.test_standby_login import Side, break_glass
from tests.support import postgresql
from tests.support.live import eventually
from topmast import Client
from topmast.api.observing import LIVE, READY
from topmast.api.standby import AGE, MOST_AGE, Hindrance

ONLY_LEADERS = ("/webhooks", "/whatif/w1", "/plans/data", "/plans/capacity")
JOB = {"job": {"run": "true", "tenant": "default", "name": "here"}}


def test_a_standby_answers_what_only_reads(tmp_path: Path) -> None:
    """With the leader's permissions; it names the leader for all else, and takes over from it."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        first, second = Side(tmp_path / "a", url), Side(tmp_path / "b", url, "--reads")
        try:
            _story(first, second)
        finally:
            first.server.end()
            second.server.end()


def _story(first: Side, second: Side) -> None:
    first.start()
    chief = break_glass(first.state)
    eventually(lambda: first.leads(chief), "the first leads")
    ci, eyes, gone = (_account(first, chief, *one) for one in (
        ("ci", "submitter"), ("eyes", "viewer"), ("gone", "viewer"),
    ))  # fmt: skip
    job = first.post("/jobs", ci, JOB).json()["id"]
    second.start()
    eventually(lambda: second.get("/jobs", eyes).status_code == 200, "the second answers")
    for path in ("/jobs", f"/jobs/{job}", f"/jobs/{job}/story", f"/jobs/{job}/explain", "/tenants",
                 "/hosts", "/clusters", "/usage", "/budgets", "/system", "/whoami"):  # fmt: skip
        told = [side.get(path, eyes) for side in (first, second)]
        assert [one.status_code for one in told] == [200, 200], (path, told[1].text)
        assert told[0].json().keys() == told[1].json().keys(), path
        assert AGE not in told[0].headers
        assert 0.0 <= float(told[1].headers[AGE]) < 5.0
    assert second.get(f"/jobs/{job}", eyes).json()["name"] == "here"
    assert [one.json()["acts"][0]["verb"] for one in (
        side.get("/audit?verb=submit", token)
        for side, token in ((first, chief), (second, break_glass(second.state)))
    )] == ["submit", "submit"]  # fmt: skip
    _follows(first, second, ci, eyes)
    _refuses(first, second, job, (ci, eyes, gone), chief)
    _shows_pages(second, first.url, eyes)
    _asked_by_people(first, second, ci, job)
    first.server.kill()
    eventually(lambda: AGE not in second.get("/jobs", eyes).headers
               and second.leads(eyes), "the second leads")  # fmt: skip
    assert second.post("/jobs", ci, JOB).status_code == 201


def _account(side: Side, chief: str, name: str, role: str) -> str:
    assert side.post("/accounts", chief, {"name": name, "tenant": "default"}).status_code == 201
    grant = {"subject": f"sa:{name}", "role": role, "tenant": "default"}
    assert side.post("/roles/grant", chief, grant).status_code == 201
    return str(side.post("/tokens", chief, {"account": name}).json()["token"])


def _follows(first: Side, second: Side, ci: str, eyes: str) -> None:
    """What is new is told to those that listen to a standby, with the numbers of the leader."""
    new = first.post("/jobs", ci, JOB).json()["id"]
    numbers = [_number_of(side, new, eyes) for side in (first, second)]
    assert numbers[0] == numbers[1]
    with _listening(second, eyes, "") as answer:
        late = first.post("/jobs", ci, JOB).json()["id"]
        assert next(_events(answer))["job"] == late


def _number_of(side: Side, job: str, token: str) -> int:
    """That of the first event of a job."""
    with _listening(side, token, "?after=0") as answer:
        return next(int(event["seq"]) for event in _events(answer) if event["job"] == job)


def _listening(side: Side, token: str, after: str) -> AbstractContextManager[httpx.Response]:
    shown = {"Authorization": f"Bearer {token}"}
    return httpx.stream("GET", f"{side.url}/api/v1/events{after}", headers=shown, timeout=20)


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))


def _refuses(first: Side, second: Side, job: str, tokens: tuple[str, str, str], chief: str) -> None:
    ci, eyes, gone = tokens
    for answer in (
        second.post("/jobs", ci, JOB), second.post(f"/jobs/{job}/cancel", ci, {}),
        httpx.get(f"{second.url}/readyz"),
        httpx.get(f"{second.url}/api/v1/jobs", headers={
            "Authorization": f"Bearer {eyes}", MOST_AGE: "0",
        }),
        httpx.get(f"{second.url}/auth/login"),
        httpx.get(f"{second.url}/api/v1/jobs", headers={
            "Authorization": f"Bearer {eyes}", MOST_AGE: "nan",
        }),
        *(second.get(path, break_glass(second.state)) for path in ONLY_LEADERS),
    ):  # fmt: skip
        assert answer.status_code == 503, answer.text
        assert answer.json()["leader"] == first.url
    assert second.get("/jobs", "").status_code == 401
    assert second.get("/audit", eyes).status_code == 403
    assert second.get("/jobs", gone).status_code == 200
    number = next(
        one["id"] for one in first.get("/tokens", chief).json()["tokens"]
        if one["subject"] == "sa:gone"
    )  # fmt: skip
    httpx.delete(
        f"{first.url}/api/v1/tokens/{number}", headers={"Authorization": f"Bearer {chief}"}
    ).raise_for_status()
    eventually(lambda: second.get("/jobs", gone).status_code == 401, "it is good for nothing", 5.0)


def _shows_pages(second: Side, leader: str, eyes: str) -> None:
    for path in ("/", "/fleet", "/tenants", "/data", "/usage", "/system"):
        answer = httpx.get(
            f"{second.url}{path}", headers={"Authorization": f"Bearer {eyes}"}, timeout=20
        )
        assert answer.status_code == 200, (path, answer.text)
        assert f'<a href="{leader}">To the leader</a>' in answer.text
        assert "data-select-all" not in answer.text


def _asked_by_people(first: Side, second: Side, token: str, job: str) -> None:
    """A client goes to the leader, unless it says that an older answer will do."""
    words = [sys.executable, "-m", "topmast.app", "queue", "--server", second.url]
    for age, noted in (("", False), ("5", True)):
        env = {**os.environ, "TOPMAST_TOKEN": token, "TOPMAST_MOST_AGE_S": age}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60)
        assert (done.returncode, job in done.stdout) == (0, True), done.stderr
        assert ("as a standby had it 0." in done.stderr) is noted
    os.environ["TOPMAST_TOKEN"] = token
    try:
        with Client(second.url, most_age_s=5.0) as client:
            client.job(job)
            assert client.age_s is not None
            client.submit({"run": "true", "tenant": "default"})
            assert client.url == first.url
    finally:
        del os.environ["TOPMAST_TOKEN"]


def test_a_standby_that_lost_the_database_answers_nothing_old(tmp_path: Path) -> None:
    """After five seconds at the latest: it cannot know what was revoked."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        first, second = Side(tmp_path / "a", url), Side(tmp_path / "b", url, "--reads")
        try:
            first.start()
            chief = break_glass(first.state)
            eventually(lambda: first.leads(chief), "the first leads")
            token = _account(first, chief, "eyes", "viewer")
            second.start()
            eventually(lambda: second.get("/jobs", token).status_code == 200, "it answers")
            backends = _backends(url)
            assert len(backends) >= 3
            for pid in backends:
                os.kill(pid, signal.SIGSTOP)
            try:
                eventually(
                    lambda: second.get("/jobs", token).status_code == 503, "it is too old", 15.0
                )
            finally:
                for pid in backends:
                    os.kill(pid, signal.SIGCONT)
        finally:
            first.server.end()
            second.server.end()


def test_no_good_token_is_called_bad_while_the_database_is_away(tmp_path: Path) -> None:
    """The server that led begins again with no accounts: it says so, and what it waits for."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        only = Side(tmp_path / "a", url)
        try:
            only.start()
            chief = break_glass(only.state)
            eventually(lambda: only.leads(chief), "it leads")
            token = _account(only, chief, "eyes", "viewer")
            postmaster = psutil.Process(psutil.Process(_backends(url)[0]).ppid())
            postmaster.send_signal(signal.SIGQUIT)
            postmaster.wait(20.0)
            seen = set[int]()
            eventually(lambda: _has_begun_again(only, token, seen), "it is told why", 60.0)
            assert seen <= {0, 200, 503}
        finally:
            only.server.end()


def test_a_leader_whose_database_is_halted_says_so(tmp_path: Path) -> None:
    """The connections stay open, so it neither fails nor leads: it called itself without a leader."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        only = Side(tmp_path / "a", url)
        try:
            only.start()
            chief = break_glass(only.state)
            eventually(lambda: only.leads(chief), "it leads")
            postmaster = psutil.Process(psutil.Process(_backends(url)[0]).ppid())
            postmaster.suspend()
            halted = [postmaster, *postmaster.children(recursive=True)]
            try:
                for one in halted:
                    one.suspend()
                eventually(
                    lambda: _detail(only, chief) == Hindrance.UNPROVEN, "it is told why", 60.0
                )
                probes = [httpx.get(f"{only.url}{path}").status_code for path in (LIVE, READY)]
                assert probes == [200, 503]  # what restarts it would help nothing
            finally:
                for one in halted:
                    with suppress(psutil.NoSuchProcess):  # what was told to end meanwhile
                        one.resume()
            eventually(lambda: only.leads(chief), "it leads again", 60.0)
        finally:
            only.server.end()


def _detail(side: Side, token: str) -> str:
    """What is told in place of the jobs; empty while there is no answer."""
    shown = {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.get(f"{side.url}/api/v1/jobs", headers=shown, timeout=2.0)
    except httpx.TransportError:  # it came before the server noticed
        return ""
    return str(answer.json().get("detail"))


def _has_begun_again(side: Side, token: str, seen: set[int]) -> bool:
    """Whether it says why it knows nothing; ``seen`` gets what one with a token has for an answer."""
    try:
        health, jobs = side.get("/health", token), side.get("/jobs", token)
    except httpx.TransportError:  # it just begins again
        seen.add(0)
        return False
    seen.update((health.status_code, jobs.status_code))
    told = [str(one.json().get("detail")) for one in (health, jobs)]
    return "its database does not answer" in told[0] and "cannot reach the database" in told[1]


def _backends(url: str) -> list[int]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'topmast'"
        )
        return [row[0] for row in rows]
