"""How fast a gang works where it is and with as many tasks as it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topmast.model.job import JobSpec, speed_of_size
from topmast.model.plan import Seat


def rate_of_size(spec: JobSpec, seats: Sequence[Seat], efficiency: float) -> float:
    """Work per second of a gang with as many tasks as it has seats; 1 with those that it asked
    for.
    """
    elastic = spec.elastic
    if elastic is None:
        return 1.0
    tasks = sum(seat.group == elastic.name for seat in seats)
    return speed_of_size(elastic, tasks, efficiency)


def rate(spec: JobSpec, models: Sequence[str]) -> float:
    """Work per second of a gang on hosts of these models: the slowest decides; 1 on the first
    listed.
    """
    listed = spec.groups[0].resources.accelerators
    if len(listed) < 2:
        return 1.0
    speeds: Mapping[str | None, float] = {a.model: a.speed for a in reversed(listed)}
    return min(speeds[model] for model in dict.fromkeys(models)) / listed[0].speed
