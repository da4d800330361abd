"""Fair shares down the tree of tenants, against what each used lately.

A tenant's fair share is its part of its parent's, by weight among its siblings. Use is counted in
GPU-seconds of all models, decayed. At each level, from the root to the tenant, a branch is judged
against its siblings; each level counts half as much as the one above it. So the branch that used
least comes first, and inside it the tenant that used least.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from topmast.fast.queue.tenancy.tree import Node, Tree

LEVEL_DISCOUNT = 0.5
"""How much a level of the tree counts against the level above it."""


class Share(Struct, frozen=True):
    """Parts of the whole, 0 to 1: ``fair`` by weight, ``used`` by the tenant and all below it.

    ``fairness`` is 1 for a tenant that used nothing, and 0 for one at or above its fair share.
    """

    fair: float = 0.0
    used: float = 0.0
    fairness: float = 1.0


class _Path(Struct):
    """What the levels down to a tenant say, and how much they count together."""

    said: float = 0.0
    counts: float = 0.0
    next_counts: float = 1.0


def shares(tree: Tree, used_gpu_s: Mapping[str, float]) -> dict[str, Share]:
    """The share of every tenant, by name. O(tenants)."""
    branch = {node.name: used_gpu_s.get(node.name, 0.0) for node in tree.downwards}
    branch[tree.top.name] = sum(used for name, used in used_gpu_s.items() if name not in tree.nodes)
    for node in reversed(tree.downwards):
        if node.parent is not None:
            branch[node.parent.name] += branch[node.name]
    whole = branch[tree.top.name]
    fair = {tree.top.name: 1.0}
    paths = {tree.top.name: _Path()}
    found: dict[str, Share] = {}
    for node in tree.downwards:
        weights = sum(child.weight for child in node.children)
        for child in node.children:
            part = child.weight / weights if weights > 0.0 else 0.0
            fair[child.name] = fair[node.name] * part
            path = paths[child.name] = _below(paths[node.name], node, child, branch, part)
            found[child.name] = Share(
                fair=fair[child.name],
                used=branch[child.name] / whole if whole > 0.0 else 0.0,
                fairness=path.said / path.counts if path.counts else 1.0,
            )
    return found


def _below(path: _Path, node: Node, child: Node, branch: Mapping[str, float], part: float) -> _Path:
    """The path from the root to a child; an only child has no sibling to be compared with."""
    if len(node.children) == 1 and node.parent is not None:
        return path
    if branch[node.name] <= 0.0 or not any(sibling.weight > 0.0 for sibling in node.children):
        said = 1.0
    elif part > 0.0:
        said = min(1.0, max(0.0, 1.0 - branch[child.name] / branch[node.name] / part))
    else:
        said = 0.0
    counts = path.next_counts
    return _Path(path.said + counts * said, path.counts + counts, counts * LEVEL_DISCOUNT)
