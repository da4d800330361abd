"""Events and audit: what happened a moment ago, and which acts were done by which account."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from topmast.model.access import Permission
from topmast.model.account_views import ActPage, ActView
from topmast.model.errors import InvalidInput
from topmast.model.moments import parse_moment_s
from topmast.model.webhooks import EVENTS
from topmast.ports import ActFilter
from topmast.web.page import Ask, Page, matches_nothing

ROWS = 200
FILTERS = (
    "show", "kind", "job", "actor", "verb", "object", "tenant", "outcome", "since", "until",
    "before",
)  # fmt: skip
LABELS = {
    "actor": "Account", "verb": "Act", "tenant": "Tenant", "outcome": "Outcome", "since": "Since",
    "until": "Until",
}  # fmt: skip
"""How the form names filters that may be wrong."""
KINDS = {kind.lower(): kind for kind in EVENTS}
"""Kinds of events, by how the page writes them."""


async def view(ask: Ask) -> dict[str, Any]:
    """The newest events, or lines of the audit log, with what the URL asks for."""
    given = ask.filters(*FILTERS)
    may_audit = ask.caller.principal.may_somewhere(Permission.AUDIT_VIEW)
    shown: dict[str, Any] = {
        "given": given,
        "may_audit": may_audit,
        "events": (),
        "acts": None,
        "reasons": {},
        "earlier": "",
        "kinds": EVENTS,
        "trouble_of_filters": {},
        "no_match": (),
    }
    if given["show"] == "audit" and may_audit:
        return {**shown, **await _acts(ask, given)}
    kind = given["kind"]
    kind = kind if kind in EVENTS else KINDS.get(kind.lower(), kind)
    found = ask.service.recent_events(ask.caller, ROWS, kind, given["job"], _before(given))
    shown["events"] = found
    shown["no_match"] = matches_nothing({"kind": kind}, {"kind": ("kind of event", EVENTS)})
    if len(found) == ROWS:
        shown["earlier"] = ask.link({**given, "before": str(found[-1].seq)})
    return shown


async def _acts(ask: Ask, given: dict[str, str]) -> dict[str, Any]:
    """Lines of the audit log; none, with what is wrong by field, if the filters cannot be read."""
    faults: list[InvalidInput] = []
    wanted = _wanted(given, ask.service.clock.now(), faults)
    acts = ActPage((), None)
    try:
        acts = await ask.service.directory.audit(ask.caller, wanted)
    except InvalidInput as error:
        if error.may_conceal:
            raise  # it is counted, and the audit log is told of what is there
        faults += (error, *error.more)
    if faults:
        told = {one.field: _told(one) for one in reversed(faults)}  # the first of each field
        return {"acts": ActPage((), None), "trouble_of_filters": told}
    earlier = ask.link({**given, "before": acts.next_cursor}) if acts.next_cursor else ""
    reasons = {act.id: _reason(act) for act in acts.acts}
    return {"acts": acts, "reasons": reasons, "earlier": earlier}


def _told(fault: InvalidInput) -> str:
    """What is wrong with a field of the form, by the name that it has there."""
    words = f"{LABELS.get(fault.field, fault.field)}: {fault.message}"
    return f"{words}; {fault.remedy}" if fault.remedy else words


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


def _wanted(given: dict[str, str], now_s: float, faults: list[InvalidInput]) -> ActFilter:
    """Which acts are wanted. Times are written as for `topmast audit`; ``faults`` get what is none.

    Raises InvalidInput.
    """
    times: dict[str, float] = {}
    for name in ("since", "until"):
        try:
            if given[name]:
                times[name] = parse_moment_s(given[name], now_s, zone=UTC, field=name)
        except InvalidInput as error:
            faults.append(error)
    if len(times) == 2 and times["since"] >= times["until"]:
        message = f"'{given['until'][:40]}' is not after '{given['since'][:40]}'"
        faults.append(InvalidInput(message, field="until", remedy="write a later time"))
    return ActFilter(
        given["actor"], given["verb"], given["object"], given["outcome"],
        (given["tenant"],) if given["tenant"] else None, times.get("since"), times.get("until"),
        _before(given), ROWS,
    )  # fmt: skip


PAGE = Page("/events", "Events", Permission.JOBS_VIEW, "events.html", view, place=70, follows="all")
