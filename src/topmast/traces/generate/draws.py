"""How marginals are drawn: by quantiles, by counts, and over the hours of a week. All vectorised.

Draws are *stratified*: n draws are spread evenly over the distribution, and only their order is
random, so that even a small trace has the marginals that it is meant to have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from topmast.traces.trace import Floats, Ints, Texts

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0


def even(n: int, rng: Generator) -> Floats:
    """As many numbers as asked, one in each n-th of (0, 1), in random order. O(n)."""
    return (rng.permutation(n) + rng.random(n)) / max(n, 1)


def ranks(values: Floats) -> Floats:
    """The rank of each value, evenly over (0, 1): turns any draws into uniform ones. O(n log n)."""
    order = np.argsort(values, kind="stable")
    spread = np.empty(len(values))
    spread[order] = (np.arange(len(values)) + 0.5) / max(len(values), 1)
    return spread


def by_quantiles(points: Mapping[float, float], at: Floats) -> Floats:
    """Values at the quantiles ``at``, geometrically between the given points. O(n log points)."""
    shares = np.array(list(points), dtype=np.float64)
    values = np.log(np.array(list(points.values()), dtype=np.float64))
    return np.asarray(np.exp(np.interp(at, shares, values)))


def by_counts(counts: Sequence[float], at: Floats) -> Ints:
    """Which of the alternatives, weighted by ``counts``, each of ``at`` falls on. O(n log k)."""
    ends = np.cumsum(np.asarray(counts, dtype=np.float64))
    chosen = np.searchsorted(ends / ends[-1], at, side="right")
    return np.minimum(chosen, len(ends) - 1)


def values_by_counts(counts: Mapping[Any, float], at: Floats) -> Floats:
    """The same, of numbers."""
    return np.array(list(counts), dtype=np.float64)[by_counts(list(counts.values()), at)]


def texts_by_counts(counts: Mapping[str, float], at: Floats) -> Texts:
    """The same, of texts."""
    return Texts(by_counts(list(counts.values()), at).astype(np.int32), list(counts))


def arrivals(
    n: int, gap_s: float, rng: Generator, *, hours: Sequence[float], days: Sequence[float] = ()
) -> Floats:
    """The times of a Poisson process with a rate that follows the hour of the day and the day of
    the week.

    ``gap_s`` is the mean time between two of the n. From a process of constant rate, stretched
    where the rate is low. O(n log hours).
    """
    span_s = n * gap_s
    shares = np.asarray(hours, dtype=np.float64)
    week = np.outer(days or [1.0] * 7, shares).ravel()
    slots = int(np.ceil(span_s / HOUR_S)) + 1
    rate = np.resize(week, slots)
    edges_s = np.arange(slots + 1) * HOUR_S
    ends = np.concatenate([[0.0], np.cumsum(rate)])
    begun = np.cumsum(rng.exponential(1.0, n + 1))
    within = begun[:-1] / begun[-1] * np.interp(span_s, edges_s, ends)
    times_s = np.interp(within, ends, edges_s)
    return np.asarray(np.round(times_s - times_s[:1], 3))
