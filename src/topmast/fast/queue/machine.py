"""The global queue: which job is next, where it may run, which region's plan wins (MAST: GMS).

The cycle, in order: take the best-ranked job of a class that is not blocked; see whether its tenant
may start it; ask every eligible region for a plan on free GPUs; if there is none, ask again with
preemption; commit the best plan over all regions there, or order the copy of data that it needs; if
nothing was found, block the class until something changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import UNSET

from topmast.fast.machine import Fact
from topmast.fast.queue import datasets, lifecycle, pausing, verbs
from topmast.fast.queue import facts as f
from topmast.fast.queue.applying import APPLIERS
from topmast.fast.queue.backlog.blocked import Anything
from topmast.fast.queue.backlog.running import RunningHooks
from topmast.fast.queue.cycle import cycle
from topmast.fast.queue.cycle.auction import earliest
from topmast.fast.queue.cycle.decision_rounds import DecisionRounds
from topmast.fast.queue.cycle.state import Around
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.orders import order_copy, order_deletion
from topmast.fast.queue.dependencies.hooks import DependencyHooks, SweepHooks
from topmast.fast.queue.elastic.hooks import ElasticHooks, SlicesHooks
from topmast.fast.queue.hooks import HookSteps, QueueHooks
from topmast.fast.queue.leaving import stranded
from topmast.fast.queue.rounds.hooks import RoundHooks
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.fast.queue.windows.hooks import (
    WindowHooks,
    end_quota,
    end_window,
    set_quota,
    set_window,
)
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.model.fleet import RegionSpec
from topmast.model.fleet_changes import fleet_version
from topmast.model.owners import owners_of, settled
from topmast.policies.base import PairSpeeds, Policies
from topmast.policies.options import Preemption


class GlobalQueue(QueueViews):
    """The machine of the world. There is one. Each event has a function, each fact another.

    It alone knows the hooks: jobs that wait for others, rounds where time is shared or
    decisions are made at fixed times, and sizes where jobs may change theirs.
    """

    def __init__(self, policies: Policies, pair_speeds: PairSpeeds | None = None) -> None:
        profile, share = policies.profile, policies.share
        self.rounds = None if share is None else Rounds(profile.shares, share)
        super().__init__(policies, self.rounds)
        self.pair_speeds = pair_speeds
        hooks: list[QueueHooks] = [DependencyHooks(self), SweepHooks(self), WindowHooks(self)]
        if self.rounds is not None:
            hooks.append(RoundHooks(self, self.rounds, self.tenancy.entitlements, pair_speeds))
        if profile.slices.layers > 1:
            hooks.append(SlicesHooks())
        if profile.elastic.grow or profile.elastic.shrink:
            hooks.append(ElasticHooks(self, profile.elastic))
        if profile.preemption.by_rank:
            hooks.append(RunningHooks(lambda: self.backlog.running))
        if profile.rounds_s is not None:
            hooks.append(DecisionRounds(self, profile.rounds_s))
        self.hooks = HookSteps(hooks)

    def look_around(self, around: Around) -> None:
        """Use what may be known of this process.

        That is where jobs are tried on free GPUs and, by rank, on those of others alone.
        """
        profile = self.profile
        others = profile.defragment or profile.elastic.shrink or profile.slices.layers > 1
        if not (others or self.rounds or profile.preemption is Preemption.BAND):
            self.around = around

    def _configure(self, event: m.ConfigureFleet) -> Conflict | None:
        if event.base is not UNSET and event.base != fleet_version(self.fleet):
            return Conflict("the fleet was changed meanwhile: look at the differences again")
        if event.base is not UNSET and (left := stranded(self, event.fleet)):
            return Conflict(left)
        names = {region.name for region in event.fleet.regions}
        gone = [region.name for region in self.fleet.regions if region.name not in names]
        is_other_file = event.file is not UNSET and event.file != self.fleet_file
        if is_other_file or settled(event.fleet, self.fleet, self.homes) != self.fleet:
            self.decide(f.FleetSet())
            cycle.bind_astray(self)
        for name in gone:
            self.send(ids.placer(name), m.ConfigureRegion(RegionSpec(name, ())))
        for region in self.fleet.regions:
            self.send(ids.placer(region.name), m.ConfigureRegion(region))
        return None

    def _skip(self, event: m.SkipAttempts) -> None:
        if self.jobs.believable(event) != (self.jobs.next_number, {}):
            self.decide(f.AttemptsSkipped())

    def _hosts_moved(self, event: m.HostsMoved) -> None:
        """Clusters have other hosts: some jobs fit now, and some bindings hold too little."""
        here = [owners_of(r) for r in self.fleet.regions if r.name == event.region]
        if here and event.owners.keys() <= here[0].keys():
            self.decide(f.HostsMoved())
            cycle.bind_astray(self)

    def _recovered(self, event: m.Recovered) -> None:
        """Order again the deletions and copies that were under way."""
        for deletion in self.data.catalogue.deletions.all():
            order_deletion(self, deletion)
        for copy in self.data.catalogue.copies.values():
            order_copy(self, self.data.catalogue, copy)
        self.backlog.unblock(Anything())

    def next_wakeup_s(self) -> float | None:
        """At once while candidates wait; else when time alone changes something."""
        if self.cycle.decision is not None:
            return self.cycle.decision.deadline_s
        is_stirred = self.backlog.blocked.stirred and self.may_try()
        is_due = is_stirred or self.jobs.are_too_many
        if is_due or self.cycle.backfill.freed or self.quota_may_help():
            return 0.0
        return earliest(
            (
                self.backlog.delays.next_s(),
                self.backlog.blocked.retries.next_s(),
                self.backlog.priority_timers.next_s(),
                self.cycle.backfill.due_s,
                self.cycle.reach.next_retry_s(),
                self.data.catalogue.deletions.retries.next_s(),
                self.cycle.binding.patience.next_s(),
                *[hook.next_s() for hook in self.hooks.next_s],
            )
        )

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureFleet: _configure,
        m.SkipAttempts: _skip,
        m.HostsMoved: _hosts_moved,
        m.Recovered: _recovered,
        m.Wake: cycle.wake,
        m.SubmitJobs: lifecycle.submit,
        m.CancelJobs: verbs.cancel,
        m.HoldJobs: verbs.hold,
        m.ReleaseJobs: verbs.release,
        m.PreemptJobs: verbs.preempt,
        m.PauseTenant: pausing.pause,
        m.ResumeTenant: pausing.resume,
        m.NoteBudget: pausing.note_budget,
        m.SetWindow: set_window,
        m.EndWindow: end_window,
        m.SetQuota: set_quota,
        m.EndQuota: end_quota,
        m.RequeueJobs: verbs.requeue,
        m.EditJobs: verbs.edit,
        m.AddDataset: datasets.add_dataset,
        m.RequestReplica: datasets.request_replica,
        m.DropReplica: datasets.drop_replica,
        m.RemoveDataset: datasets.remove_dataset,
        m.CopyDone: datasets.copy_done,
        m.CopyFailed: datasets.copy_failed,
        m.ReplicaDeleted: datasets.replica_deleted,
        m.DeletionFailed: datasets.deletion_failed,
        m.FleetBids: cycle.fleet_offered,
        m.RegionBids: cycle.offered,
        m.RegionPlans: cycle.planned,
        m.PlanCommitted: lifecycle.committed,
        m.PlanRefused: lifecycle.refused,
        m.CapacityChanged: cycle.capacity,
        m.OutOfService: cycle.out_of_service,
        m.LinkUp: cycle.link_up,
        m.LinkDown: cycle.link_down,
        m.Unblocked: cycle.may_fit,
        m.AttemptStarting: lifecycle.starting,
        m.AttemptsStarting: lifecycle.all_starting,
        m.AttemptRunning: lifecycle.goes_on,
        m.AttemptSuspended: lifecycle.goes_on,
        m.AttemptContinued: lifecycle.goes_on,
        m.AttemptPacked: lifecycle.noted,
        m.AttemptStopping: lifecycle.stopping,
        m.AttemptCheckpointed: lifecycle.noted,
        m.AttemptResumed: lifecycle.noted,
        m.AttemptEnded: lifecycle.ended,
        m.TreeGrown: lifecycle.tree_grown,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = APPLIERS
