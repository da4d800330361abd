"""The queue and the jobs in it: `queue`, `status`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import Session, command
from topmast.cli.completion import (
    complete_active_jobs,
    complete_jobs,
    complete_states,
    complete_tenants,
)
from topmast.cli.output import Cell, Column, Row, note, say, say_fields, say_table
from topmast.cli.sweeps import is_sweep, say_sweep, sweep_row
from topmast.cli.text import moment, number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.sweep_views import SweepView
    from topmast.model.views import AttemptView, HistoryView, JobPage, JobStory, JobView

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The id of a job.", autocompletion=complete_jobs)
]

JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB", help="Ids of jobs.", autocompletion=complete_active_jobs),
]

STATE_STYLES = {
    "PENDING": "yellow", "STARTING": "cyan", "RUNNING": "green", "PREEMPTING": "magenta",
    "RECOVERING": "magenta", "SUSPENDED": "magenta", "CANCELLING": "yellow",
    "SUCCEEDED": "blue", "FAILED": "red", "CANCELLED": "dim",
}  # fmt: skip
FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED")
WAITING = ("PENDING", "RECOVERING")
_PAGE_JOBS = 1000
COUNTED_ENDED = 10_000
"""So many jobs that have ended a server keeps in memory, and counts."""

_QUEUE_COLUMNS = [
    Column("ID", whole=True), Column("NAME", folds=True), Column("TENANT", spare=4),
    Column("BAND", spare=3),
    Column("STATE", whole=True), Column("REASON"), Column("WHERE", folds=True),
    Column("GPUS", right=True),
    Column("TRIES", right=True, spare=2), Column("STEP", right=True, spare=1),
    Column("AGE", right=True),
]  # fmt: skip
_ENDED, _LABELS = Column("ENDED", whole=True), Column("LABELS", folds=True, spare=5)


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "queue", example="topmast queue\n"
        "topmast queue --only RUNNING,PENDING --tenant vision\n"
        "topmast queue --selector user=ada,label.team=vision\ntopmast queue --all --json",
    )(queue)  # fmt: skip
    command(app, "status", example="topmast status j17")(status)


# ------------------------------------------------------------------------------------------- queue


def queue(
    session: Session,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="STATE,...",
            help="Only jobs in these states, for example RUNNING.",
            autocompletion=complete_states,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only jobs of one tenant.", autocompletion=complete_tenants
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="The number of jobs to show; 0 for all.")
    ] = 1000,
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            "-l",
            metavar="KEY=VALUE,...",
            help="Only jobs with these: state, tenant, user, name, cluster, host, band, "
            "sweep, label.KEY; * stands for any characters.",
        ),
    ] = None,
    unfold: Annotated[
        bool, typer.Option("--unfold", help="Show the jobs of sweeps, not a line for each sweep.")
    ] = False,
) -> None:
    """The jobs that hold GPUs, then those that wait, by rank.

    With --all, or where --only names a state that ends a job, the newest come first.
    """
    states = [state.strip().upper() for state in only.split(",") if state.strip()] if only else []
    if not states and not every and "state=" not in (selector or ""):
        states = ["active"]
    with session.client() as client:
        fold = not unfold and "sweep=" not in (selector or "")
        page = _pages(client, states, tenant, limit, selector, fold)
    session.show(page, lambda: _say_queue(page))
    if not page.jobs and not page.sweeps and not session.json:
        note(_none(page, asked=bool(only or tenant or selector)))
    if page.next_cursor is not None and page.total != len(page.jobs):
        of = "the newest" if page.total is None else f"{page.total:,}"
        note(f"showing {len(page.jobs):,} of {of} jobs: --limit 0 shows all")


def _pages(
    client: Client,
    states: Sequence[str],
    tenant: str | None,
    limit: int,
    selector: str | None,
    fold: bool,
) -> JobPage:
    """As many jobs as asked for, as one page: by rank, unless it is about jobs that have ended."""
    from msgspec.structs import replace

    order = "queue" if states and not any(state in FINISHED for state in states) else None
    found: dict[str, JobView] = {}
    cursor: str | None = None
    pages = 0
    sweeps: tuple[SweepView, ...] = ()
    while not pages or (cursor and (not limit or len(found) < limit)):
        room = min(_PAGE_JOBS, limit - len(found)) if limit else _PAGE_JOBS
        page = client.job_page(
            states=states, tenant=tenant, order=order, limit=room, cursor=cursor, selector=selector,
            fold=fold,
        )  # fmt: skip
        sweeps = sweeps or page.sweeps
        found |= {job.id: job for job in page.jobs}
        cursor, pages = page.next_cursor, pages + 1
    if order and pages > 1 and not limit:
        # A job that changes its rank between two pages may be on none; by number none is missed.
        found |= {
            job.id: job for job in client.jobs(states=states, tenant=tenant, selector=selector)
        }
    return replace(page, jobs=tuple(found.values()), next_cursor=cursor, sweeps=sweeps)


def _none(page: JobPage, asked: bool) -> str:
    """Why no job is shown."""
    if not any(page.counts.values()):
        return "no jobs: submit one with `topmast launch JOB.yaml`"
    return "no such jobs" if asked else "no job waits or runs; --all shows those that have ended"


def _say_queue(page: JobPage) -> None:
    say_jobs(page.jobs, sweeps=page.sweeps)
    if sys.stdout.isatty() and page.jobs:
        say()
        say(counts_line(page.counts))


def counts_line(counts: dict[str, int]) -> str:
    """Jobs by state; of those that have ended, the server counts only the newest."""
    going = [
        f"{count:,} {state}" for state, count in counts.items() if count and state not in FINISHED
    ]
    ended = [f"{counts[state]:,} {state}" for state in FINISHED if counts.get(state)]
    parts = [", ".join(going) or "no job waits or runs"]
    if ended:
        # The server forgets the oldest a tenth at a time: it may know some more.
        known = sum(counts.get(state, 0) for state in FINISHED)
        ended_of = "ended" if known < COUNTED_ENDED else f"of the newest {known:,} that ended"
        parts.append(f"{ended_of}: {', '.join(ended)}")
    return "; ".join(parts)


def say_jobs(
    jobs: Sequence[JobView], at_s: float | None = None, sweeps: Sequence[SweepView] = ()
) -> None:
    """A line for each sweep and job, as it stood at a time (None: now)."""
    now_s = time.time() if at_s is None else at_s
    rows, columns = [_queue_row(job, now_s) for job in jobs], list(_QUEUE_COLUMNS)
    for column, cell in ((_LABELS, labels_of), (_ENDED, _ended)):
        cells = [cell(job) for job in jobs]
        if any(cells):
            columns.append(column)
            rows = [[*row, one] for row, one in zip(rows, cells, strict=True)]
    more = len(columns) - len(_QUEUE_COLUMNS)
    folded = [[*sweep_row(sweep, now_s), *([""] * more)] for sweep in sweeps]
    say_table(columns, [*folded, *rows])


def _ended(job: JobView) -> str:
    return "" if job.finish_s is None else moment(job.finish_s)


def _queue_row(job: JobView, now_s: float) -> Row:
    return [
        job.id, job.name, job.tenant, job.band, state_of(job),
        _reason(job), where(job), number(job.gpus), str(job.attempts),
        "" if job.step is None else str(job.step), age(job, now_s),
    ]  # fmt: skip


def _reason(job: JobView) -> str:
    """Why a job waits; of one that runs, that it will be held."""
    return job.reason or ("Held next" if job.hold and job.state not in FINISHED else "")


def labels_of(job: JobView) -> str:
    """The labels of a job: ``stage=eval,team=vision``."""
    return ",".join(f"{key}={value}" for key, value in job.labels.items())


def state_cell(state: str) -> Cell:
    """A state in its colour."""
    return Cell(state, STATE_STYLES.get(state, ""))


def state_of(job: JobView) -> Cell:
    """The state of a job; red and marked while its region does not answer."""
    return state_cell(job.state) if job.reachable else Cell(f"{job.state}, unreachable", "red")


def where(job: JobView) -> str:
    """The region and cluster of a job that has a place, or had one when it ended."""
    return "" if job.state in WAITING else last_place(job)


def last_place(job: JobView) -> str:
    """The region and cluster where a job is, or was last."""
    return f"{job.region}/{job.cluster}" if job.region else ""


def age(job: JobView, now_s: float) -> str:
    """How long ago a job was submitted; of one that has ended, how long it took altogether."""
    from topmast.model.units import format_duration

    end_s = now_s if job.finish_s is None else job.finish_s
    return format_duration(float(max(0, int(end_s - job.submit_s))))


# ------------------------------------------------------------------------------------------ status


def status(session: Session, job: JobArgument) -> None:
    """The state of a job, its attempts and its history; or the state of a sweep."""
    with session.client() as client:
        if is_sweep(job):
            sweep = client.sweep(job)
            session.show(sweep, lambda: say_sweep(sweep))
            return
        story, page = client.story(job), page_of(client, job)
    session.show(story, lambda: _say_story(story))
    if sys.stdout.isatty() and not session.json:
        note(f"with its candidates and output: {page}")


def page_of(client: Client, job: str) -> str:
    """The page of a job on the dashboard."""
    return f"{client.url}/jobs/{job}"


def _say_story(story: JobStory) -> None:
    from topmast.model.units import format_duration

    job = story.job
    waits = job.state in WAITING
    say_fields(
        [
            ("job", f"{job.id}  {job.name}"),
            ("state", job.state + (f"  {job.reason}" if job.reason else "")),
            ("why", story.why),
            ("unreachable", _silence_line(job)),
            ("waits for", job.preparing),
            ("hold", job.hold if job.reason != "Held" else ""),
            ("cause", job.cause),
            ("was last in" if waits else "where", last_place(job)),
            ("on hosts" if waits else "hosts", ", ".join(job.hosts)),
            ("gpus", f"{number(job.gpus)} {job.gpu_model or ''}".strip() if job.gpus else ""),
            ("tasks", _tasks_line(job)),
            ("tenant", f"{job.tenant}{' (over its quota)' if job.over_quota else ''}"),
            ("user", job.user),
            ("priority", job.band),
            ("datasets", ", ".join(job.datasets)),
            ("group", job.group),
            ("sweep", f"{job.sweep}[{job.sweep_index}]" if job.sweep else ""),
            ("labels", labels_of(job)),
            ("depends on", ", ".join(f"{of} ({after})" for of, after in job.depends_on.items())),
            ("submitted", moment(job.submit_s)),
            ("waited", format_duration(job.wait_s)),
            ("started", moment(job.start_s) if job.start_s is not None else ""),
            ("finished", moment(job.finish_s) if job.finish_s is not None else ""),
            ("attempts", _attempts_line(job)),
            ("refused", _refusals_line(job)),
            ("step", _step_line(job)),
            ("metrics", ", ".join(f"{name} {value:.6g}" for name, value in job.metrics.items())),
        ]
    )
    if story.attempts:
        say()
        _say_attempts(story.attempts)
    if story.history:
        say()
        say_history(story.history)


def _silence_line(job: JobView) -> str:
    return (
        ""
        if job.reachable
        else f"region {job.region} does not answer: this is its last known state"
    )


def _tasks_line(job: JobView) -> str:
    if job.min_tasks is None:
        return str(job.tasks)
    return f"{job.tasks} ({job.min_tasks} to {job.max_tasks})"


def _attempts_line(job: JobView) -> str:
    preemptions = plural(job.preemptions, "preemption")
    if job.migrations:
        preemptions += f" ({plural(job.migrations, 'move')})"
    parts = [str(job.attempts), preemptions]
    if job.resizes:
        parts.append(plural(job.resizes, "change") + " of size")
    return ", ".join([*parts, plural(job.restarts, "restart")]) if job.attempts else ""


def _refusals_line(job: JobView) -> str:
    return f"{plural(job.refusals, 'plan')} at commit; the queue asks again" if job.refusals else ""


def _step_line(job: JobView) -> str:
    if job.step is None:
        return ""
    resumed = job.resumed_from_step
    return f"{job.step}" + (f" (resumed from step {resumed})" if resumed is not None else "")


def _say_attempts(attempts: Sequence[AttemptView]) -> None:
    from topmast.model.units import format_duration

    columns = [
        Column("ATTEMPT", right=True), Column("WHERE", folds=True), Column("GPUS"), Column("BEGUN"),
        Column("TOOK", right=True), Column("KEPT", right=True), Column("OUTCOME"),
    ]  # fmt: skip
    rows = [
        [
            str(row.epoch), f"{row.region}/{row.cluster}", f"{number(row.gpus)} {row.gpu_model}",
            moment(row.start_s), format_duration(row.end_s - row.start_s),
            format_duration(row.kept_s), row.outcome,
        ]
        for row in attempts
    ]  # fmt: skip
    say_table(columns, rows, title="Attempts that ended")


def say_history(history: Sequence[HistoryView]) -> None:
    """What happened, when and why, the first line first."""
    columns = [Column("TIME", whole=True), Column("WHAT", whole=True), Column("WHY")]
    rows = [[moment(line.at_s), line.kind, line.text] for line in history]
    say_table(columns, rows, title="Story")


def say_states(jobs: Sequence[JobView]) -> None:
    """Jobs with their states, and why."""
    columns = [
        Column("ID", whole=True),
        Column("NAME", folds=True),
        Column("STATE", whole=True),
        Column("CAUSE"),
    ]
    say_table(columns, [[job.id, job.name, state_cell(job.state), _cause(job)] for job in jobs])


def _cause(job: JobView) -> str:
    """Why a job is in its state, and whether it is held; of one that has GPUs, when it stops."""
    if not job.hold or job.state in FINISHED:
        return job.cause
    if job.state in WAITING:
        then = "" if job.hold in job.cause else job.hold
    else:
        then = "held when it stops" if job.hold in job.cause else f"when it stops: {job.hold}"
    return "; ".join(part for part in (job.cause, then) if part)
