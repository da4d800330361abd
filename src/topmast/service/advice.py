"""What would help a waiting job, in words."""

from __future__ import annotations

from topmast.fast.queue import GlobalQueue
from topmast.model.files.fields import nearest
from topmast.model.job import MILLI, JobSpec
from topmast.model.reason import Change, ClusterVerdict, PendingReason, by_size
from topmast.service.changes import World
from topmast.service.inquiry import Inquiry
from topmast.service.quota_turns import QuotaTurn
from topmast.service.warnings import nowhere, to_add, too_large

HELP_SHOWN = 8


def would_help(
    world: World,
    reason: PendingReason | None,
    inquiry: Inquiry,
    changes: tuple[Change, ...],
    turn: QuotaTurn | None,
) -> tuple[str, ...]:
    """The smallest change of each kind, in words; then what is no change of one thing."""
    smallest = {change.kind: change for change in reversed(changes)}
    texts = [change.text for change in sorted(smallest.values(), key=by_size)[:HELP_SHOWN]]
    texts += [turn.help()] if turn is not None else []
    return tuple(texts + _in_general(world, reason, inquiry, bool(texts)))


def _in_general(
    world: World, reason: PendingReason | None, inquiry: Inquiry, found_some: bool
) -> list[str]:
    """What helps with a reason, whatever is free now."""
    queue, spec = world.queue, world.spec
    need = spec.gpus_milli() / MILLI
    allowed = [region for region in inquiry.regions if region.barred is None]
    verdicts = [v for region in allowed for v in region.clusters]
    if reason is PendingReason.TOPOLOGY_DOES_NOT_FIT and found_some:
        return []  # the summary says what does not fit, and the changes what would
    if reason in (PendingReason.TOPOLOGY_DOES_NOT_FIT, PendingReason.NO_MATCHING_HARDWARE):
        sent = None if world.bound is None else world.bound.region
        there = [n for n in sorted(world.placers) if sent in (None, n)]
        columns = [world.placers[name].columns for name in there]
        return list(too_large(queue, columns, spec)) or _of_hardware(spec, need, verdicts)
    if reason is PendingReason.UNKNOWN_DATASET:
        return [_to_add(queue, name) for name in queue.data.catalogue.unknown(spec.datasets)]
    if reason is PendingReason.WAITING_FOR_DATA:
        return [f"{to_add(queue, name)}: no region has its files" for name in nowhere(queue, spec)]
    starts = inquiry.foreseen is not None and inquiry.foreseen.starts
    if found_some or reason is None or starts:
        return []
    if reason in (PendingReason.WAITING_FOR_QUOTA, PendingReason.EXCEEDS_MAX_QUOTA):
        return [f"more quota for tenant {spec.tenant}, and room: no one change was found to do"]
    if reason is PendingReason.INSUFFICIENT_CAPACITY:
        usable = sorted((v for v in verdicts if v.ever), key=lambda v: (-v.free_gpus, v.cluster))
        return [
            f"more free GPUs in {v.cluster}: {v.free_gpus:g} of {v.total_gpus:g} are free, "
            f"{need:g} are needed close together"
            for v in usable[:3]
        ]
    return []


def _to_add(queue: GlobalQueue, name: str) -> str:
    """What helps with a dataset that the catalogue does not have."""
    near = nearest(name, queue.data.catalogue.datasets)
    return to_add(queue, name) + (f"; {near}" if near else "")


def _of_hardware(spec: JobSpec, need: float, verdicts: list[ClusterVerdict]) -> list[str]:
    """What the fleet would need, or the job should request, even if nothing else ran."""
    largest = max(verdicts, key=lambda v: v.largest_gpus, default=None)
    if largest is None or not largest.largest_gpus:
        return ["hosts with the GPU model and count that one task asks for"]
    level = spec.topology.required
    within = f"one {level.name.lower()}" if level is not None else "one cluster"
    return [
        f"a gang of at most {largest.largest_gpus:g} GPUs: the most that fits in {within} "
        f"(in {largest.cluster})",
        f"a {within[4:]} with at least {need:g} such GPUs",
    ]
