"""What people are shown: the JSON of the REST interface, of ``--json`` and of `topmast.Client`.

Times are seconds since the epoch, GPUs whole or fractional numbers, sizes bytes.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from topmast.model.decided import Decided
from topmast.model.job_extras import JobExtras
from topmast.model.reason import Change, ClusterVerdict
from topmast.model.sweep_views import SweepView


class JobView(JobExtras, frozen=True):
    """One job as it stands."""

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
    """How often it was placed."""
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
    """How often a region refused the plan."""
    migrations: int = 0
    """How many of the preemptions were moves to a place found before."""
    min_tasks: int | None = None
    """The fewest tasks of an elastic job; None for any other."""
    max_tasks: int | None = None
    """The most tasks of an elastic job; None for any other."""
    resizes: int = 0
    """How often it restarted with another number of tasks."""
    reachable: bool = True
    """False while its region does not answer; the other fields are then the last known."""
    preparing: str = ""
    """What the tasks that have not started wait for, in the words of their cluster."""
    hold: str = ""
    """Why people keep it from starting; it may still run until it waits again."""
    next_band: str | None = None
    """The band of its next attempt, if that was changed while it has GPUs."""
    suspended: bool = False
    """What holds it stopped it, too: it goes on when it is resumed."""


class JobPage(Struct, frozen=True):
    """A page of jobs."""

    jobs: tuple[JobView, ...]
    next_cursor: str | None
    """None ends the listing."""
    counts: dict[str, int]
    """All jobs in the server's memory by state: the unfinished, and the newest that have ended."""
    total: int | None = None
    """The jobs of all pages together; None where some of them may have left memory."""
    sweeps: tuple[SweepView, ...] = ()
    """Sweeps in place of their jobs, on the first page, if the listing was to be folded."""


class Receipt(Struct, frozen=True):
    """The durable acknowledgement of one job."""

    id: str
    name: str
    warnings: tuple[str, ...] = ()
    jobs: int = 1
    """How many jobs it became: more than one of a sweep."""


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
    why: str = ""
    """Of a job that waits: its reason, as a sentence."""


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
    """What one region said, cluster by cluster."""

    region: str
    reachable: bool
    barred: str | None
    """What rules the region out."""
    data_bytes: int
    data_s: float
    clusters: tuple[ClusterVerdict, ...]


class ExpectedStart(Struct, frozen=True):
    """When a waiting job is expected to start, and a range; None: beyond the forecast."""

    at_s: float | None
    early_s: float | None
    late_s: float | None
    basis: str
    """The source of the durations that it rests on."""
    waits_for: str = ""
    """What it waits for until then, in words; empty where the basis says it."""


class Explanation(Struct, frozen=True):
    """Why a job stands where it stands, and what would change that."""

    job: str | None
    name: str
    state: str
    reason: str | None
    summary: str
    would_help: tuple[str, ...]
    """The smallest change of each kind, in words."""
    regions: tuple[RegionVerdict, ...]
    plans: tuple[PlanView, ...]
    """First the queue's plan, which the job has or would have; then others by score."""
    warnings: tuple[str, ...] = ()
    expected_start_s: float | None = None
    """That of ``expected_start``, or of the reservation if there is no forecast."""
    basis: str = ""
    """That of ``expected_start``, or of the reservation if there is no forecast."""
    changes: tuple[Change, ...] = ()
    """Each was found by trying it."""
    expected_start: ExpectedStart | None = None
    decided: Decided | None = None
    """What decided for the first plan."""
    suspended: bool = False
    """That of the job."""
    also: tuple[str, ...] = ()
    """Further reasons, each of which keeps it from starting when the first is gone."""
    not_before_s: float | None = None
    """When a quota for a while begins or ends, and its quota may do; before, it never does."""
    until_s: float | None = None
    """When a quota for a while begins or ends, and its quota does no more."""
    from_event: int | None = None
    """It rests on the state after this record of the journal."""
    to_event: int | None = None
    """The last record before it was complete. If it is a later one, decisions were made meanwhile:
    each region is told as it was at a record between the two."""


class RegionView(Struct, frozen=True):
    """A region at a glance."""

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
    """None is unlimited."""
    version: int
    places_kept: int = 0
    """Places that are kept now for jobs that move."""
    places_used: int = 0
    """Kept places that the job used, so far."""
    places_missed: int = 0
    """Kept places that the job did not use, so far."""


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
    state: str = "open"
    """``open`` to new work, ``partly`` (some hosts are closed), ``closed`` or ``down``."""
    closed: str = ""
    """Why no host takes new work, as an operator or its engine says: the reason of most hosts."""
    closed_hosts: dict[str, str] = {}
    """Why a host takes no new work, by host, as an operator or its engine says."""
    capabilities: tuple[str, ...] = ()
    """What its engine can do beyond running gangs."""
    until_s: float | None = None
    """When it opens by itself, if an operator closed it until then."""


class HostView(Struct, frozen=True):
    """A host at a glance."""

    name: str
    region: str
    cluster: str
    state: str
    gpu_model: str
    gpus: int
    free_gpus: float
    """0 where the host takes no work now."""
    datacenter: str
    pod: str
    rack: str
    jobs: tuple[str, ...]
    agent_pid: int | None = None
    """The process that stands for the host, where an engine has one."""
    stays: dict[str, str] = {}
    """On a drained host: why a job still runs there, by job."""
    leaves_for: str | None = None
    """The cluster that it moves to when it is empty."""
    kept_for: tuple[str, ...] = ()
    """Jobs that move here: GPUs are kept for them until they start, or for a few minutes."""
    reachable: bool = True
    """False while its region does not answer; the other fields are then the last known."""
    closed: str = ""
    """Why it takes no new work, as an operator or its cluster says, or as it is suspect; empty:
    nothing is said.
    """
    until_s: float | None = None
    """When a cordon or drain of it, or suspicion, ends by itself, if it does."""
    reason: str = ""
    """Why it is cordoned or drained, in the words of the one that ordered it."""


class MoveView(Struct, frozen=True):
    """What a drain does with a job."""

    job: str
    hosts: tuple[str, ...]
    """Where the job runs now."""
    moves: bool
    """Whether the drain moves it, to ``to_hosts`` of ``to_cluster``."""
    to_cluster: str | None
    to_hosts: tuple[str, ...]
    cost_gpu_s: float
    """GPU-seconds lost by a move: the work since the last checkpoint, and the restart."""
    why: str
    """Why it does not move."""
    may_stop: bool = False
    """A drain at once stops it, even if it has no other place."""


class DrainView(Struct, frozen=True):
    """What a drain of a host does, or would do, now."""

    host: str
    region: str
    state: str
    moves: tuple[MoveView, ...]


class HostStory(Struct, frozen=True):
    """A host with its history: operators' orders with their names, and losses."""

    host: HostView
    history: tuple[HistoryView, ...]
    known: bool = True
    """False where the region runs in another process, which keeps the history."""


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
    """One tenant and GPU model, including all tenants below it. Amounts are in GPUs."""

    name: str
    gpu_model: str
    nominal: float | None
    """The quota; None states none."""
    used: float
    borrowed: float
    """What runs over quota."""
    lent: float
    """The part of the quota that tenants outside its branch use now."""
    pending: float
    weight: float
    parent: str | None = None
    fair_share: float = 1.0
    """Its part of the fleet by weight, from 0 to 1."""
    usage_share: float = 0.0
    """Its part of the recent usage of all models, 0 to 1, with what running jobs had so far."""
    present: float | None = None
    """GPUs of the model in the whole fleet; None from a server that does not say."""
    paused: str = ""
    """Why none of its jobs starts; empty: they may."""
    for_a_while: str = ""
    """Of a quota for a while, now or later: what it is, the user that gave it, and why."""
    from_s: float | None = None
    """When that begins, or began."""
    until_s: float | None = None
    """When it ends by itself."""


class ReplicaView(Struct, frozen=True):
    """A dataset in one region."""

    region: str
    state: str
    """``complete`` or ``copying``."""
    why: str = ""
    """Why the data plan has it there, if it does."""


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


class UsageRow(Struct, frozen=True):
    """GPU-hours of one tenant, user or GPU model over a period: held = kept + lost."""

    key: str
    attempts: int
    held_gpu_h: float
    kept_gpu_h: float
    lost_gpu_h: float
    cost_usd: float = 0.0
    """What the held hours cost, by the prices of the fleet."""
    unpriced_gpu_h: float = 0.0
    """Held hours of GPUs without a price, in a fleet that states prices."""
    idle_gpu_h: float = 0.0
    """Held hours in which an attempt did not compute: before all of its tasks were up, and from
    when it was told to stop."""


class Health(Struct, frozen=True):
    """Whether the service works, and on what."""

    version: str
    now_s: float
    started_s: float
    jobs: dict[str, int]
    journal_seq: int
    """The last record that is known here."""
    role: str = "leader"
    """``leader``, or ``standby``: it follows the leader, and takes over when that is lost."""
    epoch: int = 0
    """How often a leader began to lead, up to the one that leads now."""
    leader: str = ""
    """The URL of the leader, as a standby knows it."""
    why: str = ""
    """Why a standby does not follow; empty: it does."""


class EventView(Struct, frozen=True):
    """One line of the event stream."""

    seq: int
    """Where a reader can resume."""
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
    """RFC 9457 problem details, with the field at fault and the remedy."""

    type: str
    title: str
    status: int
    detail: str
    field: str = ""
    remedy: str = ""
    errors: tuple[Fault, ...] | UnsetType = UNSET
    """All errors of a document with several, the one above included."""
    leader: str | UnsetType = UNSET
    """The URL of the server to ask instead, from one that stands by."""
