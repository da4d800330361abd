"""What the planners of the slow path see of the queue: where data is, and what moves."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue
from topmast.model.dataset import ReplicaState
from topmast.model.job import MILLI, Band, JobSpec
from topmast.model.messages import DropReplica, RequestReplica
from topmast.policies.options import SlowOptions
from topmast.slow.data.access_log import Entry
from topmast.slow.data.demand import Kind
from topmast.slow.data.gangs import Gang
from topmast.slow.data.movement import ReplicaOrder, Stock
from topmast.slow.data.planning import DataPlanOptions, DataSnapshot

PLAN = "the data plan"
"""The cause of copies that a plan wants."""


def stock_of(queue: GlobalQueue) -> Stock:
    """Complete replicas and copies in flight. O(replicas + copies)."""
    replicas = {
        name: tuple(sorted(r for r, s in record.replicas.items() if s is ReplicaState.COMPLETE))
        for name, record in queue.data.catalogue.datasets.items()
    }
    copies = tuple((c.dataset, c.source, c.target) for c in queue.data.catalogue.copies.values())
    return Stock(replicas, copies)


def snapshot_of(queue: GlobalQueue, jobs: Iterable[str] | None = None) -> DataSnapshot:
    """Fleet, datasets, stock, needs of ``jobs`` (None: all). O(datasets + replicas + jobs)."""
    datasets = tuple(record.spec for _, record in sorted(queue.data.catalogue.datasets.items()))
    unfinished = unfinished_of(queue, queue.jobs.records if jobs is None else jobs)
    return DataSnapshot(queue.fleet, datasets, stock_of(queue), unfinished)


def unfinished_of(queue: GlobalQueue, jobs: Iterable[str]) -> tuple[Entry, ...]:
    """What those of ``jobs`` that are not over read, and will still need. O(jobs)."""
    records = (queue.jobs.records.get(job) for job in jobs)
    return tuple(
        Entry(
            record.submit_s,
            record.spec.datasets,
            kind_of(record.spec),
            record.spec.gpus_milli() / MILLI * queue.backlog.remaining_s(record),
            gang_of(
                record.spec.gpus_milli(),
                sum(g.count for g in record.spec.groups),
                sum(g.least for g in record.spec.groups),
            ),
        )
        for record in records
        if record is not None and record.spec.datasets and not record.finished
    )


def kind_of(spec: JobSpec, model: str | None = None) -> Kind:
    """The work of a job: for the model it runs on, else the first that it names."""
    listed = spec.groups[0].resources.accelerators
    named = model or (listed[0].model if listed else None)
    return Kind(named or "", spec.band >= Band.HIGH)


def gang_of(gpus_milli: int, tasks: int, least: int | None = None) -> Gang:
    """The gang of so many tasks that hold so many thousandths of GPUs, divided evenly.

    ``least``: the fewest tasks of an elastic gang.
    """
    return Gang(max(1, tasks if least is None else least), gpus_milli // max(1, tasks))


def message_of(order: ReplicaOrder) -> RequestReplica | DropReplica:
    """What to tell the queue."""
    if order.op == "copy":
        return RequestReplica(order.table, order.region, PLAN)
    return DropReplica(order.table, order.region)


def options_of(options: SlowOptions, seed: int = 0) -> DataPlanOptions:
    """What a profile wants of plans."""
    usual = DataPlanOptions()
    terms = replace(usual.terms, growth=options.growth)
    return DataPlanOptions(options.history_days, options.scenarios, terms, seed)
