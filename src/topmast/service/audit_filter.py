"""What lines of the audit log can be asked for."""

from __future__ import annotations

import re

from topmast.model.errors import Faults
from topmast.model.files.fields import nearest
from topmast.model.units import show
from topmast.ports import ActFilter
from topmast.service.periods import check_period

VERBS = (
    "submit", "cancel", "hold", "release", "suspend", "resume", "preempt", "requeue", "edit",
    "exec", "upload", "cordon", "drain", "uncordon", "close-cluster", "open-cluster", "reserve",
    "end-reservation", "pause-tenant", "drain-tenant", "resume-tenant", "set-quota", "end-quota",
    "fleet-apply", "add-dataset", "replicate", "drop-replica", "remove-dataset", "whatif", "login",
    "logout", "create-token", "revoke-token", "add-account", "remove-account", "grant-role",
    "revoke-role", "refuse", "put webhook", "remove webhook", "test webhook", "set profile",
)  # fmt: skip
"""What lines of the audit log say was done or refused."""
_ALIASES = {"reprioritize": "edit"}
"""Verbs of commands, by which lines are asked for as well."""
_OWN_ACTORS = ("budget",)
"""Parts of the server that act by themselves."""
_OUTCOMES = ("done", "unchanged", "refused")
_ROUTE = re.compile(r"[A-Z]+ /")
"""How the verb of a refusal begins where a route does nothing else that is in the log."""


def asked_verb(verb: str) -> str:
    """The verb in the log of one that is asked for."""
    return _ALIASES.get(verb, verb)


def check_filter(wanted: ActFilter) -> None:
    """Raises InvalidInput, with all that is wrong, for what no line can be like."""
    faults = Faults()
    check_period(faults, wanted.since_s, wanted.until_s)
    if ":" not in wanted.actor and wanted.actor not in ("", *_OWN_ACTORS):
        remedy = f"user:{wanted.actor[:100]} or sa:{wanted.actor[:100]}"
        faults.add(f"'{wanted.actor[:100]}' is no subject", "actor", remedy)
    known = (*VERBS, *_ALIASES)
    if wanted.verb not in ("", *known) and not _ROUTE.match(wanted.verb):
        remedy = nearest(wanted.verb, known) or f"one of: {', '.join(known)}"
        faults.add(f"no verb {show(wanted.verb)}", "verb", remedy)
    begins = wanted.outcome
    if not any(one.startswith(begins) or begins.startswith(one) for one in _OUTCOMES):
        faults.add(
            f"no outcome begins with '{begins}'", "outcome", f"one of: {', '.join(_OUTCOMES)}"
        )
    faults.refuse()
