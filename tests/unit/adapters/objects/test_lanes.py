"""Background work: order within a key, no waiting between keys."""

import threading
from concurrent.futures import CancelledError

import pytest

from topmast.adapters.objects.lanes import Lanes


def test_tasks_of_one_key_run_in_order_one_at_a_time() -> None:
    lanes = Lanes(4, "test")
    ran: list[int] = []
    busy = threading.Lock()

    def task(n: int) -> None:
        assert busy.acquire(blocking=False), "two at once"
        ran.append(n)
        busy.release()

    futures = [lanes.submit("key", lambda n=n: task(n)) for n in range(200)]  # type: ignore[misc]
    for future in futures:
        future.result(timeout=10)
    assert ran == list(range(200))
    lanes.close()


def test_keys_do_not_wait_for_one_another() -> None:
    lanes = Lanes(2, "test")
    go = threading.Event()
    slow = lanes.submit("slow", lambda: go.wait(10))
    assert lanes.submit("quick", lambda: "done").result(timeout=10) == "done"
    go.set()
    assert slow.result(timeout=10)
    lanes.close()


def test_a_failure_reaches_its_own_future_only() -> None:
    lanes = Lanes(1, "test")
    failing = lanes.submit("key", lambda: 1 // 0)
    assert lanes.submit("key", lambda: 2).result(timeout=10) == 2
    with pytest.raises(ZeroDivisionError):
        failing.result(timeout=10)
    lanes.close()


def test_close_waits_for_what_runs_and_cancels_what_waits() -> None:
    lanes = Lanes(1, "test")
    began, go = threading.Event(), threading.Event()

    def run() -> str:
        began.set()
        go.wait(10)
        return "ran"

    running = lanes.submit("key", run)
    waiting = [lanes.submit(key, lambda: "no") for key in ("key", "other")]
    began.wait(10)
    threading.Timer(0.1, go.set).start()
    lanes.close()
    assert running.result(timeout=0) == "ran"
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(timeout=0)
