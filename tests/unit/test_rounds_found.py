"""Rounds are seen in when jobs start: however long, and where there are none."""

from __future__ import annotations

import random

import pytest

from topmast.experiments.rounds_found import rounds_of


def _starts(seed: int, round_s: float, jitter_s: float = 0.0, drift: float = 0.0) -> list[float]:
    """Of 200 jobs, in one round in three."""
    rng = random.Random(seed)
    rounds = sorted(rng.sample(range(600), 200))
    return [n * round_s * (1 + drift) + rng.uniform(0, jitter_s) for n in rounds]


@pytest.mark.parametrize("round_s", [15.0, 120.0, 360.0, 1_920.0])
def test_rounds_of_any_length(round_s: float) -> None:
    """The longest that fits, not a part of it."""
    assert rounds_of(_starts(1, round_s)) == round_s


def test_rounds_of_a_real_scheduler_are_never_quite_on_time() -> None:
    """Starts are late by up to 8 s, and each round is 0.1% too long: within 1%."""
    found = rounds_of(_starts(2, 360.0, jitter_s=8.0, drift=0.001))
    assert found == pytest.approx(360.0, rel=0.01)


def test_starts_at_any_time_show_no_rounds() -> None:
    """As those of a scheduler that decides at once."""
    rng = random.Random(3)
    assert rounds_of([rng.uniform(0, 100_000.0) for _ in range(400)]) is None


def test_a_few_starts_show_nothing() -> None:
    """Three gaps are multiples of something by chance."""
    assert rounds_of([0.0, 120.0, 240.0, 480.0]) is None
    assert rounds_of([]) is None
