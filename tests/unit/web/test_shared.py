"""Open pages of a large queue ask once; those of a small one ask each time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from topmast.model.errors import InvalidInput
from topmast.service.service import Service
from topmast.web import shared as module
from topmast.web.shared import shared


class _Fake(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def service(jobs: int) -> Service:
    """A service with so many jobs in memory."""
    records = dict.fromkeys(range(jobs))
    queue = SimpleNamespace(jobs=SimpleNamespace(records=records))
    return cast(Service, _Fake(machines=SimpleNamespace(queue=queue)))


class Question:
    """Takes long, and counts how often it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.asked = 0
        self.fails = fails

    async def __call__(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise InvalidInput("no", field="x")
        return self.asked


@pytest.mark.parametrize(
    ("story", "jobs", "keys", "want"),
    [
        ("a small queue", 10, ["a", "a", "a"], 3),
        ("a large queue", module.MANY_JOBS, ["a", "a", "a"], 1),
        ("readers that see other tenants", module.MANY_JOBS, ["a", "b", "a"], 2),
    ],
)
def test_readers_share_answers(
    monkeypatch: pytest.MonkeyPatch, story: str, jobs: int, keys: list[str], want: int
) -> None:
    """At the same time and shortly after."""
    monkeypatch.setattr(module, "REST", 1e9)
    question, of = Question(), service(jobs)

    async def read() -> None:
        await asyncio.gather(*(shared(of, key, question) for key in keys))
        for key in keys:
            await shared(of, key, question)

    asyncio.run(read())
    assert question.asked == (2 * want if jobs < module.MANY_JOBS else want)


def test_an_answer_serves_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an error not at all."""
    monkeypatch.setattr(module, "MOST_S", 0.0)
    question, wrong, of = Question(), Question(fails=True), service(module.MANY_JOBS)

    async def read() -> list[Any]:
        found: list[Any] = [await shared(of, "a", question) for _ in range(3)]
        for _ in range(2):
            with pytest.raises(InvalidInput):
                await shared(of, "b", wrong)
        return found

    assert asyncio.run(read()) == [1, 2, 3]
    assert wrong.asked == 2
