"""The audit log as a table: which lines are wanted, and what a line is as a row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from topmast.adapters.store.tables import ACTS
from topmast.ports import ActFilter, ActRow


def chosen(wanted: ActFilter) -> Select[Any]:
    """The lines that are wanted, the newest first."""
    table = ACTS.c
    query = select(ACTS).order_by(table.id.desc()).limit(wanted.limit)
    for column, value in (
        (table.actor, wanted.actor), (table.verb, wanted.verb), (table.object, wanted.object),
    ):  # fmt: skip
        query = query.where(column == value) if value else query
    if wanted.outcome:
        query = query.where(table.outcome.startswith(wanted.outcome, autoescape=True))
    if wanted.tenants is not None:
        query = query.where(table.tenant.in_(wanted.tenants))
    if wanted.since_s is not None:
        query = query.where(table.at_s >= wanted.since_s)
    if wanted.until_s is not None:
        query = query.where(table.at_s < wanted.until_s)
    return query if wanted.before_id is None else query.where(table.id < wanted.before_id)


def row_of(row: ActRow) -> tuple[Any, ...]:
    """A line as its columns, without the number that the database gives."""
    return (
        row.at_s, row.actor, row.via, row.address, row.request, row.verb, row.object, row.tenant,
        row.before, row.after, row.outcome,
    )  # fmt: skip


def act_of(number: int, at_s: float, *texts: Any) -> ActRow:
    """The line of a row."""
    return ActRow(*(*texts, at_s, number))
