"""What people are shown: the JSON of the REST interface, of ``--json`` and of `topmast.Client`.

Times are seconds since the epoch, GPUs whole or fractional numbers, sizes bytes.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from topmast.model.decided import Decided
from topmast.model.reason import Change, ClusterVerdict


class JobView(Struct, frozen=True):
    """One job as it stands.

    ``attempts`` counts the times it was placed, ``refusals`` how often a region refused the plan.
    ``migrations``: how many of the preemptions were moves to a place found before. ``min_tasks`` and
    ``max_tasks``: the range of an elastic job, None of any other; ``resizes``: how often it came back with another
    number of tasks. ``reachable``: False while it has a place in a region that does not answer; the rest is what was
    heard last.
    """

    id: str
    name: str
    tenant: str
    user: str
    band: str
    state: str
    reason: str | None
    region: str | None
    cluster: str | None
    gpu_model: str | None
    hosts: tuple[str, ...]
    gpus: float
    tasks: int
    attempts: int
    preemptions: int
    restarts: int
    over_quota: bool
    submit_s: float
    start_s: float | None
    finish_s: float | None
    wait_s: float
    step: int | None
    resumed_from_step: int | None
    metrics: dict[str, float]
    datasets: tuple[str, ...]
    group: str
    cause: str
    refusals: int = 0
    migrations: int = 0
    min_tasks: int | None = None
    max_tasks: int | None = None
    resizes: int = 0
    reachable: bool = True


class JobPage(Struct, frozen=True):
    """A page of jobs; ``next_cursor`` None ends the listing.

    ``counts``: all jobs that the server has in memory, by state: those that have not ended, and the newest that
    have. ``total``: how many jobs all pages together have; None where some of them may have left memory.
    """

    jobs: tuple[JobView, ...]
    next_cursor: str | None
    counts: dict[str, int]
    total: int | None = None


class Receipt(Struct, frozen=True):
    """The durable acknowledgement of one job."""

    id: str
    name: str
    warnings: tuple[str, ...] = ()


class BulkReceipt(Struct, frozen=True):
    """The durable acknowledgement of many jobs, in the order given."""

    ids: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class HistoryView(Struct, frozen=True):
    """One line of a job's story."""

    at_s: float
    kind: str
    text: str
    detail: dict[str, Any]


class AttemptView(Struct, frozen=True):
    """One finished attempt of a job."""

    epoch: int
    region: str
    cluster: str
    gpu_model: str
    gpus: float
    start_s: float
    end_s: float
    kept_s: float
    outcome: str


class JobStory(Struct, frozen=True):
    """A job with its history: what `topmast status` shows."""

    job: JobView
    history: tuple[HistoryView, ...]
    attempts: tuple[AttemptView, ...]


class PlanView(Struct, frozen=True):
    """A plan the search found, with its score term by term (lower is better)."""

    region: str
    cluster: str
    gpu_model: str
    hosts: tuple[str, ...]
    level: str
    score: float
    terms: dict[str, float]
    victims: tuple[dict[str, Any], ...]
    over_quota: bool
    data_bytes: int
    data_s: float


class RegionVerdict(Struct, frozen=True):
    """What one region said, cluster by cluster. ``barred`` names what rules the region out."""

    region: str
    reachable: bool
    barred: str | None
    data_bytes: int
    data_s: float
    clusters: tuple[ClusterVerdict, ...]


class ExpectedStart(Struct, frozen=True):
    """When a waiting job is expected to start, and a range; None: not as far as was looked ahead.

    ``basis`` says what durations that rests on.
    """

    at_s: float | None
    early_s: float | None
    late_s: float | None
    basis: str


class Explanation(Struct, frozen=True):
    """Why a job stands where it stands, and what would change that.

    ``changes`` were each found by trying them, and are told in full; ``would_help`` says the smallest of
    each kind in words. ``plans``: first that of the queue, which it has or would have; then others by score. ``decided``:
    what decided for the first plan. ``expected_start_s`` and ``basis`` are those of ``expected_start``, or of the room
    kept for a job when there is no forecast.
    """

    job: str | None
    name: str
    state: str
    reason: str | None
    summary: str
    would_help: tuple[str, ...]
    regions: tuple[RegionVerdict, ...]
    plans: tuple[PlanView, ...]
    warnings: tuple[str, ...] = ()
    expected_start_s: float | None = None
    basis: str = ""
    changes: tuple[Change, ...] = ()
    expected_start: ExpectedStart | None = None
    decided: Decided | None = None


class RegionView(Struct, frozen=True):
    """A region at a glance. ``storage_bytes`` None is unlimited.

    Places are for work that is moved: kept now; used so far by those they were kept for; and not.
    """

    name: str
    clusters: int
    hosts: int
    gpus: float
    free_gpus: float
    unavailable_gpus: float
    running_jobs: int
    demand_supply: float
    datasets: int
    stored_bytes: int
    storage_bytes: int | None
    version: int
    places_kept: int = 0
    places_used: int = 0
    places_missed: int = 0


class ClusterView(Struct, frozen=True):
    """A cluster at a glance."""

    name: str
    region: str
    engine: str
    hosts: int
    healthy_hosts: int
    gpus: float
    free_gpus: float
    running_jobs: int


class HostView(Struct, frozen=True):
    """A host. ``agent_pid`` is the process that stands for it, where an engine has one.

    ``free_gpus`` is 0 where the host takes no work now. ``stays``: of a host that is drained, why each job that
    still runs there does, by job. ``leaves_for``: the cluster to which it goes when it is empty. ``kept_for``: jobs
    that are being moved, and for which GPUs are kept here until they start, or for a minute or two. ``reachable``: False
    while its region does not answer; the rest is what was heard last.
    """

    name: str
    region: str
    cluster: str
    state: str
    gpu_model: str
    gpus: int
    free_gpus: float
    datacenter: str
    pod: str
    rack: str
    jobs: tuple[str, ...]
    agent_pid: int | None = None
    stays: dict[str, str] = {}
    leaves_for: str | None = None
    kept_for: tuple[str, ...] = ()
    reachable: bool = True


class MoveView(Struct, frozen=True):
    """What a drain does with a job: it ``moves`` to ``to_hosts`` of ``to_cluster``, or ``why`` not.

    ``cost_gpu_s``: GPU-seconds that it would lose: its work since the last checkpoint and its restart.
    ``may_stop``: a drain at once stops it, also if it has no other place.
    """

    job: str
    hosts: tuple[str, ...]
    moves: bool
    to_cluster: str | None
    to_hosts: tuple[str, ...]
    cost_gpu_s: float
    why: str
    may_stop: bool = False


class DrainView(Struct, frozen=True):
    """What a drain of a host does, or would do, now."""

    host: str
    region: str
    state: str
    moves: tuple[MoveView, ...]


class HostStory(Struct, frozen=True):
    """A host with its history: who took it out of service and put it back, and when it was lost.

    ``known``: False where the region runs in another process, whose history is not kept here.
    """

    host: HostView
    history: tuple[HistoryView, ...]
    known: bool = True


class GpuView(Struct, frozen=True):
    """GPUs of one model in one cluster: present, free, held by jobs, on hosts that take no work."""

    region: str
    cluster: str
    gpu_model: str
    total: float
    free: float
    held: float
    unavailable: float


class TenantView(Struct, frozen=True):
    """One tenant and GPU model, with all tenants below it: GPUs, but for the shares and the weight.

    ``nominal`` None states no quota; ``borrowed`` runs over quota; ``lent`` is the part of the quota
    that tenants outside its branch use now. ``fair_share`` of the fleet is the tenant's by weight,
    ``usage_share`` is its part of what was used lately, of all models; both are 0 to 1. ``present``: GPUs of
    the model in the whole fleet; None from a server that does not say.
    """

    name: str
    gpu_model: str
    nominal: float | None
    used: float
    borrowed: float
    lent: float
    pending: float
    weight: float
    parent: str | None = None
    fair_share: float = 1.0
    usage_share: float = 0.0
    present: float | None = None


class ReplicaView(Struct, frozen=True):
    """A dataset in one region: ``complete`` or ``copying``; ``why`` the data plan has it there, if one does."""

    region: str
    state: str
    why: str = ""


class CopyView(Struct, frozen=True):
    """A copy in flight."""

    id: str
    dataset: str
    source: str
    target: str
    bytes: int
    done_bytes: int
    cause: str
    begun_s: float


class DatasetView(Struct, frozen=True):
    """A dataset, where it is, and where it is going."""

    name: str
    size_bytes: int
    path: str
    allowed: tuple[str, ...] | None
    min_replicas: int
    replicas: tuple[ReplicaView, ...]
    copies: tuple[CopyView, ...]


class DataPlanView(Struct, frozen=True):
    """The plan of where data lies. ``every_s`` None: nothing is planned; ``number`` None: nothing is yet.

    ``figures`` are those of the planner's answer, ``forecast`` its errors on days held out (empty: too few
    days). ``trouble``: why the latest plan came to nothing, so that an earlier one stays in force. ``fetched``: the jobs
    for which data was copied on demand within the last period, ``fetched_most`` how many may be (None: any).
    """

    every_s: float | None
    next_s: float | None
    solving: bool
    number: int | None
    applied_s: float | None
    figures: dict[str, Any]
    forecast: dict[str, Any]
    copies_left: int
    copies_in_flight: int
    drops_left: int
    done: int
    given_up: tuple[str, ...]
    trouble: str | None
    trouble_s: float | None
    fetched: int = 0
    fetched_most: int | None = None


class CapacityRow(Struct, frozen=True):
    """A cluster and GPU model in a plan of capacity, in GPUs.

    ``configured``: in the fleet file. ``unmet`` and ``idle``: what jobs waited for and what had no work, in the mean
    over the time before the plan. ``requested``: what the cluster asked for; ``lacking``: what it could not be given.
    ``gpus``: what it has now; ``lent``: those of them that are of the region's buffer.
    """

    region: str
    cluster: str
    gpu_model: str
    configured: float
    unmet: float
    idle: float
    requested: float
    lacking: float
    gpus: float
    lent: float = 0.0


class HostMoveView(Struct, frozen=True):
    """A host that takes no new work, and goes to another cluster when it is empty."""

    host: str
    cluster: str
    leaves_for: str


class CapacityPlanView(Struct, frozen=True):
    """The plan of whose hosts are. ``every_s`` None: nothing is planned; ``number`` None: nothing is yet.

    ``figures`` are those of the planner's answers, by region. ``trouble``: why the latest plan came to nothing, so
    that an earlier one stays in force. ``buffer``: hosts that no cluster counts on; they work where they are.
    ``out_of_reach``: regions in processes of their own that cannot be planned for now.
    """

    every_s: float | None
    next_s: float | None
    solving: bool
    number: int | None
    applied_s: float | None
    figures: dict[str, dict[str, Any]]
    clusters: tuple[CapacityRow, ...]
    leaving: tuple[HostMoveView, ...]
    trouble: str | None
    trouble_s: float | None
    buffer: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()


class UsageRow(Struct, frozen=True):
    """GPU-hours of one tenant, user or GPU model over a period: held = kept + lost."""

    key: str
    attempts: int
    held_gpu_h: float
    kept_gpu_h: float
    lost_gpu_h: float


class Health(Struct, frozen=True):
    """Whether the service works, and on what."""

    version: str
    now_s: float
    started_s: float
    jobs: dict[str, int]
    journal_seq: int


class EventView(Struct, frozen=True):
    """One line of the event stream; ``seq`` lets a reader go on where it stopped."""

    seq: int
    at_s: float
    kind: str
    job: str
    text: str
    detail: dict[str, Any]


class Fault(Struct, frozen=True):
    """One of several errors of a document."""

    detail: str
    field: str = ""
    remedy: str = ""


class Problem(Struct, frozen=True):
    """RFC 9457 problem details, with the field at fault and the remedy.

    ``errors`` is there when a document has several: all of them, the one that is told above included.
    """

    type: str
    title: str
    status: int
    detail: str
    field: str = ""
    remedy: str = ""
    errors: tuple[Fault, ...] | UnsetType = UNSET
