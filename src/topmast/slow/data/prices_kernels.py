"""The kernels of `prices`: one step of the primal-dual method, and the bound that prices prove.

All arrays are those of `columns` and `prices.Prices`; see there for shapes and units.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.jit import inner, kernel


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
def _raised(value: Any, can: Any, shift: float) -> Any:
    """The sum of replicas raised by ``shift``, and how many of them are between 0 and 1. O(R)."""
    total = 0.0
    inside = 0
    for r in range(len(value)):
        moved = value[r] + shift if can[r] == 1 else value[r]
        total += min(1.0, max(0.0, moved))
        if can[r] == 1 and 0.0 < moved < 1.0:
            inside += 1
    return total, inside


@inner
def _onto_replicas(value: Any, can: Any, least: int, guess: float) -> Any:
    """Project onto {0 <= x <= 1, sum x >= least}, in place; x = 0 where ``can`` is 0, 1 where it
    is 2.

    All are raised by one shift, which is returned; it is looked for by Newton's steps from
    ``guess``, that of the last iteration, within a bracket. O(R steps), mostly one or two.
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
            total, inside = _raised(value, can, shift)
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
def _price_step(
    price: float, step: float, load: float, supply: float, room: Any, prices: Any
) -> Any:
    """The price p of one region and model after a step: the prox of its conjugate overload cost.

    Minimises (p - v)^2 / 2 step + p supply + sum of room (p - price)+ over 0 <= p <= the last
    price, with v = price + step load: the slope jumps by a segment's room at its price. O(S).
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


@inner
def _gradient(g: Any, w: int, m: Any, p: Any, q: Any, edge_start: Any, works: Any) -> None:
    """What serving ``w`` in each region costs at the prices, less its loss. O((reads + models)
    R).
    """
    loss, _, want_start, want_model, want, cpu = works
    regions = len(g)
    for r in range(regions):
        g[r] = cpu[w] * q[regions + r] - loss[w]
    for k in range(want_start[w], want_start[w + 1]):
        for r in range(regions):
            g[r] += want[k] * p[r, want_model[k]]
    for e in range(edge_start[w], edge_start[w + 1]):
        for r in range(regions):
            g[r] += m[e, r]


@inner
def _replica_gradient(
    g: Any, d: int, m: Any, q: Any, cost: Any, size: float, route: Any, start: Any, edge: Any
) -> None:
    """What each replica of ``d`` costs at the prices, less what its readers pay. O(readers R)."""
    regions = len(g)
    budget = 2 * regions
    for r in range(regions):
        g[r] = cost[d, r] + size * q[r]
        if route[d, r] != -1:
            g[r] += size * q[budget]
            if route[d, r] >= 0:
                g[r] += size * q[route[d, r]]
    for k in range(start[d], start[d + 1]):
        e = edge[k]
        for r in range(regions):
            g[r] -= m[e, r]


@inner
def _step_shares(
    now: Any, ny: Any, load: Any, use: Any, edge_start: Any, works: Any, ty: Any, weight: float
) -> None:
    """New shares; what they would use of GPUs and CPUs, looking ahead. O((edges + W) R)."""
    _, y, m, p, q = now
    loss, may, want_start, want_model, want, cpu = works
    regions = y.shape[1]
    g = np.empty(regions)
    for w in range(len(loss)):
        _gradient(g, w, m, p, q, edge_start, works)
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


@inner
def _step_replicas(
    now: Any, nx: Any, use: Any, tables: Any, edges: Any, tx: Any, weight: float, lift: Any
) -> None:
    """New replicas; what they would use of bytes, looking ahead. O((edges + D) R)."""
    x, _, m, _, q = now
    cost, can, least, rowsize, route = tables
    _, _, reader_start, reader_edge = edges
    regions = x.shape[1]
    budget = 2 * regions
    g = np.empty(regions)
    for d in range(len(least)):
        size = rowsize[d]
        _replica_gradient(g, d, m, q, cost, size, route, reader_start, reader_edge)
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


@kernel
def step(
    now: Any, ahead: Any, tables: Any, edges: Any, works: Any, limits: Any, steps: Any,
    weight: float, lift: Any,
) -> None:  # fmt: skip
    """One step of the primal-dual method, from ``now`` to ``ahead``, both (x, y, m, p, q).

    ``q`` prices the rows in scaled bytes and CPUs: R of storage, R of CPUs, one budget, R R
    links. The other tuples are those of `prices.Relaxation`; of ``tables`` the last, ``route``
    [D, R], is -1 for no copy, -2 for a copy without a link that might fill up, else the link's
    row. ``lift`` [D]: see `_onto_replicas`. O((edges + D + W) R).
    """
    x, y, m, p, q = now
    nx, ny, nm, np_, nq = ahead
    supply, room, prices, qlimit = limits
    tx, ty, sm, sp, sq = steps
    edge_start, edge_table, _, _ = edges
    regions = x.shape[1]
    load = np.zeros(p.shape)
    use = np.zeros(len(q))
    _step_shares(now, ny, load, use, edge_start, works, ty, weight)
    _step_replicas(now, nx, use, tables, edges, tx, weight, lift)
    for w in range(len(edge_start) - 1):
        for e in range(edge_start[w], edge_start[w + 1]):
            d = edge_table[e]
            s = weight * sm[e]
            for r in range(regions):
                over = 2.0 * (ny[w, r] - nx[d, r]) - (y[w, r] - x[d, r])
                nm[e, r] = max(0.0, m[e, r] + s * over)
    for r in range(regions):
        for k in range(p.shape[1]):
            np_[r, k] = _price_step(
                p[r, k], weight * sp[r, k], load[r, k], supply[r, k], room[r, k], prices
            )
    for i in range(len(q)):
        nq[i] = max(0.0, q[i] + weight * sq[i] * (use[i] - qlimit[i])) if sq[i] > 0.0 else 0.0


@inner
def _cheapest(g: Any, can: Any, least: int, scratch: Any) -> Any:
    """The least cost of a table's replicas at costs ``g``: the cheapest, and all that save. O(R
    log R).
    """
    total = 0.0
    count = 0
    for r in range(len(g)):
        if can[r] == 2:
            total += g[r]
            least -= 1
        elif can[r] == 1:
            scratch[count] = g[r]
            count += 1
    chosen = np.sort(scratch[:count])
    for i in range(count):
        if i < least or chosen[i] < 0.0:
            total += chosen[i]
    return total


@kernel
def bound(m: Any, p: Any, q: Any, tables: Any, edges: Any, works: Any, limits: Any) -> float:
    """The least that any answer costs, by prices that are all >= 0
    (docs/internals/data-placement.md).

    Each table takes its cheapest replicas, each workload its cheapest region, and the prices of
    what is limited are paid back for the limits. O((edges + D + W) R).
    """
    cost, can, least, rowsize, route = tables
    edge_start, _, reader_start, reader_edge = edges
    loss, may = works[0], works[1]
    supply, room, prices, qlimit = limits
    regions = cost.shape[1]
    total = 0.0
    g, scratch = np.empty(regions), np.empty(regions)
    for w in range(len(loss)):
        _gradient(g, w, m, p, q, edge_start, works)
        best = 0.0
        for r in range(regions):
            if may[w, r]:
                best = min(best, g[r])
        total += loss[w] + best
    for d in range(len(least)):
        _replica_gradient(g, d, m, q, cost, rowsize[d], route, reader_start, reader_edge)
        total += _cheapest(g, can[d], least[d], scratch)
    for i in range(len(q)):
        if q[i] > 0.0:
            total -= q[i] * qlimit[i]
    last = len(prices) - 1
    for r in range(regions):
        for k in range(p.shape[1]):
            total -= p[r, k] * supply[r, k]
            for s in range(last):
                total -= max(0.0, p[r, k] - prices[s]) * room[r, k, s]
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
