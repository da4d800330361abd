"""Background work: in order for one key, at once for different keys."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future

Task = Callable[[], object]


class Lanes:
    """Runs tasks on a few threads; those with the same key one after the other, in order.

    The threads are daemons: a process that has to end at once does not wait for a slow copy.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, deque[tuple[Task, Future[object]]]] = {}
        self._ready: queue.SimpleQueue[Hashable | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, task: Task) -> Future[object]:
        """Run ``task`` after all tasks submitted before it with the same key. O(1)."""
        future: Future[object] = Future()
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = deque()
                self._ready.put(key)
            lane.append((task, future))
        return future

    def close(self) -> None:
        """Wait for the tasks that run; those that wait are cancelled."""
        with self._lock:
            for lane in self._lanes.values():
                for _task, future in lane:
                    future.cancel()
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (key := self._ready.get()) is not None:
            while (waiting := self._next(key)) is not None:
                _run(*waiting)

    def _next(self, key: Hashable) -> tuple[Task, Future[object]] | None:
        with self._lock:
            lane = self._lanes[key]
            if lane:
                return lane.popleft()
            del self._lanes[key]
            return None


def _run(task: Task, future: Future[object]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(task())
    except BaseException as error:
        future.set_exception(error)
