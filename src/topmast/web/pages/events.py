"""Events and audit: what happened a moment ago, and which acts were done by which account."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.account_views import ActPage, ActView
from topmast.model.errors import InvalidInput
from topmast.model.webhooks import EVENTS
from topmast.ports import ActFilter
from topmast.web.page import Ask, Page

ROWS = 200
KINDS = {kind.lower(): kind for kind in EVENTS}
"""Kinds of events, by how the page writes them."""


async def view(ask: Ask) -> dict[str, Any]:
    """The newest events, or lines of the audit log, with what the URL asks for."""
    given = ask.filters("show", "kind", "job", "actor", "verb", "object", "outcome", "before")
    may_audit = ask.caller.principal.may_somewhere(Permission.AUDIT_VIEW)
    shown: dict[str, Any] = {
        "given": given,
        "may_audit": may_audit,
        "events": (),
        "acts": None,
        "reasons": {},
        "earlier": "",
        "kinds": EVENTS,
        "trouble_of_filters": "",
    }
    if given["show"] == "audit" and may_audit:
        try:
            acts = await ask.service.directory.audit(ask.caller, _wanted(given))
        except InvalidInput as error:
            trouble = "; ".join(str(one) for one in (error, *error.more))
            return {**shown, "acts": ActPage((), None), "trouble_of_filters": trouble}
        shown |= {"acts": acts, "reasons": {act.id: _reason(act) for act in acts.acts}}
    else:
        kind = given["kind"]
        kind = kind if kind in EVENTS else KINDS.get(kind.lower(), kind)
        found = ask.service.recent_events(ask.caller, ROWS, kind, given["job"], _before(given))
        shown["events"] = found
        if len(found) == ROWS:
            shown["earlier"] = ask.link({**given, "before": str(found[-1].seq)})
    return shown


def _reason(act: ActView) -> str:
    """Why it was done, as far as its actor said."""
    reason = act.after.get("reason") if isinstance(act.after, dict) else None
    return reason if isinstance(reason, str) else ""


def _before(given: dict[str, str]) -> int | None:
    """The number before which lines are wanted. Raises InvalidInput."""
    before = given["before"]
    if before and not (before.isascii() and before.isdigit() and len(before) < 19):
        raise InvalidInput("not a number of this server", field="before")
    return int(before) if before else None


def _wanted(given: dict[str, str]) -> ActFilter:
    return ActFilter(
        actor=given["actor"], verb=given["verb"], object=given["object"],
        outcome=given["outcome"], before_id=_before(given), limit=ROWS,
    )  # fmt: skip


PAGE = Page("/events", "Events", Permission.JOBS_VIEW, "events.html", view, place=70, follows="all")
