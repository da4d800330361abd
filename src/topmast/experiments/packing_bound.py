"""The most work that any scheduler could do on `gandiva-like` jobs: GPUs without hosts, gangs
without form, nothing takes time.

At each moment a linear program gives jobs the parts of GPUs of each model, alone or beside the
best partner that the table has, so that most work is done (as in Gavel, OSDI '20, with space
sharing). Jobs of one kind share evenly. That is greedy in time, and so no proof; the work of jobs
that never wait for anything (``endless``) is one. Run as ``python -m
topmast.experiments.packing_bound TABLE``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from topmast.experiments.config import Scale, read_experiment
from topmast.experiments.files import open_files
from topmast.traces.generate.gandiva import HOST_GPUS, HOSTS
from topmast.traces.throughputs import Throughputs, Work, read_throughputs
from topmast.traces.trace import Trace

Floats = NDArray[np.float64]
Kind = tuple[str, int]
STEP_S = 120.0
JOBS = 1_000


class Way:
    """Columns of the program: a GPU model, the kinds that have one of its GPUs, and what each
    does there.

    A kind is what a job trains, and its GPUs: only gangs of one size can share, and large ones go
    worse together.
    """

    def __init__(self, speeds: dict[str, Floats], table: Throughputs | None, kinds: list[Kind]):
        self.of: list[tuple[int, tuple[int, ...], tuple[float, ...]]] = []
        for at, model in enumerate(HOSTS):
            own = speeds[model]
            self.of += [(at, (i,), (float(own[i]),)) for i in range(len(kinds))]
            for i, one in enumerate(kinds if table is not None else ()):
                for j in range(i, len(kinds)):
                    assert table is not None
                    alike = one[1] == kinds[j][1]
                    rates = table.beside(one, kinds[j], model) if alike else None
                    if rates is not None:
                        done = float(own[i] * rates[0]), float(own[j] * rates[1])
                        self.of.append((at, (i, j), done))
        entries = [(at, col) for col, (at, _, _) in enumerate(self.of)]
        entries += [(len(HOSTS) + k, col) for col, way in enumerate(self.of) for k in way[1]]
        rows, cols = np.array(entries).T
        shape = (len(HOSTS) + len(kinds), len(self.of))
        self.matrix = coo_matrix((np.ones(len(rows)), (rows, cols)), shape=shape).tocsr()
        self.costs = np.array([-sum(done) for _, _, done in self.of])

    def rates(self, have: Floats) -> Floats:
        """Work per second of each kind of which so many GPUs are asked for (kinds)."""
        there = [float(count * HOST_GPUS) for count in HOSTS.values()]
        limits = np.concatenate([there, have])
        found: Any = linprog(self.costs, A_ub=self.matrix, b_ub=limits, method="highs")
        rates = np.zeros(len(have))
        for part, (_, kinds, done) in zip(found.x, self.of, strict=True):
            for kind, rate in zip(kinds, done, strict=True):
                rates[kind] += part * rate
        return rates


def work_rate(trace: Trace, table: Throughputs, *, pairs: bool) -> float:
    """Work done until the last job comes over the GPU-seconds there were. O(steps x a linear
    program).
    """
    of = list(zip(trace.model.values(), trace.total_gpus().tolist(), strict=True))
    kinds = sorted(set(of))
    kind = np.array([kinds.index(each) for each in of])
    reference, *others = HOSTS
    alone = {name: table.speeds(Work(name, 1)) for name, _ in kinds}
    speeds = {reference: np.ones(len(kinds))}
    for other in others:
        speeds[other] = np.array([alone[n].get(other, 0.0) / alone[n][reference] for n, _ in kinds])
    way = Way(speeds, table if pairs else None, kinds)
    left, gpus = trace.duration_s.astype(np.float64).copy(), trace.total_gpus()
    end_s, now, done = float(trace.submit_s.max()), 0.0, 0.0
    while now < end_s:
        step_s = min(STEP_S, end_s - now)
        active = (trace.submit_s <= now) & (left > 0)
        have = np.bincount(kind[active], gpus[active], len(kinds)).astype(np.float64)
        each = way.rates(have) / np.maximum(have, 1.0)
        did = np.where(active, np.minimum(left, each[kind] * step_s), 0.0)
        left -= did
        done += float((did * gpus).sum())
        now += step_s
    return done / (end_s * HOST_GPUS * sum(HOSTS.values()))


def endless(trace: Trace, table: Throughputs) -> float:
    """The same if every job had the GPUs that it likes best as soon as it comes. O(jobs)."""
    end_s, done = float(trace.submit_s.max()), 0.0
    for row, name in enumerate(trace.model.values()):
        alone = table.speeds(Work(name, 1))
        best = max(alone.get(model, 0.0) for model in HOSTS) / alone[next(iter(HOSTS))]
        had_s = end_s - float(trace.submit_s[row])
        done += min(float(trace.duration_s[row]), had_s * best) * float(trace.total_gpus()[row])
    return done / (end_s * HOST_GPUS * sum(HOSTS.values()))


def main(path: str) -> None:
    """Print the bounds of the experiment `gandiva`."""
    table = read_throughputs(Path(path))
    print(f"{'files':12} seed  alone  pairs  endless")  # noqa: T201
    files = read_experiment("gandiva").files
    for of in ("load 1", "load 1.5", "load 2", "one GPU each"):
        for seed in (1, 2):
            trace, _ = open_files(files[of], Scale(jobs=JOBS, seeds=1), seed, None)
            found = [work_rate(trace, table, pairs=pairs) for pairs in (False, True)]
            bounds = "  ".join(f"{x:.3f}" for x in (*found, endless(trace, table)))
            print(f"{of:12} {seed:4}  {bounds}")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
