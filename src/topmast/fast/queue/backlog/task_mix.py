"""The mix of tasks seen lately: what GPUs that a plan leaves should still be good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from topmast.model.job import MILLI, JobSpec, Resources, TaskGroup
from topmast.model.plan import DEFAULT_MIX, TaskShape

HALF_LIFE_JOBS = 1_000
"""After so many jobs with GPUs one counts for half."""
FADE = 0.5 ** (1.0 / HALF_LIFE_JOBS)
FEWEST_JOBS = 20
"""With fewer seen, nothing is concluded from them."""
SIZES = 8
PARTS = 64
"""Shares are told in these parts, so that the mix changes seldom."""
SHAPES = 64
"""So many of the most frequent shapes are told,"""
SHAPES_KEPT = 512
"""and so many are kept."""
SETTLED_JOBS = 256
"""Shapes are told anew after so many jobs at most: searches keep what follows from them."""
MOST_UNIT = 1e9

Sizes = tuple[tuple[int, float], ...]
Asked = tuple[tuple[TaskShape, int, int], ...]
"""For each group with GPUs its shape, its size in whole GPUs, and how many tasks it has."""


class Shapes(Struct):
    """Weights of shapes by what a task asks for; a snapshot holds them."""

    weights: list[tuple[TaskShape, float]] = []
    """In units; the share of a shape says nothing here."""
    unit: float = 1.0
    """What a job weighs that comes now: it grows, instead of all weights fading."""
    jobs: int = 0
    """With GPUs, seen so far."""
    told_at: int = 0
    """So many had been seen when shapes were told last."""
    current: tuple[TaskShape, ...] = ()
    demand: list[tuple[tuple[str, ...], float]] = []
    """GPUs asked for, by the models that will do (none named: any), in units."""
    scarcity: tuple[tuple[str, float], ...] = ()
    """As it was told last, see `scarcity_of`."""


class Mix:
    """Weights of sizes, in whole GPUs of a task, and of shapes, by each of which a job counts once.

    ``current`` holds still between calls of `settle`, so that prices do not change with each job;
    ``shapes`` depends on the jobs alone, and changes after some of them.
    """

    def __init__(
        self,
        weights: dict[int, float] | None = None,
        shapes: Shapes | None = None,
        gpus: Mapping[str, int] | None = None,
    ) -> None:
        self.weights: dict[int, float] = dict(weights or {})
        self.current: Sizes = DEFAULT_MIX
        self.seen = shapes or Shapes()
        self._weight_of = dict(self.seen.weights)
        self._demand = dict(self.seen.demand)
        self.gpus: Mapping[str, int] = gpus or {}
        """Of the fleet, by model."""
        self.settle()

    @property
    def shapes(self) -> tuple[TaskShape, ...]:
        """The shapes told; empty where tasks ask for nothing but whole GPUs."""
        return self.seen.current

    @property
    def scarcity(self) -> tuple[tuple[str, float], ...]:
        """The GPU models that tasks need more than others, told when the shapes are."""
        return self.seen.scarcity

    def configure(self, gpus: Mapping[str, int]) -> None:
        """Take up a fleet's GPUs by model. They count when shapes are told next."""
        self.gpus = gpus

    def saw(self, specs: Sequence[JobSpec], kinds: Sequence[int] = (0,)) -> None:
        """Jobs were submitted; those of a kind ask for the same. ``kinds``: places in ``specs``.

        O(jobs x (groups + sizes)), and sometimes O(shapes).
        """
        asked: dict[int, Asked] = {}
        for kind in kinds:
            found = asked.get(kind)
            if found is None:
                found = asked[kind] = _asked(specs[kind].groups)
            if found:
                self._saw(found)

    def _saw(self, found: Asked) -> None:
        weights, demand, weight_of, seen = self.weights, self._demand, self._weight_of, self.seen
        for size in weights:
            weights[size] *= FADE
        seen.unit /= FADE
        for shape, size, count in found:
            wanted = seen.unit * count * shape.gpus_milli / MILLI
            demand[shape.models] = demand.get(shape.models, 0.0) + wanted
            weights[size] = weights.get(size, 0.0) + 1.0 / len(found)
            weight_of[shape] = weight_of.get(shape, 0.0) + seen.unit / len(found)
        seen.jobs += 1
        if seen.jobs - seen.told_at >= min(max(FEWEST_JOBS, seen.told_at), SETTLED_JOBS):
            self._tell()

    def settle(self) -> None:
        """Let the mix be what was seen up to now: the most frequent sizes and their shares."""
        if sum(self.weights.values()) < FEWEST_JOBS:
            return
        most = sorted(self.weights, key=lambda size: (-self.weights[size], size))[:SIZES]
        total = sum(self.weights[size] for size in most)
        parts = {size: round(PARTS * self.weights[size] / total) for size in sorted(most)}
        told = sum(parts.values())
        self.current = tuple((size, count / told) for size, count in parts.items() if count)

    def saved(self) -> Shapes | None:
        """What a snapshot should hold of the shapes; None: nothing yet. O(shapes)."""
        self.seen.weights = list(self._weight_of.items())
        self.seen.demand = list(self._demand.items())
        return self.seen if self._weight_of else None

    def _tell(self) -> None:
        """Tell the most frequent shapes. O(shapes log shapes)."""
        seen, weight_of = self.seen, self._weight_of
        ranked = sorted(weight_of, key=lambda shape: (-weight_of[shape], _order(shape)))
        scale = seen.unit if seen.unit > MOST_UNIT else 1.0
        seen.unit /= scale
        self._weight_of = {shape: weight_of[shape] / scale for shape in ranked[:SHAPES_KEPT]}
        wanted = sorted(self._demand, key=lambda names: (-self._demand[names], names))
        self._demand = {names: self._demand[names] / scale for names in wanted[:SHAPES_KEPT]}
        seen.scarcity = scarcity_of(self._demand, self.gpus)
        most = ranked[:SHAPES]
        total = sum(weight_of[shape] for shape in most)
        seen.told_at = seen.jobs
        is_plain = all(
            shape.gpus_milli % MILLI == 0 and not (shape.cpus or shape.memory_bytes)
            for shape in most
        )
        seen.current = () if is_plain else tuple(
            TaskShape(s.gpus_milli, s.cpus, s.memory_bytes, s.models, weight_of[s] / total)
            for s in most
        )  # fmt: skip


def takes_any(groups: tuple[TaskGroup, ...]) -> bool:
    """Whether any GPU model will do for the gang. O(groups)."""
    lists = [g.resources.accelerators for g in groups if g.resources.accelerators]
    return bool(lists) and all(len(found) == 1 and found[0].model is None for found in lists)


def scarcity_of(
    demand: Mapping[tuple[str, ...], float], gpus: Mapping[str, int]
) -> tuple[tuple[str, float], ...]:
    """By GPU model, from 0 to 1, how much of what is asked of a GPU is more than of the least one.

    GPUs asked for spread over all that there are of the models that will do (none named: any).
    Models for which it is 0 are left out. O(demand x models).
    """
    models = sorted(model for model, count in gpus.items() if count > 0)
    asked = dict.fromkeys(models, 0.0)
    for names, wanted in demand.items():
        able = [model for model in models if not names or model in names]
        there = sum([gpus[model] for model in able])
        for model in able:
            asked[model] += wanted / there
    least = min(asked.values(), default=0.0)
    told = {m: round(PARTS * (1.0 - least / each)) / PARTS for m, each in asked.items() if each}
    return tuple((model, part) for model, part in told.items() if part)


@lru_cache(SHAPES)
def _asked(groups: tuple[TaskGroup, ...]) -> Asked:
    shapes = [(_shape_of(g.resources), g.count) for g in groups if g.resources.accelerators]
    return tuple((shape, max(1, shape.gpus_milli // MILLI), count) for shape, count in shapes)


def _shape_of(needed: Resources) -> TaskShape:
    listed = needed.accelerators
    names = sorted({a.model for a in listed if a.model is not None})
    models = () if any(a.model is None for a in listed) else tuple(names)
    return TaskShape(listed[0].gpus_milli, needed.cpus, needed.memory_bytes, models, 0.0)


def _order(shape: TaskShape) -> tuple[int, float, int, tuple[str, ...]]:
    return shape.gpus_milli, shape.cpus, shape.memory_bytes, shape.models
