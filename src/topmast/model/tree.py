"""A regression tree as plain data: small enough for a journal, and walked without the library that grew it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

LEAF = -1


class Tree(Struct, frozen=True):
    """Nodes by number, 0 being the root. ``feature`` is `LEAF` where a node has no children.

    A row goes ``left`` if its ``feature`` is at most the ``threshold``. ``mean`` and ``likely``: what is said of the rows
    that end there. ``jobs``: how many it was grown on.
    """

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    mean: tuple[float, ...]
    likely: tuple[float, ...]
    jobs: int = 0

    def leaf_of(self, row: Sequence[float]) -> int:
        """The node where a row of features ends. O(depth)."""
        node = 0
        while self.feature[node] != LEAF:
            goes_left = row[self.feature[node]] <= self.threshold[node]
            node = self.left[node] if goes_left else self.right[node]
        return node
