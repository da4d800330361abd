"""Limits: what a principal may do at once, and what it pays off after."""

import pytest

from topmast.model.errors import TooMany
from topmast.service.limits import Limits, Rate, Rates


def test_what_costs_more_than_a_burst_is_paid_off() -> None:
    """It may begin with a full burst; then the rest of its cost is waited for."""
    now = [0.0]
    limits = Limits(Rates(submit=Rate(10.0, 100.0)), lambda: now[0])
    limits.take_of("ann", "submit", 1_000.0)
    for now[0], left_s in ((0.0, 90.1), (50.0, 40.1), (90.0, 0.1)):
        with pytest.raises(TooMany) as told:
            limits.take_of("ann", "submit")
        assert told.value.retry_s == pytest.approx(left_s)
    now[0] = 90.2
    limits.take_of("ann", "submit")
