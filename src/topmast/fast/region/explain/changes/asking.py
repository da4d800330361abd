"""What a gang could ask for less of, or less strictly, to have a place in a region; each tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from topmast.fast.region.explain.changes.trials import Spot, Trials, count_of
from topmast.model.bisection import most_with
from topmast.model.job import MILLI, Level, Topology
from topmast.model.plan import GroupRequest, PlacementRequest
from topmast.model.reason import Change, ChangeKind
from topmast.model.units import BYTE_UNITS, exact_bytes

GROUPS_TRIED = 4


def asking_less(trials: Trials) -> Iterator[Change]:
    """A wider topology; fewer tasks, GPUs, CPUs, or less memory. O(groups x log amounts) trials."""
    yield from _wider(trials)
    for group in trials.ask.groups[:GROUPS_TRIED]:
        yield from _fewer_tasks(trials, group)
        yield from _fewer_gpus(trials, group)
        yield from _fewer_cpus(trials, group)
        yield from _less_memory(trials, group)


def _wider(trials: Trials) -> Iterator[Change]:
    """The next wider level of the topology that helps. O(levels x H)."""
    required = trials.ask.topology.required
    for level in Level if required is not None else ():
        if required is None or level <= required:
            continue
        place = trials.place(replace(trials.ask, topology=Topology(level)))
        if place is not None:
            was, to = required.name.lower(), level.name.lower()
            text = f"`topology: {{required: {to}}}` instead of {was}"
            size = (level - required) / len(Level)
            yield trials.change(ChangeKind.TOPOLOGY, text, size, place, was=was, to=to)
            return


def _fewer_tasks(trials: Trials, group: GroupRequest) -> Iterator[Change]:
    """The most tasks of a group that fit. O(log n x H)."""
    found = _most(trials, group.count - 1, lambda n: _with(trials, replace(group, count=n)))
    if found is not None:
        most, place = found
        text = f"{count_of(most, 'task', _of(trials, group))} instead of {group.count}"
        size = (group.count - most) / group.count
        yield trials.change(
            ChangeKind.TASKS, text, size, place, group=group.name,
            was=float(group.count), to=float(most),
        )  # fmt: skip


def _fewer_gpus(trials: Trials, group: GroupRequest) -> Iterator[Change]:
    """The most GPUs per task with which the gang fits. O(log GPUs x H)."""
    resources = group.resources
    listed = resources.accelerators
    before = max((a.gpus_milli for a in listed), default=0) // MILLI

    def with_gpus(gpus: int) -> PlacementRequest:
        fewer = tuple(replace(a, gpus_milli=min(a.gpus_milli, gpus * MILLI)) for a in listed)
        return _with(trials, replace(group, resources=replace(resources, accelerators=fewer)))

    found = _most(trials, before - 1, with_gpus)
    if found is not None:
        most, place = found
        text = f"{count_of(most, 'GPU')} per task{_of(trials, group)} instead of {before}"
        yield trials.change(
            ChangeKind.GPUS, text, (before - most) / before, place, group=group.name,
            was=float(before), to=float(most),
        )  # fmt: skip


def _fewer_cpus(trials: Trials, group: GroupRequest) -> Iterator[Change]:
    """The most CPUs per task with which the gang fits, in whole ones or tenths. O(log CPUs x H)."""
    before = group.resources.cpus
    step = 1.0 if before > 1 else 0.1

    def with_cpus(steps: int) -> PlacementRequest:
        cpus = round(steps * step, 1)
        return _with(trials, replace(group, resources=replace(group.resources, cpus=cpus)))

    found = _most(trials, _steps_below(before, step), with_cpus, least=0)
    if found is not None:
        steps, place = found
        most = round(steps * step, 1)
        text = f"{most:g} CPUs per task{_of(trials, group)} instead of {before:g}"
        yield trials.change(
            ChangeKind.CPUS, text, (before - most) / before, place, group=group.name,
            was=before, to=most,
        )  # fmt: skip


def _less_memory(trials: Trials, group: GroupRequest) -> Iterator[Change]:
    """The most memory per task with which the gang fits, in GB or MB. O(log memory x H)."""
    before = group.resources.memory_bytes
    step = BYTE_UNITS["GB"] if before > BYTE_UNITS["GB"] else BYTE_UNITS["MB"]

    def with_memory(steps: int) -> PlacementRequest:
        less = replace(group.resources, memory_bytes=steps * step)
        return _with(trials, replace(group, resources=less))

    found = _most(trials, _steps_below(before, step), with_memory, least=0)
    if found is not None:
        steps, place = found
        most = exact_bytes(steps * step)
        text = f"{most} of memory per task{_of(trials, group)} instead of {exact_bytes(before)}"
        size = (before - steps * step) / before
        yield trials.change(
            ChangeKind.MEMORY, text, size, place, group=group.name,
            was=float(before), to=float(steps * step),
        )  # fmt: skip


def _most(
    trials: Trials, high: int, ask_with: Callable[[int], PlacementRequest], *, least: int = 1
) -> tuple[int, Spot] | None:
    """The largest of ``least`` to ``high`` for which the gang has a place. O(log high) trials."""
    if high < least:
        return None
    place = trials.place(ask_with(high))
    if place is not None:
        return high, place
    place = trials.place(ask_with(least))
    if place is None:
        return None
    return most_with(lambda number: trials.place(ask_with(number)), least, high) or (least, place)


def _with(trials: Trials, group: GroupRequest) -> PlacementRequest:
    """The question with one group in place of that of its name."""
    groups = tuple(group if g.name == group.name else g for g in trials.ask.groups)
    return replace(trials.ask, groups=groups)


def _of(trials: Trials, group: GroupRequest) -> str:
    return f" of group {group.name}" if len(trials.ask.groups) > 1 else ""


def _steps_below(amount: float, step: float) -> int:
    """The most whole steps that are less than an amount; -1 if the amount is 0."""
    return int(np.ceil(amount / step - 1e-6)) - 1
