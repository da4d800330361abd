"""One job: why it stands where it stands, what it did, what it writes, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import yaml
from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.errors import NotFound, Unavailable
from topmast.model.job import Band
from topmast.model.reason import Change, ChangeKind, no_start
from topmast.model.states import HOLDING, TERMINAL, JobState
from topmast.model.views import Explanation, JobView
from topmast.web.candidates import axis_of, candidates, plan_bars, terms_of, without_time
from topmast.web.explanations import explanation_of
from topmast.web.page import Ask, Page
from topmast.web.series import curves
from topmast.web.words import either, once

LOG_BYTES = 65_536
"""Of the output that a page without scripts shows."""
BEYOND = 1 << 49
"""No output is so long: what is read from there on is nothing, and says where the end is."""


class Help(Struct, frozen=True):
    """A change that would give the job a place, and what to press for it."""

    text: str
    edit: dict[str, Any] | None = None
    """What `edit` is told; None: it is not a matter of this job alone."""
    try_out: str = ""
    """The address of a what-if that is filled in with it; empty: none can show it."""
    found: bool = False
    """Whether it was tried: then the job has a place as soon as it is so."""
    by_itself: bool = False
    """It happens without anybody."""
    at_s: float | None = None
    """When it happens by itself, by the forecast of the expected start."""
    jobs: tuple[str, ...] = ()
    """Those that have to end."""
    why_no_act: str = ""
    """Where there is nothing to press: how it is done instead."""
    page: str = ""
    """The page on which it is done."""


SOON_S = 60.0
"""What happens so shortly before the expected start is what that counts on."""
BY_ITSELF = frozenset((
    ChangeKind.ENDS, ChangeKind.PATIENCE, ChangeKind.COPY, ChangeKind.MOVES, ChangeKind.KEPT,
))  # fmt: skip
OF_THE_JOB = (
    "What a job asks for stays as it was submitted: `topmast launch --like {job}` submits it again "
    "with changes"
)
NO_ACT: dict[ChangeKind, tuple[str, str]] = {
    ChangeKind.ENDS: ("It happens by itself, or sooner by a cancel", ""),
    ChangeKind.DATA: ("Copies are begun on the page of data", "/data"),
    ChangeKind.RESIDENCY: ("The catalogue says where a dataset may be, in the fleet file", ""),
    ChangeKind.QUOTA: ("Quotas are set on the page of tenants", "/tenants"),
    ChangeKind.BORROW: ("What tenants may borrow is set in the fleet file", "/fleet/file"),
    ChangeKind.RESERVED: ("Reservations are ended on the page of the fleet", "/fleet"),
    ChangeKind.SERVICE: ("Hosts are taken back into service on the page of the fleet", "/fleet"),
    ChangeKind.HOSTS: ("Hosts become free as jobs end; more are added in the fleet file", "/fleet"),
    ChangeKind.AVOIDED: ("The job avoids hosts for a while after an attempt was lost there", ""),
}
"""By kind of change: why no button of this page does it, and the page that does."""
IN_GENERAL = "No single act does this: jobs have to end, or the job or the fleet has to change"


async def view(ask: Ask) -> dict[str, Any]:
    """All of one job."""
    story = await ask.service.story(ask.caller, ask.path["job"])
    explanation, trouble = await _explained(ask, story.job)
    if explanation is not None and explanation.state != story.job.state:
        # It changed in between: the page tells of one moment.
        story = await ask.service.story(ask.caller, ask.path["job"])
        explanation = None if story.job.state in TERMINAL else explanation
    job, now_s = story.job, ask.service.clock.now()
    wanted = {} if job.gpu_model else await ask.service.wanted_models(ask.caller, [job.id])
    attempts = ask.part(story.attempts, "attempts")
    return {
        "title": f"{job.id} {job.name}",
        "job": job,
        "model": job.gpu_model or either(wanted.get(job.id, [])),
        "story": story,
        "history": ask.part(story.history[::-1], "history"),
        "cause": once(job.cause, job.state, of_state=True),
        "attempts": attempts,
        "data": {"job": job, "attempts": attempts.rows, "now_s": now_s},
        "explanation": explanation,
        "soon_s": SOON_S,
        "no_start": _no_start(explanation) if explanation else "",
        "trouble": trouble,
        "terms": terms_of(explanation) if explanation else (),
        "candidates": ask.part(candidates(explanation) if explanation else (), "places"),
        "bars": [plan_bars(plan, terms_of(explanation)) for plan in explanation.plans]
        if explanation else [],
        "axis": axis_of(explanation, now_s) if explanation else None,
        "helps": _helps(explanation) if explanation else (),
        "file": await _file(ask, job),
        "log": await _log(ask, job),
        "bands": [band.name.lower() for band in Band],
        "verbs": verbs_for(job),
        "curves": curves(ask.service.live_progress.curves_of(job.id)),
    }  # fmt: skip


async def _explained(ask: Ask, job: JobView) -> tuple[Explanation | None, str]:
    return (None, "") if job.state in TERMINAL else await explanation_of(ask, job)


def verbs_for(job: JobView) -> tuple[str, ...]:
    """What can be done to a job as it stands."""
    if job.state in TERMINAL:
        return ("requeue",) if job.state != JobState.SUCCEEDED else ()
    if job.state == JobState.CANCELLING:
        return ()
    has_gpus = job.state in HOLDING
    again = has_gpus or job.state == JobState.RECOVERING
    return (
        "resume" if job.suspended else "release" if job.hold else "hold",
        *(("suspend", "preempt") if has_gpus else ()), *(("requeue",) if again else ()),
        "edit", "cancel",
    )  # fmt: skip


def _helps(explanation: Explanation) -> tuple[Help, ...]:
    """What would help, each with what to press where one thing of this job is all that changes."""
    known = {change.text: change for change in explanation.changes}
    job = explanation.job or ""
    helps = ((text, known.get(text)) for text in explanation.would_help)
    return tuple(
        Help(text, why_no_act=IN_GENERAL) if change is None else _help(job, change)
        for text, change in helps
    )


def _help(job: str, change: Change) -> Help:
    edit, try_out = _edit(change), _try_out(job, change)
    by_itself, why, page = change.kind in BY_ITSELF, "", ""
    if edit is None:
        general = "It happens by itself" if by_itself else OF_THE_JOB.format(job=job)
        why, page = NO_ACT.get(change.kind, (general, ""))
    return Help(
        without_time(change.text), edit, try_out, True, by_itself, change.at_s,
        change.jobs if change.kind is ChangeKind.ENDS else (), why, page,
    )  # fmt: skip


def _no_start(explanation: Explanation) -> str:
    """What is said where no time of a start is known."""
    start = explanation.expected_start
    why = start.basis if start is not None and start.at_s is None else ""
    told = no_start(
        explanation.reason, *explanation.also, suspended=explanation.suspended, why=why,
        not_before="" if explanation.not_before_s is None else "the quota of its tenant changes",
    )  # fmt: skip
    return told[:1].upper() + told[1:]


def _try_out(job: str, change: Change) -> str:
    """More hosts for a cluster, a larger quota, or another request of the job."""
    edit = _edit(change)
    if edit is not None:
        ((key, to),) = edit.items()
        words = to if isinstance(to, str) else str(to).lower()
        return f"/whatif?{urlencode({'job': job, 'change': f'{key}={words}'})}"
    if isinstance(change.to, float) and change.kind in (ChangeKind.HOSTS, ChangeKind.SERVICE):
        return f"/whatif?{urlencode({'add': change.cluster, 'count': int(change.to)})}"
    added = [(tenant, model) for tenant, of in change.added_gpus.items() for model in of]
    if isinstance(change.to, float) and change.kind is ChangeKind.QUOTA and len(added) == 1:
        quota = {"quota": ":".join(added[0]), "gpus": int(change.to)}
        return f"/whatif?{urlencode(quota)}"
    return ""


def _edit(change: Change) -> dict[str, Any] | None:
    if change.also or change.to is None:
        return None
    if change.kind is ChangeKind.PRIORITY:
        return {"priority": str(change.to).lower()}
    if change.kind is ChangeKind.PREEMPTIBLE:
        return {"preemptible": change.to == "true"}
    return None


async def _file(ask: Ask, job: JobView) -> str:
    """The job file, as far as it is still known."""
    try:
        found = await ask.service.job_file(ask.caller, job.id)
    except NotFound:
        return ""
    return yaml.safe_dump(found.job, sort_keys=False, allow_unicode=True, width=100)


async def _log(ask: Ask, job: JobView) -> Mapping[str, Any]:
    """The end of the output, or the part that the URL names: what is read without scripts."""
    task = _number(ask, "task") or 0
    attempt = _number(ask, "attempt")
    shown: dict[str, Any] = {
        "task": min(task, max(0, job.tasks - 1)), "attempt": attempt or job.attempts, "text": "",
        "from": 0, "to": 0, "size": 0, "trouble": "",
    }  # fmt: skip
    if ask.alone or not job.attempts:
        return shown
    try:
        end = await ask.service.log(ask.caller, job.id, shown["task"], attempt, BEYOND, 1)
        size = 0 if end.next_offset >= BEYOND else end.next_offset
        at = _number(ask, "offset")
        at = max(0, size - LOG_BYTES) if at is None else min(at, size)
        part = await ask.service.log(ask.caller, job.id, shown["task"], attempt, at, LOG_BYTES)
    except (NotFound, Unavailable) as error:
        return {**shown, "trouble": str(error)}
    text = part.data.decode("utf-8", "replace")
    return {**shown, "text": text, "from": at, "to": part.next_offset, "size": size}


def _number(ask: Ask, name: str) -> int | None:
    digits = ask.query.get(name, "")
    known = digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if known else None


PAGE = Page("/jobs/{job}", "Job", Permission.JOBS_VIEW, "job.html", view, follows="job")
