"""What people do to jobs, by id or by selector: `cancel` and its like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command
from topmast.cli.completion import complete_active_jobs, complete_bands
from topmast.cli.each import named_or_selected
from topmast.cli.jobs import say_states, state_cell
from topmast.cli.output import Column, note, say, say_table
from topmast.cli.text import number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.act_views import JobEffect, JobsActed
    from topmast.model.errors import TopmastError

LISTED = 50
"""Of more jobs only the counts are shown; ``--json`` has all."""
ERRORS = 3
_JOB = re.compile(r"j[0-9]+|s[0-9]+(\[[0-9]+\])?")
"""What a job or a sweep is called."""

SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Ids of jobs.", autocompletion=complete_active_jobs),
]
SELECTOR_HELP = (
    "Jobs by KEY=VALUE,... of state, tenant, user, name, cluster, host, band, sweep, label.KEY; "
    "* stands for any characters. Only jobs that have not ended, unless it names states."
)
SelectorOption = Annotated[
    str | None, typer.Option("--selector", "-l", metavar="KEY=VALUE,...", help=SELECTOR_HELP)
]


@dataclass(frozen=True)
class JobActOptions(ActOptions):
    """What all acts on jobs have in common."""

    selector: SelectorOption = None


Act = Callable[["Client"], Callable[..., "JobsActed"]]
"""The method of a client that does it."""


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "cancel", example="topmast cancel j17 j18\n"
        "topmast cancel --selector user=ada,state=PENDING --dry-run",
    )(cancel)  # fmt: skip
    for function, example in (
        (hold, "topmast hold j17 --reason 'its data is wrong'\ntopmast hold -l name=sweep-*"),
        (release, "topmast release j17\ntopmast release -l user=ada"),
        (suspend, "topmast suspend j17\ntopmast suspend -l tenant=vision,band=low --dry-run"),
        (resume, "topmast resume j17\ntopmast resume -l tenant=vision"),
        (preempt, "topmast preempt j17\ntopmast preempt -l host=east-1-0 --dry-run"),
        (requeue, "topmast requeue j17\ntopmast requeue -l state=FAILED,name=train-*"),
        (edit, "topmast edit j17 --time-limit 4h\ntopmast edit -l user=ada --max-restarts 0"),
        (reprioritize, "topmast reprioritize high j17\ntopmast reprioritize low -l user=ada"),
    ):
        command(app, function.__name__, example=example)(function)


def cancel(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Cancel jobs, waiting or running."""
    run(session, jobs, options, lambda client: client.cancel_jobs)


def hold(session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()) -> None:
    """Keep jobs from starting until they are released.

    A job that runs goes on, and is held when it waits again.
    """
    run(session, jobs, options, lambda client: client.hold)


def release(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Let jobs start that are held."""
    run(session, jobs, options, lambda client: client.release)


def suspend(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Stop jobs at their checkpoints, and hold them.

    They let go of their GPUs, and go on from their checkpoints when they are resumed.
    """
    run(session, jobs, options, lambda client: client.suspend)


def resume(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Let jobs go on that are suspended."""
    run(session, jobs, options, lambda client: client.resume)


def preempt(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Stop jobs at their checkpoints; they wait again, and others may come first."""
    run(session, jobs, options, lambda client: client.preempt)


def requeue(
    session: Session, jobs: SomeJobs = None, options: JobActOptions = JobActOptions()
) -> None:
    """Try jobs anew.

    One that failed or was cancelled waits again, under its id and with its checkpoints. One that
    waits out a delay is tried at once. One that runs stops at its checkpoint first.
    """
    run(session, jobs, options, lambda client: client.requeue)


def edit(
    session: Session,
    jobs: SomeJobs = None,
    priority: Annotated[
        str | None,
        typer.Option(metavar="BAND", help="Its band.", autocompletion=complete_bands),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Of all its attempts together; 'none' for no limit.",
            callback=values.DURATION_OR_NONE,
        ),
    ] = None,
    max_restarts: Annotated[
        int | None, typer.Option(min=0, help="How often it restarts after failures.")
    ] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option("--preemptible/--no-preemptible", help="Whether it makes way for others."),
    ] = None,
    expected_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long it will run in all; 'none': not known. Holds at once.",
            callback=values.DURATION_OR_NONE,
        ),
    ] = None,
    options: JobActOptions = JobActOptions(),
) -> None:
    """Change what jobs ask for; of a job that has GPUs, from its next attempt on."""
    changes: dict[str, object] = {
        "priority": priority, "max_restarts": max_restarts, "preemptible": preemptible,
    }  # fmt: skip
    changes = {name: value for name, value in changes.items() if value is not None}
    times = (("time-limit", time_limit), ("expected-duration", expected_duration))
    for name, text in times:
        if text is not None:
            changes[f"{name.replace('-', '_')}_s"] = values.duration_or_none_s(text, f"--{name}")
    if not changes:
        raise typer.BadParameter("say what changes, for example --priority high")
    run(session, jobs, options, lambda client: partial(client.edit_jobs, changes=changes))


def reprioritize(
    session: Session,
    band: Annotated[
        str, typer.Argument(metavar="BAND", help="The band.", autocompletion=complete_bands)
    ],
    jobs: SomeJobs = None,
    options: JobActOptions = JobActOptions(),
) -> None:
    """Give jobs another priority; to those that have GPUs, from the next attempt on."""
    if _JOB.fullmatch(band):
        bands = complete_bands("")
        near = (get_close_matches(word, bands, 1) for word in jobs or ())
        likely = next((found[0] for found in near if found), "high")
        message = f"the band comes first: topmast reprioritize {likely} {band}"
        raise typer.BadParameter(message)
    verb = "reprioritize"
    run(session, jobs, options, lambda client: partial(client.reprioritize, priority=band), verb)


def run(
    session: Session, jobs: list[str] | None, options: JobActOptions, act: Act, verb: str = ""
) -> None:
    """Act on all jobs in one request, show what became of them, and fail for those refused.

    ``verb``: what people call the act, if they do not call it as REST does.
    """
    named = named_or_selected(jobs, options.selector, "job", "state=active")
    with session.client() as client:
        acted = act(client)(named, selector=options.selector or "", **options.given)
    options.tell()
    if acted.jobs or options.selector or not acted.effects:
        session.show(acted, lambda: _say(acted, named, verb or acted.verb))
    refused = [effect for effect in acted.effects if effect.effect == "refused"]
    if refused:
        raise _error(refused, {job.id for job in acted.jobs})


def _error(refused: list[JobEffect], there: set[str]) -> TopmastError:
    """The error for jobs that were refused: what is not ``there`` was not found."""
    from topmast.model.errors import MOST_TOLD, Conflict, NotFound
    from topmast.model.problem import made, status_of
    from topmast.model.views import Fault

    kind = Conflict if any(effect.job in there for effect in refused) else NotFound
    error = kind(_refusals(refused))
    faults = [Fault(_refusals([effect]), "jobs") for effect in refused[:MOST_TOLD]]
    if len(refused) > MOST_TOLD:
        faults.append(Fault(f"and {len(refused) - MOST_TOLD:,} more refused", "jobs"))
    more = tuple(faults) if len(faults) > 1 else ()
    error.problem = made(*status_of(error), faults[0].detail, "jobs", "", more)
    return error


def _refusals(refused: list[JobEffect]) -> str:
    """On one line: each job with its cause, unless that names it."""
    texts = [e.why if e.job in e.why else f"{e.job} {e.why}" for e in refused[:ERRORS]]
    more = len(refused) - ERRORS
    return "; ".join([*texts, *([f"and {more:,} more refused"] if more > 0 else [])])


def _say(acted: JobsActed, named: list[str], verb: str) -> None:
    if not acted.effects:
        have = "succeeded" if acted.verb == "requeue" else "ended"
        note(f"all jobs of {', '.join(named)} have {have}" if named else "no such jobs")
        return
    if len(acted.jobs) <= LISTED and acted.dry_run:
        _say_effects(acted)
    elif len(acted.jobs) <= LISTED:
        say_states(acted.jobs)
        for effect in acted.effects:
            if effect.effect == "unchanged":
                note(f"{effect.job} is unchanged" + (f": {effect.why}" if effect.why else ""))
            elif effect.why and acted.verb == "edit" and effect.effect != "refused":
                # What is held says so by itself, and what is refused is the error.
                note(f"{effect.job} {effect.why}")
    if acted.dry_run or len(acted.jobs) > LISTED:
        say(_summary(acted, verb))


def _effect(effect: str, dry_run: bool) -> str:
    """What became of a job, or would."""
    return "would change" if dry_run and effect == "done" else effect


def _summary(acted: JobsActed, verb: str) -> str:
    counts = acted.counts
    done = "would change" if acted.dry_run else "changed"
    parts = [f"{verb}: {plural(counts.get('done', 0), 'job')} {done}"]
    parts += [f"{counts[name]:,} {name}" for name in ("unchanged", "refused") if counts.get(name)]
    frees = "would let" if acted.dry_run else "let"
    if acted.gpus:
        parts.append(f"{frees} go of {number(acted.gpus)} GPUs")
    if lost_gpu_h := round(acted.lost_gpu_h, 2):
        parts.append(f"{number(lost_gpu_h)} GPU-hours of work are lost")
    return ", ".join(parts)


def _say_effects(acted: JobsActed) -> None:
    columns = [
        Column("ID", whole=True), Column("NAME", folds=True), Column("TENANT", spare=2),
        Column("USER", spare=1),
        Column("STATE", whole=True), Column("EFFECT", whole=True), Column("GPUS", right=True),
        Column("LOST GPU-H", right=True), Column("WHY", beneath=True),
    ]  # fmt: skip
    of = {effect.job: effect for effect in acted.effects}
    say_table(
        columns,
        [
            [
                job.id, job.name, job.tenant, job.user, state_cell(job.state),
                _effect(of[job.id].effect, acted.dry_run),
                number(of[job.id].gpus), number(round(of[job.id].lost_gpu_h, 2)),
                of[job.id].why,
            ]
            for job in acted.jobs
        ],
    )  # fmt: skip
