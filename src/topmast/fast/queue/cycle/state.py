"""The state of the queue: five objects, each with its own writer, and what several facts share."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.machine import EventMachine
from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.backlog.durations import Durations, History
from topmast.fast.queue.backlog.learning import Learned
from topmast.fast.queue.backlog.task_mix import Mix, Shapes
from topmast.fast.queue.backlog.topology_policy import TopologyPolicy
from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.backfill import Backfill
from topmast.fast.queue.cycle.bulk import Bulk
from topmast.fast.queue.cycle.defragmentation import Defragmentation
from topmast.fast.queue.cycle.early_binding import EarlyBinding
from topmast.fast.queue.cycle.foreseen import Foreseen
from topmast.fast.queue.cycle.liveness import Reach
from topmast.fast.queue.cycle.prefetch import Prefetch
from topmast.fast.queue.data.catalogue import DatasetRecord
from topmast.fast.queue.data.orders import Data
from topmast.fast.queue.hooks import Grants, HookSteps
from topmast.fast.queue.jobs.jobs import Jobs, Key
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import SweepRecord
from topmast.fast.queue.jobs.windows import KnownWindow, Windows
from topmast.fast.queue.tenancy.tenancy import Tenancy
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.dataset import Copy, Deletion
from topmast.model.fleet import Fleet
from topmast.model.states import WAITING
from topmast.model.timed_quota import KnownQuota
from topmast.model.window import Stay
from topmast.policies.base import BindPolicy, Policies
from topmast.policies.options import Profile


class Saved(Struct):
    """What a snapshot holds; lines, counters and the order are rebuilt from it."""

    fleet: Fleet = Fleet(())
    jobs: dict[str, JobRecord] = {}
    finished: list[str] = []
    next_job: int = 1
    next_copy: int = 1
    keys: dict[str, Key] = {}
    datasets: dict[str, DatasetRecord] = {}
    copies: dict[str, Copy] = {}
    failed_copies: dict[str, float] = {}
    used_at_s: float = 0.0
    used_gpu_s: dict[str, float] = {}
    histories: dict[str, History] = {}
    sizes: dict[int, float] = {}
    learned: Learned | None = None
    services_gpu_s: list[float] = []
    homes: dict[str, str] = {}
    fetches: list[tuple[float, str]] = []
    skipped: dict[str, int] | UnsetType = UNSET
    deletions: list[Deletion] | UnsetType = UNSET
    sweeps: dict[str, SweepRecord] | UnsetType = UNSET
    paused: dict[str, str] | UnsetType = UNSET
    fleet_file: str | UnsetType = UNSET
    fleet_edited: bool | UnsetType = UNSET
    windows: dict[str, KnownWindow] | UnsetType = UNSET
    next_window: int | UnsetType = UNSET
    quotas: dict[str, KnownQuota] | UnsetType = UNSET
    budgets_noted: dict[str, tuple[str, int]] | UnsetType = UNSET
    shapes: Shapes | UnsetType = UNSET


class Cycle:
    """What is being decided, what regions have said, and what is kept for jobs without room."""

    def __init__(self, profile: Profile, bind: BindPolicy | None) -> None:
        self.binding = EarlyBinding(profile.bind, bind)
        self.backfill = Backfill(profile.reserve_after_s)
        self.defragmentation = Defragmentation(profile)
        self.reach = Reach()
        self.prefetch = Prefetch(profile.ask_ahead)
        self.foreseen = Foreseen()
        self.bulk = Bulk()
        self.decision: PendingDecision | None = None
        """The job that regions are being asked about."""
        self.batch = 0
        """Number of the last question."""
        self.budget = 0
        """Plans to be sought yet before others get their turn."""

    def let_go(self, jobs: Sequence[str]) -> None:
        """Jobs wait no more. O(jobs), or O(1) where nothing is known of any job."""
        are_bound = self.binding.patience.next_s() is not None
        if self.defragmentation.knows_jobs or are_bound or self.backfill.reservation is not None:
            for job in jobs:
                self.defragmentation.let_go(job)
                self.binding.patience.drop(job)
                self.backfill.let_go(job)


class Around(Protocol):
    """What the queue may know of its own process beside what it is told."""

    def under_way(self) -> Iterable[m.Message]:
        """The messages that wait to be handled, besides those that the queue is about to send."""
        ...

    def free_milli(self, region: str) -> int | None:
        """GPUs of a region that nothing holds, in thousandths; None: not known.

        O(1) unless something changed there.
        """
        ...

    def refused_again(
        self, placement_class: int, models: tuple[int, ...] | None, since: int, *, stops: bool
    ) -> bool:
        """A class that was refused before is refused again for the same; False: it is not known.

        ``since``: the request that was refused. ``stops``: its jobs might have stopped others.
        O(1).
        """
        ...

    def victims_weighed(self) -> None:
        """Regions would have been asked which jobs may be stopped: what they do then is due."""
        ...


class QueueState(EventMachine):
    """The five parts of the state. What changes several of them at once has a method here.

    ``grants``: of a policy that shares time; None: every job may have what it asked for.
    """

    def __init__(self, policies: Policies, grants: Grants | None = None) -> None:
        super().__init__()
        self.profile = profile = policies.profile
        self.preemption = profile.preemption
        """What may be stopped for a job."""
        self._is_by_rank = self.preemption.by_rank
        self.hooks = HookSteps()
        """Policies that act at the steps of the queue, in their order."""
        self._policies, self._grants = policies, grants
        self.fleet = Fleet(())
        self.regions: list[str] = []
        """By name."""
        self.homes: dict[str, str] = {}
        """Where the fleet file has those hosts that belong to another cluster now."""
        self.fleet_file = ""
        """The version of the last fleet file that a start took up; empty: none so far."""
        self.fleet_edited = False
        """Whether the fleet was changed while the server ran, after its last fleet file."""
        self.cycle = Cycle(profile, policies.bind)
        self.around: Around | None = None
        """What may be known of this process, where candidates are refused without a request."""
        self._begin()

    def _begin(self) -> None:
        """All that facts change is empty."""
        profile, policies = self.profile, self._policies
        self.jobs = Jobs()
        self.tenancy = Tenancy(policies.reserve, profile.reserve.patience_s)
        self.data = Data(profile)
        self.windows = Windows()
        self.backlog = Backlog(
            policies.order, self.tenancy.ledger.fairness,
            Durations(profile.default_duration_s, profile.predict),
            TopologyPolicy(policies.score), self._grants,
            rerank_interval_s=profile.rerank_interval_s, min_runtime_s=profile.min_runtime_s,
            stay_of=self.stay_of, has_quotas=lambda: self.tenancy.ledger.has_quotas,
        )  # fmt: skip

    # --- the fleet --------------------------------------------------------------------------------

    def take_fleet(self, fleet: Fleet) -> None:
        """Take up a configuration. O(hosts)."""
        self.fleet, self.regions = fleet, sorted(region.name for region in fleet.regions)
        self.data.catalogue.configure(fleet)
        self.cycle.binding.configure(fleet, self.tenancy.entitlements, self.jobs.records, self.now)
        self.tenancy.configure(fleet)
        self.windows.configure(fleet)
        for hook in self.hooks.on_fleet:
            hook.on_fleet(fleet, self.tenancy.entitlements)
        self.backlog.topology_policy.configure(fleet)
        self.backlog.mix.configure(fleet.gpus())

    def take_owners(self, fleet: Fleet) -> None:
        """Take up a fleet with hosts in other clusters, of the same regions. O(hosts).

        What a round granted holds on.
        """
        self.fleet = fleet
        self.windows.configure(fleet)
        self.cycle.binding.configure(fleet, self.tenancy.entitlements, self.jobs.records, self.now)
        for hook in self.hooks.on_owners:
            hook.on_owners(fleet, self.tenancy.entitlements)
        self.backlog.topology_policy.configure(fleet)

    # --- a job begins to wait, or gets a plan -----------------------------------------------------

    def enqueue(self, record: JobRecord) -> None:
        """Let a job wait. It may do more than others of its class if it may stop other jobs."""
        for hook in self.hooks.on_enqueued:
            hook.on_enqueued(record)
        self._wait(record)
        if self._is_by_rank or record.moves:
            self.backlog.let_try(record.id)

    @property
    def may_admit_alike(self) -> bool:
        """Whether jobs that ask for the same wait in the same way, whenever they come.

        Not so where the order of each in the queue decides, or what is learned from those before.
        """
        return (
            self.backlog.keeps_no_times and not self._is_by_rank
            and not self.cycle.binding.binds and not self.windows.known
        )  # fmt: skip

    def enqueue_alike(self, records: Sequence[JobRecord]) -> None:
        """As `enqueue`, for jobs just admitted that ask for the same (`may_admit_alike`)."""
        first, *others = records
        self.enqueue(first)
        job_class = self.backlog.class_of(first.id)
        if job_class is None:
            for record in others:
                self.enqueue(record)
            return
        for hook in self.hooks.on_enqueued:
            for record in others:
                hook.on_enqueued(record)
        self.backlog.add_alike(job_class, others)

    def _wait(self, record: JobRecord) -> None:
        self.backlog.add(record, self.now)
        if record.is_aside:
            return  # nothing happens to it as time goes by
        self.backlog.note_priority(record, self.now)
        self.cycle.binding.waits(record, self.now)

    def note_pause(self, record: JobRecord) -> None:
        """A job may not start while its tenant is paused; if it waits, it changes its line."""
        why = self.tenancy.paused_by(record.spec.tenant) or UNSET
        if why == record.paused:
            return
        record.paused = why
        if record.plan is None and record.state in WAITING:
            record.moves = False
            self.waits_no_more(record)
            self.enqueue(record)

    def stay_of(self, record: JobRecord) -> Stay | None:
        """What decides which reserved hosts a job may start on; None while none is reserved."""
        if not self.windows.known:
            return None
        left_s = record.time_left_s()
        lasts_s = self.backlog.durations.remaining_s(record) if left_s is None else left_s
        above = self.tenancy.ledger.tree.node(record.spec.tenant).up()
        return self.windows.stay(lasts_s, (node.name for node in above))

    def stays_changed(self) -> None:
        """Sort the jobs that wait anew, by how long they would stay. O(jobs)."""
        for record in list(self.jobs.records.values()):
            job_class = self.backlog.class_of(record.id)
            if job_class is not None and job_class.stay != self.stay_of(record):
                self.waits_no_more(record)
                self.enqueue(record)

    def waits_no_more(self, record: JobRecord) -> None:
        """Take a job out of its line: it starts, or is over. O(1)."""
        self.backlog.remove(record.id)
        self.cycle.let_go((record.id,))

    def wait_no_more(self, jobs: Sequence[str]) -> None:
        """As `waits_no_more`, for each of several jobs."""
        self.backlog.remove_each(jobs)
        self.cycle.let_go(jobs)

    def book(self, records: Sequence[JobRecord]) -> None:
        """Jobs have plans: count what these hold on their tenants. O(jobs x models)."""
        for record in records:
            self.jobs.placed[record.id] = record
            self.backlog.priority_timers.drop(record.id)
        for hook in self.hooks.on_booked:
            for record in records:
                hook.on_booked(record)
        held = [(r.spec.tenant, r.plan, r.over_quota) for r in records if r.plan is not None]
        self.tenancy.book(held)

    def unbook(self, record: JobRecord) -> None:
        """Give back what a job's plan held, if it has one. O(models)."""
        plan = record.plan
        self.jobs.placed.pop(record.id, None)
        self.backlog.priority_timers.drop(record.id)
        for hook in self.hooks.on_unbooked:
            hook.on_unbooked(record.id)
        if plan is not None:
            self.tenancy.unbook(record.spec.tenant, plan, record.over_quota)
            record.plan, record.colocated_with, record.decided = None, UNSET, UNSET

    # --- copies -----------------------------------------------------------------------------------

    def with_tenancy(self, tenancy: Tenancy) -> Self:
        """The same queue with other books, to look at: everything else is shared. O(1)."""
        other = copy.copy(self)
        other.tenancy = tenancy
        return other

    def snapshot(self) -> bytes:
        """Everything that cannot be rebuilt, as JSON. O(jobs)."""
        used_at_s, used = self.tenancy.ledger.decayed()
        jobs, backlog, catalogue = self.jobs, self.backlog, self.data.catalogue
        return msgspec.json.encode(
            Saved(
                self.fleet,
                jobs.records,
                list(jobs.ended.names),
                jobs.next_number,
                self.data.next_copy,
                jobs.keys,
                catalogue.datasets,
                catalogue.copies,
                catalogue.failed,
                used_at_s,
                used,
                backlog.durations.histories,
                backlog.mix.weights,
                backlog.durations.learned(),
                backlog.attained_service.total_gpu_s,
                self.homes,
                self.data.fetches.noted,
                jobs.skipped or UNSET,
                catalogue.deletions.all() or UNSET,
                jobs.sweeps.records or UNSET,
                self.tenancy.paused or UNSET,
                self.fleet_file or UNSET,
                self.fleet_edited or UNSET,
                self.windows.known or UNSET,
                self.windows.next_number if self.windows.next_number > 1 else UNSET,
                self.tenancy.timed or UNSET,
                self.tenancy.budgets_noted or UNSET,
                backlog.mix.saved() or UNSET,
            )
        )

    def restore(self, blob: bytes) -> None:
        """Take up a snapshot; lines and counters are counted anew. O(jobs log jobs)."""
        state = msgspec.json.decode(blob, type=Saved)
        self._begin()
        jobs, data = self.jobs, self.data
        jobs.restore(state.jobs, given(state.sweeps, {}), state.finished)
        jobs.keys = state.keys
        last = max((record.number for record in state.jobs.values()), default=0)
        # Far beyond all jobs it was never given: a version took it from the name of a task.
        is_near = state.next_job - last <= 1 << 53
        jobs.next_number = state.next_job if is_near else last + 1
        jobs.skipped = given(state.skipped, {})
        data.next_copy, data.fetches.noted = state.next_copy, state.fetches
        deletions = given(state.deletions, [])
        data.catalogue.restore(state.datasets, state.copies, state.failed_copies, deletions)
        self.homes = state.homes
        self.fleet_file = given(state.fleet_file, "")
        self.fleet_edited = given(state.fleet_edited, False)
        self.tenancy.paused = given(state.paused, {})
        self.tenancy.timed = given(state.quotas, {})
        self.tenancy.budgets_noted = given(state.budgets_noted, {})
        self.windows = Windows(given(state.windows, {}), given(state.next_window, 1))
        self.take_fleet(state.fleet)
        self.tenancy.ledger.set_decayed(state.used_at_s, state.used_gpu_s)
        backlog, shapes = self.backlog, given(state.shapes, None)
        backlog.durations.restore(state.histories, state.learned)
        backlog.mix = Mix(state.sizes, shapes, backlog.mix.gpus)
        backlog.attained_service.restore(state.services_gpu_s)
        for hook in self.hooks.on_restored:
            hook.on_restored()
        for record in state.jobs.values():
            if record.plan is not None:
                self.book([record])
                if record.start_s is not None:
                    self.backlog.note_priority(record, self.now)
            elif record.state in WAITING:
                self._wait(record)
        self.tenancy.ledger.note_outgrown()
