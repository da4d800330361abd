"""Whether a cluster decides in rounds, and how long they are, by when its jobs started."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topmast.traces.trace import Floats

SHORTEST_S, LONGEST_S = 10, 3_600
"""Rounds that are looked for, in whole seconds."""
ALIKE = 0.9
"""Gaps between starts fit a round if the mean of cos(2 pi gap / round) is so much: 1 if all are
multiples of it, near 0 if they are anything.
"""
FEW = 8
"""Fewer gaps tell nothing."""
MOST_GAPS = 20_000
SHORT = 0.05
"""So many of the gaps may be shorter than half a round, by chance."""
SAME_S = 1.0
"""Starts so close to each other are of one round."""


def rounds_of(starts_s: Sequence[float]) -> float | None:
    """The longest round that fits the gaps between starts of jobs that had waited; None: none does.

    Of gaps, for the rounds of a real scheduler drift: each is a little longer than it should be.
    O(starts log starts + gaps x rounds).
    """
    gaps_s = np.diff(np.sort(np.asarray(starts_s, np.float64)))
    gaps_s = gaps_s[gaps_s > SAME_S][:MOST_GAPS]
    if len(gaps_s) < FEW:
        return None
    fits = [_fit(gaps_s, float(round_s)) for round_s in range(SHORTEST_S, LONGEST_S + 1)]
    best = None
    for at in reversed(range(len(fits))):
        if fits[at] >= ALIKE and (best is None or fits[at] > fits[best]):
            best = at
        elif fits[at] < ALIKE and best is not None:
            break  # parts of a round fit as well
    return None if best is None else float(SHORTEST_S + best)


def _fit(gaps_s: Floats, round_s: float) -> float:
    """0 where gaps are shorter than a round: then they say nothing of it."""
    near = gaps_s[gaps_s <= LONGEST_S * 10]  # over longer ones the drift is a round itself
    if len(near) < FEW or float((near < round_s / 2).mean()) > SHORT:
        return 0.0
    return float(np.cos(2 * np.pi * near / round_s).mean())
