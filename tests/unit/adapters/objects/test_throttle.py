"""Rates: fair to the limit, even in time, and quick to stop."""

import math
import threading
import time

import pytest

from topmast.adapters.objects.throttle import (
    MAX_SLICE_BYTES,
    MIN_SLICE_BYTES,
    Halted,
    Throttle,
)


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, math.inf, math.nan])
def test_without_a_rate_nothing_waits(rate: float | None) -> None:
    throttle = Throttle(rate, threading.Event())
    begun_s = time.monotonic()
    throttle.take(10**15)
    assert time.monotonic() - begun_s < 0.1
    assert throttle.slice_bytes == MAX_SLICE_BYTES


@pytest.mark.parametrize(
    ("rate", "want_slice"),
    [(1.0, MIN_SLICE_BYTES), (80_000.0, 10_000), (1e12, MAX_SLICE_BYTES)],
)
def test_slices_fit_the_rate(rate: float, want_slice: int) -> None:
    assert Throttle(rate, threading.Event()).slice_bytes == want_slice


def test_threads_share_the_rate() -> None:
    throttle = Throttle(100_000, threading.Event())
    begun_s = time.monotonic()
    threads = [threading.Thread(target=throttle.take, args=(10_000,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.45 < time.monotonic() - begun_s < 2.0


def test_idle_time_is_not_saved_up() -> None:
    throttle = Throttle(100_000, threading.Event())
    throttle.take(1)
    time.sleep(0.3)
    begun_s = time.monotonic()
    throttle.take(20_000)
    assert time.monotonic() - begun_s > 0.15


def test_a_halt_ends_the_wait() -> None:
    halt = threading.Event()
    throttle = Throttle(1.0, halt)
    threading.Timer(0.1, halt.set).start()
    begun_s = time.monotonic()
    with pytest.raises(Halted):
        throttle.take(1_000_000)
    assert time.monotonic() - begun_s < 2.0
    with pytest.raises(Halted):
        throttle.take(0)
