"""How many of a row of attempts must go, from the first on, until a gang has a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P")


def fewest(most: int, plan_without: Callable[[int], P | None]) -> tuple[int, P] | None:
    """The least number of 1 to ``most`` for which there is a plan, and that plan; None if there is none.

    ``plan_without(n)``: the best plan once the first n are gone. Room only grows, so a bisection finds
    it: O(log most) plans.
    """
    plan = plan_without(most) if most else None
    if plan is None:
        return None
    low, high, best = 0, most, plan
    while low + 1 < high:
        middle = (low + high) // 2
        plan = plan_without(middle)
        if plan is None:
            low = middle
        else:
            high, best = middle, plan
    return high, best
