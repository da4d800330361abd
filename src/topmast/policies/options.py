"""The options of a profile: a named combination, in a small data file (`profiles/`).

The machines read the options and call the hooks that they name (`base`); no behaviour depends on
the profile's name.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from topmast.model.job import Band


class ScoreWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of the terms of a plan's score; the lowest sum wins.

    A plan that stops other jobs pays none of ``allocated_gpus``, ``allocated_cpus``,
    ``allocated_memory`` and ``gpu_hosts``.
    """

    preemption: float = 10.0
    """Per GPU-hour of lost work."""
    speed: float = 4.0
    """Per unit of slowdown against the job's best model."""
    locality: float = 1.0
    """Per level above the preferred one."""
    fragmentation: float = 0.5
    """For a host with a free rest that no task can use."""
    shapes: bool = False
    """Whether a free rest is judged by all that recent tasks ask for, not by whole GPUs alone."""
    data: float = 6.0
    """Per hour until the data is there."""
    balance: float = 0.5
    """Per unit of demand over supply."""
    allocated_gpus: float = 0.0
    """Per task on a host with all GPUs allocated, averaged over the tasks.

    If it is 0, only gangs of one group that request CPUs or memory pay the next two.
    """
    allocated_cpus: float = 0.0
    """Per task on a host with all CPUs allocated, averaged over the tasks."""
    allocated_memory: float = 0.0
    """Per task on a host with all memory allocated, averaged over the tasks."""
    gpu_hosts: float = 0.0
    """Per task of a gang without GPUs on a host that has GPUs."""
    models: tuple[tuple[str, float], ...] = ()
    """Per plan on GPUs of a model."""


class RankWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the credit inside a band: waiting time and fair share."""

    age: float = 0.5
    fairness: float = 0.5
    age_cap_s: float = 86_400.0
    usage_half_life_s: float = 86_400.0


class WhenBlocked(StrEnum):
    """What happens to the jobs behind one for which there is no room."""

    STOP = "stop"
    """They wait as well."""
    SKIP = "skip"
    """They are tried in their turn."""


class Preemption(StrEnum):
    """Which running jobs a waiting job may stop."""

    NONE = "none"
    BAND = "band"
    """Work of lower bands, and work over quota."""
    RANK = "rank"
    """Work that ranks behind it now, from the last on, if that gives it room."""

    @property
    def by_rank(self) -> bool:
        """Whether the place of a job in the order decides, which differs within a class of jobs."""
        return self is Preemption.RANK

    def may_stop_for(self, band: Band) -> bool:
        """Whether any work may be stopped for a job of an effective band."""
        if self is Preemption.BAND:
            return band > Band.OPPORTUNISTIC
        return self is Preemption.RANK


class Predict(StrEnum):
    """How the run time of a job without an estimate is predicted."""

    MEDIAN = "median"
    """The median of its group's latest runs."""
    TREE = "tree"
    """That, corrected by a regression tree that is grown on the jobs that finished."""


class InsideQueue(StrEnum):
    """The order of jobs inside one queue."""

    RUNNING = "running"
    """Those that run, by their first start; then those that wait, by since when."""
    FIRST_START = "first-start"
    """By the first start, running or not; then those that never ran, by submission."""
    LISTED = "listed"
    """As the public code's list: a job that sinks while it runs goes behind those that wait."""


class QueueOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Queues by attained service (Tiresias)."""

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    """Where each queue but the last ends, ascending."""
    promote_knob: float | None = None
    """A job is promoted when it has waited so many times its executed time; None: never.

    The wait counts from its last run.
    """
    within: InsideQueue = InsideQueue.RUNNING


class GittinsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The Gittins index (Tiresias), counted in quanta of service."""

    quantum_gpu_s: float = 36_000.0
    quanta_ahead: int | None = None
    """How far it looks ahead; None: as far as is best for each job."""
    known_gpu_s: tuple[float, ...] = ()
    """The total service of jobs, if known beforehand; empty: that of the jobs that succeeded."""


class SkewOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Placement by tensor skew (Tiresias: profile-based placement)."""

    threshold: float = 0.5
    """Jobs of more skew are consolidated."""
    strict: bool = True
    """A job that a single host could hold waits for it."""


class BindOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a job waits: in one queue for all regions (`late`), or bound to a place early."""

    policy: str = "late"
    """The binding policy (see registry)."""
    choices: int | None = None
    """Compare so many clusters, drawn at random; None: all."""
    patience_s: float | None = None
    """How long a job waits before it may be bound elsewhere; None: it stays for good."""
    signal_s: float = 0.0
    """The largest age of the loads by which clusters are compared."""


class Within(StrEnum):
    """How the jobs of one tenant share what is the tenant's, where tenants share first."""

    FAIRNESS = "fairness"
    FIFO = "fifo"


class BandWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job of each band weighs where time is shared by weight."""

    critical: float = 1.0
    high: float = 1.0
    normal: float = 1.0
    low: float = 1.0
    opportunistic: float = 1.0


class ShareOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs share the GPUs' time, in rounds (Gavel)."""

    policy: str = "none"
    """The policy of shares (see registry); `none`: a running job keeps running."""
    aware: bool = True
    """The policy knows how fast jobs are on each model."""
    round_s: float = 360.0
    """The length of a round."""
    recompute_s: float = 0.0
    """The shortest time between two computations of shares."""
    memory_s: float = 1_800.0
    forget: bool = False
    """Received time counts since shares were computed, and new jobs have no share until then."""
    lease: float = 2.0
    reuse: bool = True
    """GPUs that become free within a round are given away at once."""
    weights: BandWeights = BandWeights()
    """Of jobs, by band."""
    prices: dict[str, float] = {}
    """In USD per GPU and hour, by model."""
    within: Within = Within.FAIRNESS
    """The order among the jobs of one tenant."""
    pairs: bool = False
    """Two gangs of one size may share GPUs at the same time, where their speeds are known."""
    raw: bool = False
    """Speeds are in steps a second, where a table of throughputs has them: short steps count more.

    Only policies that add up speeds of several jobs care.
    """


class SliceOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs take turns on the same GPUs (Gandiva: suspend and resume)."""

    layers: int = 1
    """How many gangs may take turns on a GPU; 1: no time sharing."""
    quantum_s: float = 60.0
    """The length of a turn."""
    price: float = 100.0
    """Points for a place in the second time slice; twice that in the third, and so on."""


class RebalanceOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with gangs that share GPUs (Gandiva: introspective mode)."""

    gain: float = 1.05
    """Two gangs stay packed if their throughputs, relative to running alone, add up to this.

    In turns they add up to 1.
    """
    retry_s: float = 3_600.0
    """After how long two gangs may be tried together again, or a gang moved again."""
    migrate: bool = False
    """Whether a gang that shares its GPUs is moved to idle ones."""
    migrate_after_s: float = 300.0
    """How long a gang must have run before it is moved."""
    horizon_s: float = 3_600.0
    """The longest remaining run time that is assumed; the estimate is the time run so far."""
    move_loss: float = 0.05
    """A move is undone if the gang loses more than this part of its throughput."""
    join: bool = False
    """Whether a gang without a partner moves to the GPUs of a gang of the same form."""
    join_retry_s: float = 600.0
    """After how long a gang may move so again."""
    expected_gain: float = 0.1
    """The expected gain of such a move, on average over pairs that stay and that do not."""


class SlowOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """When and how the slow path plans where data lies and which cluster has which hosts."""

    plan_data_every_s: float | None = None
    """How often data is planned; None: never, it stays as it is."""
    plan_data_limit_s: float = 60.0
    """How long a plan may take."""
    history_days: int = 28
    """How far back the forecast looks."""
    scenarios: int = 6
    """For how many days drawn from the forecast a plan is made; 0: for the mean day."""
    growth: float = 0.7
    """The most bytes of new replicas in one plan, over those of one copy of everything."""
    plan_capacity_every_s: float | None = None
    """How often capacity is planned; None: never, it stays as it is."""
    plan_capacity_limit_s: float = 30.0
    """How long a plan may take."""
    capacity_gain: float = 0.5
    """The part of its mean shortage, less idle GPUs, that a cluster requests.

    0: it requests what is configured.
    """
    capacity_least: float = 0.25
    """The least that a cluster requests, over what is configured."""
    capacity_most: float = 4.0
    """The most that a cluster requests, over what is configured."""
    capacity_survive: bool = False
    """Clusters keep what they request even while one of their fault domains is down."""
    buffer_fraction: float = 0.0
    """The part of a region's GPUs of a model that is kept spare for hosts that fail."""


class ReserveOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """High-end GPUs that are kept for jobs that use them."""

    models: tuple[str, ...] = ()
    """The high-end models."""
    power: dict[str, float] = {}
    """What a model can do, over any other; 1 if it is not named."""
    least_efficiency: float = 0.8
    """A job below this part of its best speed over power has to wait for such a GPU."""
    least_gpus: float = 4.0
    """A gang of so many GPUs is assumed to use any GPU to the full."""
    patience_s: float | None = None
    """How long such a job waits; None: for good."""
    price: float = 0.0
    """Points for a plan that uses nothing of its GPUs."""


class ElasticOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """When elastic jobs change their size while they run (Gandiva, OSDI '18: grow-shrink)."""

    grow: bool = False
    """Into idle GPUs that no job waits for."""
    shrink: bool = False
    """For a waiting job, before any job is stopped completely."""
    every_s: float = 60.0
    """How often sizes are reviewed."""
    settle_s: float = 300.0
    """How long a job keeps a size at least."""
    gain: float = 2.0
    """The time that more tasks save must be so many times the cost of the restart."""
    efficiency: float = 1.0
    """The throughput of one task when their number doubles, over that before."""


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """A named combination of options."""

    name: str
    description: str = ""
    order: str = "credit"
    """The policy of the order (see registry)."""
    scoring: str = "weighted"
    """The policy of the score (see registry)."""
    when_blocked: WhenBlocked = WhenBlocked.SKIP
    preemption: Preemption = Preemption.BAND
    score: ScoreWeights = ScoreWeights()
    rank: RankWeights = RankWeights()
    min_runtime_s: float = 300.0
    """Younger attempts are not stopped."""
    restart_cost_s: float = 30.0
    """The cost of a restart in addition to the lost work."""
    rerank_interval_s: float = 60.0
    """How long ranks stay frozen."""
    rounds_s: float | None = None
    """Jobs are tried at multiples of this time only; None: at once, when something changes."""
    backoff_s: float = 2.0
    """The delay before a failed job restarts; it doubles with each failure."""
    backoff_cap_s: float = 300.0
    """The longest such delay."""
    on_demand_copies: bool = True
    """Whether a job may wait for a copy of its data."""
    copy_limit_s: float = 3_600.0
    """The longest wait for a copy."""
    copy_patience: float = 1.0
    """First a job waits for room near its data, so many times as long as the copy takes.

    No longer, if the expected wait is longer than that.
    """
    copies_per_period: int | None = None
    """For how many jobs in a period data is copied at most; None: no limit.

    Jobs that no region with their data could ever hold count, but are not delayed.
    """
    copy_period_s: float = 86_400.0
    """The length of that period."""
    host_losses_allowed: int = 20
    suspect_s: float = 60.0
    default_duration_s: float = 3_600.0
    """The expected run time of a job without any information."""
    predict: Predict = Predict.MEDIAN
    """How the runs of finished jobs are used."""
    reserve_after_s: float | None = None
    """How long a job waits before room is reserved for it; None: never."""
    defragment: bool = False
    """Whether running jobs are moved for a job that finds no room."""
    defragment_after_s: float = 300.0
    """How long it must have waited."""
    defragment_cap_s: float = 3_600.0
    """The longest wait that counts towards the gain."""
    defragment_gain: float = 2.0
    """The wait must be worth so many times what the moves cost."""
    elastic: ElasticOptions = ElasticOptions()
    """When elastic jobs change their size."""
    bind: BindOptions = BindOptions()
    shares: ShareOptions = ShareOptions()
    slices: SliceOptions = SliceOptions()
    pack: str = "none"
    """The policy that chooses gangs to be tried on the same GPUs (see registry)."""
    pack_trial_s: float = 60.0
    """How long a trial of two gangs takes."""
    rebalance: str = "none"
    """The policy that judges trials and moves gangs (see registry)."""
    rebalancing: RebalanceOptions = RebalanceOptions()
    reserve: ReserveOptions = ReserveOptions()
    """GPU models that are kept for some jobs."""
    ask_ahead: int = 512
    """How many waiting jobs regions of other processes are asked about ahead, at most."""
    slow: SlowOptions = SlowOptions()
    """The planners of the slow path."""
    queues: QueueOptions = QueueOptions()
    """For the policies that use them."""
    gittins: GittinsOptions = GittinsOptions()
    """For the policy that uses it."""
    skew: SkewOptions = SkewOptions()
    """For the policy that uses it."""

    @property
    def weighs_lost_work(self) -> bool:
        """Whether running jobs may be stopped for the gain of others: then checkpoints matter."""
        resizes = self.elastic.grow or self.elastic.shrink
        return resizes or self.preemption is not Preemption.NONE
