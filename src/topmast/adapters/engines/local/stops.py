"""Orders to supervisors, also to those that were halted, and the end of those that do not obey."""

from __future__ import annotations

import contextlib
import signal
import time

from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Layout
from topmast.adapters.engines.local.hosts import Host
from topmast.adapters.engines.local.tasks import Tasks

SUPERVISOR_PATIENCE_S = 2.0
"""How long a supervisor may need to clear up when its agent died."""
OBEY_S = 10.0
"""How long after the grace a supervisor may need: it kills its tasks itself, then clears up."""


class Stops:
    """Which attempts were ordered to stop, and when their supervisors are killed if tasks remain.

    A task can halt its supervisor, or its host's agent, by a signal: it runs as the same user. What
    is halted obeys no order, so it is woken first. The death of a supervisor is no escape: its
    agent kills what it leaves.
    """

    def __init__(self, layout: Layout, tasks: Tasks) -> None:
        self._layout = layout
        self._tasks = tasks
        self._kill_at_s: dict[str, float] = {}

    def wake(self, attempt: str) -> None:
        """Continue the supervisors of an attempt and their agents, if they were halted."""
        hosts: dict[str, bool] = {}
        for task in self._tasks.of_attempt(attempt):
            if task.end is None:
                processes.wake_if_same(files.read_json(self._layout.claim(task.name)) or {})
                hosts[task.host] = True
        for host in hosts:
            processes.wake_if_same(files.read_json(self._layout.host(host) / "agent.json") or {})

    def terminate(self, attempt: str) -> None:
        """Have supervisors end their tasks without an order on disk, with the grace of the plan."""
        for task in self._tasks.of_attempt(attempt):
            claim = files.read_json(self._layout.claim(task.name)) or {}
            processes.send_if_same(claim, signal.SIGTERM)

    def ordered(self, attempt: str, grace_s: float) -> None:
        """A stop was ordered: the sooner end of two such orders counts."""
        at_s = time.monotonic() + grace_s + OBEY_S
        self._kill_at_s[attempt] = min(at_s, self._kill_at_s.get(attempt, at_s))

    @property
    def next_s(self) -> float | None:
        """When to look again, by the monotonic clock."""
        return min(self._kill_at_s.values(), default=None)

    def enforce(self) -> None:
        """Kill the supervisors that are out of time, and agents that cannot end the rest."""
        now_s = time.monotonic()
        for attempt in [name for name, at_s in self._kill_at_s.items() if at_s <= now_s]:
            left = [task for task in self._tasks.of_attempt(attempt) if task.end is None]
            if not left:
                del self._kill_at_s[attempt]
                continue
            self._kill_at_s[attempt] = now_s + OBEY_S
            self.wake(attempt)
            for task in left:
                processes.kill_if_same(files.read_json(self._layout.claim(task.name)) or {})
                agent = files.read_json(self._layout.host(task.host) / "agent.json") or {}
                if processes.is_stopped(agent):
                    processes.kill_if_same(agent)

    def none_left(self, host: Host, now: float) -> bool:
        """Ensure that no task lives on a host after its agent died, and record tasks as lost."""
        victims = self._tasks.alive_on(host.name)
        held = [task for task in victims if files.is_locked(self._layout.claim(task.name))]
        if held:  # supervisors clear up when the agent dies, if they can
            if time.monotonic() - host.since_s > SUPERVISOR_PATIENCE_S:
                for task in held:
                    processes.kill_if_same(files.read_json(self._layout.claim(task.name)) or {})
            return False
        # What is left by a supervisor that was killed together with the agent.
        left = processes.marked({str(self._layout.claim(task.name)) for task in victims})
        processes.send(left, signal.SIGKILL)
        if left:
            return False
        with contextlib.suppress(OSError):  # a full disk does not make them any less dead
            lost = [files.bury(self._layout, task.name, host.error, now) for task in victims]
            return None not in lost
        return True
