"""Growing the tree: CART of scikit-learn (Breiman et al., 1984), imported when it is needed.

It takes seconds, so no machine does it while it handles an event; see
`docs/adr/predicted-durations.md`.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from topmast.model.messages import GrowTree
from topmast.model.tree import LEAF, Tree
from topmast.predict.walking import Floats, leaves_of

MOST_LEAVES = 128
LEAST_JOBS_IN_LEAF = 50
MOST_TIMES = 100.0
"""A job that took more than so many times the guess counts as one that took so many."""
WITHIN = 0.25
"""A prediction is good within this part of the duration (as the paper counts)."""


def grow(rows: Floats, missed: Floats) -> Tree:
    """The tree that corrects estimates, from ``rows`` (n x features) and their errors ``missed``.

    ``missed`` (n) are logarithms. The tree predicts ratios of durations to estimates. ``mean`` is
    the mean of the jobs in a leaf, which the order of least mean completion uses (shortest expected
    processing time first). ``likely`` is good for most of them. Both are near 1 where the estimate
    is a group's history. The same rows give the same tree. O(n log n x features x depth).
    """
    from sklearn.tree import DecisionTreeRegressor

    if not len(rows):
        return Tree((LEAF,), (0.0,), (LEAF,), (LEAF,), (1.0,), (1.0,))
    grown = DecisionTreeRegressor(
        max_leaf_nodes=MOST_LEAVES,
        min_samples_leaf=LEAST_JOBS_IN_LEAF,
        random_state=0,  # settles ties between features
    )
    grown.fit(rows, np.minimum(np.exp(missed), MOST_TIMES))
    nodes = grown.tree_
    inner = nodes.children_left != LEAF
    means = tuple(nodes.value[:, 0, 0].tolist())
    tree = Tree(
        feature=tuple(np.where(inner, nodes.feature, LEAF).tolist()),
        threshold=tuple(np.where(inner, nodes.threshold, 0.0).tolist()),
        left=tuple(nodes.children_left.tolist()),
        right=tuple(nodes.children_right.tolist()),
        mean=means,
        likely=means,
        jobs=len(rows),
    )
    return replace(tree, likely=_likely(tree, rows, missed))


def _likely(tree: Tree, rows: Floats, missed: Floats) -> tuple[float, ...]:
    """For each leaf the ratio that is good for most of its jobs; the middle one of several."""
    found = list(tree.mean)
    leaf = leaves_of(tree, rows)
    order = np.lexsort((missed, leaf))
    ends = np.flatnonzero(np.diff(leaf[order], append=-1)) + 1
    begin = 0
    for end in ends.tolist():
        logs = missed[order[begin:end]]
        found[int(leaf[order[begin]])] = math.exp(_best_window(logs))
        begin = end
    return tuple(found)


def _best_window(logs: Floats) -> float:
    """The logarithm that is within `WITHIN` of most of these, which are in order. O(n log n)."""
    low, high = math.log(1 - WITHIN), math.log(1 + WITHIN)
    last = np.searchsorted(logs, logs + (high - low), side="right")
    count = last - np.arange(len(logs))
    best = np.flatnonzero(count == count.max())
    return float(logs[best[len(best) // 2]] + high)


def answer(order: GrowTree) -> Tree:
    """The tree that a queue ordered. As `grow`."""
    rows = np.frombuffer(order.rows).reshape(-1, order.width)
    return grow(rows[:, :-1], rows[:, -1])
