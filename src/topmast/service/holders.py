"""Which tenants hold the quota that a job waits for: numbers that add up to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from topmast.fast.queue import GlobalQueue, Ledger
from topmast.model.job import MILLI, JobSpec
from topmast.service.quotas import all_wanted

MOST_TOLD = 3
"""So many quotas are told of."""
MOST_NAMED = 6
"""Of the tenants that have a part of one, the others are added up."""


def quotas_in_parts(queue: GlobalQueue, spec: JobSpec, seen: Collection[str] | None) -> str:
    """Which tenants have the parts of each quota that has no room for a job; empty if none is full.

    ``seen``: the tenants that may be named; of the others only the sum is told, and nothing of the
    quota of one of them. O(tenants).
    """
    ledger = queue.tenancy.ledger
    full = dict.fromkeys(
        (name, model)
        for milli in all_wanted(queue, spec)
        for model, count in milli.items()
        if (name := ledger.full_at(spec.tenant, model, count)) is not None
    )
    told = [_told(ledger, *one, seen) for one in full if seen is None or one[0] in seen]
    return "; ".join(told[:MOST_TOLD])


def _told(ledger: Ledger, name: str, model: str, seen: Collection[str] | None) -> str:
    whole = ledger.tree.node(name).stated(model) or 0
    parts = sorted(_parts(ledger, name, model), key=lambda part: -part[1])
    named = [part for part in parts if seen is None or part[0] in seen][:MOST_NAMED]
    texts = [text for _, _, text in named]
    rest = sum(milli for _, milli, _ in parts) - sum(milli for _, milli, _ in named)
    if rest:
        texts.append(f"others have {_gpus(rest)}")
    left = whole - sum(milli for _, milli, _ in parts)
    if left > 0 or not texts:
        texts.append(f"{_gpus(left)} {'is' if left == MILLI else 'are'} left")
    return f"the quota of tenant {name} is {_gpus(whole)} {model}: {', '.join(texts)}"


def _parts(ledger: Ledger, name: str, model: str) -> Iterator[tuple[str, int, str]]:
    """Each tenant with a part of a quota: how much, and in words."""
    home = ledger.tree.node(name)
    for tenant in ledger.tenants:
        if ledger.tree.node(tenant).home_of(model) is home and (
            milli := ledger.holding(tenant, model).guaranteed
        ):
            yield tenant, milli, f"tenant {tenant} holds {_gpus(milli)}"
    below = list(home.children)
    while below:
        node = below.pop()
        stated = node.stated(model)
        if stated is None:
            below += node.children
        elif stated:
            used = ledger.total(node.name, model).guaranteed
            text = f"tenant {node.name} has {_gpus(stated)} of its own ({_gpus(used)} in use)"
            yield node.name, stated, text


def _gpus(milli: int) -> str:
    return f"{milli / MILLI:g}"
