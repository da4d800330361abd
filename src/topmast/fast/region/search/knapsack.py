"""The bounded knapsack over a domain's hosts: how a gang is seated at least cost, in every search.

What a host can take together is a list of *options*: a vector of tasks by group, and a cost. Hosts
are independent and are taken one after the other, the state s being the tasks already seated:

    least[n][s] = min(least[n - 1][s], min over options o of host n: least[n - 1][s - o] + cost(o))

and the answer is least[all hosts][the whole gang]. A gang of one group has the states 0 to n.

One group without GPUs, the *filler*, is left out of the vectors: its tasks change no score, so that
each option counts how many fit beside it, and a state that *at least* so many are seated.

Times are for m hosts, S states (vectors of tasks x fillers), O options of a host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64
from topmast.fast.region.search.kernels import INFINITE, NOWHERE
from topmast.jit import inner


class States(NamedTuple):
    """How a gang of G groups is counted; the last group is the filler (perhaps of no tasks)."""

    tasks: I64
    """(G) tasks."""
    stride: I64
    """(G - 1) how far apart the states are that differ by one task of the group."""
    vectors: I64
    """(states x G - 1) tasks by group of each state, the whole gang last; unread for one group."""
    tie: float
    """Costs that differ by no more than this are equal: the first option stays."""


class Options(NamedTuple):
    """The options of all kinds of hosts, one kind after the other."""

    state: I64
    """The vector of tasks, as a number of a state."""
    fill: I64
    """Fillers that fit beside them."""
    cost: F64
    mask: I64
    """The victims that go for it, as bits (see `preemption.variants`)."""


@inner
def nowhere(size: int) -> I64:
    """So many times NOWHERE."""
    made = np.empty(size, np.int64)
    for i in range(size):
        made[i] = NOWHERE
    return made


@inner
def infinite(size: int) -> F64:
    """So many times INFINITE."""
    made = np.empty(size, np.float64)
    for i in range(size):
        made[i] = INFINITE
    return made


@inner
def new_options(size: int) -> Options:
    """Room for so many options."""
    return Options(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.float64),
        np.zeros(size, np.int64),
    )


@inner
def append(store: Options, end: int, found: Options, count: int) -> Options:
    """Copy ``count`` options behind the first ``end`` of the store, which grows if need be."""
    size = store.state.shape[0]
    if end + count > size:
        while size < end + count:
            size *= 2
        bigger = new_options(size)
        _copy(store, end, bigger, 0)
        store = bigger
    _copy(found, count, store, end)
    return store


@inner
def _copy(source: Options, count: int, target: Options, start: int) -> None:
    for i in range(count):
        target.state[start + i] = source.state[i]
        target.fill[start + i] = source.fill[i]
        target.cost[start + i] = source.cost[i]
        target.mask[start + i] = source.mask[i]


@inner
def _fits(p: States, state: int, step: int) -> bool:
    """Whether a vector can be added to a state: no group has more tasks than the gang. O(G)."""
    for group in range(p.stride.shape[0]):
        if p.vectors[state, group] + p.vectors[step, group] > p.tasks[group]:
            return False
    return True


@inner
def _take(
    p: States, o: Options, i: int, number: int, old: F64, new: F64, chose: NDArray[np.int16]
) -> None:
    """Let a host take option ``i``: better states of ``new`` by ``old``, and note where. O(S)."""
    step, fill, cost = o.state[i], o.fill[i], o.cost[i]
    width = p.tasks[-1] + 1
    if p.stride.shape[0] == 1 and width == 1:
        for at in range(step, p.vectors.shape[0]):  # whatever fits by its number fits
            if old[at - step] + cost < new[at] - p.tie:
                new[at] = old[at - step] + cost
                chose[at] = number
        return
    for state in range(p.vectors.shape[0] - step):
        if old[state * width] == INFINITE or not _fits(p, state, step):
            continue
        for j in range(width):
            changed = old[state * width + max(0, j - fill)] + cost
            at = (state + step) * width + j
            if changed < new[at] - p.tie:
                new[at] = changed
                chose[at] = number


@inner
def seat_at_least(p: States, o: Options, first: I64, last: I64, picked: I64) -> float:
    """The least cost of the gang, infinite if it does not fit. O(m * O * S).

    Host n has the options first[n]:last[n]. Writes the one that it takes, NOWHERE for none, to
    ``picked``: (m), or (0) if the cost is enough. Ties go to the first hosts.
    """
    width = p.tasks[-1] + 1
    size = p.vectors.shape[0] * width
    hosts = first.shape[0]
    old, new = infinite(size), infinite(size)
    old[0], new[0] = 0.0, 0.0
    picked[:] = NOWHERE
    chose = np.empty((max(1, picked.shape[0]), size), np.int16)
    for n in range(hosts):
        row = chose[min(n, chose.shape[0] - 1)]
        for i in range(size):
            row[i] = NOWHERE
        for i in range(first[n], last[n]):
            _take(p, o, i, i - first[n], old, new, row)
        for i in range(size):
            old[i] = new[i]
    least: float = old[size - 1]
    if least == INFINITE:
        return INFINITE
    state, fill = p.vectors.shape[0] - 1, width - 1
    for n in range(picked.shape[0] - 1, -1, -1):
        number = chose[n, state * width + fill]
        if number != NOWHERE:
            i = first[n] + number
            picked[n] = i
            state -= o.state[i]
            fill = max(0, fill - o.fill[i])
    return least


@inner
def seat_alike(prices: F64, tasks: int, taken: I64) -> float:
    """The least sum of ``prices`` (m x tasks of a host + 1) for a gang of equal tasks.

    Writes the tasks of each host to ``taken`` (m). Ties go to the first hosts. O(m * O * tasks).
    """
    m, widest = prices.shape[0], prices.shape[1] - 1
    options, start = new_options(m * widest), np.zeros(m + 1, np.int64)
    for i in range(m):
        start[i + 1] = start[i]
        for t in range(1, widest + 1):
            if prices[i, t] < INFINITE:
                options.state[start[i + 1]], options.cost[start[i + 1]] = t, prices[i, t]
                start[i + 1] += 1
    counts, picked = np.zeros(2, np.int64), np.empty(m, np.int64)
    counts[0] = tasks
    states = States(counts, np.ones(1, np.int64), np.empty((tasks + 1, 1), np.int64), 0.0)
    least: float = seat_at_least(states, options, start[:m], start[1:], picked)
    for i in range(m):
        taken[i] = 0 if picked[i] == NOWHERE else options.state[picked[i]]
    return least
