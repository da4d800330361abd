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


def rate(spec: JobSpec, models: Sequence[str], real: Mapping[str, float]) -> float:
    """Work per second of a gang on hosts of these models: the slowest decides; 1 on the first
    listed, if the job is right about its speeds. ``real``: by model, the true speed over that.
    """
    listed = spec.groups[0].resources.accelerators
    if not listed or (len(listed) == 1 and not real):
        return 1.0
    first = listed[0].speed
    speeds: Mapping[str | None, float] = {a.model: a.speed for a in reversed(listed)}
    return min(
        speeds.get(model, first) * real.get(model, 1.0) / first for model in dict.fromkeys(models)
    )
