"""What the books of a run hold: the tables and their columns, a job while it is not over, and sums.

Kept by the recorder alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from msgspec import Struct

from topmast.model.job import MILLI
from topmast.model.plan import Seat
from topmast.model.states import Outcome
from topmast.sim.workload import Arrival

Write = Callable[[Sequence[object]], object]

JOBS = (
    "job_id", "tenant", "user", "group", "band", "state", "submit_s", "first_start_s", "finish_s",
    "wait_s", "region", "cluster", "gpus", "preemptions", "restarts", "lost_gpu_s", "collocated",
)  # fmt: skip
ALLOCATIONS = (
    "job_id", "epoch", "region", "cluster", "host", "gpu_model", "gpus", "start_s", "end_s",
    "kept_s",
    "end_reason",
)  # fmt: skip
COPIES = ("dataset", "from", "to", "bytes", "start_s", "end_s", "cause")
SUSPENDED, PACKED, UNPACKED = "suspended", "packed", "unpacked"
"""Why a turn ends that is not the last of its attempt."""
RUNNING = "running"
"""Why the row of an attempt ends that has not ended when the run does."""
FAILURES = (Outcome.FAILED, Outcome.HOST_LOST, Outcome.LAUNCH_FAILED)


class Tables(Struct, frozen=True):
    """Where rows go: a function for each table."""

    jobs: Write
    allocations: Write
    timeline: Write
    copies: Write


class TimeShare(Struct, frozen=True, gc=False):
    """A time at which an attempt had a share of its GPUs, and why that ended."""

    start_s: float
    end_s: float
    share: float
    end_reason: str


class Job(Struct, gc=False):
    """One job that is not over, and its running attempt."""

    arrival: Arrival
    load_at_submit: float
    """The integral of jobs present over time, at submission."""
    kind: object
    first_start_s: float | None = None
    held_s: float = 0.0
    end_s: float = 0.0
    preemptions: int = 0
    restarts: int = 0
    lost_gpu_s: float = 0.0
    collocated: bool = True
    region: str = ""
    cluster: str = ""
    model: str = ""
    ended: Outcome | None = None
    hosts: tuple[str, ...] = ()
    gpus: float = 0.0
    """Held by the latest attempt."""
    tasks: int = 0
    epoch: int = 0
    start_s: float | None = None
    gpus_on: dict[str, float] = {}
    waits: bool = False
    load_at_end: float | None = None
    turns: list[TimeShare] = []
    """When this attempt had its GPUs before."""
    share: float = 1.0
    """Of its GPUs: half where another has them at the same time."""
    rows_before: int = 0
    """Rows of allocations that are of turns, and not of attempts of their own."""


class Finished(Struct):
    """Columns over the jobs that succeeded, in the order in which they did."""

    submit_s: array[float]
    jct_s: array[float]
    wait_s: array[float]
    first_wait_s: array[float]
    fairness: array[float]
    band: array[int]
    tenant: array[int]
    model: array[int]
    gpus: array[float]


class Totals(Struct):
    """Sums over the whole run."""

    states: dict[str, int] = {}
    attempts: int = 0
    preemptions: int = 0
    migrations: int = 0
    suspensions: int = 0
    resizes: int = 0
    restarts: int = 0
    lost_gpu_s: float = 0.0
    started_elsewhere: int = 0
    held_in_window_gpu_s: float = 0.0
    kept_in_window_gpu_s: float = 0.0
    present_in_window_gpu_s: float = 0.0
    held_waiting_gpu_s: float = 0.0
    present_waiting_gpu_s: float = 0.0
    stranded_waiting_gpu_s: float = 0.0
    held_waiting_in_window_gpu_s: float = 0.0
    present_waiting_in_window_gpu_s: float = 0.0
    replica_byte_s: float = 0.0
    last_finish_s: float = 0.0
    deadlines: int = 0
    deadlines_met: int = 0


def gpus_by_host(seats: Sequence[Seat]) -> dict[str, float]:
    """What a gang holds on each of its hosts, in the order of ranks. O(seats)."""
    if len(seats) == 1:
        seat = seats[0]
        return {seat.host: len(seat.slots) * seat.slot_milli / MILLI}
    milli: dict[str, int] = {}
    for seat in seats:
        milli[seat.host] = milli.get(seat.host, 0) + len(seat.slots) * seat.slot_milli
    return {host: taken / MILLI for host, taken in milli.items()}
