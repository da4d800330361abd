"""Days that may come, drawn from a forecast: what a robust plan is made for.

A mean day hides what matters for balance: single large jobs. In a scenario every item is read a
number of times drawn from its forecast (a Gamma mixture of Poisson counts), and each access is as
large as one that was: one of the item's own, or one of all items' where the item has few.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from topmast.slow.arrays import Floats, Ints
from topmast.slow.forecast.history import History, by_item_and_model
from topmast.slow.forecast.smoothing import Forecast, Smoothing


def scenarios(
    history: History, made: Forecast, smoothing: Smoothing, count: int, rng: Generator
) -> Floats:
    """GPU-seconds [count, i, g] of so many days, equally likely. O(n log n + count (accesses + i
    g)).
    """
    order = np.argsort(history.item, kind="stable")
    start = np.searchsorted(history.item[order], np.arange(history.items + 1))
    found = np.zeros((count, history.items, history.models))
    if not len(order):
        return found
    for number in range(count):
        rate = made.season * rng.gamma(made.shape, 1.0 / made.per)
        item = np.repeat(np.arange(history.items), rng.poisson(rate))
        access = _like(item, order, start, made.seen, smoothing, rng)
        found[number] = by_item_and_model(
            history, history.gpu_s[access], item, history.model[access]
        )
    corrected: Floats = found * made.correction
    return corrected


def _like(
    item: Ints, order: Ints, start: Ints, seen: Floats, smoothing: Smoothing, rng: Generator
) -> Ints:
    """For each access drawn, an access of the past that it is like."""
    own = np.diff(start)[item]
    chance = seen[item] / (seen[item] + smoothing.kin_accesses)
    at_home = (rng.random(len(item)) < chance) & (own > 0)
    within = (rng.random(len(item)) * np.maximum(own, 1)).astype(np.int64)
    anywhere = rng.integers(0, len(order), len(item))
    alike: Ints = order[np.where(at_home, start[item] + within, anywhere)]
    return alike
