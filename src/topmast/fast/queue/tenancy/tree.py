"""The tree of tenants and what their quotas say, whatever the tenants hold.

A tenant that states no quota lives on that of its *home*: the nearest tenant above it that states
one. A quota for a while of a tenant that has no other states the models that it names alone. What a
quota leaves after the quotas stated below it is for that tenant's own work and for the tenants that
have it as their home. Amounts are in thousandths of GPUs of one model; a model that no quota or
limit lists counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI
from topmast.model.timed_quota import PartlyStated

Amounts = dict[str, int]


class Node:
    """One tenant, or the top: the whole fleet, which owns no quota.

    ``quota``, ``borrow``: None states or limits nothing. ``partly``: of models that the quota does
    not list it states nothing. ``kept``: what of the quota is never lent.
    ``given``: the quotas of the nearest tenants below that state one. ``at_rest``: the claims of
    the children of an empty fleet.
    """

    __slots__ = (
        "at_rest", "borrow", "children", "given", "home", "kept", "name", "parent", "partly",
        "quota", "weight",
    )  # fmt: skip

    def __init__(self, spec: TenantSpec) -> None:
        self.name = spec.name
        self.weight = spec.weight
        self.quota = _milli(spec.quota)
        self.partly = isinstance(spec, PartlyStated)
        self.borrow = _milli(spec.borrow_limit) if spec.quota is not None else None
        self.kept: Amounts = {}
        if self.quota is not None and spec.lend_limit is not None:
            lent = _milli(spec.lend_limit) or {}
            self.kept = {m: max(0, n - lent.get(m, 0)) for m, n in self.quota.items()}
        self.parent: Node | None = None
        self.home: Node | None = None
        self.children: list[Node] = []
        self.given: Amounts = {}
        self.at_rest: Amounts = {}

    def up(self) -> Iterator[Node]:
        """This node and all above it, the top last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def stated(self, model: str) -> int | None:
        """The quota that it states of a model; None: it states none."""
        if self.quota is None:
            return None
        return self.quota.get(model, None if self.partly else 0)

    def home_of(self, model: str) -> Node | None:
        """The nearest tenant, from this one upwards, that states a quota of a model."""
        home = self.home
        while home is not None and home.partly and home.stated(model) is None:
            home = home.parent.home if home.parent is not None else None
        return home

    def promised(self) -> Amounts:
        """What it, or else tenants below it, have by quotas that they state."""
        if self.quota is None:
            return self.given
        return {**self.given, **self.quota} if self.partly else self.quota

    def claim(self, model: str, below: int) -> int:
        """What the node claims of the fleet if its own work and children claim ``below``."""
        kept = self.kept.get(model, 0)
        return below if below > kept else kept


class Tree:
    """All tenants below one top. O(tenants x models) to build."""

    def __init__(self, tenants: Iterable[TenantSpec]) -> None:
        specs = {spec.name: spec for spec in tenants}
        self.top = Node(TenantSpec(""))
        self.nodes: dict[str, Node] = {name: Node(spec) for name, spec in specs.items()}
        for name in sorted(specs):
            parent = self.nodes.get(specs[name].parent or "", self.top)
            node = self.nodes[name]
            # No file has a cycle; one made by hand is cut open rather than walked for ever.
            node.parent = self.top if node in parent.up() else parent
            node.parent.children.append(node)
        self.downwards = self._walk()
        self._sum_up()

    def node(self, tenant: str) -> Node:
        """The node of a tenant; one that is not known (any more) counts as the top itself."""
        return self.nodes.get(tenant, self.top)

    def _walk(self) -> list[Node]:
        """Every node after its parent, siblings in order of name."""
        found, waiting = [], [self.top]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(node.children))
        return found

    def _sum_up(self) -> None:
        for node in self.downwards:
            above = node.parent.home if node.parent is not None else None
            node.home = above if node.quota is None else node
        for node in reversed(self.downwards):
            for child in node.children:
                _add(node.given, child.promised())
                claims = {m: child.claim(m, n) for m, n in child.at_rest.items()}
                _add(node.at_rest, {**child.kept, **claims})


def _milli(gpus: dict[str, int] | None) -> Amounts | None:
    return None if gpus is None else {model: count * MILLI for model, count in gpus.items()}


def _add(sums: Amounts, more: Amounts) -> None:
    for model, count in more.items():
        sums[model] = sums.get(model, 0) + count
