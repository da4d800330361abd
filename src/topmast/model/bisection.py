"""Bisections: where an answer that changes once, as a number grows, changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

P = TypeVar("P")


def most_that(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest that fits, from ``low``, which does, to below ``high``, which does not.

    O(log (high - low)) trials.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def most_with(find: Callable[[int], P | None], low: int, high: int) -> tuple[int, P] | None:
    """The largest number between ``low`` and ``high`` with a result, and that; None: there is none.

    Neither end is tried. A number with a result has only numbers with results below it.
    O(log (high - low)) trials.
    """
    found: dict[int, P] = {}

    def fits(number: int) -> bool:
        result = find(number)
        if result is not None:
            found[number] = result
        return result is not None

    most = most_that(fits, low, high)
    return (most, found[most]) if most in found else None


def fewest_with(
    find: Callable[[int], P | None], most: int, too_few: int = 0, guess: int = 0
) -> tuple[int, P] | None:
    """The least of 1 to ``most`` with a result, and that; None: not even ``most`` has one.

    A number with a result has only numbers with results above it. Up to ``too_few`` there is known
    to be none; a ``guess`` is tried first. O(log most) trials.
    """
    found: dict[int, P] = {}

    def fails(number: int) -> bool:
        result = find(number)
        if result is not None:
            found[number] = result
        return result is None

    low, high = too_few, most
    if low < guess < high:
        low, high = (guess, high) if fails(guess) else (low, guess)
    if high not in found and (low >= high or fails(high)):
        return None
    least = most_that(fails, low, high) + 1
    return least, found[least]


def fewer_than(wanted: int, gains: Sequence[int]) -> int:
    """How many of the first gains are surely too few, because they add up to less than is wanted.

    All of them, if these do not suffice. O(gains).
    """
    together = 0
    for count, gain in enumerate(gains):
        if together + gain >= wanted:
            return count
        together += gain
    return len(gains)


def fewest_that(helps: Callable[[int], bool], most: int) -> int | None:
    """The least of 1 to ``most`` that helps; None: not even ``most`` does. O(log most) trials."""
    if most < 1 or not helps(most):
        return None
    return most_that(lambda number: not helps(number), 0, most) + 1
