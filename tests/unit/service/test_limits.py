"""Limits: what a principal may do at once, and what it pays off after."""

import pytest

from topmast.model.access import Caller, Principal
from topmast.model.errors import TooMany
from topmast.service.limits import Limits, Rate, Rates, client_of


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


def test_long_pages_of_a_list_count_as_several() -> None:
    """A page of 1,000 rows costs what four of 250 do, or of fewer."""
    limits = Limits(Rates(list=Rate(1e-6, 8.0)), lambda: 0.0)
    pages = {10: 8, 250: 8, 500: 4, 1_000: 2}
    for rows, most in pages.items():
        caller = Caller(Principal(f"sa:{rows}"), "token")
        for _ in range(most):
            limits.take(caller, "list")
            limits.charge_rows(caller, rows)
        with pytest.raises(TooMany):
            limits.take(caller, "list")


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:7:a::1", "2001:db8:0:7::/64"),
        ("2001:db8:0:7:b::2", "2001:db8:0:7::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("not an address", "not an address"),
        ("", "unknown"),
    ],
)
def test_a_client_counts_as_one_whichever_of_its_addresses_it_uses(
    address: str, counted: str
) -> None:
    """A client has a whole network of IPv6, and may use a new address for each request."""
    assert client_of(address) == counted
