"""No account, and no number of accounts, keeps all connections by requests that wait."""

from contextlib import ExitStack

import pytest

from topmast.api.under_way import FEW_OF_ONE, MOST_OF_ONE, UnderWay
from topmast.model.access import Caller, Principal, local_caller
from topmast.model.errors import TooMany

CONNECTIONS = 1_024


def caller(name: str) -> Caller:
    """A service account."""
    return Caller(Principal(f"sa:{name}"), name, "10.0.0.1", "1")


def begun(under_way: UnderWay, stack: ExitStack, name: str, most: int) -> int:
    """So many requests of an account are let in, of as many as there could be."""
    for count in range(most):
        try:
            stack.enter_context(under_way.one(caller(name)))
        except TooMany:
            return count
    return most


def test_an_account_has_a_part_of_the_connections() -> None:
    """Others get in; it does as well, once one of its requests is answered."""
    under_way = UnderWay(CONNECTIONS)
    with ExitStack() as stack:
        with under_way.one(caller("ann")):
            assert begun(under_way, stack, "ann", CONNECTIONS) == MOST_OF_ONE - 1
            with pytest.raises(
                TooMany, match="128 requests of sa:ann are under way, and 128 may be"
            ):
                stack.enter_context(under_way.one(caller("ann")))
        assert begun(under_way, stack, "ann", CONNECTIONS) == 1
        assert begun(under_way, stack, "bob", 5) == 5
    with ExitStack() as stack:
        assert begun(under_way, stack, "ann", CONNECTIONS) == MOST_OF_ONE


def test_many_accounts_leave_room_for_others() -> None:
    """However many requests each of them makes."""
    under_way = UnderWay(CONNECTIONS)
    with ExitStack() as stack:
        held = [begun(under_way, stack, f"a{n}", CONNECTIONS) for n in range(30)]
        assert held == [MOST_OF_ONE] * 4 + [FEW_OF_ONE] * 26
        assert sum(held) < CONNECTIONS
        assert begun(under_way, stack, "bob", 5) == 5


def test_the_one_person_of_a_machine_and_those_without_a_login_do_not_count() -> None:
    under_way = UnderWay(CONNECTIONS)
    with ExitStack() as stack:
        for one in [local_caller("me"), None] * CONNECTIONS:
            stack.enter_context(under_way.one(one))
        assert begun(under_way, stack, "ann", CONNECTIONS) == MOST_OF_ONE
