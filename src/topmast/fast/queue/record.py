"""A job as the queue keeps it from admission to its end."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.decided import Decided
from topmast.model.job import MILLI, Band, JobSpec
from topmast.model.plan import Binding, Plan
from topmast.model.states import TERMINAL, JobState
from topmast.model.views import JobView


class JobRecord(Struct, gc=False):
    """One job. ``plan`` is that of the current attempt; ``epoch`` counts attempts, from 1.

    ``held_s``: time in finished attempts; ``kept_s``: the part whose work survived; ``worked_s``: that work, in
    seconds at the speed of the first model listed. ``not_before_s``: back-off after a failure.
    ``region`` to ``gpus_milli`` tell where the latest attempt is, or was. ``migrations``: how many of the
    preemptions were moves to a place found before; ``moves``: such a place is kept for it now.
    ``stopped_s``: when its last attempt ended; ``uncounted_s``: the part of ``held_s`` that counts no more in an order
    by attained service, for the job rose to the top since, ``promotions`` times.
    ``tasks``: of an elastic job, how many the latest attempt has; ``resizes``: how often it came back with another number;
    ``size_cause``: why it did so last.
    ``extra_gpu_s``: what finished attempts took beyond the GPUs that it asked for.
    ``beside``: who has its GPUs at the same time.
    ``decided``: why the plan of the current attempt was chosen.
    ``bound``: where it was sent to wait, for the ``bindings``-th time; None: it may run anywhere.
    """

    id: str
    number: int
    spec: JobSpec
    submit_s: float
    state: JobState = JobState.PENDING
    epoch: int = 0
    plan: Plan | None = None
    over_quota: bool = False
    start_s: float | None = None
    first_start_s: float | None = None
    finish_s: float | None = None
    held_s: float = 0.0
    kept_s: float = 0.0
    worked_s: float = 0.0
    preemptions: int = 0
    migrations: int = 0
    moves: bool = False
    restarts: int = 0
    host_losses: int = 0
    refusals: int = 0
    not_before_s: float = 0.0
    avoid_hosts: tuple[str, ...] = ()
    step: int | None = None
    resumed_from_step: int | None = None
    metrics: dict[str, float] = {}
    cause: str = ""
    cancelling: bool = False
    region: str | None = None
    cluster: str | None = None
    model: str | None = None
    hosts: tuple[str, ...] = ()
    gpus_milli: int | None = None
    bound: Binding | None = None
    bindings: int = 0
    stopped_s: float | None = None
    uncounted_s: float = 0.0
    promotions: int = 0
    tasks: int | None = None
    resizes: int = 0
    extra_gpu_s: float = 0.0
    beside: str | UnsetType = UNSET
    size_cause: str | UnsetType = UNSET
    decided: Decided | UnsetType = UNSET

    @property
    def finished(self) -> bool:
        """Whether the state is terminal."""
        return self.state in TERMINAL

    @property
    def band(self) -> Band:
        """The band the current attempt runs in, or the job's own while it waits."""
        return Band.OPPORTUNISTIC if self.plan and self.over_quota else self.spec.band

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
        )
