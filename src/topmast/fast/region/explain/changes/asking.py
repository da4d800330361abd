"""What a gang could ask for less of, or less strictly, to have a place in a region; each tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.region.explain.changes.trials import Spot, Trials, count_of
from topmast.model.bisection import most_with
from topmast.model.job import MILLI, Level, Topology
from topmast.model.plan import GroupRequest
from topmast.model.reason import Change, ChangeKind
from topmast.model.units import BYTE_UNITS, exact_bytes

GROUPS_TRIED = 4


class Amount(Struct, frozen=True):
    """What a group could ask for less of, in whole steps."""

    kind: ChangeKind
    asked: float
    step: float
    """The amount is looked for in multiples of it."""
    fewest: int
    """So many steps it has at the least."""
    with_less: Callable[[Any], GroupRequest]
    """The group with another amount."""
    said: Callable[[Any], str]
    """Another amount, and that which was asked for, in words."""

    def after(self, steps: int) -> float:
        """The amount of so many steps."""
        return round(steps * self.step, 1)


def asking_less(trials: Trials) -> Iterator[Change]:
    """A wider topology; fewer tasks, GPUs, CPUs, or less memory. O(groups x log amounts) trials."""
    yield from _wider(trials)
    for group in trials.ask.groups[:GROUPS_TRIED]:
        for amount in _amounts_of(trials, group):
            yield from _less(trials, group, amount)


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


def _amounts_of(trials: Trials, group: GroupRequest) -> Iterator[Amount]:
    """Tasks, GPUs of a task, CPUs in whole ones or tenths, memory in GB or MB."""
    needs, of = group.resources, _of(trials, group)
    listed, cpus, memory = needs.accelerators, needs.cpus, needs.memory_bytes
    gpus = max((a.gpus_milli for a in listed), default=0) // MILLI
    size = BYTE_UNITS["GB"] if memory > BYTE_UNITS["GB"] else BYTE_UNITS["MB"]

    def needing(**other: object) -> GroupRequest:
        return replace(group, resources=replace(needs, **other))

    def with_gpus(n: int) -> GroupRequest:
        fewer = tuple(replace(a, gpus_milli=min(a.gpus_milli, n * MILLI)) for a in listed)
        return needing(accelerators=fewer)

    yield Amount(
        ChangeKind.TASKS, group.count, 1, 1, lambda n: replace(group, count=n),
        lambda n: f"{count_of(n, 'task', of)} instead of {group.count}",
    )  # fmt: skip
    yield Amount(
        ChangeKind.GPUS, gpus, 1, 1, with_gpus,
        lambda n: f"{count_of(n, 'GPU')} per task{of} instead of {gpus}",
    )  # fmt: skip
    yield Amount(
        ChangeKind.CPUS, cpus, 1.0 if cpus > 1 else 0.1, 0, lambda n: needing(cpus=n),
        lambda n: f"{n:g} CPUs per task{of} instead of {cpus:g}",
    )  # fmt: skip
    yield Amount(
        ChangeKind.MEMORY, memory, size, 0, lambda n: needing(memory_bytes=n),
        lambda n: f"{exact_bytes(n)} of memory per task{of} instead of {exact_bytes(memory)}",
    )  # fmt: skip


def _less(trials: Trials, group: GroupRequest, amount: Amount) -> Iterator[Change]:
    """The most of an amount with which the gang fits. O(log steps) trials."""

    def place_with(steps: int) -> Spot | None:
        less = amount.with_less(amount.after(steps))
        groups = tuple(less if g.name == group.name else g for g in trials.ask.groups)
        return trials.place(replace(trials.ask, groups=groups))

    found = _most(place_with, amount.fewest, int(np.ceil(amount.asked / amount.step - 1e-6)) - 1)
    if found is not None:
        left, place = amount.after(found[0]), found[1]
        size = (amount.asked - left) / amount.asked
        yield trials.change(
            amount.kind, amount.said(left), size, place, group=group.name,
            was=float(amount.asked), to=float(left),
        )  # fmt: skip


def _most(
    place_with: Callable[[int], Spot | None], fewest: int, most: int
) -> tuple[int, Spot] | None:
    """The most steps of a range with which the gang has a place. O(log most) trials."""
    for steps in (most, fewest) if most >= fewest else ():
        place = place_with(steps)
        if place is not None:
            larger = None if steps == most else most_with(place_with, steps, most)
            return larger or (steps, place)
    return None


def _of(trials: Trials, group: GroupRequest) -> str:
    return f" of group {group.name}" if len(trials.ask.groups) > 1 else ""
