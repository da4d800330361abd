"""Demand by region: what runs there, and the part of the queue that would have to go there.

A queued job may go to some regions (those that hold its data); its demand is split over them so
that the largest ratio of demand to supply is least. That split is the one that levels the ratios
as far as it can; it is found by filling up, class by class, until nothing moves any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Regions = tuple[int, ...]
"""Numbers of regions that a class of queued jobs may go to."""
ROUNDS = 200
EXACT = 1e-9


def split(
    demand: Mapping[Regions, float], running: Sequence[float], supply: Sequence[float]
) -> dict[Regions, list[float]]:
    """What each class of ``demand`` puts on each of its regions. O(rounds x classes x regions).

    Minimises the sum of supply x ratio^2 class by class, which is convex; its one optimum in the
    totals by region also has the least largest ratio (and then the least next one).
    """
    load = list(running)
    parts: dict[Regions, list[float]] = {}
    for regions, gpus in demand.items():
        parts[regions] = [gpus] if len(regions) == 1 else [0.0] * len(regions)
        if len(regions) == 1:
            load[regions[0]] += gpus
    open_classes = [regions for regions, gpus in demand.items() if len(regions) > 1 and gpus > 0]
    rounds = 1 if len(open_classes) < 2 else ROUNDS
    for _ in range(rounds):
        moved = 0.0
        for regions in open_classes:
            before = parts[regions]
            rest = [load[r] - part for r, part in zip(regions, before, strict=True)]
            after = _pour(demand[regions], rest, [supply[r] for r in regions])
            parts[regions] = after
            for r, old, new in zip(regions, before, after, strict=True):
                load[r] += new - old
                moved = max(moved, abs(new - old))
        if moved <= EXACT * max(1.0, *supply):
            break
    return parts


def _pour(gpus: float, base: Sequence[float], supply: Sequence[float]) -> list[float]:
    """Pour ``gpus`` over vessels filled to ``base`` of width ``supply`` up to one level. O(n log
    n).
    """
    wide = [i for i in range(len(base)) if supply[i] > 0]
    if not wide:
        return [gpus / len(base)] * len(base)
    order = sorted(wide, key=lambda i: (base[i] / supply[i], i))
    width = volume = 0.0
    level = 0.0
    for place, i in enumerate(order):
        width += supply[i]
        volume += base[i]
        level = (gpus + volume) / width
        if place + 1 == len(order) or level <= base[order[place + 1]] / supply[order[place + 1]]:
            break
    poured = [0.0] * len(base)
    for i in order:
        poured[i] = max(0.0, level * supply[i] - base[i])
    return poured
