"""Published figures beside ours: what ours must be, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topmast.experiments.config import Check

Means = Sequence[Mapping[str, Any]]
DIGITS = 4
"""Of a figure, unless its verdict needs more."""
EXACT = 17
"""Digits that tell any two numbers apart."""

NO_FIGURE = "no run of this scale has the figure"
NO_DEMAND = "told beside ours, and nothing is demanded"


def checked(check: Check, means: Means, why_not: str = "") -> dict[str, Any]:
    """What was published, what we found, whether it is what it must be, and ``why``; None: it
    cannot be compared.

    ``why_not``: why what ours ran on is not what was published; empty: it is.
    """
    found = _found(check, means)
    low, high = _bounds(check)
    worst = _worst(found, low, high)
    ours, where = worst if worst is not None else (None, "")
    reached = None
    if low is None and high is None:
        why_not = why_not or NO_DEMAND
    elif ours is None:
        why_not = why_not or NO_FIGURE
    elif not why_not:
        reached = (low is None or ours >= low) and (high is None or ours <= high)
        why_not = _reason(ours, low, high)
        if len(found) > 1:
            why_not += f" ({where}, the worst of {len(found)})"
    return {
        "case": check.case, "figure": _figure(check),
        "published": check.published, "public": check.public,
        "ours": ours, "wanted": _wanted(check), "at_least": low, "at_most": high,
        "reached": reached, "why": why_not,
    }  # fmt: skip


def _found(check: Check, means: Means) -> list[tuple[float, str]]:
    """Our figure at every load and age of the signal, and where that is; how many times as large
    another case's is, if one is named.
    """
    values = _values(check.case, check.figure, means)
    if check.than is None:
        return values
    theirs = _values(check.than, check.figure, means)
    both = zip(theirs, values, strict=False)
    return [(other / value, where) for (other, _), (value, where) in both if value]


def _values(case: str, figure: str, means: Means) -> list[tuple[float, str]]:
    own = [(m["figures"].get(figure), m["label"]) for m in means if m["case"] == case]
    return [(value["mean"], label) for value, label in own if value is not None]


def _worst(
    found: Sequence[tuple[float, str]], low: float | None, high: float | None
) -> tuple[float, str] | None:
    """The one that lies farthest beyond its bounds, or nearest to one; the first of equals."""

    def slack(value: tuple[float, str]) -> float:
        above = float("inf") if low is None else value[0] - low
        return min(above, float("inf") if high is None else high - value[0])

    return min(found, key=slack, default=None)


def _reason(ours: float, low: float | None, high: float | None) -> str:
    """In words, what decides."""
    if low is not None and ours < low:
        return f"{figure(ours, low)} is less than {figure(low, ours)}"
    if high is not None and ours > high:
        return f"{figure(ours, high)} is more than {figure(high, ours)}"
    if low is not None and high is not None:
        between = f"{figure(low, ours)} and {figure(high, ours)}"
        return f"{figure(ours, low, high)} lies between {between}"
    which, bound = ("most", high) if low is None else ("least", low)
    assert bound is not None
    return f"{figure(ours, bound)} is at {which} {figure(bound, ours)}"


def figure(value: float | None, *bounds: float | None) -> str:
    """A figure for people: four digits that count, or as many as its verdict needs.

    Rounded, it lies on that side of each of ``bounds`` on which it lies.
    """
    if value is None:
        return "-"
    known = [bound for bound in bounds if bound is not None]
    text = _rounded(value, DIGITS)
    for digits in range(DIGITS, EXACT + 1):
        text = _rounded(value, digits)
        shown = float(text.replace(",", ""))
        rounded = [float(_rounded(bound, digits).replace(",", "")) for bound in known]
        sides = [_side(value, bound) for bound in known]
        if sides == [_side(shown, bound) for bound in rounded]:
            break
    return text


def _rounded(value: float, digits: int) -> str:
    return f"{value:,.{digits - DIGITS}f}" if abs(value) >= 1_000 else f"{value:.{digits}g}"


def _side(value: float, bound: float) -> int:
    return (value > bound) - (value < bound)


def _bounds(check: Check) -> tuple[float | None, float | None]:
    if check.public is None or check.within is None:
        return check.at_least, check.at_most
    return check.public * (1 - check.within), check.public * (1 + check.within)


def _figure(check: Check) -> str:
    return check.figure if check.than is None else f"{check.figure} of {check.than}, times ours"


def _wanted(check: Check) -> str:
    if check.within is not None:
        return f"within {check.within:.0%} of the public code"
    if check.at_most is not None:
        return f"<= {check.at_most:g}"
    return "-" if check.at_least is None else f">= {check.at_least:g}"
