"""Samples of the fleet over time go over to the next leader, by REST and on the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.test_standby_login import Side, break_glass
from tests.support import postgresql
from tests.support.live import eventually

TENANT = ["tenant", "default"]


def test_the_fleet_over_time_outlives_its_leader(tmp_path: Path) -> None:
    """One that ends in good order hands over all its samples; after a kill those kept remain."""
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
    assert first.post("/accounts", chief, {"name": "eyes", "tenant": "default"}).status_code == 201
    role = {"subject": "sa:eyes", "role": "viewer", "tenant": "default"}
    assert first.post("/roles/grant", chief, role).status_code == 201
    token = first.post("/tokens", chief, {"account": "eyes"}).json()["token"]
    second.start()
    eventually(lambda: _history(first, token)["times"], "the first has a sample")
    told = _history(first, token)
    first.server.stop()
    eventually(lambda: second.leads(token), "the second leads")
    known = _history(second, token)
    assert known["times"][: len(told["times"])] == told["times"]
    assert known["first_s"] == told["first_s"]
    assert TENANT in [one["key"] for one in known["series"]]
    assert "no GPU was held" in _page(second, "/usage?period=1h", token)
    first.start()
    eventually(lambda: first.get("/jobs", token).json().get("leader") == second.url, "it waits")
    second.server.kill()
    eventually(lambda: first.leads(token), "the first leads again")
    assert _history(first, token)["times"][: len(told["times"])] == told["times"]


def _history(side: Side, token: str) -> dict[str, Any]:
    answer = side.get("/fleet/history?period=1h", token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _page(side: Side, path: str, token: str) -> str:
    return httpx.get(
        f"{side.url}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=20
    ).text
