"""The kernel of `prices`: what each claimant would take by itself, if every host had its price."""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.jit import inner, kernel


@inner
def _taken(order: Any, slope: Any, room: Any, worst: int, terms: Any, take: Any) -> float:
    """The least cost when at most ``worst`` hosts of a cell are taken; ``take[e]`` gets them. O(E).

    ``slope``, ``room`` [3 E] are those of the parts, cell by cell; ``order`` sorts the slopes.
    ``terms``: the hosts that relieve shortfall fully, what each relieves, and what one more
    relieves.
    """
    full, gain, last = terms
    cost = 0.0
    used = 0.0
    take[:] = 0
    for part in order:
        price = slope[part]
        if price >= gain and price >= 0.0:
            break
        cell = part // 3
        left = min(room[part], worst - take[cell])
        if left <= 0:
            continue
        count = min(float(left), max(0.0, full - used))
        cost += count * (price - gain)
        if count < left and used + count < full + 1.0 and price < last:
            count += 1.0
            cost += price - last
        if count < left and price < 0.0:
            cost += (left - count) * price
            count = float(left)
        used += count
        take[cell] += int(count)
    return cost


@kernel
def respond(
    slope: Any,
    room: Any,
    price: Any,
    full: Any,
    rest: Any,
    unit: float,
    survive: Any,
    wanted: Any,
    take: Any,
    worst: Any,
) -> float:
    """The sum of what the claimants' best choices cost, exactly. O(K E (log E + log W)).

    ``slope`` [K, 3 E]: a host's price, part by part, with the price of its cell; ``room`` [3 E
    each]; ``price`` [K] of a missing GPU; ``full``, ``rest`` [K] as of `formulation.steps`;
    ``unit`` GPUs a host. With W hosts in the fullest domain the best choice is a flow, so its
    cost is convex in W: halving finds the best. ``take`` [K, E] and ``worst`` [K] get the
    choices.
    """
    cells = take.shape[1]
    total = 0.0
    trial = np.zeros(cells, np.int64)
    for k in range(take.shape[0]):
        order = np.argsort(slope[k], kind="mergesort")
        widest = 0
        for cell in range(cells):
            widest = max(widest, room[k, 3 * cell] + room[k, 3 * cell + 1] + room[k, 3 * cell + 2])
        low, high = 0 if survive[k] else widest, widest
        while low < high:
            most = (low + high) // 2
            terms = (float(full[k] + most), price[k] * unit, price[k] * rest[k])
            cost = _taken(order, slope[k], room[k], most, terms, trial)
            terms = (float(full[k] + most + 1), price[k] * unit, price[k] * rest[k])
            more = _taken(order, slope[k], room[k], most + 1, terms, trial)
            if cost <= more + price[k] * unit:
                high = most
            else:
                low = most + 1
        lost = low if survive[k] else 0
        terms = (float(full[k] + lost), price[k] * unit, price[k] * rest[k])
        total += price[k] * (wanted[k] + unit * lost)
        total += _taken(order, slope[k], room[k], low, terms, take[k])
        worst[k] = low
    return total
