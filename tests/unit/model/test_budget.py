"""Budgets: how a fleet file says them, what is used of them, and when a month is."""

from datetime import UTC, datetime
from typing import Any

import pytest

from topmast.model.budget import AtLimit, Budget, month_of, month_s
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetdump import dump_fleet
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet

HOSTS = {"r": {"clusters": {"c": {"hosts": [{"count": 1, "gpu": "H100", "gpus": 8}]}}}}


def parsed(budget: Any) -> Fleet:
    return parse_fleet({"regions": HOSTS, "tenants": {"vision": {"budget": budget}}})


def test_a_fleet_file_says_a_budget_and_is_written_so() -> None:
    """A warning is what happens at the limit, unless it says another thing."""
    fleet = parsed({"gpu_hours": 1000, "usd": 2.5, "at_limit": "drain"})
    assert fleet.tenants[0].budget == Budget(1000.0, 2.5, AtLimit.DRAIN)
    assert parse_fleet(dump_fleet(fleet)) == fleet
    assert parsed({"usd": 7}).tenants[0].budget == Budget(None, 7.0, AtLimit.WARN)


@pytest.mark.parametrize(
    ("budget", "want"),
    [
        ({"at_limit": "hold"}, "has no limit"),
        ({"usd": 0}, "out of range"),
        ({"gpu_hours": "many"}, "wanted a number"),
        ({"usd": 1, "at_limit": "stop"}, "is not what happens at a limit"),
        ({"hours": 1}, "unknown field"),
    ],
)
def test_what_is_no_budget_is_refused(budget: Any, want: str) -> None:
    """With the field and what would be right."""
    with pytest.raises(InvalidInput, match=want) as raised:
        parsed(budget)
    assert "budget" in str(raised.value)


@pytest.mark.parametrize(
    ("budget", "want"),
    [(Budget(10.0), 50.0), (Budget(None, 2.0), 150.0), (Budget(10.0, 2.0), 150.0), (Budget(), 0.0)],
)
def test_the_limit_counts_of_which_most_is_used(budget: Budget, want: float) -> None:
    """Of 5 GPU-hours and 3 USD."""
    assert budget.used_percent(5.0, 3.0) == want


@pytest.mark.parametrize(
    ("at", "begin", "end"),
    [
        ("2028-02-29T23:59:59", "2028-02-01", "2028-03-01"),
        ("2030-12-01T00:00:00", "2030-12-01", "2031-01-01"),
    ],
)
def test_a_month_is_one_of_the_calendar(at: str, begin: str, end: str) -> None:
    """In UTC."""
    at_s, begin_s, end_s = (
        datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in (at, begin, end)
    )
    assert month_s(at_s) == (begin_s, end_s)
    assert month_of(at_s) == begin[:7]
