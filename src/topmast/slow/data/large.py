"""Large problems: prices for a bound, a dive from the relaxation, local search at those prices.

Everything is limited by work; time only cuts it short. The warm start is kept for the next plan
of much the same problem, which begins with the placement, the shares and the prices of the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns
from topmast.slow.data.conflict import without_workloads
from topmast.slow.data.copies import is_allowed, sources_of
from topmast.slow.data.dive import MIDDLING, dive, dive_again, dive_part, undecided
from topmast.slow.data.exact import Solution
from topmast.slow.data.formulation import formulate
from topmast.slow.data.objective import terms_of
from topmast.slow.data.prices import Point, Relaxation, Relaxed
from topmast.slow.data.search import LocalSearch
from topmast.slow.data.serving import best_service
from topmast.slow.highs import Effort, solve

ITERATIONS = 3_000
CONVERGED = 2e-5
"""The bound is as good as it gets when so small a part of it was added over `LOOKBACK` looks."""
LOOKBACK = 8
HEATS = (0.02, 0.01, 0.005)
"""Temperatures of the rounds of annealing, in mean losses of a workload."""
DOUBTS = (0.5, 0.8, 0.5, 0.8)
"""Replicas that the relaxation wants less than this are decided anew, in this order."""
COOLING = 0.01
SLICES = 8
STEPS_A_WORKLOAD = 500
PART_OF_TIME = 0.35
WARM_ITERATIONS = 240
WARM_RISE = 0.06
"""The old prices are good enough when a look added so small a part of what is missing up to the
old placement.
"""
WARM_STEPS, WARM_WORK = 200, 20
"""Steps of a round for a workload that is searched for, and at most for each that there is."""
WARM_DOUBTS = (0.3, 0.5, 0.7, 0.9)
"""A replica of the last plan stays decided where the relaxation still wants this much of it:
tried one after the other, until more than the whole would have been decided anew.
"""

Seconds = Callable[[], float]
Told = Callable[[str, float, float], None]
"""Told of progress: the stage, the objective (infinity: none yet) and the bound."""


class WarmStart(Struct, frozen=True):
    """What a plan leaves for the next: the point of the relaxation and its weight, placement,
    shares.
    """

    point: Point
    weight: float
    cost: Floats
    placed: Bools
    serve: Floats


class Answer(Struct, frozen=True):
    """The solution, and the warm start for the next problem of the same shape."""

    found: Solution
    warm_start: WarmStart | None


def solve_large(
    columns: Columns, left_s: Seconds, told: Told, warm_start: WarmStart | None = None,
    start: Bools | None = None,
) -> Answer:  # fmt: skip
    """Solve within ``left_s()`` seconds. ``warm_start``: of a problem of the same shape;
    ``start``: a placement to begin with. O(iterations (edges + D + W) R + steps).
    """
    relaxation = Relaxation(columns)
    if warm_start is not None:
        answer = _again(relaxation, left_s, told, warm_start)
        if answer is not None:
            return answer
    return _afresh(relaxation, left_s, told, start)


def _afresh(relaxation: Relaxation, left_s: Seconds, told: Told, start: Bools | None) -> Answer:
    """Solve without anything warm_start."""
    columns, limit_s = relaxation.columns, left_s()
    point = relaxation.begin(columns.held & columns.can, np.zeros(columns.may_serve.shape))
    stop = _Converged(lambda: left_s() < (1.0 - PART_OF_TIME) * limit_s)
    relaxed = relaxation.solve(point, iterations=ITERATIONS, stop=stop)
    told("bound", math.inf, relaxed.bound)
    prices = relaxation.replica_prices(relaxed.prices)
    search = LocalSearch(columns, prices)
    wish, shares = dive(relaxation, relaxed, search, lambda: left_s() - 0.3 * limit_s)
    if not search.fill(wish + 1e-3 * columns.held):
        search = LocalSearch(columns, prices)
        refuted = _begin_somewhere(search, left_s)
        if refuted is not None:
            return Answer(Solution(None, None, relaxed.bound, refuted), None)
    search.assign(shares)
    search.descend(50)
    told("dive", search.cost(), relaxed.bound)
    _try_start(search, start)
    _polish(search, left_s, relaxed.bound, told, HEATS, STEPS_A_WORKLOAD)
    for least in DOUBTS:
        if left_s() < 0.25 * limit_s:
            break
        other = _doubted(relaxation, relaxed, prices, search.state.placed, least)
        if other is None:
            continue
        _polish(other, left_s, relaxed.bound, told, HEATS[-2:], STEPS_A_WORKLOAD)
        if other.cost() < search.cost():
            search = other
        told("doubt", search.cost(), relaxed.bound)
    return _finish(columns, search, relaxed)


def _doubted(
    relaxation: Relaxation, relaxed: Relaxed, prices: Floats, placed: Bools, least: float
) -> LocalSearch | None:
    """Another placement: a dive decides anew what the relaxation wants less than ``least``."""
    agreed, search = _agreed(relaxation.columns, relaxed, prices, placed, least)
    if search is None:
        return None
    wish, shares = dive_again(relaxation, relaxed, search, agreed, MIDDLING)
    return _settled(search, wish, shares)


def _agreed(
    columns: Columns, relaxed: Relaxed, prices: Floats, placed: Bools, least: float
) -> tuple[Bools, LocalSearch | None]:
    """The replicas of a placement of which the relaxation wants more than ``least``, and a search
    with these alone; None where links cannot carry them.
    """
    agreed = placed & columns.can & (relaxed.replicas > least)
    source = sources_of(columns, agreed)
    if source is None:
        return agreed, None
    search = LocalSearch(columns, prices)
    search.adopt(agreed, source)
    return agreed, search


def _settled(search: LocalSearch, wish: Floats, shares: Floats) -> LocalSearch | None:
    """A search that is complete after a dive: least replicas and workloads, moved while that
    pays.
    """
    if not search.fill(wish + 1e-3 * search.columns.held):
        return None
    search.assign(shares)
    search.descend(20)
    return search


def _again(
    relaxation: Relaxation, left_s: Seconds, told: Told, warm_start: WarmStart
) -> Answer | None:
    """Solve from what was warm_start: keep the replicas on which the prices still agree, and dive
    for the rest. None where the old placement breaks a rule now.

    Only the prices are looked at as a whole. What is decided anew, and searched, is what they
    disagree with: a try costs little, so that there are several, and the best is kept.
    """
    columns = relaxation.columns
    search = LocalSearch(columns)
    if not _resume(search, warm_start.placed, warm_start.serve):
        return None
    cost, here = search.cost(), search.shares()
    relaxed = _follow(relaxation, warm_start, cost)
    told("resumed", cost, relaxed.bound)
    prices = relaxation.replica_prices(relaxed.prices)
    search.charge(prices)
    tried = 0
    for least in WARM_DOUBTS:
        agreed, other = _agreed(columns, relaxed, prices, warm_start.placed, least)
        part = undecided(relaxed, here, columns, agreed)
        tried += int(part.sum())
        if other is None or tried > len(part) or left_s() <= 0.1:
            break
        other = _settled(other, *dive_part(relaxation, relaxed, other, agreed, part, here))
        if other is None:
            continue
        _polish_astray(other, relaxed, left_s, told)
        if other.cost() < search.cost():
            search = other
    if search.cost() >= cost:
        _polish_astray(search, relaxed, left_s, told)
    return _finish(columns, search, relaxed)


def _polish_astray(search: LocalSearch, relaxed: Relaxed, left_s: Seconds, told: Told) -> None:
    """LocalSearch for those workloads that are not where the relaxation has them."""
    search.works = search.works[relaxed.astray(search.shares())[search.works]]
    most = WARM_WORK * len(search.columns.loss) // max(1, len(search.works))
    steps = min(WARM_STEPS, most)
    _polish(search, left_s, relaxed.bound, told, HEATS[-2:], steps)


def _anneal(search: LocalSearch, steps: int, warm: float, left_s: Seconds) -> None:
    """One round from ``warm`` down, in slices between which the time may end it."""
    part = COOLING ** (1.0 / SLICES)
    for number in range(SLICES):
        begin = warm * part**number
        search.anneal(max(1, steps // SLICES), begin, begin * part)
        if left_s() <= 0.1:
            break


class _Converged:
    """Whether the bound has stopped to rise, or the time for it is over."""

    def __init__(self, late: Callable[[], bool]) -> None:
        self.late = late
        self.bounds: list[float] = []

    def __call__(self, bound: float, iterations: int) -> bool:
        self.bounds.append(bound)
        if self.late():
            return True
        if len(self.bounds) <= LOOKBACK:
            return False
        before = self.bounds[-LOOKBACK - 1]
        return bound - before <= CONVERGED * abs(bound)


def _follow(relaxation: Relaxation, warm_start: WarmStart, cost: float) -> Relaxed:
    """The relaxation from what was warm_start, prices of tables following what replicas cost now.

    ``cost``: of the old placement. It ends when little is added to the bound beside what is
    missing.
    """
    point = warm_start.point.copy()
    now = relaxation.columns.replica_cost()
    point.arrays[2][:] *= (now / np.maximum(warm_start.cost, 1e-12))[relaxation.columns.reads.items]
    before = -math.inf

    def stop(bound: float, iterations: int) -> bool:
        nonlocal before
        rise, before = bound - before, bound
        return rise <= WARM_RISE * (cost - bound)

    return relaxation.solve(point, iterations=WARM_ITERATIONS, weight=warm_start.weight, stop=stop)


def _resume(search: LocalSearch, placed: Bools, serve: Floats) -> bool:
    """Begin with a placement, if it keeps the rules; whether it does."""
    columns = search.columns
    placed = placed & columns.can
    if not is_allowed(columns, placed):
        return False
    source = sources_of(columns, placed)
    if source is None:
        return False
    search.adopt(placed, source)
    search.assign(serve)
    search.descend(50)
    return True


def _try_start(search: LocalSearch, start: Bools | None) -> None:
    """Take up a placement that was handed in, where it is better than what was found."""
    if start is None:
        return
    saved, cost = search.saved(), search.cost()
    placed = start & search.columns.can
    if not is_allowed(search.columns, placed):
        return
    if not _resume(search, placed, best_service(search.columns, placed)) or search.cost() >= cost:
        search.restore(saved)


def _begin_somewhere(search: LocalSearch, left_s: Seconds) -> bool | None:
    """Any placement, from that at the start or by HiGHS; None when there is one.

    Else whether it is proven that there is none.
    """
    columns = search.columns
    if search.begin():
        return None
    idle = without_workloads(columns, np.ones(len(columns.least), bool))
    program = formulate(idle, np.zeros_like(columns.can), columns.can)
    solved = solve(program.model, Effort(time_s=max(1.0, left_s()), gap=0.1))
    if solved.values is None:
        return solved.status == "infeasible"
    placed = np.zeros_like(columns.can)
    there = program.replica >= 0
    placed[there] = solved.values[program.replica[there]] > 0.5
    source = sources_of(columns, placed)
    if source is None or not is_allowed(columns, placed):
        return False
    search.adopt(placed, source)
    return None


def _polish(
    search: LocalSearch,
    left_s: Seconds,
    bound: float,
    told: Told,
    heats: tuple[float, ...],
    steps: int,
) -> None:
    """Anneal round by round, and keep the best; the time ends it between chunks of a round."""
    columns = search.columns
    if not len(search.works):
        return
    scale = float(columns.loss[search.works].mean())
    best, cost = search.saved(), search.cost()
    for heat in heats:
        _anneal(search, steps * len(search.works), heat * scale, left_s)
        search.descend(20)
        now = search.cost()
        if now < cost:
            best, cost = search.saved(), now
        else:
            search.restore(best)
        told("search", cost, bound)
        if left_s() <= 0.1:
            break
    search.restore(best)
    priced, search.fixed = search.fixed, search.true
    search.descend(20)
    search.fixed = priced
    if search.cost() > cost:
        search.restore(best)


def _finish(columns: Columns, search: LocalSearch, relaxed: Relaxed) -> Answer:
    """The placement with the best shares for it."""
    placed = search.state.placed.copy()
    serve, alone = best_service(columns, placed), search.shares()
    if terms_of(columns, placed, alone).total() < terms_of(columns, placed, serve).total():
        serve = alone
    warm_start = WarmStart(relaxed.point, relaxed.weight, columns.replica_cost(), placed, serve)
    return Answer(Solution(placed, serve, relaxed.bound), warm_start)
