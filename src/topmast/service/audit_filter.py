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
_VERB_OF = {
    **{f"POST /jobs/{verb}": verb for verb in VERBS[1:9]},
    **{f"POST /hosts/{verb}": verb for verb in ("cordon", "drain", "uncordon")},
    **{f"POST /hosts/{{host}}/{verb}": verb for verb in ("cordon", "drain", "uncordon")},
    "POST /jobs": "submit", "POST /jobs/bulk": "submit", "POST /jobs/{job}/cancel": "cancel",
    "POST /jobs/{job}/exec": "exec", "PUT /workdirs/{digest}": "upload",
    "POST /clusters/close": "close-cluster", "POST /clusters/{cluster}/close": "close-cluster",
    "POST /clusters/open": "open-cluster", "POST /clusters/{cluster}/open": "open-cluster",
    "POST /reservations": "reserve", "POST /reservations/{name}/end": "end-reservation",
    "POST /tenants/pause": "pause-tenant", "POST /tenants/{tenant}/pause": "pause-tenant",
    "POST /tenants/resume": "resume-tenant", "POST /tenants/{tenant}/resume": "resume-tenant",
    "POST /tenants/{tenant}/quota": "set-quota", "POST /tenants/{tenant}/quota/end": "end-quota",
    "POST /fleet/apply": "fleet-apply", "POST /datasets": "add-dataset",
    "POST /datasets/{name}/replicas": "replicate", "DELETE /datasets/{name}": "remove-dataset",
    "DELETE /datasets/{name}/replicas/{region}": "drop-replica", "POST /whatif": "whatif",
    "POST /tokens": "create-token", "DELETE /tokens/{token}": "revoke-token",
    "POST /accounts": "add-account", "DELETE /accounts/{name}": "remove-account",
    "POST /roles/grant": "grant-role", "POST /roles/revoke": "revoke-role",
    "PUT /webhooks/{name}": "put webhook", "DELETE /webhooks/{name}": "remove webhook",
    "POST /webhooks/{name}/test": "test webhook", "PUT /profile": "set profile",
}  # fmt: skip
"""By route, what it does: of a refusal at the door only the route is known."""
_OWN_ACTORS = ("budget",)
"""Parts of the server that act by themselves."""
_OUTCOMES = ("done", "unchanged", "refused")
_ROUTE = re.compile(r"[A-Z]+ /")
"""How the verb of a refusal begins where a route does nothing else that is in the log."""


def verb_of(route: str) -> str:
    """What a route such as ``POST /api/v1/jobs`` does, in the words of the log; else the route."""
    method, _, path = route.partition(" ")
    return _VERB_OF.get(f"{method} {path.removeprefix('/api/v1')}", route)


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
