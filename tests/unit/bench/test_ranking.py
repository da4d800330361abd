"""The benchmark of the order: it runs at any size, and says what it measured."""

import pytest

from topmast.bench import run_bench
from topmast.model.errors import InvalidInput


@pytest.mark.parametrize("jobs", [1, 500])
def test_the_order_is_measured(jobs: int) -> None:
    """The two figures, and with what setup they came about."""
    document = run_bench("ranking", jobs=jobs)
    assert document["full_s"] > 0
    assert document["jobs"] == jobs
    assert {"incremental_us", "seed", "machine", "profile", "changes"} <= set(document)


def test_the_order_is_as_fast_as_promised() -> None:
    """A hundred thousand jobs in 50 ms, a change in 50 us: here with room for a busy machine."""
    document = run_bench("ranking", jobs=100_000)
    assert document["full_s"] < 0.25
    assert document["incremental_us"] < 250


def test_a_benchmark_that_does_not_exist() -> None:
    """Those that do are named."""
    with pytest.raises(InvalidInput) as caught:
        run_bench("everything")
    assert "ranking" in caught.value.remedy
