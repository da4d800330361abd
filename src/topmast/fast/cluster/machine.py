"""The cluster manager: gangs, and for those that share GPUs a turn taker and pairs, when needed.

Where gangs have GPUs of their own, there is neither, and `gangs` is all there is to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from topmast.fast.cluster import facts as f
from topmast.fast.cluster import reconciling
from topmast.fast.cluster.gangs import GangLifecycle
from topmast.fast.cluster.packing import Packing, PackingJudge
from topmast.fast.cluster.pairing import JobPairs
from topmast.fast.cluster.turns import TurnTaker
from topmast.fast.machine import Fact
from topmast.model import ids
from topmast.model import messages as m
from topmast.policies.options import SliceOptions


class ClusterManager(GangLifecycle):
    """The machine of one cluster.

    ``slices``: whether new gangs take turns. ``packing``: whether two are tried on the same GPUs at
    the same time. Gangs that shared before a restart go on so to their end, whatever is wanted now.
    """

    def __init__(
        self,
        name: str,
        slices: SliceOptions | None = None,
        packing: Packing | None = None,
        *,
        reconcile: bool = True,
    ) -> None:
        super().__init__(name, reconcile=reconcile)
        self.slices = slices or SliceOptions()
        self.packing = packing
        self.turns: TurnTaker | None = None
        self.pairs: JobPairs | None = None
        if self.slices.layers > 1:
            self._share_time()

    def _share_time(self) -> TurnTaker:
        """The turn taker, from now on."""
        if self.turns is None:
            judge = PackingJudge(self, self.slices.quantum_s, self.packing)
            self.turns = TurnTaker(self, self.slices, judge)
            self.hooks = (*self.hooks, self.turns)
        return self.turns

    def _have_pairs(self) -> None:
        if self.pairs is None:
            self.pairs = JobPairs(self)
            self.hooks = (self.pairs, *self.hooks)

    def _progress(self, event: m.ProgressReport) -> None:
        if self.turns is not None:
            self.turns.progress(event)

    def _launch_each(self, event: m.LaunchGangs) -> None:
        """Launch several gangs; one by one where gangs share GPUs, or one was stopped already."""
        fences, jobs = self.state.fences, event.seats.jobs
        pairs = zip(jobs, event.epochs, strict=True)
        fresh = all(epoch > fences.get(job, 0) for job, epoch in pairs)
        if self.hooks or not fresh:
            for gang in event.one_by_one():
                self.send(ids.cluster(self.name), gang)
            return
        self.decide(f.GangsOpened(self.now + self.limits.start_within_s))
        gangs = zip(jobs, event.epochs, event.specs, event.seats.seats, strict=True)
        region, name = event.region, self.name
        orders = tuple([m.StartGang(*gang[:3], region, name, gang[3]) for gang in gangs])
        for job in jobs:
            self._orders += 1
            self._ordered[job] = self._orders
        self.send(ids.engine(name), m.StartGangs(orders))

    def _apply_opened(self, fact: f.Opened, event: m.LaunchGang) -> None:
        if event.colocated_with:
            self._have_pairs()
        super()._apply_opened(fact, event)

    def _apply_all_opened(self, fact: f.GangsOpened, event: m.LaunchGangs) -> None:
        seats, left_s = event.seats, event.time_left_s
        gangs = zip(seats.jobs, event.epochs, event.specs, seats.seats, left_s, strict=True)
        self.open_each(event.region, gangs, fact.deadline_s)

    def _apply_shared(self, fact: Fact, event: m.Message) -> None:
        """A fact about gangs that share GPUs, decided by this process or one before it."""
        self._share_time().apply(fact)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        super().restore(blob)
        attempts = self.state.attempts.values()
        if any(attempt.colocated_with for attempt in attempts):
            self._have_pairs()
        if self.turns is not None or any(attempt.turns is not None for attempt in attempts):
            self._share_time().restored()

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        **GangLifecycle.handlers,
        m.LaunchGangs: _launch_each,
        m.HostDown: reconciling.host_down,
        m.HostUp: reconciling.host_up,
        m.HostClosed: reconciling.host_closed,
        m.HostOpened: reconciling.host_closed,
        m.TaskList: reconciling.truth,
        m.ProgressReport: _progress,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        **GangLifecycle.appliers,
        f.Opened: _apply_opened,
        f.GangsOpened: _apply_all_opened,
        **dict.fromkeys(
            (f.Joined, f.Suspended, f.Continued, f.Measured, f.Packed, f.PackKept, f.Unpacked),
            _apply_shared,
        ),
    }
