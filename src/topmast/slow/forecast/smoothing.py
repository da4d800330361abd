"""Seasonal smoothing with kin: the accesses of a day to come, and what each will need.

Two quantities are smoothed apart, since they vary for different reasons: the *rate*, accesses a
day, and the *size*, GPU-seconds of one access by GPU model. Each is an average over the past in
which a day counts less the older it is, drawn towards that of the item's namespace, and that
towards the mean of all: the less an item has been seen, the more. That is the mean of a Gamma
posterior for the rate (empirical Bayes; Gelman et al., Bayesian Data Analysis, 2.6), so that the
same numbers give its spread. The weekday is a factor for all items together: one item's own weeks
are too few to tell.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Floats
from topmast.slow.forecast.history import DAYS_OF_WEEK, History, by_item_and_model, sums

SEASON_PRIOR_DAYS = 0.5
"""A weekday's factor is drawn towards 1 as if so many of its days had been plain ones."""
TINY = 1e-12


class Smoothing(Struct, frozen=True):
    """How much to smooth.

    ``forgetting``: the part of its weight that a day loses with each day (0: all days count
    alike). ``kin_days``: the namespace's rate counts as so many days of an item;
    ``kin_accesses``: its mean size as so many accesses.
    """

    forgetting: float = 0.1
    kin_days: float = 1.0
    kin_accesses: float = 30.0


class Forecast(Struct, frozen=True):
    """A day to come. The rate of item i is Gamma(``shape`` [i], ``per`` [i]) x ``season``, its
    mean ``rate`` [i].

    ``size_gpu_s`` [i, g]: GPU-seconds on model g of one access, on average over accesses of all
    models. ``seen`` [i]: accesses so far, old ones counting less. ``correction`` [g]: by what it
    is multiplied because of earlier errors (1: by nothing).
    """

    shape: Floats
    per: Floats
    season: float
    size_gpu_s: Floats
    seen: Floats
    correction: Floats

    @property
    def rate(self) -> Floats:
        """Accesses [i] to expect."""
        return self.season * self.shape / self.per

    def gpu_s(self) -> Floats:
        """GPU-seconds [i, g] to expect."""
        expected: Floats = self.rate[:, None] * self.size_gpu_s * self.correction
        return expected


def forecast(history: History, smoothing: Smoothing) -> Forecast:
    """The day after the last of ``history``. O(n + days + i g)."""
    age_days = history.days - 1.0 - np.arange(history.days)
    weight = np.asarray((1.0 - smoothing.forgetting) ** age_days, np.float64)
    season = seasons(history)
    weekday = np.arange(history.days) % DAYS_OF_WEEK
    plain = weight / season[weekday]
    counted = sums(history.item, plain[history.day], history.items)
    exposure = _exposure(history, weight)
    kin_rate = _kin_ratio(history, counted[:, None], exposure, smoothing.kin_days)[:, 0]
    seen = sums(history.item, weight[history.day], history.items)
    needed = by_item_and_model(
        history, history.gpu_s * weight[history.day], history.item, history.model
    )
    kin_size = _kin_ratio(history, needed, seen, smoothing.kin_accesses)
    size = (needed + smoothing.kin_accesses * kin_size) / (seen + smoothing.kin_accesses)[:, None]
    expected = (counted + smoothing.kin_days * kin_rate) * history.exists_on(history.days)
    return Forecast(
        shape=np.maximum(expected, TINY),
        per=exposure + smoothing.kin_days,
        season=float(season[history.days % DAYS_OF_WEEK]),
        size_gpu_s=size,
        seen=seen,
        correction=np.ones(history.models),
    )


def seasons(history: History) -> Floats:
    """The factor [7] of each day of the week: its accesses over those of the week around it. O(n
    + days).

    The classical decomposition (ratios to a moving average), so that growth is not taken for a
    season.
    """
    factor = np.ones(DAYS_OF_WEEK)
    if history.days < 2 * DAYS_OF_WEEK or not len(history.day):
        return factor  # one week does not tell a season from a chance
    by_day = sums(history.day, None, history.days)
    window, half = np.ones(DAYS_OF_WEEK), DAYS_OF_WEEK // 2
    whole = np.arange(half, history.days - half)
    around = np.convolve(by_day, window, "valid") / DAYS_OF_WEEK
    ratio = np.where(around > 0, by_day[whole] / np.maximum(around, TINY), 1.0)
    found = sums(whole % DAYS_OF_WEEK, ratio, DAYS_OF_WEEK) + SEASON_PRIOR_DAYS
    factor = found / (sums(whole % DAYS_OF_WEEK, None, DAYS_OF_WEEK) + SEASON_PRIOR_DAYS)
    return np.asarray(np.maximum(factor, TINY) / factor.mean(), np.float64)


def _exposure(history: History, weight: Floats) -> Floats:
    """The days [i] that an item has existed, old ones counting less."""
    later = np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])
    begun, ended = (np.minimum(d, history.days) for d in (history.first_day, history.gone_day))
    return np.asarray(later[begun] - later[ended], np.float64)


def _kin_ratio(history: History, part: Floats, whole: Floats, prior: float) -> Floats:
    """``part`` over ``whole`` of each item's namespace [i, k], drawn towards that of all items."""
    count = int(history.namespace.max(initial=-1)) + 1
    all_of_them = part.sum(axis=0) / max(float(whole.sum()), TINY)
    parts = np.zeros((count, part.shape[1]))
    np.add.at(parts, history.namespace, part)
    wholes = sums(history.namespace, whole, count)
    ratio = (parts + prior * all_of_them) / (wholes + prior)[:, None]
    kin: Floats = ratio[history.namespace]
    return kin
