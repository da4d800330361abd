"""A job as the queue keeps it from admission to its end."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from topmast.model.absent import given
from topmast.model.decided import Decided
from topmast.model.dependency import After
from topmast.model.job import MILLI, Band, JobSpec, speed_of_size
from topmast.model.plan import Binding, Plan
from topmast.model.states import TERMINAL, JobState
from topmast.model.views import JobView

REFUSALS_AT_ONCE = 3
"""So many times a job is asked about again without a delay after a region refused its plan."""
REFUSAL_DELAY_S = 1.0
"""How long a job waits after one refusal more, so that queue and region do not loop."""
LONG_S = 3_600.0
"""Evictions before an attempt that held its GPUs for so long do not count."""


class JobRecord(Struct, gc=False, omit_defaults=True):
    """One job: its request, its state, and sums over its attempts."""

    id: str
    number: int
    spec: JobSpec
    submit_s: float
    state: JobState = JobState.PENDING
    epoch: int = 0
    """Attempts so far, from 1."""
    plan: Plan | None = None
    """The plan of the current attempt."""
    over_quota: bool = False
    start_s: float | None = None
    first_start_s: float | None = None
    finish_s: float | None = None
    held_s: float = 0.0
    """Time in finished attempts."""
    kept_s: float = 0.0
    """The part of ``held_s`` that left work which survived."""
    worked_s: float = 0.0
    """The work that survived, in seconds at the speed of the first model listed."""
    preemptions: int = 0
    migrations: int = 0
    """Preemptions that were moves to a place found before."""
    moves: bool = False
    """Such a place is kept for it now."""
    restarts: int = 0
    host_losses: int = 0
    refusals: int = 0
    not_before_s: float = 0.0
    """The end of the back-off after a failure."""
    avoid_hosts: tuple[str, ...] = ()
    step: int | None = None
    resumed_from_step: int | None = None
    metrics: dict[str, float] = {}
    cause: str = ""
    cancelling: bool = False
    region: str | None = None
    """Where the latest attempt is or was, as are the fields up to ``gpus_milli``."""
    cluster: str | None = None
    model: str | None = None
    hosts: tuple[str, ...] = ()
    gpus_milli: int | None = None
    bound: Binding | None = None
    """Where the job has to wait; None: it may run anywhere."""
    bindings: int = 0
    """How often it was bound."""
    stopped_s: float | None = None
    """When its last attempt ended."""
    uncounted_s: float = 0.0
    """The part of ``held_s`` before its last promotion: attained service leaves it out."""
    promotions: int = 0
    tasks: int | None = None
    """Tasks of the latest attempt, of an elastic job."""
    resizes: int = 0
    """How often it came back with another number of tasks."""
    extra_gpu_s: float = 0.0
    """What finished attempts took beyond the GPUs of its request."""
    colocated_with: str | UnsetType = field(name="beside", default=UNSET)
    """The job that has the same GPUs at the same time."""
    size_cause: str | UnsetType = UNSET
    """Why it came back with another number of tasks last."""
    evictions: int | UnsetType = UNSET
    """How often in a row a cluster ended an attempt of its own accord, none of them a long one."""
    decided: Decided | UnsetType = UNSET
    """Why the plan of the current attempt was chosen."""
    hold: str | UnsetType = UNSET
    """Why it may not start, while people hold it."""
    suspended: bool | UnsetType = UNSET
    """True while what holds it stopped it, too."""
    next_spec: JobSpec | UnsetType = UNSET
    """What it asks for from its next attempt on, if that was changed."""
    paused: str | UnsetType = UNSET
    """Why no job of its tenant may start, while that is paused."""
    awaits: dict[str, After] | UnsetType = UNSET
    """What other jobs have not come to yet, of all that it depends on."""
    ready_s: float | UnsetType = UNSET
    """When all tasks of the current attempt were up first; absent before, and without one."""
    told_to_stop_s: float | UnsetType = UNSET
    """When the current attempt was told to stop first."""

    def take_plan(
        self,
        plan: Plan,
        hosts: tuple[str, ...],
        epoch: int,
        over_quota: bool,
        decided: Decided | UnsetType,
    ) -> None:
        """Its next attempt has a plan, on ``hosts``. O(1)."""
        self.epoch, self.plan, self.over_quota = epoch, plan, over_quota
        self.region, self.cluster, self.model = plan.region, plan.cluster, plan.model
        self.hosts, self.gpus_milli = hosts, plan.gpus_milli
        self.moves, self.decided = False, decided

    @property
    def finished(self) -> bool:
        """Whether the state is terminal."""
        return self.state in TERMINAL

    @property
    def is_held(self) -> bool:
        """Whether people keep it from starting, by itself or with its tenant."""
        return self.hold is not UNSET or self.paused is not UNSET

    @property
    def is_aside(self) -> bool:
        """Whether it is in no order: people keep it from starting, or other jobs come first."""
        return self.is_held or self.awaits is not UNSET

    @property
    def band(self) -> Band:
        """The band the current attempt runs in, or the job's own while it waits."""
        return Band.OPPORTUNISTIC if self.plan and self.over_quota else self.spec.band

    def speed_of_size(self, plan: Plan, efficiency: float) -> float:
        """The speed with a plan's tasks, over that with the tasks requested. O(seats)."""
        elastic = self.spec.elastic
        if elastic is None:
            return 1.0
        return speed_of_size(elastic, plan.tasks_of(elastic.name), efficiency)

    def evictions_after(self, held_s: float) -> int:
        """How often in a row it was evicted, if an attempt of that length is evicted now."""
        return 1 if held_s >= LONG_S else given(self.evictions, 0) + 1

    def idle_s(self, end_s: float) -> float:
        """How long the current attempt has held its GPUs without computing, if it ends then.

        That is before all of its tasks are up, and from when it is told to stop.
        """
        if self.start_s is None:
            return 0.0
        is_up = self.state in (JobState.RUNNING, JobState.SUSPENDED)
        ready_s = given(self.ready_s, self.start_s if is_up else end_s)  # absent: of an old journal
        until_s = min(end_s, given(self.told_to_stop_s, end_s))
        whole_s = max(0.0, end_s - self.start_s)
        return min(whole_s, whole_s - max(0.0, until_s - max(ready_s, self.start_s)))

    def time_left_s(self) -> float | None:
        """What remains of the time limit before the next attempt."""
        limit_s = self.spec.time_limit_s
        return None if limit_s is None else max(0.0, limit_s - self.held_s)

    def view(self, now: float, reason: str | None) -> JobView:
        """What people are shown."""
        spec = self.spec
        running_s = now - self.start_s if self.start_s is not None else 0.0
        until_s = self.finish_s if self.finish_s is not None else now
        milli = spec.gpus_milli() if self.gpus_milli is None else self.gpus_milli
        elastic = spec.elastic
        others = 0 if elastic is None else spec.tasks - elastic.count
        return JobView(
            id=self.id,
            name=spec.name,
            tenant=spec.tenant,
            user=spec.user,
            band=spec.band.name.lower(),
            state=self.state.value,
            reason=reason,
            region=self.region,
            cluster=self.cluster,
            gpu_model=self.model,
            hosts=self.hosts,
            gpus=milli / MILLI,
            tasks=spec.tasks if self.tasks is None else self.tasks,
            attempts=self.epoch,
            preemptions=self.preemptions,
            migrations=self.migrations,
            restarts=self.restarts,
            over_quota=self.over_quota,
            submit_s=self.submit_s,
            start_s=self.first_start_s,
            finish_s=self.finish_s,
            wait_s=max(0.0, until_s - self.submit_s - self.held_s - running_s),
            step=self.step,
            resumed_from_step=self.resumed_from_step,
            metrics=self.metrics,
            datasets=spec.datasets,
            group=spec.group,
            cause=self.cause,
            refusals=self.refusals,
            min_tasks=None if elastic is None else others + elastic.least,
            max_tasks=None if elastic is None else others + elastic.most,
            resizes=self.resizes,
            hold=self.hold or self.paused or "",
            suspended=given(self.suspended, False),
            next_band=self.next_spec.band.name.lower() if self.next_spec else None,
            labels=given(spec.labels, {}),
            depends_on=_in_words(spec.depends_on) if spec.depends_on else {},
            sweep=spec.in_sweep,
            sweep_index=spec.part.index if spec.part else None,
            waits_for=_in_words(self.awaits) if self.awaits else {},
        )


def _in_words(awaited: dict[str, After]) -> dict[str, str]:
    return {job: after.value for job, after in awaited.items()}
