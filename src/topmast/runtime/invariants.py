"""What must hold of the machines of one process together, and all checks in pieces.

Tests check all of it after each step. A server with ``--validate`` checks one piece at a time,
between two commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from topmast.fast.invariants import require
from topmast.fast.queue import check_jobs, check_quotas
from topmast.fast.region import AllocationPhase, RegionalPlacer, check_hosts, check_index
from topmast.model import ids
from topmast.model.states import WAITING
from topmast.runtime.machines import Machines

JOBS_PER_PIECE = 10_000
INVARIANTS = ("quotas", "attempts", "hosts", "index", "jobs")
Piece = tuple[str, Callable[[], None]]
"""The name of an invariant, and what raises Broken if it does not hold."""


def check_attempts(machines: Machines) -> None:
    """The queue's plans, the placers' allocations and the clusters' attempts are the same attempts.

    As far as they are of this process. O(attempts).
    """
    allocated: dict[tuple[str, int], AllocationPhase] = {}
    for placer in machines.placers.values():
        for allocation in placer.state.allocations.values():
            allocated[allocation.job, allocation.epoch] = allocation.hold
    managed = {
        (attempt.job, attempt.epoch): True
        for manager in machines.clusters.values()
        if manager.state.region in machines.placers
        for attempt in manager.state.attempts.values()
    }
    for job, epoch in managed:
        require((job, epoch) in allocated, f"attempt {epoch} of {job} runs without GPUs of its own")
    for (job, epoch), hold in allocated.items():
        launched = hold is not AllocationPhase.CLAIMED
        require(
            launched == ((job, epoch) in managed), f"{job}: its cluster does not know of {epoch}"
        )
    if machines.route(ids.QUEUE) == ids.QUEUE:
        _check_plans(machines, allocated)


def _check_plans(machines: Machines, allocated: dict[tuple[str, int], AllocationPhase]) -> None:
    planned: dict[tuple[str, int], bool] = {}
    for record in machines.queue.jobs.placed.values():
        if record.plan is None or record.plan.region not in machines.placers:
            continue
        key = (record.id, record.epoch)
        planned[key] = True
        require(key in allocated, f"{record.id} has a plan that no region knows")
        if record.state in WAITING:
            claims = allocated[key] is AllocationPhase.CLAIMED
            require(claims, f"{record.id} waits, and its region has launched it")
    for job, epoch in allocated:
        require((job, epoch) in planned, f"attempt {epoch} of {job} has GPUs and no plan")


def pieces(machines: Machines) -> Iterator[Piece]:
    """All checks, each small enough to be done at once; to be drawn where the machines may be read.

    A region that comes meanwhile has its turn in the next round.
    """
    queue = machines.queue
    yield "quotas", partial(check_quotas, queue)
    yield "attempts", partial(check_attempts, machines)
    for name in list(machines.placers):
        yield "hosts", partial(_of_region, machines, name, check_hosts)
        yield (
            "index",
            partial(_of_region, machines, name, _check_index),
        )
    jobs = list(queue.jobs.records)
    for first in range(0, len(jobs), JOBS_PER_PIECE):
        names = jobs[first : first + JOBS_PER_PIECE]
        known = [queue.jobs.records[job] for job in names if job in queue.jobs.records]
        yield "jobs", partial(check_jobs, queue, known)


def _check_index(placer: RegionalPlacer) -> None:
    check_index(placer.columns)


def _of_region(machines: Machines, name: str, check: Callable[[RegionalPlacer], None]) -> None:
    placer = machines.placers.get(name)
    if placer is not None:
        check(placer)
