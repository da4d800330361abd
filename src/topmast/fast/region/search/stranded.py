"""Kernels: what the free GPUs of a host are good for, by the tasks that came lately.

A host's stranded GPUs are the expectation, over the shapes of recent tasks, of what such a task
could not use of its free GPUs: all of them where CPUs, memory or model do not do, or wholly free
GPUs are too few for it, else only the useless rest of GPUs in shares (the idea of FGD: Weng et al.,
ATC '23). With T free GPUs in total, R of them useless rests, and P the part of the shapes for which
the host does:

    stranded = T - (T - R) * P

The rest of a GPU is as useful as the shares that it could hold are in the best packing of all
shares that come: x thousandths hold shares worth v(x), by the dual prices of that packing, and
x / 1000 - v(x) is useless. So 190 are worth nothing where shares of 160 are scarce. This is all
that a share asks of GPUs: whether it fits on one of them now would count the same lack twice.

Of hosts equally good, the one with least left is taken: each task pays EASE for that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, MILLI
from topmast.jit import inner, kernel
from topmast.model.plan import TaskShape

EASE = 0.05
"""What a task pays, in stranded GPUs, on a host with as much left as a whole large host has: so
much of"""
LARGE_GPUS, LARGE_CPUS, LARGE_BYTES = 8.0, 128.0, float(1 << 40)
UNLIMITED = 1e12
"""CPUs from here on are no limit."""
UNLIMITED_BYTES = float(1 << 59)
HAIR = 1e-9
MOST_PIVOTS = 400


class Mixture(NamedTuple):
    """M shapes of recent tasks."""

    apply: bool
    """False: free GPUs are judged by whole GPUs alone."""
    milli: I64
    cpus: F64
    memory: F64
    right: NDArray[np.bool_]
    """(M x models) the models that will do."""
    share: F64
    useless: F64
    """(MILLI + 1) of a GPU with so many thousandths free, the useless part; 0 for a whole one."""
    price: float
    """Points for a stranded GPU."""


class Before(Struct, frozen=True):
    """What is stranded of hosts (H) as they are, kept while the mixture is the same."""

    mixture: Mixture
    now: F64
    seen: I64
    """The version of the host by which that was worked out."""

    @classmethod
    def none(cls, mixture: Mixture, hosts: int) -> Before:
        """Nothing is known yet."""
        return cls(mixture, np.zeros(hosts), np.full(hosts, -1))


class Left(NamedTuple):
    """What is free of a host."""

    whole: int
    """Wholly free GPUs."""
    parts: float
    """What is free of GPUs in shares, in GPUs,"""
    useless: float
    """and what of that is useless."""
    cpus: float
    memory: float


@inner
def stranded_of(m: Mixture, model: int, left: Left) -> float:
    """The expected stranded GPUs of a host. O(M)."""
    total = left.whole + left.parts
    if total <= 0.0:
        return 0.0
    fitting = 0.0
    for s in range(m.milli.shape[0]):
        room = m.milli[s] < MILLI or left.whole * MILLI >= m.milli[s]
        beside = left.cpus + HAIR >= m.cpus[s] and left.memory >= m.memory[s]
        if room and beside and m.right[s, model]:
            fitting += m.share[s]
    return total - (total - left.useless) * fitting


@inner
def ease(left: Left) -> float:
    """How much is left of a host, in large hosts."""
    found = (left.whole + left.parts) / LARGE_GPUS
    if left.cpus < UNLIMITED:
        found += max(0.0, left.cpus) / LARGE_CPUS
    if left.memory < UNLIMITED_BYTES:
        found += max(0.0, left.memory) / LARGE_BYTES
    return found


@inner
def left_of(m: Mixture, free_milli: I64, cpus: float, memory: float) -> Left:
    """What is free of a host, by its slots. O(slots)."""
    whole, parts, useless = 0, 0.0, 0.0
    for slot in range(free_milli.shape[0]):
        milli = free_milli[slot]
        if milli == MILLI:
            whole += 1
        elif milli > 0:
            parts += milli / MILLI
            useless += m.useless[milli]
    return Left(whole, parts, useless, cpus, memory)


@kernel
def change_on(
    m: Mixture, model: int, before: I64, after: I64, cpus: float, memory: float,
    used_cpus: float, used_memory: float, part: float,
) -> float:  # fmt: skip
    """The points that a host's tasks pay, by its slots; ``part`` of the gang's tasks are these."""
    old = left_of(m, before, cpus, memory)
    new = left_of(m, after, cpus - used_cpus, memory - used_memory)
    change = stranded_of(m, model, new) - stranded_of(m, model, old)
    return m.price * (change + EASE * part * ease(new))


@inner
def now_of(
    m: Mixture, model: int, left: Left, host: int, version: I64, before: tuple[F64, I64]
) -> float:
    """What is stranded of a host as it is, from what is kept of it (see `Before`). O(M)."""
    now, seen = before
    if seen[host] != version[host]:
        seen[host] = version[host]
        now[host] = stranded_of(m, model, left)
    known: float = now[host]
    return known


@inner
def costs_on(
    m: Mixture, model: int, old: Left, now: float, task: tuple[int, float, float], tasks: int,
    most: int, costs: F64,
) -> None:  # fmt: skip
    """What t of a gang's tasks cost on a host, to ``costs`` (t - 1), for t up to ``most``.

    ``old`` is free of it, of which so much is stranded ``now``. O(t * M).
    """
    gpus, cpus, memory = task
    for t in range(1, min(most, tasks) + 1):
        new = Left(
            old.whole - t * gpus, old.parts, old.useless, old.cpus - t * cpus,
            old.memory - t * memory,
        )  # fmt: skip
        change = stranded_of(m, model, new) - now
        costs[t - 1] = m.price * (change + EASE * t / tasks * ease(new))


# --- what the rest of a GPU is worth --------------------------------------------------------------


@kernel
def worth_of(sizes: I64, demand: F64) -> F64:
    """What x free thousandths of a GPU are worth (MILLI + 1), a whole GPU being 1.

    Shares of n ``sizes`` come in proportion to ``demand``. The fewest GPUs for them are a linear
    programme over the ways to fill a GPU (Gilmore and Gomory's cutting stock): starting with GPUs
    of one size each, a knapsack over the dual prices finds a better way, which takes the place of
    one of the n ways that are in use, until there is none. O(pivots * n * (MILLI + n)).
    """
    n = sizes.shape[0]
    inverse = np.zeros((n, n))
    used = np.empty(n)
    for i in range(n):
        inverse[i, i] = 1.0 / (MILLI // sizes[i])
        used[i] = inverse[i, i] * demand[i]
    worth = np.zeros(MILLI + 1)
    last = np.empty(MILLI + 1, np.int64)
    way = np.empty(n)
    step = np.empty(n)
    for _ in range(MOST_PIVOTS):
        _knapsack(sizes, inverse, worth, last)
        if worth[MILLI] <= 1.0 + HAIR:
            break
        for i in range(n):
            way[i] = 0.0
        x = MILLI
        while x > 0:
            if last[x] >= 0:
                way[last[x]] += 1.0
                x -= sizes[last[x]]
            else:
                x -= 1
        out, least = -1, np.inf
        for i in range(n):
            step[i] = 0.0
            for j in range(n):
                step[i] += inverse[i, j] * way[j]
            if step[i] > HAIR and used[i] / step[i] < least - 1e-12:
                out, least = i, used[i] / step[i]
        if out < 0:
            break
        _replace(inverse, used, step, out)
    return worth


@inner
def _knapsack(sizes: I64, inverse: F64, worth: F64, last: I64) -> None:
    """The most that shares in x thousandths are worth, by the dual prices; and one of them."""
    n = sizes.shape[0]
    price = np.zeros(n)
    for i in range(n):
        for j in range(n):
            price[j] += inverse[i, j]
    worth[0] = 0.0
    for x in range(1, MILLI + 1):
        worth[x], last[x] = worth[x - 1], -1
        for i in range(n):
            if sizes[i] <= x and worth[x - sizes[i]] + price[i] > worth[x] + 1e-12:
                worth[x], last[x] = worth[x - sizes[i]] + price[i], i


@inner
def _replace(inverse: F64, used: F64, step: F64, out: int) -> None:
    """Let a new way to fill a GPU take the place of that with number ``out``."""
    n = used.shape[0]
    for j in range(n):
        inverse[out, j] /= step[out]
    used[out] /= step[out]
    for i in range(n):
        if i != out:
            for j in range(n):
                inverse[i, j] -= step[i] * inverse[out, j]
            used[i] = max(0.0, used[i] - step[i] * used[out])


@lru_cache(maxsize=64)
def useless_of(shapes: tuple[TaskShape, ...]) -> F64:
    """Of a GPU with x thousandths free, the part that is useless (MILLI + 1)."""
    demand: dict[int, float] = {}
    for shape in shapes:
        size = min(shape.gpus_milli, MILLI)
        demand[size] = demand.get(size, 0.0) + shape.share
    sizes = sorted(demand)
    worth = worth_of(np.array(sizes, np.int64), np.array([demand[size] for size in sizes]))
    useless: F64 = np.arange(MILLI + 1) / MILLI - worth
    useless[MILLI] = 0.0
    return useless


_asked: dict[tuple[int, int, float], tuple[tuple[TaskShape, ...], tuple[str, ...], Mixture]] = {}
"""By identity, the last mixtures asked for: to hash 64 shapes takes a tenth of a search."""
MOST_ASKED = 16


def mixture_of(shapes: tuple[TaskShape, ...], models: tuple[str, ...], price: float) -> Mixture:
    """What kernels are told of the shapes, where ``models`` are numbered so."""
    key = (id(shapes), id(models), price)
    found = _asked.get(key)
    if found is None or found[0] is not shapes or found[1] is not models:
        if len(_asked) >= MOST_ASKED:
            _asked.clear()
        _asked[key] = found = shapes, models, _mixture_of(shapes, models, price)
    return found[2]


@lru_cache(maxsize=64)
def _mixture_of(shapes: tuple[TaskShape, ...], models: tuple[str, ...], price: float) -> Mixture:
    right = np.array(
        [[not s.models or name in s.models for name in models] for s in shapes], np.bool_
    ).reshape(len(shapes), len(models))
    return Mixture(
        bool(shapes) and price > 0.0,
        np.array([s.gpus_milli for s in shapes], np.int64),
        np.array([s.cpus for s in shapes], np.float64),
        np.array([s.memory_bytes for s in shapes], np.float64),
        right,
        np.array([s.share for s in shapes], np.float64),
        useless_of(shapes) if shapes else np.zeros(MILLI + 1),
        price,
    )
