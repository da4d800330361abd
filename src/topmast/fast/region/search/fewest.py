"""How many of a row of attempts must go, from the first on, until a gang has a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P")


def fewest(
    most: int, plan_without: Callable[[int], P | None], too_few: int = 0, guess: int = 0
) -> tuple[int, P] | None:
    """The least number of 1 to ``most`` for which there is a plan, and that plan; None if there is none.

    ``plan_without(n)``: the best plan once the first n are gone. Room only grows, so a bisection finds
    it: O(log most) plans. So many as ``too_few`` are known not to do; a ``guess`` is tried first.
    """
    low, high = too_few, most
    best: P | None = None
    if low < guess < high:
        best = plan_without(guess)
        low, high = (guess, high) if best is None else (low, guess)
    if best is None and low < high:
        best = plan_without(high)
    if best is None:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        plan = plan_without(middle)
        if plan is None:
            low = middle
        else:
            high, best = middle, plan
    return high, best
