"""The bound: true for any prices, and as good as the linear relaxation when they are good."""

import numpy as np
import pytest

from tests.support.dataplan_brute import best, tiny
from topmast.slow.data.columns import columns_of
from topmast.slow.data.formulation import formulate
from topmast.slow.data.generate import Shape, make
from topmast.slow.data.prices import Prices, Relaxation
from topmast.slow.data.reading import convert_problem
from topmast.slow.highs import Effort, Model, solve


@pytest.mark.parametrize("seed", range(60))
def test_any_prices_prove_a_bound(seed: int) -> None:
    """Prices drawn at random never prove more than the best answer costs."""
    problem = tiny(seed)
    want = best(problem)
    if want is None:
        return
    columns = columns_of(convert_problem(problem))
    relaxation = Relaxation(columns)
    point = relaxation.begin(columns.held, np.zeros(columns.may_serve.shape))
    _, _, m, p, q = point.arrays
    rng = np.random.default_rng(seed)
    for scale in (0.0, 0.1, 1.0, 5.0):
        drawn = Prices(
            scale * rng.random(m.shape),
            np.minimum(scale * rng.random(p.shape), columns.price[-1]),
            scale * rng.random(q.shape) * (rng.random(q.shape) < 0.3),
        )
        assert relaxation.bound(drawn) <= want + 1e-9


def test_the_prices_come_to_the_linear_relaxation() -> None:
    """Within a thousandth of what HiGHS says that it is, and never above."""
    columns = columns_of(convert_problem(make(Shape(tables=80, regions=4, workloads=100, seed=1))))
    relaxation = Relaxation(columns)
    start = relaxation.begin(columns.held & columns.can, np.zeros(columns.may_serve.shape))
    found = relaxation.solve(start, iterations=2000)
    model = formulate(columns, np.zeros_like(columns.can), columns.can).model
    linear = Model(model.cost, model.low, model.high, model.rows, None, model.offset)
    want = solve(linear, Effort()).bound
    assert found.bound <= want + 1e-6 * abs(want)
    assert found.bound >= want * (1 - 1e-3)


def test_replicas_and_shares_keep_their_own_rules() -> None:
    """Projected, they are within their boxes and sums at every step."""
    columns = columns_of(convert_problem(make(Shape(tables=30, regions=3, workloads=40, seed=2))))
    relaxation = Relaxation(columns)
    start = relaxation.begin(columns.held & columns.can, np.zeros(columns.may_serve.shape))
    for _ in range(5):
        found = relaxation.solve(start, iterations=7)
        x, y = found.replicas, found.shares
        assert ((x >= 0) & (x <= 1)).all()
        assert (x[~columns.can] == 0).all()
        assert (x.sum(axis=1) >= columns.least - 1e-6).all()
        assert (y >= 0).all()
        assert (y.sum(axis=1) <= 1 + 1e-6).all()
        start = found.point
