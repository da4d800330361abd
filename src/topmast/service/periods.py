"""The period that a request is about."""

from __future__ import annotations

from topmast.model.errors import Faults

DAY_S = 86_400.0
USUAL_S = 30 * DAY_S
LARGEST_S = 1e15
"""No time is further from 1970."""
_REMEDY = "seconds since the beginning of 1970"


def check_period(faults: Faults, since_s: float | None, until_s: float | None) -> None:
    """Note what is wrong with a period, of which either end may be open."""
    good = True
    for field, time_s in (("since", since_s), ("until", until_s)):
        if time_s is not None and not abs(time_s) <= LARGEST_S:  # nor is it NaN
            faults.add("not a time", field, _REMEDY)
            good = False
    if good and since_s is not None and until_s is not None and since_s > until_s:
        remedy = "a later until, or an earlier since"
        faults.add("the period ends before it begins", "until", remedy)


def usual_period(
    faults: Faults, since_s: float | None, until_s: float | None, now_s: float
) -> tuple[float, float]:
    """A period up to now and of 30 days, where a request does not say otherwise."""
    check_period(faults, since_s, until_s)
    until = now_s if until_s is None else until_s
    since = until - USUAL_S if since_s is None else since_s
    if until_s is None and now_s < since <= LARGEST_S:
        faults.add("is in the future", "since", "an earlier since, or a later until")
    return since, until
