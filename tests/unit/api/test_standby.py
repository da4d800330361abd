"""What a process answers while it does not lead."""

import asyncio

import httpx

from topmast.api.standby import create_standby_api
from topmast.model.views import Health
from topmast.service.metrics import of_standby

LEADER = "http://127.0.0.1:7"


async def ask(path: str) -> httpx.Response:
    """The answer of a standby that lacked twelve records three seconds ago."""
    app = create_standby_api(
        lambda: Health("0", 0.0, 0.0, {}, 0, role="standby"), lambda: LEADER, "",
        figures=lambda: of_standby(4, 12, 3.5),
    )  # fmt: skip
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path)


def test_a_standby_lives_and_has_started_and_is_not_ready() -> None:
    """An orchestrator must not restart it, and must not send it any work."""
    for path in ("/livez", "/startupz"):
        answer = asyncio.run(ask(path))
        assert (answer.status_code, answer.text) == (200, "ok\n")
    answer = asyncio.run(ask("/readyz"))
    assert answer.status_code == 503
    assert answer.json()["leader"] == LEADER


def test_a_standby_tells_how_far_it_follows_and_nothing_of_the_state() -> None:
    """The state is the leader's to tell: two that told it would be added up."""
    answer = asyncio.run(ask("/metrics"))
    lines = answer.text.splitlines()
    assert {
        "topmast_leader_status 0.0", "topmast_leader_epoch 4.0",
        "topmast_standby_lag_records 12.0", "topmast_standby_age_seconds 3.5",
    } <= set(lines)  # fmt: skip
    assert not any(line.startswith(("topmast_pending", "topmast_gpus")) for line in lines)
