"""Why a job waits, and why a candidate place was not chosen."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class PendingReason(StrEnum):
    """The dominant reason of a waiting job; the first that applies, in this order, is shown."""

    HELD = "Held"
    TENANT_PAUSED = "TenantPaused"
    WAITING_FOR_JOBS = "WaitingForJobs"
    MISCONFIGURED = "Misconfigured"
    UNKNOWN_DATASET = "UnknownDataset"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_DATA = "WaitingForData"
    NO_MATCHING_HARDWARE = "NoMatchingHardware"
    TOPOLOGY_DOES_NOT_FIT = "TopologyDoesNotFit"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    PREEMPTION_IN_PROGRESS = "PreemptionInProgress"
    PENDING_EVALUATION = "PendingEvaluation"


BACK_OFF = "BackOff"
"""What people are told in place of `PendingReason.PENDING_EVALUATION` of a job that waits out a
delay; journals and metrics do not know it."""
PRECEDENCE = tuple(PendingReason)
HOPELESS = (
    PendingReason.HELD,
    PendingReason.TENANT_PAUSED,
    PendingReason.NO_MATCHING_HARDWARE,
    PendingReason.TOPOLOGY_DOES_NOT_FIT,
    PendingReason.EXCEEDS_MAX_QUOTA,
    PendingReason.UNKNOWN_DATASET,
)
"""Reasons that no time removes: there is nothing to forecast."""


NEVER = "never, unless the job, the fleet or a limit changes"
NOT_YET = "not known yet"
NOT_FORESEEN = "no start is foreseen"
"""Of a job that a forecast has looked at."""


def no_start(
    *reasons: str | None, suspended: bool = False, not_before: str = "", why: str = ""
) -> str:
    """What is said in place of a start of which no time is known, in all places the same.

    ``reasons``: all that are known. ``suspended``: what holds the job stopped it, too.
    ``not_before``: a time from which its quota may do. ``why``: why no forecast tells a start,
    where one was made.
    """
    awaited = [_awaited(reason, suspended, not_before) for reason in reasons]
    known = [text for text in awaited if text]
    if any(r in HOPELESS and not text for r, text in zip(reasons, awaited, strict=True)):
        return NEVER
    if known:
        others = "the jobs that it waits for are over"
        jobs = [others] if PendingReason.WAITING_FOR_JOBS in reasons else []
        return f"not before {' and '.join(known + jobs)}"
    return f"{NOT_FORESEEN}: {why}" if why else NOT_YET


def _awaited(reason: str | None, suspended: bool, not_before: str) -> str:
    """Before what a job with a reason will not start; empty where nothing of that kind is known."""
    match reason:
        case PendingReason.HELD:
            return "it is resumed" if suspended else "it is released"
        case PendingReason.TENANT_PAUSED:
            return "its tenant is resumed"
        case PendingReason.UNKNOWN_DATASET:
            return "the catalogue has all its datasets"
        case PendingReason.EXCEEDS_MAX_QUOTA:
            return not_before
    return ""


class Rejection(StrEnum):
    """Why a region, cluster or host was not chosen."""

    RESIDENCY = "ResidencyForbids"
    DATA_UNREACHABLE = "DataUnreachable"
    DATA_ELSEWHERE = "DataElsewhere"
    STORAGE_FULL = "StorageFull"
    UNREACHABLE = "RegionUnreachable"
    BOUND_ELSEWHERE = "BoundElsewhere"
    NOT_SUPPORTED = "NotSupported"
    NO_MATCHING_HARDWARE = "NoMatchingHardware"
    HOST_UNAVAILABLE = "HostUnavailable"
    HOST_AVOIDED = "HostAvoided"
    HOST_RESERVED = "HostReserved"
    TOO_FEW_GPUS = "TooFewFreeGpus"
    TOO_FEW_CPUS = "TooFewFreeCpus"
    TOO_LITTLE_MEMORY = "TooLittleFreeMemory"
    TOGETHER = "TooFewFreeTogether"
    TOPOLOGY = "TopologyDoesNotFit"
    QUOTA = "QuotaExceeded"
    VICTIMS_TOO_YOUNG = "VictimsTooYoung"
    NOT_PREEMPTIBLE = "NotPreemptible"
    BAND_NOT_LOWER = "BandNotLower"
    STOPPING = "StoppingAlready"


_RULED_OUT = {
    Rejection.RESIDENCY: "the residency of {} forbids it",
    Rejection.DATA_UNREACHABLE: "no link or no complete replica brings {} there",
    Rejection.DATA_ELSEWHERE: "its data is elsewhere ({})",
    Rejection.STORAGE_FULL: "its store has no room for {}",
    Rejection.UNREACHABLE: "it cannot be reached ({})",
    Rejection.BOUND_ELSEWHERE: "the job was sent to {}",
}


def ruled_out(rejection: Rejection, detail: str) -> str:
    """Why a whole region is ruled out, as a sentence about the region."""
    return _RULED_OUT[rejection].format(detail)


class Count(Struct, frozen=True):
    """How often a candidate of one cluster was rejected for one reason."""

    reason: Rejection
    count: int
    detail: str = ""


class VictimVerdict(Struct, frozen=True):
    """A running job that a plan would stop, and at what cost."""

    job: str
    tenant: str
    band: str
    lost_gpu_s: float
    """Its work since the last checkpoint."""
    restart_gpu_s: float
    """What the restart costs in addition."""
    price: float
    """Both costs, weighted by the job's band, in points of the score.

    The prices of a plan's victims add up to its term ``preemption``.
    """


class ClusterVerdict(Struct, frozen=True):
    """What the search found in one cluster: rejections counted by host, or the best plan's score.

    Each host is counted once: under the first reason that excludes it, or as fitting.
    """

    cluster: str
    rejections: tuple[Count, ...]
    ever: bool
    """Whether the gang would fit if every host of the cluster were free and healthy."""
    free_gpus: float
    total_gpus: float
    largest_gpus: float = 0.0
    """The most whole GPUs that would fit within the required topology when empty."""
    score: float | None = None
    terms: dict[str, float] = {}
    victims: tuple[str, ...] = ()
    hosts: int = 0
    fitting_hosts: int = 0
    """Hosts that could take a task of a gang that fits."""
    spared: tuple[Count, ...] = ()
    """Running jobs that may not be stopped for this one."""
    stopped: tuple[VictimVerdict, ...] = ()


class ChangeKind(StrEnum):
    """The one thing that a change is about."""

    COPY = "copy"
    PATIENCE = "min_runtime"
    MOVES = "moves"
    ENDS = "jobs_end"
    KEPT = "reservation"
    TOPOLOGY = "topology"
    CPUS = "cpus"
    MEMORY = "memory"
    TASKS = "tasks"
    GPUS = "gpus_per_task"
    MODEL = "gpu_model"
    PRIORITY = "priority"
    PREEMPTIBLE = "preemptible"
    AVOIDED = "avoided_hosts"
    RESERVED = "reserved_hosts"
    HOSTS = "hosts_free"
    SERVICE = "hosts_in_service"
    DATA = "data"
    RESIDENCY = "residency"
    QUOTA = "quota"
    BORROW = "borrow_limit"


class Change(Struct, frozen=True):
    """One change that would give a waiting job a place: found by trying it."""

    kind: ChangeKind
    text: str
    size: float
    """How large the change is, to compare changes of different kinds.

    The part of the amount that is given up or missing, or hours.
    """
    region: str | None = None
    cluster: str | None = None
    group: str = ""
    was: str | float | None = None
    """The value now."""
    to: str | float | None = None
    """The nearest value that helps."""
    hosts: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    at_s: float | None = None
    """When it happens by itself, if that is known."""
    preempting: bool = False
    """Other jobs have to stop as well."""
    also: str = ""
    """What else must change, if this alone does not suffice."""
    added_gpus: dict[str, dict[str, int]] = {}
    """What is added to quotas or limits, by tenant and GPU model."""


def by_size(change: Change) -> tuple[float, int, bool, str, str]:
    """The order in which changes are told: the smallest first; among equals, no stops first."""
    kind = tuple(ChangeKind).index(change.kind)
    return (change.size, kind, change.preempting, change.region or "", change.cluster or "")
