"""Orders about datasets: entered, copied between regions, dropped."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.catalogue import Catalogue
from topmast.fast.queue.data.orders import begin_copy, order_deletion
from topmast.model import messages as m
from topmast.model.dataset import Deletion, ReplicaState
from topmast.model.errors import Conflict, NotFound, TopmastError
from topmast.model.files.fields import no_such
from topmast.model.fleet import DatasetSpec
from topmast.model.units import show

ANOTHER_PATH = "choose another path: dropping a dataset deletes its whole folder"


def add_dataset(queue: QueueViews, event: m.AddDataset) -> str | TopmastError:
    """Enter a dataset, unless it is known with replicas, or its folder belongs to another one."""
    error = cannot_add(queue.data.catalogue, event.dataset)
    if error is not None:
        return error
    queue.decide(f.DatasetAdded())
    return event.dataset.name


def cannot_add(catalogue: Catalogue, spec: DatasetSpec) -> Conflict | None:
    """Why a dataset may not be added now; None if it may. O(depth of its path)."""
    known = catalogue.datasets.get(spec.name)
    if known is not None and known.replicas:
        return Conflict(f"dataset '{spec.name}' already exists")
    deletion = catalogue.deletions.hinders(spec.name, spec.path)
    if deletion is not None:
        return being_deleted(deletion)
    fault = catalogue.paths.fault(spec.name, spec.path)
    return Conflict(f"{fault} ({ANOTHER_PATH})") if fault else None


def being_deleted(deletion: Deletion) -> Conflict:
    """Why files may not come to a folder yet."""
    what = f"dataset '{deletion.dataset}', at {show(deletion.path)}"
    return Conflict(
        f"{what}, is being deleted in region '{deletion.region}': try again when it is gone"
    )


def request_replica(queue: QueueViews, event: m.RequestReplica) -> str | TopmastError:
    """Order a copy to a region; nothing if it is there or on its way."""
    error = cannot_copy(queue, event)
    if error is not None:
        return error
    catalogue = queue.data.catalogue
    source = catalogue.source(event.dataset, event.region)
    if event.region not in catalogue.datasets[event.dataset].replicas and source is not None:
        begin_copy(queue, queue.data, event.dataset, source, event.region, event.cause)
    return event.dataset


def cannot_copy(queue: QueueViews, event: m.RequestReplica) -> TopmastError | None:
    """Why a dataset is not copied to a region; None if it is, or is there."""
    dataset, region = event.dataset, event.region
    if absent := _absent(queue.data.catalogue, dataset, region):
        return absent
    record = queue.data.catalogue.datasets[dataset]
    if record.spec.allowed is not None and region not in record.spec.allowed:
        return Conflict(f"residency forbids '{dataset}' in region '{region}'")
    if region in record.replicas:
        return None
    deletion = queue.data.catalogue.deletions.at(region, record.spec.path)
    if deletion is not None:
        return being_deleted(deletion)
    if not queue.data.catalogue.has_space(region, record.spec.size_bytes):
        return Conflict(f"the store of region '{region}' has no room for '{dataset}'")
    shared = queue.data.catalogue.shared(dataset)
    if shared:
        return Conflict(f"'{dataset}' is not copied: {shared}")
    if queue.data.catalogue.source(dataset, region) is not None:
        return None
    if record.replicas:
        return Conflict(f"no link leads from a replica to region '{region}'")
    return Conflict(
        f"no region has the files of '{dataset}': `topmast datasets add` puts them there"
    )


def drop_replica(queue: QueueViews, event: m.DropReplica) -> str | TopmastError:
    """Delete a replica that nothing needs; files that another dataset shares stay."""
    error = cannot_drop(queue, event)
    if error is not None:
        return error
    queue.decide(f.ReplicaDropped(event.dataset, event.region))
    if not queue.data.catalogue.shared(event.dataset):
        _delete(queue, queue.data.catalogue.datasets[event.dataset].spec, event.region)
    return event.dataset


def cannot_drop(queue: QueueViews, event: m.DropReplica) -> TopmastError | None:
    """Why a replica may not be dropped now; None if it may. O(jobs + copies)."""
    record = queue.data.catalogue.datasets.get(event.dataset)
    if record is None or record.replicas.get(event.region) is not ReplicaState.COMPLETE:
        absent = _absent(queue.data.catalogue, event.dataset, event.region)
        return absent or _not_there(queue.data.catalogue, event)
    complete = [r for r, s in record.replicas.items() if s is ReplicaState.COMPLETE]
    least = max(1, record.spec.min_replicas)
    if len(complete) <= least:
        left = len(complete) - 1
        return Conflict(
            f"'{event.dataset}' would have {left} complete replicas, and must have {least}"
            f" (copy it to another region first: topmast datasets replicate {event.dataset} REGION;"
            f" or remove it altogether: topmast datasets rm {event.dataset})"
        )
    for job in queue.jobs.records.values():
        if event.dataset not in job.spec.datasets or job.finished:
            continue
        if job.plan and job.region == event.region:
            return Conflict(f"job {job.id} reads '{event.dataset}' in '{event.region}'")
        if not job.plan and _only_there(queue, job.spec.datasets, event.region):
            return Conflict(f"job {job.id} waits, and only '{event.region}' has all its data")
    asked = _being_placed(queue, event.dataset)
    if asked is not None:
        return asked
    for copy in queue.data.catalogue.copies.values():
        if (copy.dataset, copy.source) == (event.dataset, event.region):
            return Conflict(f"copy {copy.id} reads it now")
    return None


def _absent(catalogue: Catalogue, dataset: str, region: str) -> NotFound | None:
    """That there is no such dataset, no such region, or neither of them."""
    found = []
    if dataset not in catalogue.datasets:
        found.append(no_such("dataset", dataset, catalogue.datasets))
    if region not in catalogue.storage_bytes:
        found.append(no_such("region", region, catalogue.storage_bytes, "region"))
    if not found:
        return None
    found[0].more = tuple(found[1:])
    return found[0]


def _not_there(catalogue: Catalogue, event: m.DropReplica) -> TopmastError:
    """Why a region has no replica that could be dropped."""
    coming = catalogue.copy_to(event.dataset, event.region)
    if coming is not None:
        text = f"copy {coming.id} of '{event.dataset}' to '{event.region}' is under way"
        return Conflict(f"{text} (drop it when it is there)")
    return NotFound(f"region '{event.region}' has no replica of '{event.dataset}'")


def _being_placed(queue: QueueViews, dataset: str) -> Conflict | None:
    decision = queue.cycle.decision
    asked = None if decision is None else queue.jobs.records.get(decision.candidate.job)
    if asked is None or dataset not in asked.spec.datasets:
        return None
    return Conflict(f"job {asked.id}, which reads it, is being placed: try again")


def remove_dataset(queue: QueueViews, event: m.RemoveDataset) -> str | TopmastError:
    """Forget a dataset that no job names and no copy moves, and delete all that is there of it."""
    error = cannot_remove(queue, event)
    if error is not None:
        return error
    record = queue.data.catalogue.datasets[event.dataset]
    regions = () if queue.data.catalogue.shared(event.dataset) else tuple(record.replicas)
    queue.decide(f.DatasetRemoved(event.dataset))
    for region in regions:
        _delete(queue, record.spec, region)
    return event.dataset


def cannot_remove(queue: QueueViews, event: m.RemoveDataset) -> TopmastError | None:
    """Why a dataset may not be forgotten now; None if it may. O(jobs + copies)."""
    record = queue.data.catalogue.datasets.get(event.dataset)
    if record is None:
        return no_such("dataset", event.dataset, queue.data.catalogue.datasets)
    for job in queue.jobs.records.values():
        if event.dataset in job.spec.datasets and not job.finished:
            return Conflict(f"job {job.id} reads '{event.dataset}' (wait for it, or cancel it)")
    for copy in queue.data.catalogue.copies.values():
        if copy.dataset == event.dataset:
            return Conflict(
                f"copy {copy.id} of it to '{copy.target}' is under way: try again later"
            )
    return None


def _delete(queue: QueueViews, spec: DatasetSpec, region: str) -> None:
    """Write a deletion down and order it."""
    deletion = Deletion(spec.name, region, spec.path, spec.size_bytes)
    queue.decide(f.DeletionBegun(deletion))
    order_deletion(queue, deletion)


def replica_deleted(queue: QueueViews, event: m.ReplicaDeleted) -> None:
    """The folder is free."""
    deletion = queue.data.catalogue.deletions.get(event.region, event.path)
    if deletion is not None:
        queue.decide(f.DeletionDone(deletion))


def deletion_failed(queue: QueueViews, event: m.DeletionFailed) -> None:
    """It stays open, and is tried again."""
    deletion = queue.data.catalogue.deletions.get(event.region, event.path)
    if deletion is not None:
        queue.data.catalogue.deletions.failed(deletion, queue.now)


def _only_there(queue: QueueViews, names: tuple[str, ...], region: str) -> bool:
    """Whether all of ``names`` are complete in one region, and in no other."""
    known = queue.data.catalogue.datasets
    complete = [
        {r for r, s in known[name].replicas.items() if s is ReplicaState.COMPLETE}
        for name in names
        if name in known
    ]
    return len(complete) == len(names) and set.intersection(*complete) == {region}


def copy_done(queue: QueueViews, event: m.CopyDone) -> None:
    """The replica is complete."""
    copy = queue.data.catalogue.copies.get(event.copy)
    if copy is not None:
        queue.decide(f.CopyReady(copy))


def copy_failed(queue: QueueViews, event: m.CopyFailed) -> None:
    """Nothing came of a copy."""
    copy = queue.data.catalogue.copies.get(event.copy)
    if copy is not None:
        queue.decide(f.CopyGone(copy, event.error))
