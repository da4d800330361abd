"""Growing the tree: CART of scikit-learn (Breiman et al., 1984), which is imported here and when it is needed.

It takes seconds, so no machine does it while it handles an event; see `docs/adr/predicted-durations.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.model.messages import GrowTree
from topmast.model.tree import LEAF, Tree
from topmast.predict.walking import Floats

MOST_LEAVES = 128
LEAST_JOBS_IN_LEAF = 50
MOST_TIMES = 100.0
"""A job that took more than so many times the guess counts as one that took so many."""


def grow(rows: Floats, missed: Floats) -> Tree:
    """The tree that corrects guesses, from ``rows`` (n x features) and by how much guesses ``missed`` (n; logarithms).

    Its values are ratios: how many times the guess jobs like this took on average. The mean, not the median, for
    that is what the order of least mean completion goes by (shortest expected processing time first), and where a
    group's history is the guess both are near 1. The same rows give the same tree. O(n log n x features x depth).
    """
    if not len(rows):
        return Tree((LEAF,), (0.0,), (LEAF,), (LEAF,), (1.0,))
    ratios = np.minimum(np.exp(missed), MOST_TIMES)
    return _as_data(_fitted(rows, ratios).tree_, len(rows))


def answer(order: GrowTree) -> Tree:
    """The tree that a queue ordered. As `grow`."""
    rows = np.frombuffer(order.rows).reshape(-1, order.width)
    return grow(rows[:, :-1], rows[:, -1])


def _fitted(rows: Floats, ratios: Floats) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(
        max_leaf_nodes=MOST_LEAVES,
        min_samples_leaf=LEAST_JOBS_IN_LEAF,
        random_state=0,  # settles ties between features
    )
    return tree.fit(rows, ratios)


def _as_data(nodes: Any, jobs: int) -> Tree:
    inner = nodes.children_left != LEAF
    return Tree(
        feature=tuple(np.where(inner, nodes.feature, LEAF).tolist()),
        threshold=tuple(np.where(inner, nodes.threshold, 0.0).tolist()),
        left=tuple(nodes.children_left.tolist()),
        right=tuple(nodes.children_right.tolist()),
        value=tuple(nodes.value[:, 0, 0].tolist()),
        jobs=jobs,
    )
