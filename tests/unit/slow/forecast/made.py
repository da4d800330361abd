"""Histories whose truth is known: rates, sizes and seasons that forecasts have to find again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topmast.slow.arrays import Floats
from topmast.slow.forecast.history import History

NEVER = 10_000


def history(
    rates: Sequence[float],
    *,
    namespace: Sequence[int] | None = None,
    size_gpu_s: float | Sequence[float] = 100.0,
    spread: float = 0.0,
    days: int = 28,
    week: Sequence[float] = (1.0,) * 7,
    first_day: Sequence[int] | None = None,
    seed: int = 0,
) -> History:
    """Poisson accesses at ``rates`` a day times the day's factor; lognormal sizes; two models, by turns."""
    rng = np.random.default_rng(seed)
    items = len(rates)
    born = np.array(first_day if first_day is not None else [0] * items, np.int64)
    mean = np.broadcast_to(np.asarray(size_gpu_s, float), items)
    days_of, items_of = [], []
    for day in range(days):
        count = rng.poisson(np.asarray(rates) * week[day % 7] * (born <= day))
        items_of.append(np.repeat(np.arange(items), count))
        days_of.append(np.full(int(count.sum()), day))
    item = np.concatenate(items_of)
    noise: Floats = np.exp(rng.normal(-(spread**2) / 2, spread, len(item)))
    return History(
        days=days,
        namespace=np.array(namespace if namespace is not None else [0] * items, np.int64),
        first_day=born,
        gone_day=np.full(items, NEVER),
        day=np.concatenate(days_of),
        item=item,
        model=np.arange(len(item)) % 2,
        gpu_s=mean[item] * noise,
        models=2,
    )
