"""Published figures beside ours: what ours must be, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topmast.experiments.config import Check

Means = Sequence[Mapping[str, Any]]


NO_FIGURE = "no run of this scale has the figure"
NO_DEMAND = "told beside ours, and nothing is demanded"


def checked(check: Check, means: Means, why_not: str = "") -> dict[str, Any]:
    """What was published, what we found, whether it is what it must be; None: it cannot be
    compared, and ``why``.

    ``why_not``: why what ours ran on is not what was published; empty: it is.
    """
    found = _found(check, means)
    ours = (max(found) if check.at_most is not None else min(found)) if found else None
    low, high = _bounds(check)
    reached = None
    if low is None and high is None:
        why_not = why_not or NO_DEMAND
    elif ours is None:
        why_not = why_not or NO_FIGURE
    elif not why_not:
        reached = (low is None or ours >= low) and (high is None or ours <= high)
    return {
        "case": check.case, "figure": _figure(check),
        "published": check.published, "public": check.public,
        "ours": ours, "wanted": _wanted(check), "reached": reached, "why": why_not,
    }  # fmt: skip


def _found(check: Check, means: Means) -> list[float]:
    """Our figure at every load and age of the signal; how many times as large another case's is,
    if one is named.
    """
    own = [m["figures"].get(check.figure) for m in means if m["case"] == check.case]
    values = [value["mean"] for value in own if value is not None]
    if check.than is None:
        return values
    others = [m["figures"].get(check.figure) for m in means if m["case"] == check.than]
    theirs = [value["mean"] for value in others if value is not None]
    return [other / value for other, value in zip(theirs, values, strict=False) if value]


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
