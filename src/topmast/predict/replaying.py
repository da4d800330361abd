"""The rows that a queue would have seen: past jobs submitted and finished in the order of time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.predict.experience import FEATURES, Experience, Known
from topmast.predict.walking import Floats

Bools = NDArray[np.bool_]


class Rows(Struct, frozen=True):
    """Jobs (n) as they were known at submission, and what became of them."""

    known: Bools
    """Whether any job had finished by then, so that there was an estimate at all."""
    guess: Floats
    features: Floats
    """`FEATURES` (n x features)."""
    log_s: Floats


def replay(
    jobs: Sequence[Known], submit_s: Floats, duration_s: Floats, wait_s: Floats | None = None
) -> Rows:
    """Submit and finish each job at its time (n, sorted by submission); no waits: start at once.

    At the same instant, finished jobs come before submitted ones. O(n log n).
    """
    waited_s = np.zeros(len(jobs)) if wait_s is None else wait_s
    ends_s = (submit_s + waited_s + duration_s).tolist()
    experience, running = Experience({}), list[tuple[float, int]]()
    rows = Rows(
        np.zeros(len(jobs), np.bool_),
        np.zeros(len(jobs)),
        np.zeros((len(jobs), len(FEATURES))),
        np.log(np.maximum(duration_s, 1.0)),
    )
    for number, (job, at_s) in enumerate(zip(jobs, submit_s.tolist(), strict=True)):
        while running and running[0][0] <= at_s:
            over = heapq.heappop(running)[1]
            experience.learn(jobs[over], float(duration_s[over]))
        row = experience.row(job)
        if row is not None:
            rows.known[number] = True
            rows.guess[number], rows.features[number] = row[0], row[1:]
        heapq.heappush(running, (ends_s[number], number))
    return rows
