"""The least number of attempts that must go."""

import pytest

from topmast.fast.region.search.fewest import fewest
from topmast.model.job import Level
from topmast.model.plan import Plan


@pytest.mark.parametrize("most", range(12))
@pytest.mark.parametrize("enough", range(1, 14))
def test_the_fewest_are_found(most: int, enough: int) -> None:
    """Never asked for none at all, nor more than there are."""
    asked: list[int] = []

    def plan_without(count: int) -> Plan | None:
        assert 0 < count <= most
        asked.append(count)
        if count < enough:
            return None
        return Plan("j1", "east", "east-1", "H100", count, (), Level.HOST, 0.0, {})

    found = fewest(most, plan_without)
    assert (None if found is None else (found[0], found[1].gpus_milli)) == (
        None if enough > most else (enough, enough)
    )
    assert len(asked) <= 1 + most.bit_length()
