"""What a process answers while it does not lead."""

import asyncio
import json

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from topmast.api.guard import LoginGate, StandbyGate
from topmast.api.standby import (
    AGE,
    GUARDED,
    MOST_AGE,
    Hindrance,
    Reads,
    create_standby_api,
    not_leading,
)
from topmast.model.access import Caller, Grant, Principal, Role
from topmast.model.views import Health
from topmast.service.metrics import of_standby

LEADER = "http://127.0.0.1:7"


CALLERS = {
    "chief": Caller(Principal("user:chief", (Grant(Role.VIEWER),))),
    "ann": Caller(Principal("user:ann", (Grant(Role.ADMIN, "vision"),))),
}
"""By the token that each shows."""


class Known:
    """Knows these callers."""

    async def by_token(self, token: str, address: str, request: str) -> Caller | None:
        """The one with this token."""
        return CALLERS.get(token)

    async def refused(self, address: str, path: str, request: str, why: str) -> None:
        """It keeps no log."""


async def ask(
    path: str, token: str = "", *, login: bool = False, accept: str = "*/*"
) -> httpx.Response:
    """The answer of a standby that lacked twelve records three seconds ago."""
    gate = StandbyGate(LoginGate(Known(), "https://queue.example.com"), GUARDED) if login else None
    app = create_standby_api(
        lambda: Health("0", 0.0, 0.0, {}, 0, role="standby"), lambda: LEADER, "", gate,
        figures=lambda: of_standby(4, 12, 3.5),
    )  # fmt: skip
    transport = httpx.ASGITransport(app)
    shown = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path, headers=shown)


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/health", "", 401), ("/health", "stolen", 401), ("/health", "ann", 200),
        ("/api/v1/health", "", 401), ("/api/v1/health", "ann", 200),
        ("/metrics", "", 401), ("/metrics", "ann", 403), ("/metrics", "chief", 200),
        ("/livez", "", 200), ("/startupz", "", 200), ("/readyz", "", 503), ("/api/v1/jobs", "", 503),
    ],
)  # fmt: skip
def test_a_standby_with_a_login_asks_for_what_its_leader_asks_for(
    path: str, token: str, status: int
) -> None:
    """Strangers learn whether it lives, and where the leader is."""
    assert asyncio.run(ask(path, token, login=True)).status_code == status


def test_a_standby_lives_and_has_started_and_is_not_ready() -> None:
    """An orchestrator must not restart it, and must not send it any work."""
    for path in ("/livez", "/startupz"):
        answer = asyncio.run(ask(path))
        assert (answer.status_code, answer.text) == (200, "ok\n")
    answer = asyncio.run(ask("/readyz"))
    assert answer.status_code == 503
    assert answer.json()["leader"] == LEADER


def test_a_browser_is_told_by_a_page_that_asks_again() -> None:
    """It links to the same page at the leader, and what the address holds stays text."""
    answer = asyncio.run(ask("/queue?user=<b>&band=high", accept="text/html,*/*;q=0.8"))
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert 'http-equiv="refresh" content="3"' in answer.text
    assert f'<a href="{LEADER}/queue?user=%3Cb%3E&amp;band=high">' in answer.text
    assert "<b>" not in answer.text


def test_nothing_is_written_while_the_disk_of_the_database_is_full() -> None:
    """No other server could do it, so none is named; the client comes again a little later."""
    answer = not_leading(LEADER, hindered=Hindrance.FULL)
    told = json.loads(bytes(answer.body))
    assert "the disk of the database is full" in told["detail"]
    assert (told["leader"], answer.headers["Retry-After"]) == ("", "5")


def test_a_standby_that_cannot_tell_the_leader_from_itself_says_so() -> None:
    """No URL is named: it would lead back here. To say that there is no leader would be wrong."""
    told = json.loads(bytes(not_leading("", hindered=Hindrance.SHARED).body))
    assert "the leader has the same URL" in told["detail"]
    assert "--public-url" in told["detail"]
    assert told["leader"] == ""


@pytest.mark.parametrize("leader", [LEADER, ""])
def test_a_standby_that_has_lost_the_database_says_so(leader: str) -> None:
    """The leader may go on, if it is known: a client tries there; else that is why there is none."""
    told = json.loads(bytes(not_leading(leader, hindered=Hindrance.CUT_OFF).body))
    assert "cannot reach the database of the servers" in told["detail"]
    assert (told["leader"], LEADER in told["detail"]) == (leader, bool(leader))


def test_a_standby_tells_how_far_it_follows_and_nothing_of_the_state() -> None:
    """The state is the leader's to tell: two that told it would be added up."""
    answer = asyncio.run(ask("/metrics"))
    lines = answer.text.splitlines()
    assert {
        "topmast_leader_status 0.0", "topmast_leader_epoch 4.0",
        "topmast_standby_lag_records 12.0", "topmast_standby_age_seconds 3.5",
    } <= set(lines)  # fmt: skip
    assert not any(line.startswith(("topmast_pending", "topmast_gpus")) for line in lines)


@pytest.mark.parametrize(
    ("method", "path", "age_s", "most", "answers"),
    [
        ("GET", "/api/v1/jobs", 0.25, None, True), ("HEAD", "/", 0.25, None, True),
        ("GET", "/static/x/app.js", 5.0, None, True), ("GET", "/api/v1/jobs", 5.1, None, False),
        ("GET", "/api/v1/jobs", 5.1, "60", False), ("GET", "/api/v1/jobs", 0.25, "0.3", True),
        ("GET", "/api/v1/jobs", 0.25, "0.2", False), ("GET", "/api/v1/jobs", 0.25, "soon", False),
        ("GET", "/api/v1/jobs", 0.25, "nan", False), ("GET", "/api/v1/jobs", 0.25, "inf", True),
        ("GET", "/api/v1/jobs", 0.25, "-1", False), ("GET", "/api/v1/webhooks", 0.25, None, False),
        ("POST", "/api/v1/jobs", 0.25, None, False), ("DELETE", "/api/v1/tokens/t1", 0.1, None, False),
        ("GET", "/api/v1/health", 0.1, None, False), ("GET", "/metrics", 0.1, None, False),
        ("GET", "/readyz", 0.1, None, False), ("GET", "/auth/login", 0.1, None, False),
        ("GET", "/api/link/v2/books", 0.1, None, False),
    ],
)  # fmt: skip
def test_a_standby_passes_on_what_only_reads(
    method: str, path: str, age_s: float, most: str | None, answers: bool
) -> None:
    """Unless that were too old; what it answers says how old it is."""
    given = {} if most is None else {MOST_AGE: most}
    answer = asyncio.run(reading(method, path, age_s, given))
    assert answer.status_code == (200 if answers else 503)
    assert answer.headers.get(AGE) == (f"{age_s:.3f}" if answers else None)
    assert answers or method == "HEAD" or answer.json()["leader"] == LEADER


async def reading(method: str, path: str, age_s: float, headers: dict[str, str]) -> httpx.Response:
    """The answer of a server with reads of that age."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        only_a_leader_has_it = scope["path"] == "/api/v1/webhooks"
        await Response("ok", 503 if only_a_leader_has_it else 200)(scope, receive, send)

    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        await not_leading(LEADER)(scope, receive, send)

    transport = httpx.ASGITransport(Reads(lambda: served, lambda: age_s, other))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(method, path, headers=headers)
