"""The queue: the jobs that hold GPUs, then those that wait, by rank."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

from fastapi.responses import RedirectResponse, Response
from msgspec import Struct
from msgspec.structs import asdict

from topmast.model.access import Permission
from topmast.model.errors import InvalidInput
from topmast.model.group_views import JobsGlance
from topmast.model.job import Band
from topmast.model.reason import HOPELESS, NOT_FORESEEN, NOT_YET, PendingReason, no_start
from topmast.model.selector import LABEL
from topmast.model.states import TERMINAL, WAITING, JobState
from topmast.model.views import JobPage, JobView
from topmast.service.listing import GROUP_KEYS, NO_LABEL
from topmast.web.page import Ask, Page
from topmast.web.shared import shared
from topmast.web.words import either

T = TypeVar("T")
ROWS = 100
"""Jobs of one page."""
FILTERS = ("state", "tenant", "user", "name", "band", "selector", "group")
WORDS = ("tenant", "user", "name", "band")
"""Filters that are keys of a selector."""
ALL = "all"
ACTIVE = "active"
NOTHING: dict[str, Any] = {
    "groups": None, "page_of": JobPage((), None, {}, 0), "counts": None, "lines": (), "onward": "",
    "first": "", "group_keys": list(GROUP_KEYS), "in_order": False,
}  # fmt: skip
"""What is listed if the filters cannot be read."""
_JOB = re.compile(r"j[0-9]{1,15}")


class Line(Struct, frozen=True):
    """A row of the queue."""

    job: JobView
    why: str
    """One sentence."""
    position: int | None = None
    """Among the jobs that wait, of those that the filters leave."""
    start_s: float | None = None
    """When it is expected to start, as far as the server knows without being asked."""
    wanted: str = ""
    """The GPU models that it asks for, while it waits."""
    no_start: str = NOT_YET
    """What is said where no time is known."""

    @property
    def never(self) -> str:
        """What would let it start, where no time does; else empty."""
        if self.job.reason not in HOPELESS:
            return ""
        return no_start(self.job.reason, suspended=self.job.suspended)


class Glance(JobsGlance, frozen=True):
    """What all jobs come to, and the GPUs of the fleet for callers that may see it."""

    gpus: float = 0.0
    free: float = 0.0
    away: float = 0.0
    """On hosts that take no work, and held by no job."""

    @property
    def held(self) -> float:
        """GPUs that jobs have."""
        return max(0.0, self.gpus - self.free - self.away)

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.placed + self.waiting


async def view(ask: Ask) -> dict[str, Any] | Response:
    """A page of jobs, with what the URL asks for."""
    found = ask.query.get("q", "").strip()
    if found:
        named = ask.link({}, name=f"*{found}*", state=ALL)
        to = f"/jobs/{found}" if _JOB.fullmatch(found) else f"/{named}"
        return RedirectResponse(to, 303)
    given = ask.filters(*FILTERS)
    states, selector = states_of(given["state"]), selector_of(given)
    shown = {
        "given": given, "selector": selector, "link": partial(ask.link, given),
        "states": list(JobState), "bands": [band.name.lower() for band in Band],
        "act_selector": _to_act_on(states, selector),
        "trouble_of_filters": "",
        "group_word": "priority" if given["group"] == "band" else given["group"],
    }  # fmt: skip
    plain = not any(given.values())
    shown["glance"] = await _once(ask, ("glance",), partial(_glance, ask)) if plain else None
    try:
        return {**shown, **await _listed(ask, given, states, selector)}
    except InvalidInput as error:
        if error.may_conceal:
            raise  # it is counted, and the audit log is told of what is there
        return {**shown, **NOTHING, "trouble_of_filters": str(error)}


async def _listed(
    ask: Ask, given: dict[str, str], states: list[str], selector: str
) -> dict[str, Any]:
    """The jobs that the filters leave, or their groups. Raises InvalidInput."""
    counts = await _once(
        ask, ("counts", selector), lambda: ask.service.counts(ask.caller, selector)
    )
    if given["group"]:
        by = given["group"]
        groups = await _once(
            ask, (by, *states, selector),
            lambda: ask.service.groups(ask.caller, by, states, selector),
        )  # fmt: skip
        page = await _page(ask, states, selector, 1, "", in_order=True)
        return {
            "groups": ask.part(groups), "page_of": page, "counts": counts,
            "lines": (), "onward": "", "first": "",
            "group_keys": _group_keys(page, by), "group_link": partial(_group_link, ask, given),
        }  # fmt: skip
    in_order = not any(state in TERMINAL for state in states) and bool(states)
    cursor = ask.query.get("cursor", "")
    page = await _page(ask, states, selector, ROWS, cursor, in_order=in_order)
    lines, held = await _lines(ask, page, in_order)
    onward = ask.link(given, cursor=page.next_cursor or "", held=str(held))
    return {
        "groups": None, "page_of": page, "counts": counts, "lines": lines,
        "group_keys": _group_keys(page, ""),
        "in_order": in_order,
        "onward": onward if page.next_cursor else "",
        "first": ask.link(given) if cursor else "",
    }  # fmt: skip


async def _glance(ask: Ask) -> Glance:
    found = asdict(await ask.service.glance(ask.caller))
    if not ask.caller.principal.may_somewhere(Permission.FLEET_VIEW):
        return Glance(**found)
    gpus = await ask.service.list(ask.caller, "gpus")
    total, free, away = (
        sum(getattr(one, key) for one in gpus) for key in ("total", "free", "unavailable")
    )
    return Glance(**found, gpus=total, free=free, away=away)


def _group_keys(page: JobPage, chosen: str) -> list[str]:
    """What jobs can be grouped by: of labels, those of the jobs on the page."""
    labels = {f"{LABEL}{key}" for job in page.jobs for key in job.labels or {}}
    return list(dict.fromkeys([*GROUP_KEYS, *sorted(labels), *([chosen] if chosen else [])]))


def _group_link(ask: Ask, given: dict[str, str], key: str) -> str:
    """The jobs of a group; empty where no selector means them."""
    by = given["group"]
    if not by.startswith(LABEL):
        return ask.link(given, group="", **{by: key})
    if key == NO_LABEL:
        return ""
    value = key.replace(",", "*")
    selector = ",".join(part for part in (given["selector"], f"{by}={value}") if part)
    return ask.link(given, group="", selector=selector)


async def _page(
    ask: Ask, states: list[str], selector: str, limit: int, cursor: str, *, in_order: bool
) -> JobPage:
    return await _once(
        ask, (*states, selector, limit, cursor, in_order),
        lambda: ask.service.jobs(ask.caller, states, "", limit, cursor, in_order, selector),
    )  # fmt: skip


async def _once(ask: Ask, about: tuple[Hashable, ...], question: Callable[[], Awaitable[T]]) -> T:
    """What is asked of a large queue is asked once for all readers that see the same tenants."""
    seen = ask.service.access.tenants(ask.caller, Permission.JOBS_VIEW)
    return await shared(ask.service, (seen, *about), question)


def states_of(text: str) -> list[str]:
    """The states that a filter names; none: all of them."""
    if text == ALL:
        return []
    return [state.strip() for state in text.split(",") if state.strip()] or [ACTIVE]


def selector_of(given: Mapping[str, str]) -> str:
    """The filters as one selector; a comma in a word stands for any characters."""
    parts = [f"{key}={given[key].replace(',', '*')}" for key in WORDS if given[key]]
    return ",".join([*parts, *([given["selector"]] if given["selector"] else [])])


def _to_act_on(states: list[str], selector: str) -> str:
    """The selector of all jobs that the filters leave, for an act on all of them."""
    named = [f"state={state}" for state in states or [ACTIVE]]
    return ",".join([*named, *([selector] if selector else [])])


async def _lines(ask: Ask, page: JobPage, in_order: bool) -> tuple[tuple[Line, ...], int]:
    """The rows, and how many jobs on this page and before it have a place."""
    jobs = [job.id for job in page.jobs]
    why = await ask.service.sentences(ask.caller, jobs)
    waits = [_waits(job) for job in page.jobs]
    may_start = [
        job.id
        for job, is_waiting in zip(page.jobs, waits, strict=True)
        if is_waiting and job.reason not in HOPELESS
    ]
    starts = await ask.service.forecasts.of_list(may_start)
    wanted = await ask.service.wanted_models(
        ask.caller, [job.id for job in page.jobs if not job.gpu_model]
    )
    held, before = _number(ask, "held"), _number(ask, "cursor")
    lines = []
    for at, (job, is_waiting) in enumerate(zip(page.jobs, waits, strict=True)):
        held += not is_waiting
        lines.append(
            Line(
                job, why.get(job.id, job.cause),
                before + at + 1 - held if is_waiting and in_order else None,
                starts.get(job.id), either(wanted.get(job.id, [])),
                NOT_FORESEEN if job.id in starts else NOT_YET,
            )
        )  # fmt: skip
    return tuple(lines), held


def _waits(job: JobView) -> bool:
    """Whether a job has no place; one that waits for others to stop has one."""
    return job.state in WAITING and job.reason != PendingReason.PREEMPTION_IN_PROGRESS


def _number(ask: Ask, name: str) -> int:
    digits = ask.query.get(name, "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0


PAGE = Page("/", "Queue", Permission.JOBS_VIEW, "queue.html", view, place=10, follows="all")
