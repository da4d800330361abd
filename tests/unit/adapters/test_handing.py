"""Answers of other threads: they arrive, and those that come together wake the loop once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from topmast.adapters.handing import handed

ANSWERS, COMMITS = 100, 3


def _elsewhere(work: Callable[[], object]) -> None:
    """Do it on another thread, while the loop stands still."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_answers_of_one_commit_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, each time; and all arrive, each where it is awaited."""

    async def run() -> tuple[list[list[int]], int]:
        loop, calls = asyncio.get_running_loop(), 0
        call = loop.call_soon_threadsafe

        def counted(*given: Any, **more: Any) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return call(*given, **more)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

        def resolve(answers: list[Future[int]]) -> None:
            for i, one in enumerate(answers):
                one.set_result(i)

        found = []
        for _ in range(COMMITS):
            answers: list[Future[int]] = [Future() for _ in range(ANSWERS)]
            waits = asyncio.gather(*[handed(answer) for answer in answers])
            _elsewhere(partial(resolve, answers))
            found.append(await asyncio.wait_for(waits, 10))
        return found, calls

    assert asyncio.run(run()) == ([list(range(ANSWERS))] * COMMITS, COMMITS)


def test_each_answer_arrives_under_way() -> None:
    """Also what comes while others are fetched: many rounds, from two threads."""

    async def one(answer: Future[int]) -> int:
        return await handed(answer)

    async def run() -> int:
        answers: list[Future[int]] = [Future() for _ in range(5_000)]

        def resolve(part: list[Future[int]]) -> None:
            for answer in part:
                answer.set_result(1)

        threads = [threading.Thread(target=resolve, args=[answers[i::2]]) for i in range(2)]
        asked = asyncio.gather(*map(one, answers))
        for thread in threads:
            thread.start()
        found = await asyncio.wait_for(asked, 30)
        for thread in threads:
            thread.join()
        return sum(found)

    assert asyncio.run(run()) == 5_000


@pytest.mark.parametrize(
    ("error", "want"), [(KeyError("gone"), KeyError), (StopIteration(), RuntimeError)]
)
def test_an_error_is_raised_where_the_answer_is_awaited(
    error: BaseException, want: type[Exception]
) -> None:
    """And the others that lie beside it arrive all the same."""

    async def run() -> tuple[object, object]:
        answers: list[Future[int]] = [Future(), Future()]
        waits = [handed(one) for one in answers]

        def end() -> None:
            answers[0].set_exception(error)
            answers[1].set_result(2)

        _elsewhere(end)
        both = asyncio.gather(*waits, return_exceptions=True)
        first, second = await asyncio.wait_for(both, 10)
        return type(first), second

    assert asyncio.run(run()) == (want, 2)


def test_what_nothing_waits_for_is_given_up() -> None:
    """So a question of a client that left costs nothing; and its desk goes on."""

    async def run() -> tuple[bool, int]:
        left: Future[int] = Future()
        other: Future[int] = Future()
        waits, waits_too = handed(left), handed(other)
        waits.cancel()
        await asyncio.sleep(0)
        _elsewhere(lambda: other.set_result(2))
        return left.cancelled(), await asyncio.wait_for(waits_too, 10)

    assert asyncio.run(run()) == (True, 2)


def test_an_answer_after_the_end_of_the_loop_is_nothing_to_its_thread() -> None:
    """What decides goes on."""
    answer: Future[int] = Future()

    async def run() -> None:
        handed(answer)

    asyncio.run(run())
    _elsewhere(lambda: answer.set_result(1))
    assert answer.result() == 1
    assert asyncio.run(_again()) == 3


async def _again() -> int:
    answer: Future[int] = Future()
    waits = handed(answer)
    _elsewhere(lambda: answer.set_result(3))
    return await asyncio.wait_for(waits, 10)
