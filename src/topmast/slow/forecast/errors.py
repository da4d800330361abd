"""Days held out: how wrong forecasts were, how much to smooth, and by how much to correct the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.forecast.history import History
from topmast.slow.forecast.smoothing import Forecast, Smoothing, forecast

FORGETTING = (0.02, 0.1, 0.3)
KIN_DAYS = (0.3, 1.0, 4.0)
KIN_ACCESSES = (3.0, 30.0, 300.0)
CORRECT_AT_MOST = 2.0
"""A correction lies between 1/2 and 2: more would be a change that held-out days cannot tell from
chance.
"""
RATE_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Where classes of expected accesses end, for the spread of errors."""
LEAST_PER_CLASS = 30


class Miss(Struct, frozen=True):
    """How wrong a group of forecasts was, in GPU-seconds.

    ``wape``: the sum of absolute errors over the sum of demand. ``bias``: forecast over demand.
    """

    wape: float
    bias: float


class Errors(Struct, frozen=True):
    """What held-out days say: by item, by item without a history, by namespace, and over all.

    ``ratios``: demand over forecast of each class of expected accesses (see `RATE_STEPS`), sorted.
    """

    days: int
    by_item: Miss
    first_time: Miss
    by_namespace: Miss
    total: Miss
    first_time_share: float
    ratios: tuple[Floats, ...]

    def document(self) -> dict[str, Any]:
        """The errors for people and files: all but the ratios."""
        misses = {
            name: {"wape": miss.wape, "bias": miss.bias}
            for name, miss in (
                ("by_item", self.by_item),
                ("first_time", self.first_time),
                ("by_namespace", self.by_namespace),
                ("total", self.total),
            )
        }
        return {"days": self.days, **misses, "first_time_share": self.first_time_share}

    def at(self, made: Forecast, quantile: float) -> Floats:
        """GPU-seconds [i, g] that are not exceeded with the chance ``quantile``. O(i g).

        The error of a forecast is like those of held-out items that were read about as often.
        """
        factor = np.array([np.quantile(r, quantile) if len(r) else 1.0 for r in self.ratios])
        held: Floats = made.gpu_s() * factor[np.digitize(made.rate, RATE_STEPS)][:, None]
        return held


def tuned(history: History, held_out: int = 3) -> tuple[Smoothing, Forecast, Errors]:
    """The smoothing that forecast the last days best, the forecast of the next day, and the errors.

    The mean error of the held-out days corrects the forecast. O(held_out x choices x (n + i g)).
    Raises ValueError where no day is left to forecast from.
    """
    if not 0 < held_out < history.days:
        raise ValueError(f"{held_out} held-out days of {history.days}")
    days = range(history.days - held_out, history.days)
    chosen = chosen_smoothing(history, days)
    made = [forecast(history.before(day), chosen) for day in days]
    next_day = forecast(history, chosen)
    corrected = replace(next_day, correction=_correction(history, made, days))
    return chosen, corrected, errors_of(history, made, days)


def chosen_smoothing(history: History, days: Sequence[int]) -> Smoothing:
    """Rates by the deviance of a Poisson count, then sizes by squared error, both on held-out
    days.
    """
    pasts = [history.before(day) for day in days]
    counts = [history.counts_on(day) for day in days]
    demands = [history.demand_on(day) for day in days]

    def rate_miss(tried: Smoothing) -> float:
        made = (forecast(past, tried).rate for past in pasts)
        return sum(_deviance(c, rate) for c, rate in zip(counts, made, strict=True))

    def size_miss(tried: Smoothing) -> float:
        made = (forecast(past, tried).gpu_s() for past in pasts)
        return sum(float(((y - f) ** 2).sum()) for y, f in zip(demands, made, strict=True))

    rates = [Smoothing(f, k) for f, k in product(FORGETTING, KIN_DAYS)]
    best = min(rates, key=rate_miss)
    sizes = [replace(best, kin_accesses=k) for k in KIN_ACCESSES]
    return min(sizes, key=size_miss)


def _deviance(count: Floats, rate: Floats) -> float:
    """Half the deviance of counts from Poisson means, without what is the same for all means."""
    return float((rate - count * np.log(rate)).sum())


def _correction(history: History, made: Sequence[Forecast], days: Sequence[int]) -> Floats:
    """Demand over forecast [g] of the held-out days, all items together."""
    asked = sum((history.demand_on(day).sum(axis=0) for day in days), np.zeros(history.models))
    told = sum((each.gpu_s().sum(axis=0) for each in made), np.zeros(history.models))
    ratio = np.where((told > 0) & (asked > 0), asked / np.maximum(told, 1e-12), 1.0)
    return np.clip(ratio, 1.0 / CORRECT_AT_MOST, CORRECT_AT_MOST)


def errors_of(history: History, made: Sequence[Forecast], days: Sequence[int]) -> Errors:
    """How wrong forecasts of ``days`` were. O(days x (n + i g))."""
    asked = np.stack([history.demand_on(day) for day in days])
    told = np.stack([each.gpu_s() for each in made])
    there = np.stack([history.exists_on(day) for day in days])
    fresh = np.stack([history.first_day == day for day in days])
    count = int(history.namespace.max(initial=-1)) + 1
    spaces = np.zeros((2, len(days), count, history.models))
    for number, values in enumerate((asked, told)):
        for day in range(len(days)):
            np.add.at(spaces[number, day], history.namespace, values[day])
    total = max(float(asked.sum()), 1e-12)
    return Errors(
        days=len(days),
        by_item=_miss(asked, told),
        first_time=_miss(asked[fresh], told[fresh]),
        by_namespace=_miss(spaces[0], spaces[1]),
        total=_miss(asked.sum(axis=1), told.sum(axis=1)),
        first_time_share=float(asked[fresh].sum()) / total,
        ratios=_ratios(
            asked.sum(axis=2)[there],
            told.sum(axis=2)[there],
            np.stack([m.rate for m in made])[there],
        ),
    )


def _miss(asked: Floats, told: Floats) -> Miss:
    whole = float(asked.sum())
    if whole <= 0:
        return Miss(0.0, 1.0)
    return Miss(float(np.abs(asked - told).sum()) / whole, float(told.sum()) / whole)


def _ratios(asked: Floats, told: Floats, rate: Floats) -> tuple[Floats, ...]:
    """Demand over forecast by class of rate; a class of too few takes its neighbours in."""
    number = np.digitize(rate, RATE_STEPS).astype(np.int64)
    found = []
    for each in range(len(RATE_STEPS) + 1):
        reach, there = 0, _near(number, each, 0)
        while there.sum() < LEAST_PER_CLASS and reach <= len(RATE_STEPS):
            reach += 1
            there = _near(number, each, reach)
        found.append(np.sort(asked[there] / np.maximum(told[there], 1e-12)))
    return tuple(found)


def _near(number: Ints, each: int, reach: int) -> Bools:
    near: Bools = np.abs(number - each) <= reach
    return near
