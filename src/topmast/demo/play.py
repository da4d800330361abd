"""The play: jobs are submitted, causes are injected when their time has come, the rest is watched.

Causes wait for states, never for a time: whatever the machine is busy with, they come in the same
situation. All that happens to the jobs is the scheduler's doing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from topmast.client import Client
from topmast.demo import cast
from topmast.demo.digits import export
from topmast.demo.machines import Machines
from topmast.demo.screen import Screen
from topmast.demo.server import Server
from topmast.demo.watch import Watch
from topmast.model.reason import PendingReason
from topmast.model.units import format_bytes
from topmast.model.views import Explanation, TenantView

LOOK_S = 0.15
QUIET_S = 120.0
"""After so long without any event no more is expected: slow machines take time, but progress."""
LIMIT_S = 900.0
"""What a play takes at most, whatever still happens."""
WORTH_STEPS = 30
"""How far a job must have come before something happens to it: far enough to lose something."""


class Seen(Struct):
    """What was seen on the way and cannot be asked for afterwards."""

    lent: TenantView | None = None
    """The lending tenant while its quota was lent."""
    reclaimed: TenantView | None = None
    """The same when it had got it back."""
    killed: str = ""
    """The host that was killed."""
    explanation: Explanation | None = None
    gave_up: str = ""
    """Why the demo waited no longer; empty: every job that can end has ended."""


class Cause(Struct):
    """Something from outside."""

    due: Callable[[], bool]
    """Whether it is time for it."""
    do: Callable[[], str]
    """Does it, and returns what to tell people."""
    done: bool = False


class Patience:
    """How long to wait for jobs: as long as something happens, within a limit."""

    def __init__(self, quiet_s: float, limit_s: float, now_s: float) -> None:
        self._quiet_s = quiet_s
        self._limit_s = limit_s
        self._began_s = now_s
        self._moved_s = now_s
        self._progress: object = None

    def is_over(self, progress: object, now_s: float) -> str:
        """Why it is over, in words; else empty. ``progress``: equal while nothing happens."""
        if progress != self._progress:
            self._progress, self._moved_s = progress, now_s
        if now_s - self._began_s >= self._limit_s:
            return f"the jobs have had {self._limit_s:.0f} s"
        if now_s - self._moved_s >= self._quiet_s:
            return f"nothing has happened for {self._quiet_s:.0f} s"
        return ""


class Play:
    """One performance, from the first job to the last."""

    def __init__(
        self, client: Client, server: Server, machines: Machines, watch: Watch, screen: Screen
    ) -> None:
        self.client = client
        self.server = server
        self.machines = machines
        self.watch = watch
        self.screen = screen
        self.seen = Seen()
        self._causes = [
            Cause(self._quota_is_lent, self._reclaim),
            Cause(self._quota_is_back, self._note_reclaimed),
            Cause(self._all_a100_busy, self._hurry),
            Cause(self._gang_is_saved, self._kill),
            Cause(self._waits_for_data, self._explain_waiting),
            Cause(self._found_impossible, self._explain),
        ]

    def run(self) -> Seen:
        """Perform until every job that can end has ended, or too little happens to wait for it."""
        self._stage()
        self.client.submit_many(cast.opening())
        patience = Patience(QUIET_S, LIMIT_S, time.monotonic())
        while True:
            self.screen.show(self.watch, self.watch.look())
            if not self._inject() and not self.watch.unfinished(but=cast.IMPOSSIBLE):
                break
            self.seen.gave_up = patience.is_over(self.watch.progress(), time.monotonic())
            if self.seen.gave_up:
                break
            time.sleep(LOOK_S)
        self.screen.show(self.watch, self.watch.look())
        return self.seen

    def _stage(self) -> None:
        folder = self.server.state / "staging" / cast.DATASET
        export(folder)
        dataset = self.client.add_dataset(cast.DATASET, cast.HOME, source=folder)
        size = format_bytes(dataset.size_bytes)
        self.screen.note(f"the digits images ({size}) are staged in {cast.HOME}")

    def _inject(self) -> bool:
        """Do what is due; whether anything was."""
        due = [cause for cause in self._causes if not cause.done and cause.due()]
        for cause in due:
            self.screen.note(cause.do())
            cause.done = True
        return bool(due)

    def _worth(self, name: str) -> bool:
        """Whether a job runs, has saved something, and is some way past it."""
        step = self.watch.jobs[name].step or 0
        return self.watch.running(name) and self.watch.saved(name) and step >= WORTH_STEPS

    # --- quota, lent and reclaimed --------------------------------------------------------------

    def _lending(self) -> TenantView:
        tenant, model, _ = cast.LENT
        views = self.client.tenants()
        return next(v for v in views if (v.name, v.gpu_model) == (tenant, model))

    def _quota_is_lent(self) -> bool:
        borrower = self.watch.jobs[cast.BORROWER]
        if not (borrower.over_quota and self._worth(cast.BORROWER)):
            return False
        view = self._lending()
        if view.lent == cast.LENT[2]:
            self.seen.lent = view
        return self.seen.lent is not None

    def _reclaim(self) -> str:
        self.client.submit(cast.lender())
        tenant, model, count = cast.LENT
        return (
            f"cause: {tenant} lends {count} {model} to {cast.BORROWER}; "
            f"now it submits {cast.LENDER} and wants them back"
        )

    def _quota_is_back(self) -> bool:
        if not self.watch.running(cast.LENDER):
            return False
        view = self._lending()
        if view.used == cast.LENT[2] and view.lent == 0.0:
            self.seen.reclaimed = view
        return self.seen.reclaimed is not None

    def _note_reclaimed(self) -> str:
        tenant, model, count = cast.LENT
        return f"{tenant} has its {count} {model} back"

    # --- a higher band --------------------------------------------------------------------------

    def _all_a100_busy(self) -> bool:
        if not self._worth(cast.MODEST):
            return False
        return all(v.free == 0.0 for v in self.client.gpus() if v.gpu_model == "A100")

    def _hurry(self) -> str:
        self.client.submit(cast.urgent())
        return f"cause: all A100 are busy; {cast.URGENT} is submitted, and it is critical"

    # --- a host ---------------------------------------------------------------------------------

    def _gang_is_saved(self) -> bool:
        return self._worth(cast.STRUCK)

    def _kill(self) -> str:
        name = self.watch.jobs[cast.STRUCK].hosts[0]
        if self.machines.halt(name):
            self.seen.killed = name
            return f"cause: host {name}, under {cast.STRUCK}, is powered off"
        host = next(h for h in self.client.hosts() if h.name == name)
        if host.agent_pid is None:
            return f"host {name} has no process to kill"
        self.server.kill_host(host.agent_pid)
        self.seen.killed = name
        return f"cause: host {name}, under {cast.STRUCK}, is killed (process {host.agent_pid})"

    # --- questions ------------------------------------------------------------------------------

    def _waits_for_data(self) -> bool:
        return self.watch.jobs[cast.AWAY].reason == PendingReason.WAITING_FOR_DATA

    def _explain_waiting(self) -> str:
        found = self.client.explain(self.watch.jobs[cast.AWAY].id)
        return f"explain {cast.AWAY}: {found.reason}: {found.summary}"

    def _found_impossible(self) -> bool:
        view = self.watch.jobs.get(cast.IMPOSSIBLE)
        return view is not None and view.reason == PendingReason.TOPOLOGY_DOES_NOT_FIT

    def _explain(self) -> str:
        found = self.client.explain(self.watch.jobs[cast.IMPOSSIBLE].id)
        self.seen.explanation = found
        return f"explain {cast.IMPOSSIBLE}: {found.reason}: {found.summary}"
