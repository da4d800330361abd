"""Reads the audit log: only lines of tenants that the caller may audit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from topmast.model import account_views as v
from topmast.model.access import ROOT, TOP, Caller, Permission
from topmast.model.errors import Faults
from topmast.ports import ActFilter, ActRow, Journal
from topmast.service.access import Access
from topmast.service.audit_filter import asked_verb, check_filter
from topmast.service.limits import Limits
from topmast.service.redaction import Redaction

MAX_ACTS = 1_000


class Auditing:
    """What is asked of the audit log."""

    _access: Access
    _journal: Journal
    _limits: Limits
    _redaction: Callable[[Caller], Redaction | None]

    async def audit(self, caller: Caller, wanted: ActFilter) -> v.ActPage:
        """A page of the audit log, of the tenants that the caller may audit."""
        self._limits.take(caller, "list")
        tenants = self._access.tenants(caller, Permission.AUDIT_VIEW)
        asked = None if wanted.tenants is None else set(wanted.tenants)
        seen = asked if tenants is None else tenants if asked is None else tenants & asked
        limit = max(1, min(wanted.limit, MAX_ACTS))
        names = None if seen is None else tuple(sorted(seen))
        faults = Faults()
        faults.of(partial(check_filter, wanted))
        verb = asked_verb(wanted.verb)
        wanted = msgspec.structs.replace(wanted, tenants=names, limit=limit, verb=verb)
        if faults:  # then only whether the tenant has any line at all
            wanted = ActFilter(tenants=names, limit=1)
        rows = await asyncio.to_thread(self._journal.acts, wanted) if asked or not faults else ()
        if asked and not rows and wanted.before_id is None:
            faults.of(partial(self._refuse_unaudited, caller, asked))
        faults.refuse()
        self._limits.charge_rows(caller, len(rows))
        hides = self._redaction(caller)
        acts = tuple(self._shown(caller, row, hides) for row in rows)
        return v.ActPage(acts, str(acts[-1].id) if len(acts) == limit else None)

    def _shown(self, caller: Caller, row: ActRow, hides: Redaction | None) -> v.ActView:
        """A line without what it says of tenants that are hidden from the caller."""
        before, after, outcome = _state(row.before), _state(row.after), row.outcome
        if hides is not None:
            before, after = (self._seen(caller, row, hides.of(one)) for one in (before, after))
            outcome = hides.text(outcome)
        return v.ActView(
            row.id, row.at_s, row.actor, row.via, row.address, row.request, row.verb,
            row.object, row.tenant, before, after, outcome,
        )  # fmt: skip

    def _seen(self, caller: Caller, row: ActRow, state: Any) -> Any:
        if not isinstance(state, dict):
            return state
        found = dict(state)
        if row.actor != caller.principal.subject:
            found.pop("selector", None)  # it may name tenants, users and jobs of all tenants
        if "roles" in found:
            found["roles"] = [
                [role, tenant]
                for role, tenant in found["roles"]
                if self._access.may(
                    caller, Permission.ACCOUNTS_VIEW, ROOT if tenant == TOP else tenant
                )
            ]
        return found

    def _refuse_unaudited(self, caller: Caller, tenants: Iterable[str]) -> None:
        """Refuse tenants without a line that are no tenants, or that are not the caller's to audit.

        One that has left the fleet is known as long as it has lines.
        """
        for tenant in sorted(tenants):
            if not self._access.sees(caller, tenant):
                raise self._access.unknown_tenant(caller, tenant, Permission.AUDIT_VIEW)
            self._access.require(caller, Permission.AUDIT_VIEW, tenant)


def _state(text: str) -> Any:
    return msgspec.json.decode(text) if text else None
