"""How fast the policies that share time are solved, and how close to the optimum they come.

Jobs are drawn at random, and from a table of measured throughputs if one is given. *Cold* is the
first solve of a problem, making its columns; *warm* is the next, after the numbers of one job in a
hundred have changed. Compiling, which a machine does once, is in neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from topmast.bench.policy_peer import Peer, find_peer
from topmast.bench.setup import machine
from topmast.policies.shares import simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.problem import Entity, Job, Pair, Problem
from topmast.policies.shares.program import Program
from topmast.policies.shares.registry import POLICIES
from topmast.policies.shares.rising import prepare
from topmast.policies.shares.shares import Shares
from topmast.traces.throughputs import Throughputs, read_throughputs

SIZES = (128, 512, 2048)
PAIRED_SIZES = (64, 128, 512)
LARGE = 10_000
CROWDED = 512
"""Jobs of which any two may share."""
MOST_JOBS = {"hierarchical": 128, "allox": 512}
"""For policies that solve many programs, or one that grows fast."""
PAIRED = ("max-min-fairness", "finish-time-fairness", "makespan", "max-throughput")
CHECKED_CELLS = 10_000
"""Cells up to which HiGHS is asked how much better one could do."""
PEER_CELLS = 10_000
COSTS = (3.0, 1.5, 0.5)


class PolicyOptions(Struct, frozen=True):
    """What to measure."""

    jobs: int | None = None
    """None: several sizes."""
    seed: int = 0
    throughputs: Path | None = None
    """A file of Gavel's."""
    peer: bool = True


def measure_policies(options: PolicyOptions) -> dict[str, Any]:
    """Solve every policy on problems of several sizes."""
    peer = find_peer() if options.peer else None
    table = read_throughputs(options.throughputs) if options.throughputs is not None else None
    skipped = []
    if table is None:
        skipped.append("jobs of measured types: name their file with --throughputs")
    if peer is None:
        skipped.append("the peer: install cvxpy" if options.peer else "the peer: not asked for")
    rows = []
    for drawn in _problems(options, table):
        for policy in _policies(drawn):
            rows += _rows(drawn, policy, peer)
    return {
        "rows": rows,
        "peer": None if peer is None else peer.name,
        "skipped": skipped,
        "seed": options.seed,
        "machine": machine(),
    }


class Drawn(Struct, frozen=True):
    """A problem, and where its jobs are from."""

    source: str
    problem: Problem

    @property
    def paired(self) -> bool:
        """Whether jobs may share workers."""
        return bool(self.problem.pairs)


def _problems(options: PolicyOptions, table: Throughputs | None) -> Iterator[Drawn]:
    sizes = SIZES if options.jobs is None else (options.jobs,)
    paired = PAIRED_SIZES if options.jobs is None else (options.jobs,)
    for jobs in sizes:
        yield Drawn("random", random_problem(jobs, options.seed))
        if table is not None:
            yield Drawn("measured", measured_problem(jobs, options.seed, table))
    if options.jobs is None:
        yield Drawn("random", random_problem(LARGE, options.seed))
    for jobs in paired if table is not None else ():
        assert table is not None
        yield Drawn("measured", measured_problem(jobs, options.seed, table, pairs=True))
    if options.jobs is None:
        yield Drawn("random", crowded_problem(CROWDED, options.seed))


def _policies(drawn: Drawn) -> tuple[str, ...]:
    jobs = len(drawn.problem.jobs)
    if drawn.paired:
        return PAIRED
    if jobs > max(SIZES):
        return ("max-min-fairness",)
    return tuple(name for name in POLICIES if jobs <= MOST_JOBS.get(name, jobs))


def random_problem(jobs: int, seed: int) -> Problem:
    """Jobs of all sizes on three types, and a third of the workers that jobs ask for."""
    rng = np.random.default_rng((seed, jobs))
    sizes = rng.lognormal(0.0, 1.0, jobs)
    speeds = sizes[:, None] * rng.uniform(0.5, 1.5, (jobs, 3)) * np.array([4.0, 2.0, 1.0])
    scales = rng.choice([1, 1, 1, 2, 4, 8], jobs)
    rows = [
        _job(rng, number, dict(zip("ABC", speeds[number].tolist(), strict=True)), scale)
        for number, scale in enumerate(scales.tolist())
    ]
    return _problem(rows, [], tuple("ABC"))


def crowded_problem(jobs: int, seed: int) -> Problem:
    """Jobs of one worker, any two of which may share it at 30 to 100 % of speed. O(jobs^2)."""
    drawn = random_problem(jobs, seed)
    rows = [structs.replace(job, scale_factor=1) for job in drawn.jobs]
    rng = np.random.default_rng((seed, jobs, 2))
    types = tuple(drawn.workers)
    alone = np.array([[row.throughputs[kind] for kind in types] for row in rows])
    found = []
    for a in range(jobs):
        kept = rng.uniform(0.3, 1.0, (a, 2, len(types)))
        own, others = (kept[:, 0] * alone[a]).tolist(), (kept[:, 1] * alone[:a]).tolist()
        for b in range(a):
            both = zip(own[b], others[b], strict=True)
            found.append(Pair((rows[a].id, rows[b].id), dict(zip(types, both, strict=True))))
    return _problem(rows, found, types)


def measured_problem(jobs: int, seed: int, table: Throughputs, *, pairs: bool = False) -> Problem:
    """Jobs of the types in a table, each as likely as any other."""
    rng = np.random.default_rng((seed, jobs))
    works = sorted(table.alone, key=lambda work: (work.model, work.gpus))
    drawn = [works[number] for number in rng.integers(len(works), size=jobs).tolist()]
    rows = [
        _job(rng, number, dict(table.alone[work]), work.gpus) for number, work in enumerate(drawn)
    ]
    found = []
    for a in range(jobs if pairs else 0):
        for b in range(a):
            speeds = table.together.get((drawn[a], drawn[b]))
            if drawn[a].gpus == drawn[b].gpus and speeds is not None:
                found.append(Pair((rows[a].id, rows[b].id), speeds))
    types = tuple(sorted({kind for work in works for kind in table.alone[work]}, reverse=True))
    return _problem(rows, found, types)


def _job(rng: np.random.Generator, number: int, speeds: dict[str, float], scale: int) -> Job:
    return Job(
        id=f"job{number}", throughputs=speeds, scale_factor=1 if number % 2 else scale,
        weight=float(rng.uniform(0.5, 2.0)), steps_left=float(rng.lognormal(9.0, 1.5)),
        elapsed_s=float(rng.lognormal(6.0, 2.0)), isolated_s=float(rng.lognormal(6.0, 2.0)),
        arrival_s=float(number), entity=f"team{number % 3}",
    )  # fmt: skip


def _problem(jobs: list[Job], pairs: list[Pair], types: tuple[str, ...]) -> Problem:
    wanted = sum(job.scale_factor for job in jobs)
    each = max(8, wanted // 9)
    entities = {f"team{number}": Entity(weight=number + 1.0) for number in range(3)}
    costs = dict(zip(types, COSTS * len(types), strict=False))
    return Problem(dict.fromkeys(types, each), jobs, pairs, costs, entities)


# --- one policy on one problem -------------------------------------------------------------------


def _rows(drawn: Drawn, policy: str, peer: Peer | None) -> list[dict[str, Any]]:
    problem = _fitting(drawn.problem, policy)
    if not drawn.paired:
        prepare(_columns(problem, policy))
    rows = []
    for mode in ("cold", "warm"):
        if mode == "warm":
            problem = _changed(problem)
        (took_s, cpu_s), columns, shares = _timed(problem, policy, warm=mode == "warm")
        peer_s, best = _asked(peer, columns, policy)
        gap = _gap(policy, columns, shares, best)
        rows.append({
            "policy": policy, "jobs": columns.count, "types": len(columns.types),
            "pairs": drawn.paired, "mode": mode, "solve_s": took_s, "peer_s": peer_s,
            "objective_gap": gap, "source": drawn.source, "solve_cpu_s": cpu_s,
            "pair_count": len(columns.pair_jobs),
        })  # fmt: skip
    return rows


def _fitting(problem: Problem, policy: str) -> Problem:
    """The problem as a policy takes it: AlloX knows only jobs of one worker."""
    if policy != "allox":
        return problem
    jobs = [structs.replace(job, scale_factor=1) for job in problem.jobs]
    return structs.replace(problem, jobs=jobs, pairs=[])


def _changed(problem: Problem) -> Problem:
    """One job in a hundred has other steps left and another weight, as after a while."""
    jobs = [
        job if number % 100 else structs.replace(job, weight=job.weight * 1.1, steps_left=1e4)
        for number, job in enumerate(problem.jobs)
    ]
    return structs.replace(problem, jobs=jobs)


def _columns(problem: Problem, policy: str) -> Columns:
    return Columns(problem, pairs=POLICIES[policy].pairs)


def _timed(
    problem: Problem, policy: str, *, warm: bool
) -> tuple[tuple[float, float], Columns, Shares]:
    """Wall and CPU seconds of a solve, and what came of it."""
    solve: Callable[[Columns], Shares] = POLICIES[policy].solve
    columns = _columns(problem, policy)
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    if not warm:
        columns = _columns(problem, policy)
    shares = solve(columns)
    took_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    return took_s, columns, shares


def _asked(peer: Peer | None, columns: Columns, policy: str) -> tuple[float | None, float | None]:
    if peer is None or len(columns.cells.one) > PEER_CELLS:
        return None, None
    return peer.solve(policy, columns)


def _gap(policy: str, columns: Columns, shares: Shares, best: float | None) -> float | None:
    """How far the objective is behind the optimum, relative: by HiGHS (exact), else by the peer."""
    assert shares.objective is not None
    rising = policy not in ("makespan", "finish-time-fairness")
    floors = _floors_at(policy, columns, shares.objective)
    if floors is None or len(columns.cells.one) > CHECKED_CELLS:
        return None if best is None else (best / shares.objective - 1.0) * (1 if rising else -1)
    nothing = np.zeros(len(columns.cells.one))
    every = np.ones(columns.count, bool)
    found = simplex.solve(Program(columns, nothing, 1.0, every, np.zeros(columns.count), floors))
    assert found is not None
    return found.height - 1.0


def _floors_at(policy: str, columns: Columns, objective: float) -> np.ndarray | None:
    """The speeds that an objective stands for: HiGHS says how much higher all of them could be."""
    if policy == "max-min-fairness":
        return objective * columns.weight * columns.equal_speeds / columns.scale
    if policy == "makespan":
        return columns.steps_left / objective
    if policy == "finish-time-fairness":
        whole_s = columns.isolated_s + columns.steps_left / columns.isolated_speeds
        return columns.steps_left / (objective * whole_s - columns.elapsed_s)
    return None
