"""From a file to its end: `launch`, `wait`, `logs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from topmast.cli import values
from topmast.cli.command import Session, command
from topmast.cli.completion import complete_jobs
from topmast.cli.documents import as_yaml
from topmast.cli.explain import say_explanation
from topmast.cli.groups import CommandBehind
from topmast.cli.jobcheck import checked
from topmast.cli.jobs import FINISHED, WAITING, JobArgument, JobsArgument, page_of, say_states
from topmast.cli.jobsource import source_like, source_of
from topmast.cli.launchmany import dry_run_all, launch_all, refuse_of_one
from topmast.cli.output import note, say, say_block, warn
from topmast.cli.overrides import JobOptions, named_for
from topmast.cli.sweeps import (
    is_sweep,
    say_sweep_logs,
    succeeded,
    wait_for,
    write_sweep_logs,
)
from topmast.cli.text import BlockCleaner, RankedLines
from topmast.cli.watch import Watch

if TYPE_CHECKING:
    from topmast.client import Client, LogChunk
    from topmast.model.errors import InvalidInput
    from topmast.model.views import JobView, Receipt


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "launch", example="topmast launch job.yaml\n"
        "topmast launch job.yaml --dry-run\n"
        "topmast launch job.yaml --name try-2 --env LR=0.2 --wait\n"
        "topmast launch --gpus H100:8 --workdir . -- python train.py\n"
        "topmast launch --like j7 --set resources.accelerators=H100:4",
        kind=CommandBehind,
    )(launch)  # fmt: skip
    command(
        app, "spec", example="topmast spec j7\ntopmast spec j7 > again.yaml",
    )(spec)  # fmt: skip
    command(
        app, "logs",
        example="topmast logs j17 --follow\ntopmast logs j17 --task 3 --attempt 1\n"
        "topmast logs j17 --all --follow\ntopmast logs s7 --follow",
    )(logs)  # fmt: skip
    command(app, "wait", example="topmast wait j17 j18 --timeout 2h")(wait)


# ------------------------------------------------------------------------------------------ launch


def launch(
    session: Session,
    options: JobOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[JOB.yaml|-] [-- COMMAND]", help="A job file; - reads stdin."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Submit nothing: show where it would run, and why.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait, and show what its first task writes.")
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="JOB", help="Launch a job again.", autocompletion=complete_jobs
        ),
    ] = None,
    behind: Annotated[list[str] | None, typer.Option("--behind", hidden=True)] = None,
) -> int:
    """Check a job file, and submit the job.

    Its id is printed once the job can no longer be lost. A file may have several jobs, between
    lines of ---: all are submitted, or none. Options change what the file says. A
    command after -- is what the job runs; then no file is needed.
    """
    words = behind or []
    if file is None and not like and not words:
        raise typer.BadParameter(
            "name a job file (- for standard input), --like JOB, or a command after --"
        )
    if file is not None and like:
        raise typer.BadParameter("name a job file or --like JOB, not both")
    changes, wrong = _changes(options, words)
    with _beside(wrong):
        parts = source_of(file).parts()
    if file is None and not like:
        changes = {"name": named_for(words), **changes}
    if len(parts) > 1:
        if follow:
            raise typer.BadParameter("the file has several jobs: --wait", param_hint="'--follow'")
        refuse_of_one(parts, changes)
    jobs = checked(session, parts, changes, wrong) if not like else []
    with session.client() as client:
        if len(jobs) > 1:
            if dry_run:
                return dry_run_all(session, client, jobs)
            return _verdict(launch_all(session, client, jobs, wait))
        if like:
            with _beside(wrong):
                parts = [source_like(client, like)]
            jobs = checked(session, parts, changes, wrong)
        document, folder = jobs[0]
        with parts[0].placed(changes):
            if dry_run:
                explanation = client.dry_run(document, workdir=folder)
                session.show(explanation, lambda: say_explanation(explanation))
                return 0
            receipt = client.submit(document, workdir=folder)
        return _submitted(session, client, receipt, wait, follow)


def _changes(
    options: JobOptions, words: Sequence[str]
) -> tuple[dict[str, Any], Sequence[InvalidInput]]:
    """What options change of a job; and their faults, to be told with those of its file."""
    from topmast.model.errors import InvalidInput

    try:
        return options.changes(words), ()
    except InvalidInput as error:
        rest = error.rest if isinstance(error.rest, dict) else {}
        return rest, (error, *error.more)


@contextmanager
def _beside(wrong: Sequence[InvalidInput]) -> Iterator[None]:
    """Tell an error of where a job comes from together with those of options."""
    from topmast.model.errors import InvalidInput, NotFound, TopmastError, refuse_all

    try:
        yield
    except (InvalidInput, NotFound) as error:
        refuse_all((*wrong, error, *error.more))
    except TopmastError:
        refuse_all(wrong)
        raise


def _submitted(session: Session, client: Client, receipt: Receipt, wait: bool, follow: bool) -> int:
    """Say what became of a submission, now or at the end of the job; the exit code."""
    for warning in receipt.warnings:
        warn(warning)
    if not (wait or follow):
        session.show(receipt, lambda: say(receipt.id))
        if sys.stdout.isatty():
            page = page_of(client, receipt.id)
            note(f"{receipt.name} is submitted; its story: topmast status {receipt.id}, {page}")
        return 0
    note(f"{receipt.name} is submitted as {receipt.id}")
    if is_sweep(receipt.id):
        if follow:
            write_sweep_logs(client, receipt.id, follow, sys.stderr if session.json else sys.stdout)
        sweep = wait_for(client, receipt.id, None)
        session.show({"id": receipt.id, "sweep": sweep}, lambda: say(receipt.id))
        return int(not succeeded(sweep))
    job = _see_through(session, client, receipt.id, follow)
    session.show(_with_job(receipt, job), lambda: say(receipt.id))
    return _verdict([job])


def spec(session: Session, job: JobArgument) -> None:
    """The job file of a job, with what was changed since. It can be launched again."""
    with session.client() as client:
        found = client.job_file(job)
    session.show(found, lambda: say_block(as_yaml(found.job)))


def _with_job(receipt: Receipt, job: JobView) -> dict[str, object]:
    return {
        "id": receipt.id, "name": receipt.name, "warnings": receipt.warnings, "job": job,
    }  # fmt: skip


def _see_through(session: Session, client: Client, job: str, follow: bool) -> JobView:
    """Watch a job to its end. Ctrl-C ends the watching, and the job goes on."""
    try:
        if follow:
            chunks = client.logs(job, follow=True, on_wait=_Waiting())
            _write_logs(chunks, sys.stderr if session.json else sys.stdout)
            return client.wait(job)[0]
        with Watch() as watch:
            return client.wait(job, on_change=watch.update)[0]
    except KeyboardInterrupt:
        note(f"{job} goes on without you: topmast wait {job}, topmast cancel {job}")
        raise


# -------------------------------------------------------------------------------------------- wait


def wait(
    session: Session,
    jobs: JobsArgument,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Stop waiting after this time: 90, 10m, 2h.",
            callback=values.DURATION,
        ),
    ] = None,
) -> int:
    """Wait until jobs have ended.

    The exit code is 0 only if all of them succeeded.
    """
    timeout_s = values.duration_s(timeout, "--timeout")
    ended: list[JobView] = []
    try:
        with session.client() as client:
            sweeps = [wait_for(client, name, timeout_s) for name in jobs if is_sweep(name)]
            if single := [name for name in jobs if not is_sweep(name)]:
                with Watch() as watch:
                    ended = client.wait(single, timeout_s=timeout_s, on_change=watch.update)
    except KeyboardInterrupt:
        named = " ".join(dict.fromkeys(jobs))
        note(
            f"what has not ended goes on without you: topmast wait {named}, topmast cancel {named}"
        )
        raise
    whole = {"jobs": ended, "sweeps": sweeps} if sweeps else {"jobs": ended}
    session.show(whole, lambda: say_states(ended) if ended else None)
    return _verdict(ended) or int(not all(succeeded(sweep) for sweep in sweeps))


def _verdict(jobs: Sequence[JobView]) -> int:
    """The exit code for jobs that have ended, with one line about those that did not succeed."""
    bad = {job.id: job for job in jobs if job.state != FINISHED[0]}
    if not bad:
        return 0
    named = [
        f"{job.id} {job.state}{f' ({job.cause})' if job.cause else ''}" for job in bad.values()
    ]
    more = f", and {len(named) - 3} more" if len(named) > 3 else ""
    # Only an attempt writes anything.
    tried = [job.id for job in bad.values() if job.state == "FAILED" and job.attempts]
    said = f"{', '.join(named[:3])}{more}"
    # A cause may say itself where to look, down to the task.
    where = f"; see `topmast logs {tried[0]}`" if tried and "`topmast logs " not in said else ""
    note(f"topmast: {said}{where}")
    return 1


# -------------------------------------------------------------------------------------------- logs


def logs(
    session: Session,
    job: JobArgument,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the output until the job ends, over all attempts."
        ),
    ] = False,
    task: Annotated[
        int | None,
        typer.Option(
            "--task", "-t", min=0, help="The rank of a task. Default: the one that failed, else 0."
        ),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="An attempt other than the latest.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Of all tasks, each line with the rank of its task.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep colours and control characters.")
    ] = False,
) -> None:
    """The output of a task of a job, with that of its setup.

    Of a sweep it is the output of all its jobs, each line with the number of its job.
    """
    if every and task is not None:
        raise typer.BadParameter("--all is about all tasks, and --task about one")
    with session.client() as client:
        if is_sweep(job):
            if every or task is not None or attempt:
                message = f"{job} is a sweep: --task, --attempt and --all are about one job"
                raise typer.BadParameter(message)
            say_sweep_logs(session, client, job, follow, raw)
            return
        if every:
            _all_logs(session, client, job, attempt, follow, raw)
            return
        chunks = client.logs(job, task, attempt=attempt, follow=follow, on_wait=_Waiting())
        if session.json:
            found = list(chunks)
            read = task if task is not None else found[0].task if found else 0
            session.show({"job": job, "task": read, "attempts": _by_attempt(found)}, lambda: None)
            return
        try:
            written = _write_logs(chunks, sys.stdout, raw=raw, tell_task=task is None)
        except KeyboardInterrupt:
            if follow:
                note(
                    f"{job} goes on without you: topmast logs {job} --follow, topmast cancel {job}"
                )
            raise
        if not written:
            note(_nothing_written(client.job(job), task, attempt))


def _all_logs(
    session: Session, client: Client, job: str, attempt: int | None, follow: bool, raw: bool
) -> None:
    """The output of all tasks, line by line."""
    chunks = client.all_logs(job, attempt=attempt, follow=follow, on_wait=_Waiting())
    if session.json:
        found: dict[int, list[LogChunk]] = {}
        for chunk in chunks:
            found.setdefault(chunk.task, []).append(chunk)
        tasks = [{"task": task, "attempts": _by_attempt(found[task])} for task in sorted(found)]
        session.show({"job": job, "tasks": tasks}, lambda: None)
        return
    lines = RankedLines(raw)
    for chunk in chunks:
        if lines.attempt and chunk.attempt != lines.attempt:
            sys.stdout.write(lines.finish())
            note(f"-- attempt {chunk.attempt} --")
        lines.attempt = chunk.attempt
        sys.stdout.write(lines.feed(chunk.task, chunk.text))
        sys.stdout.flush()
    sys.stdout.write(lines.finish())
    if not lines.attempt:
        note(_nothing_written(client.job(job), None, attempt))


class _Waiting:
    """Says what a job waits for while its output is followed, whenever that changes."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, view: JobView) -> None:
        why = f" ({view.reason})" if view.reason else ""
        said = f"{view.id} is {view.state}{why}: `topmast explain {view.id}` says more"
        if said != self._said:
            self._said = said
            note(said)


def _nothing_written(view: JobView, task: int | None, attempt: int | None) -> str:
    """Why there is no output, as far as it is known; ``attempt`` None: of the latest."""
    reason = f", {view.reason}" if view.reason else ""
    over = view.state in FINISHED
    if attempt and not over and (attempt < view.attempts or view.state in WAITING):
        over, reason = True, f"{reason}; attempt {attempt} is over"
    if not over:
        return f"nothing written yet: {view.id} is {view.state}{reason}"
    if not view.attempts:
        return f"{view.id} never ran: it is {view.state}{reason}"
    subject = view.id if view.tasks == 1 else f"task {task or 0} of {view.id}"
    during = f" in attempt {attempt}" if attempt else ""
    return f"{subject} wrote nothing{during}: {view.id} is {view.state}{reason}"


def _by_attempt(chunks: Iterable[LogChunk]) -> list[dict[str, object]]:
    texts: dict[int, list[str]] = {}
    for chunk in chunks:
        texts.setdefault(chunk.attempt, []).append(chunk.text)
    return [{"attempt": attempt, "text": "".join(parts)} for attempt, parts in texts.items()]


def _write_logs(
    chunks: Iterable[LogChunk], stream: TextIO, raw: bool = False, tell_task: bool = False
) -> bool:
    """Write output as it comes, naming each attempt on stderr; whether there was any."""
    attempt = 0
    cleaner = BlockCleaner()
    for chunk in chunks:
        if tell_task and not attempt and chunk.task:
            note(f"-- task {chunk.task}, which failed; --task N shows another --")
        if attempt and chunk.attempt != attempt:
            stream.write(cleaner.finish())
            stream.flush()
            note(f"-- attempt {chunk.attempt} --")
        attempt = chunk.attempt
        stream.write(chunk.text if raw else cleaner.feed(chunk.text))
        stream.flush()
    stream.write(cleaner.finish())
    return bool(attempt)
