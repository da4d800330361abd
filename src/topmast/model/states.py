"""The states of a job and the one table of its transitions (terminal states never change)."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is on its way."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"
    RECOVERING = "RECOVERING"
    SUSPENDED = "SUSPENDED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_S = JobState

TRANSITIONS: dict[JobState, tuple[JobState, ...]] = {
    # Waiting in the queue; FAILED when it turns out that it may never run.
    _S.PENDING: (_S.STARTING, _S.CANCELLED, _S.FAILED),
    # A gang is being launched; it may fail, be preempted or be cancelled before all tasks are up.
    _S.STARTING: (
        _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.RECOVERING, _S.PREEMPTING, _S.CANCELLING,
        _S.PENDING,
    ),
    _S.RUNNING: (
        _S.SUCCEEDED, _S.FAILED, _S.RECOVERING, _S.PREEMPTING, _S.SUSPENDED, _S.CANCELLING,
        _S.PENDING,
    ),
    # Writing its checkpoint within the grace period; back to the queue, or to its end.
    _S.PREEMPTING: (_S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.RECOVERING, _S.CANCELLING),
    # Failed or lost its host; waits (with a growing delay) to be placed again.
    _S.RECOVERING: (_S.STARTING, _S.FAILED, _S.CANCELLED, _S.PENDING),
    # Others have its GPUs; it may have ended just before it was suspended.
    _S.SUSPENDED: (
        _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.RECOVERING, _S.PREEMPTING, _S.CANCELLING,
        _S.PENDING,
    ),
    _S.CANCELLING: (_S.CANCELLED, _S.SUCCEEDED, _S.FAILED),
    _S.SUCCEEDED: (),
    _S.FAILED: (),
    _S.CANCELLED: (),
}  # fmt: skip

TERMINAL = (_S.SUCCEEDED, _S.FAILED, _S.CANCELLED)
WAITING = (_S.PENDING, _S.RECOVERING)
"""States in which a job stands in the queue."""
HOLDING = (_S.STARTING, _S.RUNNING, _S.PREEMPTING, _S.SUSPENDED, _S.CANCELLING)
"""States in which a job may hold GPUs."""


def may_move(source: JobState, target: JobState) -> bool:
    """Whether the table allows ``source`` to become ``target``."""
    return target in TRANSITIONS[source]


NOT_FOUND = 127
"""The exit status of a shell that did not find a command."""
DATA_ERROR = 65
"""EX_DATAERR of sysexits.h: the input is wrong; what unpacks a work folder ends with it."""
HOPELESS = (DATA_ERROR, NOT_FOUND)
"""Exit statuses of what would fail again."""
STATUSES = {
    DATA_ERROR: "its input is wrong",
    126: "a command cannot be executed",
    NOT_FOUND: "a command was not found",
    129: "SIGHUP", 130: "SIGINT", 131: "SIGQUIT", 132: "SIGILL", 133: "SIGTRAP", 134: "SIGABRT",
    135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV", 141: "SIGPIPE", 143: "SIGTERM",
    152: "SIGXCPU", 153: "SIGXFSZ",
}  # fmt: skip
"""What an exit status of a shell means, beyond a failure: of a signal N it is 128 + N."""


def status_text(code: int) -> str:
    """An exit status as people read it: ``status 139 (SIGSEGV)``."""
    meaning = STATUSES.get(code)
    return f"status {code} ({meaning})" if meaning else f"status {code}"


class HostState(StrEnum):
    """Whether a host takes work."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DRAINING = "draining"
    CORDONED = "cordoned"
    CLOSED = "closed"
    """By the cluster's own people or scheduler."""
    DOWN = "down"


SUSPECTED = "an attempt was lost here, so it takes no new work for a while"
"""Why a host is suspect."""


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    HOST_LOST = "host_lost"
    LAUNCH_FAILED = "launch_failed"
    TIME_LIMIT = "time_limit"
