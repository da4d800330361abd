"""A regression tree as plain data: small enough for a journal, and read without any library."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

LEAF = -1


class Tree(Struct, frozen=True):
    """Nodes by number; 0 is the root."""

    feature: tuple[int, ...]
    """`LEAF` where a node has no children."""
    threshold: tuple[float, ...]
    """A row goes ``left`` if its feature is at most the threshold."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    mean: tuple[float, ...]
    """The prediction for the rows that end there: the mean."""
    likely: tuple[float, ...]
    """The prediction for the rows that end there: the most likely value."""
    jobs: int = 0
    """How many jobs the tree was grown on."""

    def leaf_of(self, row: Sequence[float]) -> int:
        """The node where a row of features ends. O(depth)."""
        node = 0
        while self.feature[node] != LEAF:
            goes_left = row[self.feature[node]] <= self.threshold[node]
            node = self.left[node] if goes_left else self.right[node]
        return node
