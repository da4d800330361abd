"""The rows that a queue would have seen: jobs of the past submitted and finished in the order of time."""

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
    """Jobs (n) as they were known at submission: guesses and `FEATURES` (n x features), and what came of them.

    ``known``: whether anybody had finished by then, so that there was a guess at all.
    """

    known: Bools
    guess: Floats
    features: Floats
    log_s: Floats


def replay(
    jobs: Sequence[Known], submit_s: Floats, duration_s: Floats, wait_s: Floats | None = None
) -> Rows:
    """Submit and finish each job at its time (n each, sorted by submission); without waits, it starts at once.

    Of one instant, who finishes is heard before who is submitted. O(n log n).
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
