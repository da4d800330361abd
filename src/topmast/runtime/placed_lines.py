"""Lines of the audit log about plans that won: one alone, or thousands that came together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from topmast.model.columns import DIFFER, LEVELS, PlanColumns
from topmast.model.decided import AS_FORESEEN, Decided, Rival, Rule, why
from topmast.model.job import MILLI, Level
from topmast.model.plan import Plan
from topmast.ports import HistoryRow

PLAIN_RULES = (Rule.LOWEST_SCORE, Rule.STOPS_JOBS, Rule.MOVES_JOBS)
"""Rules of which the rest of the line tells enough."""
OVER_QUOTA = "; over quota, so it runs opportunistically"
PLACED = "placed"

_encode = msgspec.json.Encoder().encode


class Detail(Struct, frozen=True, gc=False):
    """The detail of such a line."""

    epoch: int
    region: str
    cluster: str
    model: str
    hosts: tuple[str, ...]
    gpus: float
    score: float
    terms: Mapping[str, float]
    victims: Sequence[str]
    over_quota: bool
    rule: str | None
    rival: Rival | None


def placed(
    now: float, epoch: int, plan: Plan, over_quota: bool, decided: Decided | None
) -> HistoryRow:
    """The line about one plan."""
    victims = [v.job for v in plan.victims if v.to is None]
    moved = ", ".join(f"{v.job} to {', '.join(v.to.hosts)}" for v in plan.victims if v.to)
    where = _where(plan.region, plan.cluster, plan.gpus_milli, plan.model, plan.level)
    terms = [f"{name} {value:.3g}" for name, value in sorted(plan.terms.items()) if value]
    text = f"{where}, score {plan.score:.3g}{_told(terms)}"
    if over_quota:
        text += OVER_QUOTA
    if victims:
        text += f"; preempts {', '.join(victims)}"
    if moved:
        text += f"; moves {moved}"
    if decided and decided.rule not in PLAIN_RULES:
        text += f"; {why(decided, plan)}"
    rule, rival = (decided.rule.value, decided.rival or None) if decided else (None, None)
    detail = Detail(
        epoch, plan.region, plan.cluster, plan.model, plan.hosts, plan.gpus_milli / MILLI,
        plan.score, plan.terms, [victim.job for victim in plan.victims], over_quota, rule, rival,
    )  # fmt: skip
    return HistoryRow(now, plan.job, PLACED, text, _encode(detail).decode())


def all_placed(
    now: float, columns: PlanColumns, first: int, epochs: Sequence[int], over_quota: Sequence[bool]
) -> list[HistoryRow]:
    """The lines about plans that were foreseen, from one on: the same as one by one. O(plans)."""
    patterns: dict[tuple[int, int, int, bool, bool], str] = {}
    rule, found = AS_FORESEEN.rule.value, list[HistoryRow]()
    plans, hosts = columns.plans, columns.seats.hosts_each
    for row, (epoch, over) in enumerate(zip(epochs, over_quota, strict=True), first):
        plan = plans[row]
        balance, fragmentation = float(columns.balance[row]), float(columns.fragmentation[row])
        alike = (
            columns.cluster[row], columns.seats.kind[row], columns.of_terms[row],
            balance != 0, fragmentation != 0,
        )  # fmt: skip
        pattern = patterns.get(alike)
        if pattern is None:
            pattern = patterns[alike] = _pattern(columns, row)
        text = pattern % (plan.score, *filter(None, (balance, fragmentation)))
        if over:
            text += OVER_QUOTA
        detail = Detail(
            epoch, plan.region, plan.cluster, plan.model, hosts[row], plan.gpus_milli / MILLI,
            plan.score, plan.terms, (), over, rule, None,
        )  # fmt: skip
        found.append(HistoryRow(now, plan.job, PLACED, text, _encode(detail).decode()))
    return found


def _pattern(columns: PlanColumns, row: int) -> str:
    """What lines about like plans have in common: score and the terms that vary are left open.

    A term of 0 is not told: it says nothing of the choice.
    """
    shared, gang = (
        columns.terms[columns.of_terms[row]],
        columns.seats.kinds[columns.seats.kind[row]],
    )
    gpus_milli, level = gang.tasks * gang.gpus * MILLI, LEVELS[shared.level]
    where = _where(*columns.clusters[columns.cluster[row]], gpus_milli, shared.model, level)
    differ = {"balance": columns.balance[row], "fragmentation": columns.fragmentation[row]}
    terms = [
        f"{name} %.3g" if name in DIFFER else f"{name} {value:.3g}"
        for name, value in sorted(shared.terms.items())
        if differ.get(name, value)
    ]
    return f"{where.replace('%', '%%')}, score %.3g{_told(terms)}"


def _where(region: str, cluster: str, gpus_milli: int, model: str, level: Level) -> str:
    gpus = f"{gpus_milli / MILLI:g} {model}".strip() if gpus_milli else "no GPU"
    return f"placed in {region}/{cluster} on {gpus} ({level.name.lower()})"


def _told(terms: Sequence[str]) -> str:
    return f" ({', '.join(terms)})" if terms else ""
