"""What the process of a region answers that asks it for what the queue knows."""

import asyncio
from concurrent.futures import Future

import httpx
import pytest

from topmast.api import HEALTH, METHODS, PREFIX, create_regional_api
from topmast.api.link import LinkEndpoint

QUEUE = "https://queue.example.com"
APP = create_regional_api(LinkEndpoint(lambda batch: Future(), for_queue=False), "east", QUEUE, "")


def ask(method: str, path: str) -> httpx.Response:
    """One request of this machine."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(APP)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path)

    return asyncio.run(send())


@pytest.mark.parametrize("method", METHODS)
def test_who_asks_the_placer_of_a_region_is_told_where_the_queue_is(method: str) -> None:
    """By whatever method: a job that is sent there, too."""
    answer = ask(method, f"{PREFIX}/jobs")
    assert answer.status_code == 404
    if method != "HEAD":
        assert (
            answer.json()["detail"] == f"this is the placer of region east; the queue is at {QUEUE}"
        )


def test_the_health_of_a_region_answers_head() -> None:
    """As its other probes."""
    assert (ask("GET", HEALTH).json()["role"], ask("HEAD", HEALTH).status_code) == ("placer", 200)
