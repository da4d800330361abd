"""What-if: two futures of the system side by side, as it is and with something changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.job import Band
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.policies.registry import load_profile
from topmast.service.whatif import RUNNING
from topmast.web.page import Ask, Page

FIGURES = (
    ("jobs", "jobs", ""), ("waiting", "waiting at first", ""), ("started", "of these started", ""),
    ("still_waiting", "still waiting", ""), ("finished", "finished", ""),
    ("wait_s.mean", "wait, mean", "s"), ("wait_s.p50", "wait, median", "s"),
    ("wait_s.p90", "wait, 90%", "s"), ("jct_s.mean", "from submission to end, mean", "s"),
    ("gpus", "GPUs in service", ""), ("allocation_rate", "GPUs in use, mean", "%"),
    ("preemptions", "preemptions", ""),
)  # fmt: skip
"""What is compared: the key in the document, its words, its unit."""
CHANGES = {
    **{f"priority={band.name.lower()}": f"priority {band.name.lower()}" for band in Band},
    "preemptible=true": "may be preempted", "preemptible=false": "may not be preempted",
}  # fmt: skip
"""What a job may ask for instead, in words."""
NO_HOSTS, NO_QUOTA, NO_JOB, NO_REGION = ("", ""), ("", ""), ("", ""), ("",)
"""Rows of the form that ask for nothing."""
DAY_S = 86_400.0
AHEAD = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800}


class Form(Struct, frozen=True):
    """What the form shows. Each kind of change has a row for each, and one to fill in if none."""

    hosts: Sequence[tuple[str, ...]]
    """Cluster, or cluster and kind of host, and number."""
    quotas: Sequence[tuple[str, ...]]
    """Tenant and GPU model, and GPUs."""
    jobs: Sequence[tuple[str, ...]]
    """Job, and what it asks for instead: ``priority=high``."""
    lost: Sequence[tuple[str, ...]]
    """Region."""
    profile: str
    ahead_s: float


async def view(ask: Ask) -> dict[str, Any]:
    """A form, and the what-if that the URL names."""
    number = ask.filters("id")["id"]
    service, caller = ask.service, ask.caller
    latest = service.latest_whatifs(caller)
    whatif = service.whatif(caller, number) if number else None
    tenants = await service.list(caller, "tenants")
    return {
        "form": _wished(ask) if whatif is None else _asked(whatif.asked),
        "ahead": AHEAD,
        "whatif": whatif,
        "share": whatif.jobs_over / whatif.jobs if whatif and whatif.jobs else None,
        "rows": _rows(whatif),
        "tenants": ask.part(_tenants(whatif), "tenants"),
        "latest": latest,
        "running": next(
            (one for one in latest if one.state == RUNNING and one is not whatif), None
        ),
        "changed_jobs": _changed_jobs(whatif),
        "clusters": await _clusters(ask),
        "policies": _policies(service.whatifs.profiles) if service.whatifs is not None else {},
        "moved": _moved(whatif),
        "changes": CHANGES,
        "regions": [one.name for one in await service.list(caller, "regions")],
        "quotas": {
            f"{one.name}:{one.gpu_model}": f"{one.name}:{one.gpu_model} ("
            + (f"now {one.nominal:g})" if one.nominal is not None else "no quota now)")
            for one in tenants
            if one.gpu_model
        },
        "possible": service.whatifs is not None,
        "profiles": service.whatifs.profiles if service.whatifs is not None else (),
    }


def _wished(ask: Ask) -> Form:
    """What the URL fills in."""
    given = ask.filters("profile", "for")
    digits = given["for"] if given["for"].isascii() and given["for"].isdigit() else ""
    ahead_s = float(digits) if digits and len(digits) < 9 else DAY_S
    return Form(
        ask.rows("add", "count") or [NO_HOSTS], ask.rows("quota", "gpus") or [NO_QUOTA],
        ask.rows("job", "change") or [NO_JOB], ask.rows("lose") or [NO_REGION],
        given["profile"], AHEAD.get(given["for"], ahead_s),
    )  # fmt: skip


def _asked(asked: WhatIfAsk) -> Form:
    """What the what-if was asked."""
    jobs = [
        (job, f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}")
        for job, wanted in asked.jobs.items()
        for key, value in wanted.items()
    ]
    return Form(
        [(cluster, str(count)) for cluster, count in asked.add_hosts.items()] or [NO_HOSTS],
        [(quota, str(gpus)) for quota, gpus in asked.quotas.items()] or [NO_QUOTA],
        jobs or [NO_JOB], [(region,) for region in asked.lose_regions] or [NO_REGION],
        asked.profile, asked.for_s,
    )  # fmt: skip


async def _clusters(ask: Ask) -> dict[str, str]:
    """Clusters by name, each with its GPUs."""
    gpus = await ask.service.list(ask.caller, "gpus")
    found: dict[str, str] = {}
    for cluster in await ask.service.list(ask.caller, "clusters"):
        own = [f"{one.total:g} {one.gpu_model}" for one in gpus if one.cluster == cluster.name]
        found[cluster.name] = f"{cluster.name} (now {', '.join(own) or 'no GPUs'})"
    return found


@cache
def _policies(names: tuple[str, ...]) -> dict[str, str]:
    """What each profile does."""
    return {name: load_profile(name).description for name in names}


Moved = list[tuple[str, float | None, float | None]]


def _moved(whatif: WhatIfView | None) -> list[tuple[str, int, Moved]]:
    """Which jobs gain and lose most, with starts in seconds from the moment of both futures."""
    if whatif is None or not whatif.result:
        return []
    at_s, moved = whatif.result["at_s"], whatif.result["moved"]

    def rows(key: str) -> Moved:
        return [
            (one["job"], *(None if one[of] is None else one[of] - at_s
                           for of in ("base_start_s", "changed_start_s")))
            for one in moved[key]
        ]  # fmt: skip

    return [
        ("Jobs that gain most", moved["sooner"], rows("gain_most")),
        ("Jobs that lose most", moved["later"], rows("lose_most")),
    ]


def _mark(key: str, part: dict[str, Any], for_s: float) -> str:
    """What is to be said of a wait where some jobs have not started by the end of a future."""
    if not key.startswith("wait_s.") or not part["still_waiting"]:
        return ""
    value = _at(part, key)
    if key == "wait_s.mean":
        return "least"
    return "beyond" if value is not None and value >= for_s - 1.0 else ""


Row = tuple[str, str, float | None, float | None, str, str]


def _rows(whatif: WhatIfView | None) -> list[Row]:
    """Words, unit, the figure as it is and with the change, and what is to be said of each."""
    if whatif is None or not whatif.result:
        return []
    base, changed = whatif.result["base"], whatif.result["changed"]
    for_s = whatif.result["for_s"]
    return [
        (words, unit, _at(base, key), _at(changed, key), _mark(key, base, for_s),
         _mark(key, changed, for_s))
        for key, words, unit in FIGURES
    ]  # fmt: skip


def _tenants(whatif: WhatIfView | None) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    if whatif is None or not whatif.result:
        return []
    base, changed = whatif.result["base"]["tenants"], whatif.result["changed"]["tenants"]
    return [(name, part, changed[name]) for name, part in base.items() if name in changed]


def _changed_jobs(
    whatif: WhatIfView | None,
) -> list[tuple[str, str, float | None, float | None]]:
    """The jobs that the change names, with starts and ends in seconds from the moment of both."""
    if whatif is None or not whatif.result:
        return []
    at_s, base, changed = (whatif.result[key] for key in ("at_s", "base", "changed"))
    return [
        (job, words, *(None if of[key] is None else of[key] - at_s for of in (one, other)))
        for job, one in base["changed_jobs"].items()
        for other in (changed["changed_jobs"][job],)
        for words, key in (("starts", "start_s"), ("ends", "finish_s"))
    ]


def _at(document: Any, key: str) -> float | None:
    for part in key.split("."):
        document = document[part]
    return None if document is None else float(document)


PAGE = Page("/whatif", "What-if", Permission.FLEET_EDIT, "whatif.html", view, place=60)
