"""What the queue knows: jobs, tenants' books, datasets, and the working memory of its cycle."""

from __future__ import annotations

import copy
from typing import Self

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.machine import EventMachine
from topmast.fast.queue.backlog.attained_service import AttainedService
from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.backlog.blocked import JobMayMore
from topmast.fast.queue.backlog.durations import Durations, History
from topmast.fast.queue.backlog.learning import Learned
from topmast.fast.queue.backlog.model_reservation import ModelReservation
from topmast.fast.queue.backlog.priority_timers import PriorityTimers
from topmast.fast.queue.backlog.task_mix import Mix
from topmast.fast.queue.backlog.topology_policy import TopologyPolicy
from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.backfill import Backfill
from topmast.fast.queue.cycle.defragmentation import Defragmentation
from topmast.fast.queue.cycle.early_binding import EarlyBinding
from topmast.fast.queue.cycle.liveness import Reach
from topmast.fast.queue.cycle.prefetch import Prefetch
from topmast.fast.queue.data.catalogue import Catalogue, DatasetRecord
from topmast.fast.queue.data.copies_on_demand import Fetches
from topmast.fast.queue.hooks import Grants, QueueHooks
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.model.absent import given
from topmast.model.dataset import Copy, Deletion
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec, speed_of_size
from topmast.model.plan import Plan
from topmast.model.states import WAITING
from topmast.policies.base import (
    BindPolicy,
    OrderPolicy,
    ReservePolicy,
    ScorePolicy,
)
from topmast.policies.options import Profile


class Key(Struct):
    """What was admitted under an Idempotency-Key."""

    digest: str
    first_number: int
    count: int


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


class QueueState(EventMachine):
    """The state of the queue, and the bookkeeping that more than one fact needs."""

    def __init__(
        self,
        profile: Profile,
        order: OrderPolicy,
        bind: BindPolicy | None = None,
        score: ScorePolicy | None = None,
        reserve: ReservePolicy | None = None,
        grants: Grants | None = None,
    ) -> None:
        """``grants``: of a policy that shares time; None: every job may have what it asked for."""
        super().__init__()
        self.profile = profile
        self.grants = grants or Grants()
        self.hooks: tuple[QueueHooks, ...] = ()
        """Policies that act at the steps of the queue, in their order."""
        self.order = order
        self.preemption = profile.preemption
        """What may be stopped for a job."""
        self.takes_turns = profile.slices.layers > 1
        """Whether gangs are placed on GPUs that others have, and take turns there."""
        self.binding = EarlyBinding(profile.bind, bind)
        self.model_reservation = ModelReservation(reserve, profile.reserve.patience_s)
        self.fleet = Fleet(())
        self.homes: dict[str, str] = {}
        """Where the fleet file has those hosts that belong to another cluster now."""
        self.regions: list[str] = []
        """By name."""
        self.jobs: dict[str, JobRecord] = {}
        self.catalogue = Catalogue()
        self.ledger = Ledger(())
        self.entitlements = Entitlements(self.ledger)
        self.durations = Durations(profile.default_duration_s, profile.predict)
        self.attained_service = AttainedService(order)
        self.topology_policy = TopologyPolicy(score)
        self.mix = Mix()
        self.backlog = self._empty_backlog()
        self.finished: list[str] = []
        self.next_job = 1
        self.next_copy = 1
        self.keys: dict[str, Key] = {}
        """Submissions that may be repeated, by Idempotency-Key."""
        self.skipped: dict[str, int] = {}
        """Epochs of jobs that are taken, though this journal does not know by what."""
        self.fetches = Fetches(profile)
        self.gpus_by_region: dict[str, int] = {}
        # Working memory of the cycle: never journalled, rebuilt or simply forgotten.
        self.backfill = Backfill(profile.reserve_after_s)
        self.defragmentation = Defragmentation(profile)
        self.reach = Reach()
        self.prefetch = Prefetch(profile.ask_ahead)
        self.priority_timers = PriorityTimers(order, profile.rerank_interval_s)
        self.placed: dict[str, JobRecord] = {}
        """Jobs with a plan."""
        self.decision: PendingDecision | None = None
        self.batch = 0
        """Number of the last question."""
        self.budget = 0
        """Plans to be sought yet before others get their turn."""

    def _empty_backlog(self) -> Backlog:
        fairness = lambda tenant: self.ledger.fairness(tenant)  # noqa: E731
        return Backlog(self.order, fairness, self.durations, self.topology_policy, self.grants)

    @property
    def has_forgotten(self) -> bool:
        """Whether finished jobs have left memory."""
        return len(self.jobs) < self.next_job - 1

    def take_fleet(self, fleet: Fleet) -> None:
        """Take up a configuration. O(hosts)."""
        self.fleet = fleet
        self.catalogue.configure(fleet)
        self.binding.configure(fleet, self.jobs, self.now)
        self.ledger.set_tenants(fleet.tenants, fleet.gpus())
        self.entitlements.configure(fleet)
        for hook in self.hooks:
            hook.on_fleet(fleet, self.entitlements)
        self.topology_policy.configure(fleet)
        self.regions = sorted(region.name for region in fleet.regions)
        self.gpus_by_region = {
            r.name: sum(h.gpus for c in r.clusters for h in c.hosts) for r in fleet.regions
        }

    def take_owners(self, fleet: Fleet) -> None:
        """Take up a fleet with hosts in other clusters, of the same regions. O(hosts).

        What a round granted holds on.
        """
        self.fleet = fleet
        self.binding.configure(fleet, self.jobs, self.now)
        for hook in self.hooks:
            hook.on_owners(fleet, self.entitlements)
        self.topology_policy.configure(fleet)

    def enqueue(self, record: JobRecord) -> None:
        """Let a job wait. It may do more than others of its class if it may stop other jobs."""
        for hook in self.hooks:
            hook.on_enqueued()
        self.backlog.add(record, self.now)
        self.binding.waits(record, self.now)
        self.priority_timers.note(self.backlog, record, self.now)
        if self.preemption.by_rank or record.moves:
            self.let_try(record.id)

    def let_try(self, job: str) -> None:
        """A job may do what others of its class may not: it is tried again, if it waits. O(1)."""
        job_class = self.backlog.class_of(job)
        if job_class is not None:
            self.backlog.unblock(JobMayMore(job_class))

    def waits_no_more(self, record: JobRecord) -> None:
        """Take a job out of its line: it starts, or is over. O(1)."""
        self.backlog.remove(record.id)
        self.defragmentation.let_go(record.id)
        self.binding.rests(record.id)
        self.backfill.let_go(record.id)

    def book(self, record: JobRecord, plan: Plan) -> None:
        """Count what a plan holds on its tenant. O(models)."""
        self.placed[record.id] = record
        for hook in self.hooks:
            hook.on_booked(record)
        tenant, over_quota = record.spec.tenant, record.over_quota
        for model, milli in plan.held().items():
            self.ledger.take(tenant, plan.region, model, milli, over_quota)

    def unbook(self, record: JobRecord) -> None:
        """Give back what a job's plan held, if it has one. O(models)."""
        plan = record.plan
        self.placed.pop(record.id, None)
        for hook in self.hooks:
            hook.on_unbooked(record.id)
        if plan is not None:
            tenant, over_quota = record.spec.tenant, record.over_quota
            for model, milli in plan.held().items():
                self.ledger.give_back(tenant, plan.region, model, milli, over_quota)
            record.plan, record.beside, record.decided = None, UNSET, UNSET

    def speed_of_size(self, spec: JobSpec, plan: Plan) -> float:
        """The speed expected with a plan's tasks, over that with the tasks requested. O(seats)."""
        elastic = spec.elastic
        if elastic is None:
            return 1.0
        tasks = plan.tasks_of(elastic.name)
        return speed_of_size(elastic, tasks, self.profile.elastic.efficiency)

    def with_ledger(self, ledger: Ledger) -> Self:
        """The same queue with another ledger, to look at: everything else is shared. O(1)."""
        other = copy.copy(self)
        other.ledger, other.entitlements = ledger, self.entitlements.by(ledger)
        return other

    def snapshot(self) -> bytes:
        """Everything that cannot be rebuilt, as JSON. O(jobs)."""
        used_at_s, used = self.ledger.decayed()
        return msgspec.json.encode(
            Saved(
                self.fleet,
                self.jobs,
                self.finished,
                self.next_job,
                self.next_copy,
                self.keys,
                self.catalogue.datasets,
                self.catalogue.copies,
                self.catalogue.failed,
                used_at_s,
                used,
                self.durations.histories,
                self.mix.weights,
                self.durations.learned(),
                self.attained_service.total_gpu_s,
                self.homes,
                self.fetches.noted,
                self.skipped or UNSET,
                self.catalogue.deletions.all() or UNSET,
            )
        )

    def restore(self, blob: bytes) -> None:
        """Take up a snapshot; lines and counters are counted anew. O(jobs log jobs)."""
        state = msgspec.json.decode(blob, type=Saved)
        self.jobs, self.finished, self.keys = state.jobs, state.finished, state.keys
        last = max((record.number for record in self.jobs.values()), default=0)
        # Far beyond all jobs it was never given: a version took it from the name of a task.
        is_near = state.next_job - last <= 1 << 53
        self.next_job = state.next_job if is_near else last + 1
        self.next_copy = state.next_copy
        self.homes = state.homes
        self.fetches.noted = state.fetches
        self.skipped = given(state.skipped, {})
        deletions = given(state.deletions, [])
        self.catalogue.restore(state.datasets, state.copies, state.failed_copies, deletions)
        self.ledger = Ledger(())
        self.entitlements = Entitlements(self.ledger)
        self.take_fleet(state.fleet)
        self.ledger.set_decayed(state.used_at_s, state.used_gpu_s)
        self.durations.restore(state.histories, state.learned)
        self.mix = Mix(state.sizes)
        self.attained_service.restore(state.services_gpu_s)
        self.priority_timers = PriorityTimers(self.order, self.profile.rerank_interval_s)
        self.placed = {}
        for hook in self.hooks:
            hook.on_restored()
        self.backlog = self._empty_backlog()
        for record in self.jobs.values():
            if record.plan is not None:
                self.book(record, record.plan)
                self.priority_timers.note(self.backlog, record, self.now)
            elif record.state in WAITING:
                self.backlog.add(record, self.now)
                self.priority_timers.note(self.backlog, record, self.now)
                self.binding.waits(record, self.now)
