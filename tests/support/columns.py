"""Plans put into columns, as the fleet placer makes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from topmast.model.columns import GangKind, PlanColumns, SeatColumns, Terms
from topmast.model.plan import Plan

DIFFER = {"fragmentation": 0.0, "balance": 0.0}


def columns_of(plans: Sequence[Plan]) -> PlanColumns:
    """Plans of common gangs; no table is shared."""
    rows = range(len(plans))
    on_hosts = [[list(on) for _, on in groupby(p.seats, lambda seat: seat.host)] for p in plans]
    seats = SeatColumns(
        jobs=tuple(plan.job for plan in plans),
        kinds=tuple(GangKind(p.seats[0].group, len(p.seats), len(p.seats[0].slots)) for p in plans),
        kind=tuple(rows),
        spans=tuple(len(hosts) for hosts in on_hosts),
        hosts=tuple(on[0].host for hosts in on_hosts for on in hosts),
        tasks=tuple(len(on) for hosts in on_hosts for on in hosts),
        slots=tuple(slot for plan in plans for seat in plan.seats for slot in seat.slots),
    )
    versions: dict[str, int] = {}
    for plan in plans:
        versions.setdefault(plan.region, plan.region_version)
    return PlanColumns(
        seats=seats,
        clusters=tuple((plan.region, plan.cluster) for plan in plans),
        cluster=tuple(rows),
        terms=tuple(Terms(p.model, int(p.level), {**p.terms, **DIFFER}) for p in plans),
        of_terms=tuple(rows),
        fragmentation=tuple(plan.terms.get("fragmentation", 0.0) for plan in plans),
        balance=tuple(plan.terms.get("balance", 0.0) for plan in plans),
        versions=versions,
    )
