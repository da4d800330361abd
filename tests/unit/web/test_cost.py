"""How the cost of open dashboards is told from noise."""

import pytest

from tests.support.weblab.cost import Growth, grown, verdict


def test_the_bounds_of_many_pairs_leave_the_outermost_out() -> None:
    """Of thirty pairs the tenth from either end: 95.7% sure. Ten wild pairs move no bound far."""
    quiet = [1.0 + at / 1_000 for at in range(30)]
    assert grown([1.0] * 30, quiet) == Growth(0.0145, 0.009, 0.020, 0.9572)
    wild = [*quiet[:-5], 9.0, 9.0, 9.0, 9.0, 9.0]
    assert grown([1.0] * 30, wild) == Growth(0.0145, 0.009, 0.020, 0.9572)


def test_few_pairs_are_said_to_be_unsure() -> None:
    """Five pairs hold the true median between the outermost of them with 93.75%, one never."""
    assert grown([1.0] * 5, [1.1, 1.0, 0.9, 1.3, 1.2]) == Growth(0.1, -0.1, 0.3, 0.9375)
    assert grown([2.0], [3.0]) == Growth(0.5, 0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.01, 0.019, "less than 2%"), (0.021, 0.03, "more than 2%"),
        (0.01, 0.03, "neither shown nor refuted"),
    ],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval(low: float, high: float, said: str) -> None:
    """A median below 2% shows nothing while its interval reaches beyond."""
    assert verdict(Growth(0.015, low, high, 0.95)) == said


def test_too_few_pairs_show_nothing() -> None:
    """However near their figures are."""
    assert verdict(grown([1.0] * 5, [1.0] * 5)) == "neither shown nor refuted"
