"""What a client sees while jobs run: their states, asked for again and again, and the events."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress

from topmast.client import Client
from topmast.model import ids
from topmast.model.errors import TopmastError
from topmast.model.states import TERMINAL, JobState
from topmast.model.views import EventView, JobView


class Feed:
    """The event stream, read by a thread of its own."""

    def __init__(self, server: str) -> None:
        self._client = Client(server)
        self._received: deque[EventView] = deque()
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # Closing the client in the middle of the stream is how this ends.
        with suppress(TopmastError, RuntimeError, OSError):
            for event in self._client.events(after=0):
                self._received.append(event)

    def take(self) -> list[EventView]:
        """What came since the last time."""
        events = []
        while self._received:
            events.append(self._received.popleft())
        return events

    def close(self) -> None:
        """Read no more."""
        self._client.close()


class Watch:
    """Jobs by name and events in order, as of the last `look`."""

    def __init__(self, client: Client, feed: Feed) -> None:
        self.client = client
        self.began_s = time.time()
        self.jobs: dict[str, JobView] = {}
        self.names: dict[str, str] = {}
        self.events: list[EventView] = []
        self._feed = feed

    def look(self) -> list[EventView]:
        """Ask again; the events that are new."""
        views = sorted(self.client.jobs(), key=lambda view: ids.job_number(view.id))
        self.jobs = {view.name: view for view in views}
        self.names = {view.id: view.name for view in views}
        new = self._feed.take()
        self.events += new
        return new

    def state(self, name: str) -> JobState | None:
        """The state of a job; None of one that was not submitted yet."""
        view = self.jobs.get(name)
        return None if view is None else JobState(view.state)

    def running(self, name: str) -> bool:
        """Whether a job runs."""
        return self.state(name) is JobState.RUNNING

    def saved(self, name: str) -> bool:
        """Whether a job has written a checkpoint."""
        view = self.jobs.get(name)
        kinds = (e.kind for e in self.events if view is not None and e.job == view.id)
        return "checkpointed" in kinds

    def unfinished(self, but: str) -> tuple[JobView, ...]:
        """The jobs that have not ended, except one."""
        others = (view for name, view in self.jobs.items() if name != but)
        return tuple(view for view in others if JobState(view.state) not in TERMINAL)

    def progress(self) -> tuple[object, ...]:
        """Something that changes whenever anything happens to a job, its steps included."""
        steps = sum(view.step or 0 for view in self.jobs.values())
        return len(self.events), steps, tuple(view.state for view in self.jobs.values())
