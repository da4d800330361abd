"""Why a job waits, and why a candidate place was not chosen."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class PendingReason(StrEnum):
    """The dominant reason of a waiting job; the first that applies, in this order, is shown."""

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


PRECEDENCE = tuple(PendingReason)


class Rejection(StrEnum):
    """Why a region, cluster or host was not chosen."""

    RESIDENCY = "ResidencyForbids"
    DATA_UNREACHABLE = "DataUnreachable"
    DATA_ELSEWHERE = "DataElsewhere"
    STORAGE_FULL = "StorageFull"
    UNREACHABLE = "RegionUnreachable"
    NO_MATCHING_HARDWARE = "NoMatchingHardware"
    HOST_UNAVAILABLE = "HostUnavailable"
    HOST_AVOIDED = "HostAvoided"
    TOO_FEW_GPUS = "TooFewFreeGpus"
    TOO_FEW_CPUS = "TooFewFreeCpus"
    TOO_LITTLE_MEMORY = "TooLittleFreeMemory"
    TOPOLOGY = "TopologyDoesNotFit"
    QUOTA = "QuotaExceeded"
    VICTIMS_TOO_YOUNG = "VictimsTooYoung"
    NO_VICTIMS = "NothingToPreempt"


class Count(Struct, frozen=True):
    """How often a candidate of one cluster was rejected for one reason."""

    reason: Rejection
    count: int
    detail: str = ""


class ClusterVerdict(Struct, frozen=True):
    """What the search found in one cluster: rejections counted by host, or the best plan's score.

    ``ever`` tells whether the gang would fit if every host of the cluster were free and healthy.
    ``largest_gpus`` is the most whole GPUs that would fit within the required topology when empty.
    """

    cluster: str
    rejections: tuple[Count, ...]
    ever: bool
    free_gpus: float
    total_gpus: float
    largest_gpus: float = 0.0
    score: float | None = None
    terms: dict[str, float] = {}
    victims: tuple[str, ...] = ()
