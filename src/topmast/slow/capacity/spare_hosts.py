"""Hosts of the buffer work where they are: a cluster that gets one gets its own first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topmast.slow.capacity.problem import Host

Kind = tuple[str, int, str, str]


def back_home(
    assignment: Mapping[str, str | None], hosts: Sequence[Host], owners: Mapping[str, str]
) -> dict[str, str | None]:
    """An assignment in which hosts of the buffer that are alike have changed places, so that few
    really move.

    To the planner they have no owner, so that it takes any of them for a cluster. The one that
    works for that cluster already, in ``owners``, goes there without a move. Alike are hosts of a
    model, size and fault domain: the costs of the plan stay what they are, or less. O(hosts).
    """
    alike: dict[Kind, list[Host]] = {}
    for host in hosts:
        if host.cluster is None:
            kind = (host.model, host.gpus, host.datacenter, host.domain)
            alike.setdefault(kind, []).append(host)
    found = dict(assignment)
    for equal in alike.values():
        found |= _assigned(equal, assignment, owners)
    return found


def _assigned(
    hosts: Sequence[Host], assignment: Mapping[str, str | None], owners: Mapping[str, str]
) -> dict[str, str | None]:
    """Where these go: first to the cluster that has them, then where the planner had them, then
    whatever is left.
    """
    left: dict[str | None, int] = {}
    for host in hosts:
        to = assignment[host.name]
        left[to] = left.get(to, 0) + 1
    found: dict[str, str | None] = {}
    for choice in (owners, assignment):
        for host in hosts:
            to = choice[host.name]
            if host.name not in found and left.get(to, 0):
                found[host.name] = to
                left[to] -= 1
    rest = [to for to, count in left.items() for _ in range(count)]
    missing = [host.name for host in hosts if host.name not in found]
    return found | dict(zip(missing, rest, strict=True))
