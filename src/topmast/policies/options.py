"""The options of a profile: a named combination, which is a small data file (`profiles/`).

The machines read the options and call the hooks that they name (`base`); nothing is ever chosen by the
profile's name.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ScoreWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of the score's terms (fast-path: score of a plan); the lower sum wins.

    ``preemption`` per GPU-hour of lost work; ``speed`` per unit of slowdown against the job's best
    model; ``locality`` per level above the preferred one; ``fragmentation`` for a host left
    wholly stranded; ``data`` per hour until the data is there; ``balance`` per unit of
    demand over supply. ``models``: per plan on GPUs of a model. ``allocated_gpus``, ``allocated_cpus`` and
    ``allocated_memory``: per task on a host of which all is allocated, in the mean over the tasks;
    without ``allocated_gpus`` only gangs of one group that ask for CPUs or memory pay it. ``gpu_hosts``: per task of
    a gang without GPUs on a host that has GPUs. A plan that stops others pays none of these four.
    """

    preemption: float = 10.0
    speed: float = 4.0
    locality: float = 1.0
    fragmentation: float = 0.5
    data: float = 6.0
    balance: float = 0.5
    allocated_gpus: float = 0.0
    allocated_cpus: float = 0.0
    allocated_memory: float = 0.0
    gpu_hosts: float = 0.0
    models: tuple[tuple[str, float], ...] = ()


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
    """Whom a waiting job may stop."""

    NONE = "none"
    BAND = "band"
    """Work of lower bands, and work over quota."""
    RANK = "rank"
    """Work that ranks behind it now, from the last on, if that gives it room."""


class Predict(StrEnum):
    """How it is told how long a job will run whose people say nothing."""

    MEDIAN = "median"
    """The median of its group's latest runs."""
    TREE = "tree"
    """That, corrected by a regression tree that is grown on the jobs that finished."""


class InsideQueue(StrEnum):
    """Who goes first of those in one queue."""

    RUNNING = "running"
    """Those that run, by their first start; then those that wait, by since when."""
    FIRST_START = "first-start"
    """By the first start, running or not; then those that never ran, by submission."""


class QueueOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Queues by attained service (Tiresias).

    ``thresholds_gpu_s``: where each queue but the last ends, ascending. ``promote_knob``: a job that has waited,
    since it last ran, so many times what it has executed rises to the top; None: nobody does.
    """

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    promote_knob: float | None = None
    within: InsideQueue = InsideQueue.RUNNING


class GittinsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The Gittins index (Tiresias), counted in quanta of service.

    ``quanta_ahead``: how far it looks ahead; None: as far as is best for each job. ``known_gpu_s``: the total
    service of jobs, as it is known beforehand; empty: that of the jobs that succeeded so far.
    """

    quantum_gpu_s: float = 36_000.0
    quanta_ahead: int | None = None
    known_gpu_s: tuple[float, ...] = ()


class SkewOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Placement by tensor skew (Tiresias: profile-based placement).

    ``threshold``: jobs of more skew are consolidated. ``strict``: one that a single host could hold waits for it.
    """

    threshold: float = 0.5
    strict: bool = True


class BindOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a job waits: under the one queue for all regions (`late`), or where it was sent at submission.

    ``policy`` names who sends it (see registry). ``choices``: of how many clusters, drawn at random, the
    best is taken; None, of all. ``patience_s``: how long a job waits before it may be sent elsewhere; None,
    it stays for good. ``signal_s``: how old, at most, the loads are by which clusters are compared.
    """

    policy: str = "late"
    choices: int | None = None
    patience_s: float | None = None
    signal_s: float = 0.0


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
    """How jobs share the GPUs' time, in rounds (Gavel).

    ``policy`` names who says which part of its time a job runs on which model (see registry); `none`: a job
    that runs goes on running. ``aware``: the policy knows how fast jobs are on each model. ``round_s``: how
    long a round is; ``recompute_s``: shares are not computed anew more often. ``reuse``: what comes free
    within a round is given away at once, and not left idle until its end. ``weights`` of jobs by band;
    ``prices`` in USD per GPU and hour, by model; ``within``: among the jobs of one tenant. ``pairs``: two gangs of one
    size may have the same GPUs at the same time, where it is known how fast both are then.
    """

    policy: str = "none"
    aware: bool = True
    round_s: float = 360.0
    recompute_s: float = 0.0
    memory_s: float = 1_800.0
    lease: float = 2.0
    reuse: bool = True
    weights: BandWeights = BandWeights()
    prices: dict[str, float] = {}
    within: Within = Within.FAIRNESS
    pairs: bool = False


class SliceOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs take turns on the same GPUs (Gandiva: suspend and resume).

    ``layers``: how many gangs may be placed on a GPU, whose turns come one after the other; 1: nobody shares time.
    ``quantum_s``: how long a turn is. ``price``: points for a place in the second layer, twice that in the third.
    """

    layers: int = 1
    quantum_s: float = 60.0
    price: float = 100.0


class RebalanceOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of gangs that share GPUs (Gandiva: introspective mode).

    ``gain``: two stay on the same GPUs if their rates, each over that alone, sum up to so much; in turns they make 1.
    ``retry_s``: after how long two may be tried again. ``migrate``: whether a gang that shares its GPUs is moved to idle
    ones, if it ran for ``migrate_after_s``, and not again for ``retry_s``; what it has run is the guess of what it will
    still run, up to ``horizon_s``. ``move_loss``: a move is taken back if the gang is measured to do less by more than this part.
    ``join``: whether a gang that has nobody to be tried beside moves to the GPUs of another of its form, not again for
    ``join_retry_s``; ``expected_gain``: what that is expected to gain, in the mean over pairs that stay together and that do not.
    """

    gain: float = 1.05
    retry_s: float = 3_600.0
    migrate: bool = False
    migrate_after_s: float = 300.0
    horizon_s: float = 3_600.0
    move_loss: float = 0.05
    join: bool = False
    join_retry_s: float = 600.0
    expected_gain: float = 0.1


class SlowOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """When the slow path plans where data lies and whose hosts are, and how (None: never; it stays as it is).

    ``plan_data_every_s``: how often. ``plan_data_limit_s``: how long a plan may take. ``history_days``: how
    far back the forecast looks. ``scenarios``: for how many days drawn from the forecast a plan is made; 0,
    for the mean one. ``growth``: bytes of new replicas over those of one copy of everything, in one plan, at most.
    ``plan_capacity_every_s`` and ``plan_capacity_limit_s``: the same of plans of capacity. ``capacity_gain``: by which part
    of the GPUs that it lacked, less those that were idle, a cluster asks for more; 0: for what is configured.
    ``capacity_least`` and ``capacity_most``: of what is configured, what it asks for at least and at most.
    ``capacity_survive``: clusters shall have it even while one of their fault domains is down.
    ``buffer_fraction``: of the GPUs of a model in a region, the part that no cluster counts on, for hosts that fail.
    """

    plan_data_every_s: float | None = None
    plan_data_limit_s: float = 60.0
    history_days: int = 28
    scenarios: int = 6
    growth: float = 0.7
    plan_capacity_every_s: float | None = None
    plan_capacity_limit_s: float = 30.0
    capacity_gain: float = 0.5
    capacity_least: float = 0.25
    capacity_most: float = 4.0
    capacity_survive: bool = False
    buffer_fraction: float = 0.0


class ReserveOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """High-end GPU ``models`` that are kept for jobs that use them.

    ``power``: what a model can do, over any other; 1 if it is not named. A job that reaches less than ``least_efficiency`` of
    its best speed over power there has to wait ``patience_s`` first (None: for good). Gangs of ``least_gpus`` or more
    are taken to use any GPU. ``price``: points for a plan that uses nothing of its GPUs.
    """

    models: tuple[str, ...] = ()
    power: dict[str, float] = {}
    least_efficiency: float = 0.8
    least_gpus: float = 4.0
    patience_s: float | None = None
    price: float = 0.0


class ElasticOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """When elastic jobs change their size while they run (Gandiva, OSDI '18: grow-shrink).

    ``grow``: into idle GPUs that nobody waits for; ``shrink``: for a job that waits, before anybody is stopped whole.
    ``every_s``: how often that is looked at; ``settle_s``: how long a job keeps a size at least. ``gain``: the time
    that more tasks save must be so many times what the restart costs. ``efficiency``: what a task is expected to do,
    each time their number doubles, over what it did before.
    """

    grow: bool = False
    shrink: bool = False
    every_s: float = 60.0
    settle_s: float = 300.0
    gain: float = 2.0
    efficiency: float = 1.0


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """A named combination of options.

    ``order``, ``scoring`` and ``shares.policy`` name policies (see registry). ``default_duration_s``: how long a job is
    expected to run of which nothing is known; ``predict``: what is made of those that finished.
    ``reserve_after_s``: how long a job waits before room is reserved for it; None, never.
    ``min_runtime_s``: younger attempts are no victims. ``restart_cost_s``: what a restart costs
    beside the lost work. ``rerank_interval_s``: how long credit stays frozen. ``backoff_s`` and
    ``backoff_cap_s``: the growing delay before a failed job starts again. ``on_demand_copies``
    and ``copy_limit_s``: whether, and for how long at most, a job may wait for a copy of its data. ``copy_patience``: so many times as
    long as the copy would take it waits, or is expected to wait, for room near its data first. ``copies_per_period``
    and ``copy_period_s``: for how many jobs, in how long, data is copied at most (None: no limit); those that no region with
    their data could ever hold count, and are not held up.
    ``defragment``: whether running work is moved for a job that found no room for
    ``defragment_after_s``; what it waited counts up to ``defragment_cap_s``, and must be worth
    ``defragment_gain`` times what moving costs.
    ``reserve``: GPU models that are kept for some. ``elastic``: when jobs that may be larger or smaller change their size.
    ``pack`` and ``rebalance`` name policies (see registry): who is tried together on the same GPUs for ``pack_trial_s``, and
    what becomes of it.
    ``queues``, ``gittins`` and ``skew`` are for the policies that use them.
    ``ask_ahead``: how many waiting jobs a region in another process is asked about at once, at most.
    ``slow``: the planners beside the queue.
    """

    name: str
    description: str = ""
    order: str = "credit"
    scoring: str = "weighted"
    when_blocked: WhenBlocked = WhenBlocked.SKIP
    preemption: Preemption = Preemption.BAND
    score: ScoreWeights = ScoreWeights()
    rank: RankWeights = RankWeights()
    min_runtime_s: float = 300.0
    restart_cost_s: float = 30.0
    rerank_interval_s: float = 60.0
    backoff_s: float = 2.0
    backoff_cap_s: float = 300.0
    on_demand_copies: bool = True
    copy_limit_s: float = 3_600.0
    copy_patience: float = 1.0
    copies_per_period: int | None = None
    copy_period_s: float = 86_400.0
    host_losses_allowed: int = 20
    suspect_s: float = 60.0
    default_duration_s: float = 3_600.0
    predict: Predict = Predict.MEDIAN
    reserve_after_s: float | None = None
    defragment: bool = False
    defragment_after_s: float = 300.0
    defragment_cap_s: float = 3_600.0
    defragment_gain: float = 2.0
    elastic: ElasticOptions = ElasticOptions()
    bind: BindOptions = BindOptions()
    shares: ShareOptions = ShareOptions()
    slices: SliceOptions = SliceOptions()
    pack: str = "none"
    pack_trial_s: float = 60.0
    rebalance: str = "none"
    rebalancing: RebalanceOptions = RebalanceOptions()
    reserve: ReserveOptions = ReserveOptions()
    ask_ahead: int = 64
    slow: SlowOptions = SlowOptions()
    queues: QueueOptions = QueueOptions()
    gittins: GittinsOptions = GittinsOptions()
    skew: SkewOptions = SkewOptions()

    @property
    def weighs_lost_work(self) -> bool:
        """Whether running work may be stopped for what others gain, so that its checkpoints matter."""
        resizes = self.elastic.grow or self.elastic.shrink
        return resizes or self.preemption is not Preemption.NONE
