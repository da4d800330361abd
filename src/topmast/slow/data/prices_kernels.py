"""The kernels of `prices`: one step of the primal-dual method, and the bound that prices prove.

All arrays are those of `columns` and `prices.Prices`; see there for shapes and units.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.slow.data.jit import inner, kernel


@inner
def _onto_shares(value: Any, may: Any) -> None:
    """Project onto {y >= 0, sum y <= 1, y = 0 where not ``may``}, in place. O(R^2) at worst."""
    total = 0.0
    count = 0
    for r in range(len(value)):
        if not may[r] or value[r] <= 0.0:
            value[r] = 0.0
        else:
            total += value[r]
            count += 1
    while total > 1.0 + 1e-12 and count > 0:
        cut = (total - 1.0) / count
        total = 0.0
        left = 0
        for r in range(len(value)):
            if value[r] > 0.0:
                value[r] -= cut
                if value[r] <= 0.0:
                    value[r] = 0.0
                else:
                    total += value[r]
                    left += 1
        if left == count:
            break
        count = left


@inner
def _onto_replicas(value: Any, can: Any, least: int, guess: float) -> float:
    """Project onto {0 <= x <= 1, sum x >= least}, in place; x = 0 where ``can`` is 0, 1 where it is 2.

    All are raised by one shift, which is returned; it is looked for by Newton's steps from ``guess``, that of
    the last iteration, within a bracket. O(R steps), mostly one or two.
    """
    regions = len(value)
    total = 0.0
    top = 1.0
    for r in range(regions):
        if can[r] == 2:
            value[r] = 1.0
            total += 1.0
        elif can[r] == 0:
            value[r] = 0.0
        else:
            total += min(1.0, max(0.0, value[r]))
            top = max(top, 1.0 - value[r])
    shift = 0.0
    if total < least:
        low, high = 0.0, top
        shift = guess if 0.0 < guess < top else 0.0
        for _ in range(60):
            total = 0.0
            inside = 0
            for r in range(regions):
                if can[r] == 1:
                    moved = value[r] + shift
                    if moved >= 1.0:
                        total += 1.0
                    elif moved > 0.0:
                        total += moved
                        inside += 1
                else:
                    total += value[r]
            missing = least - total
            if abs(missing) < 1e-10:
                break
            if missing > 0:
                low = shift
            else:
                high = shift
            ahead = shift + missing / inside if inside > 0 else -1.0
            shift = ahead if low < ahead < high else 0.5 * (low + high)
    for r in range(regions):
        if can[r] == 1:
            value[r] = min(1.0, max(0.0, value[r] + shift))
    return shift


@inner
def _price_step(price: float, step: float, load: float, supply: float, room: Any, prices: Any) -> float:
    """The price p of one region and model after a step: the prox of its conjugate overload cost.

    Minimises (p - v)^2 / 2 step + p supply + sum of room (p - price)+ over 0 <= p <= the last price,
    with v = price + step load: the slope jumps by a segment's room at its price. O(S).
    """
    moved = price + step * (load - supply)
    if moved <= 0.0:
        return 0.0
    last = len(prices) - 1
    for s in range(last):
        if moved <= prices[s]:
            return moved
        moved = max(prices[s], moved - step * room[s])
    return min(moved, prices[last])


@kernel
def step(
    x: Any, y: Any, m: Any, p: Any, q: Any,
    nx: Any, ny: Any, nm: Any, np_: Any, nq: Any,
    cost: Any, can: Any, least: Any, rowsize: Any, route: Any,
    edge_start: Any, edge_table: Any, reader_start: Any, reader_edge: Any,
    loss: Any, may: Any, want_start: Any, want_model: Any, want: Any, cpu: Any,
    supply: Any, room: Any, prices: Any, qlimit: Any,
    tx: Any, ty: Any, sm: Any, sp: Any, sq: Any, weight: float, lift: Any,
) -> None:  # fmt: skip
    """One step of the primal-dual method, from (x, y, m, p, q) to (nx, ny, nm, np_, nq).

    ``q`` prices the rows in scaled bytes and CPUs: R of storage, R of CPUs, one budget, R R links. Each
    table's ``rowsize`` is its size in those rows; ``route`` [D, R]: -1 no copy, -2 a copy without a
    link that might fill up, else the link's row. ``lift`` [D]: see `_onto_replicas`. O((edges + D + W) R).
    """
    tables, regions = x.shape
    workloads = len(loss)
    load = np.zeros(p.shape)
    use = np.zeros(len(q))
    g = np.empty(regions)
    budget = 2 * regions
    for w in range(workloads):
        begin, end = edge_start[w], edge_start[w + 1]
        for r in range(regions):
            g[r] = cpu[w] * q[regions + r] - loss[w]
        for k in range(want_start[w], want_start[w + 1]):
            for r in range(regions):
                g[r] += want[k] * p[r, want_model[k]]
        for e in range(begin, end):
            for r in range(regions):
                g[r] += m[e, r]
        t = ty[w] / weight
        for r in range(regions):
            ny[w, r] = y[w, r] - t * g[r]
        _onto_shares(ny[w], may[w])
        for k in range(want_start[w], want_start[w + 1]):
            for r in range(regions):
                load[r, want_model[k]] += want[k] * (2.0 * ny[w, r] - y[w, r])
        if cpu[w] > 0.0:
            for r in range(regions):
                use[regions + r] += cpu[w] * (2.0 * ny[w, r] - y[w, r])
    for d in range(tables):
        size = rowsize[d]
        for r in range(regions):
            g[r] = cost[d, r] + size * q[r]
            if route[d, r] != -1:
                g[r] += size * q[budget]
                if route[d, r] >= 0:
                    g[r] += size * q[route[d, r]]
        for k in range(reader_start[d], reader_start[d + 1]):
            e = reader_edge[k]
            for r in range(regions):
                g[r] -= m[e, r]
        t = tx[d] / weight
        for r in range(regions):
            nx[d, r] = x[d, r] - t * g[r]
        lift[d] = _onto_replicas(nx[d], can[d], least[d], lift[d])
        for r in range(regions):
            ahead = size * (2.0 * nx[d, r] - x[d, r])
            use[r] += ahead
            if route[d, r] != -1:
                use[budget] += ahead
                if route[d, r] >= 0:
                    use[route[d, r]] += ahead
    for w in range(workloads):
        for e in range(edge_start[w], edge_start[w + 1]):
            d = edge_table[e]
            s = weight * sm[e]
            for r in range(regions):
                ahead = 2.0 * (ny[w, r] - nx[d, r]) - (y[w, r] - x[d, r])
                nm[e, r] = max(0.0, m[e, r] + s * ahead)
    for r in range(regions):
        for k in range(p.shape[1]):
            np_[r, k] = _price_step(
                p[r, k], weight * sp[r, k], load[r, k], supply[r, k], room[r, k], prices
            )
    for i in range(len(q)):
        nq[i] = max(0.0, q[i] + weight * sq[i] * (use[i] - qlimit[i])) if sq[i] > 0.0 else 0.0


@kernel
def bound(
    m: Any, p: Any, q: Any,
    cost: Any, can: Any, least: Any, rowsize: Any, route: Any,
    edge_start: Any, edge_table: Any, reader_start: Any, reader_edge: Any,
    loss: Any, may: Any, want_start: Any, want_model: Any, want: Any, cpu: Any,
    supply: Any, room: Any, prices: Any, qlimit: Any,
) -> float:  # fmt: skip
    """The least that any answer costs, by prices that are all >= 0 (docs/internals/data-placement.md).

    Each table takes its cheapest replicas, each workload its cheapest region, and the prices of what is
    limited are paid back for the limits. O((edges + D + W) R).
    """
    tables, regions = cost.shape
    budget = 2 * regions
    total = 0.0
    g = np.empty(regions)
    for w in range(len(loss)):
        best = 0.0
        for r in range(regions):
            if may[w, r]:
                value = cpu[w] * q[regions + r] - loss[w]
                for k in range(want_start[w], want_start[w + 1]):
                    value += want[k] * p[r, want_model[k]]
                for e in range(edge_start[w], edge_start[w + 1]):
                    value += m[e, r]
                best = min(best, value)
        total += loss[w] + best
    for d in range(tables):
        count = 0
        decided = 0
        for r in range(regions):
            if can[d, r]:
                value = cost[d, r] + rowsize[d] * q[r]
                if route[d, r] != -1:
                    value += rowsize[d] * q[budget]
                    if route[d, r] >= 0:
                        value += rowsize[d] * q[route[d, r]]
                for k in range(reader_start[d], reader_start[d + 1]):
                    value -= m[reader_edge[k], r]
                if can[d, r] == 2:
                    total += value
                    decided += 1
                else:
                    g[count] = value
                    count += 1
        chosen = np.sort(g[:count])
        for i in range(count):
            if i < least[d] - decided or chosen[i] < 0.0:
                total += chosen[i]
    for i in range(len(q)):
        if q[i] > 0.0:
            total -= q[i] * qlimit[i]
    last = len(prices) - 1
    for r in range(regions):
        for k in range(p.shape[1]):
            total -= p[r, k] * supply[r, k]
            for s in range(last):
                if p[r, k] > prices[s]:
                    total -= (p[r, k] - prices[s]) * room[r, k, s]
    return total


@kernel
def mix(x: Any, tx: Any, anchor: Any, part: float) -> None:
    """Halpern's step in place: x <- (1 - part) (2 tx - x) + part anchor. O(size)."""
    a, b, c = x.ravel(), tx.ravel(), anchor.ravel()
    for i in range(len(a)):
        a[i] = (1.0 - part) * (2.0 * b[i] - a[i]) + part * c[i]


@kernel
def distance(a: Any, b: Any, scale: Any) -> float:
    """The sum of (a - b)^2 / scale, by row; rows with scale 0 do not count. O(size)."""
    total = 0.0
    for i in range(a.shape[0]):
        if scale[i] > 0.0:
            part = 0.0
            for r in range(a.shape[1]):
                part += (a[i, r] - b[i, r]) ** 2
            total += part / scale[i]
    return total
