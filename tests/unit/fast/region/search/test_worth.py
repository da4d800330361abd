"""What a part of a GPU is worth: the kernel's cutting stock beside scipy's linear programme over all ways to fill a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from topmast.fast.region.search.stranded import useless_of, worth_of
from topmast.model.job import MILLI
from topmast.model.plan import TaskShape

MIXES = {
    "halves": ([500], [1.0]),
    "no size divides the GPU": ([300, 400], [1.0, 2.0]),
    "two that fill it together": ([400, 600], [1.0, 1.0]),
    "one is frequent, the rest go beside it": ([250, 350, 700], [5.0, 1.0, 1.0]),
    "whole GPUs beside shares": ([460, 1000], [1.0, 3.0]),
}


def _ways(sizes: list[int], room: int) -> np.ndarray:
    """Every way to put shares into so much room, a row each."""
    counts = itertools.product(*(range(room // size + 1) for size in sizes))
    return np.array([way for way in counts if np.dot(way, sizes) <= room])


def _drawn(seed: int) -> tuple[list[int], list[float]]:
    rng = np.random.default_rng((seed, 0x3C07))
    sizes = np.sort(rng.choice(np.arange(90, MILLI + 1), int(rng.integers(1, 5)), replace=False))
    return sizes.tolist(), rng.uniform(0.05, 1.0, len(sizes)).tolist()


@pytest.mark.parametrize(
    ("sizes", "demand"), [*MIXES.values(), *map(_drawn, range(12))],
    ids=[*MIXES, *(f"drawn {seed}" for seed in range(12))],
)  # fmt: skip
def test_shares_are_worth_the_fewest_gpus_that_hold_them(
    sizes: list[int], demand: list[float]
) -> None:
    """By duality: all that is asked for is worth as many GPUs as it needs, and no filling is worth more than a GPU."""
    ways = _ways(sizes, MILLI)
    fewest = linprog(np.ones(len(ways)), A_ub=-ways.T, b_ub=-np.array(demand))
    worth = worth_of(np.array(sizes, np.int64), np.array(demand))
    assert np.dot(demand, worth[sizes]) == pytest.approx(fewest.fun, rel=1e-6)
    assert worth[MILLI] == pytest.approx(1.0, abs=1e-6)
    for room in range(0, MILLI + 1, 37):
        most = (_ways(sizes, room) @ worth[sizes]).max()
        assert worth[room] == pytest.approx(most, abs=1e-6)


def test_what_is_useless_is_what_no_mix_of_shares_fills() -> None:
    """Of shares of 0.4 alone, two to a GPU: 0.3 is wholly useless, 0.5 but for a half of a GPU, and a free one is not."""
    useless = useless_of((TaskShape(400, 0.0, 0, (), 1.0),))
    assert useless[[300, 400, 500, 800, 999, 1000]] == pytest.approx(
        [0.3, -0.1, 0.0, -0.2, -0.001, 0.0]
    )
