"""Demand split over regions: nothing is lost, and the largest ratio is as small as can be."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topmast.sim.demand import Regions, split


@pytest.mark.parametrize(
    ("demand", "running", "supply", "want"),
    [
        ({(0, 1): 12.0}, [0.0, 0.0], [8.0, 4.0], [8.0, 4.0]),
        ({(0, 1): 6.0}, [6.0, 0.0], [8.0, 4.0], [2.0, 4.0]),
        ({(0,): 5.0, (0, 1): 4.0}, [0.0, 0.0], [8.0, 8.0], [5.0, 4.0]),
        ({(0, 1): 4.0, (1, 2): 8.0}, [0.0, 0.0, 0.0], [4.0, 4.0, 4.0], [4.0, 4.0, 4.0]),
        ({(0, 1): 4.0}, [0.0, 0.0], [0.0, 4.0], [0.0, 4.0]),
    ],
    ids=["by size", "where less runs", "bound jobs first", "chained", "nowhere but one"],
)
def test_demand_goes_where_the_ratio_is_least(
    demand: dict[Regions, float], running: list[float], supply: list[float], want: list[float]
) -> None:
    """Each table row tells what is queued for which regions, what runs, and where it should count."""
    found = [0.0] * len(supply)
    for regions, parts in split(demand, running, supply).items():
        for region, part in zip(regions, parts, strict=True):
            found[region] += part
    assert found == pytest.approx(want, abs=1e-6)


@given(
    st.dictionaries(
        st.sets(st.integers(0, 2), min_size=1).map(lambda x: tuple(sorted(x))), st.floats(0, 50),
        max_size=5,
    ),
    st.lists(st.floats(0, 30), min_size=3, max_size=3),
    st.lists(st.floats(1, 30), min_size=3, max_size=3),
)  # fmt: skip
def test_no_split_has_a_smaller_largest_ratio(
    demand: dict[Regions, float], running: list[float], supply: list[float]
) -> None:
    """The largest ratio equals the bound by every set of regions (max-flow, min-cut)."""
    load = list(running)
    for regions, parts in split(demand, running, supply).items():
        assert sum(parts) == pytest.approx(demand[regions], abs=1e-6)
        for region, part in zip(regions, parts, strict=True):
            assert part >= -1e-9
            load[region] += part
    largest = max(x / s for x, s in zip(load, supply, strict=True))
    bound = max(running[r] / supply[r] for r in range(3))
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            inside = sum(gpus for regions, gpus in demand.items() if set(regions) <= set(chosen))
            base = sum(running[r] for r in chosen)
            bound = max(bound, (inside + base) / sum(supply[r] for r in chosen))
    assert largest == pytest.approx(max(bound, 0.0), rel=1e-3, abs=1e-6)
