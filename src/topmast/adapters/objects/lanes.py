"""Background work: in order for one key, at once for different keys."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor


class Lanes:
    """Runs tasks on a few threads; those with the same key one after the other, in order."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[tuple[Callable[[], object], Future[object]]]] = {}

    def submit(self, key: Hashable, task: Callable[[], object]) -> Future[object]:
        """Run ``task`` after all tasks submitted before it with the same key. O(1)."""
        future: Future[object] = Future()
        with self._lock:
            lane = self._waiting.get(key)
            if lane is None:
                lane = self._waiting[key] = deque()
                self._pool.submit(self._run, key)
            lane.append((task, future))
        return future

    def _run(self, key: Hashable) -> None:
        while True:
            with self._lock:
                lane = self._waiting[key]
                if not lane:
                    del self._waiting[key]
                    return
                task, future = lane.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)

    def close(self) -> None:
        """Wait for the tasks that run; those that wait are cancelled."""
        with self._lock:
            for lane in self._waiting.values():
                for _task, future in lane:
                    future.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
