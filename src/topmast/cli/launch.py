"""From a file to its end: `launch`, `wait`, `logs`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from topmast.cli import values
from topmast.cli.command import DAY, Session, command
from topmast.cli.completion import complete_bands, complete_tenants
from topmast.cli.explain import say_explanation
from topmast.cli.jobs import FINISHED, WAITING, JobArgument, JobsArgument, say_states
from topmast.cli.output import note, say
from topmast.cli.text import BlockCleaner
from topmast.cli.watch import Watch
from topmast.model.errors import InvalidInput

if TYPE_CHECKING:
    from topmast.client import Client, LogChunk
    from topmast.model.views import JobView, Receipt


def add(app: typer.Typer) -> None:
    """Add `launch`."""
    command(
        app, "launch", panel=DAY, example="topmast launch job.yaml\n"
        "topmast launch job.yaml --dry-run\n"
        "topmast launch job.yaml --name try-2 --env LR=0.2 --wait",
    )(launch)  # fmt: skip


def add_watching(app: typer.Typer) -> None:
    """Add `logs` and `wait`."""
    command(
        app, "logs", panel=DAY,
        example="topmast logs j17 --follow\ntopmast logs j17 --task 3 --attempt 1",
    )(logs)  # fmt: skip
    command(app, "wait", panel=DAY, example="topmast wait j17 j18 --timeout 2h")(wait)


# ------------------------------------------------------------------------------------------ launch


def launch(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="A job file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Submit nothing: show where it would run, and why.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait, and show what its first task writes.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The job's name, instead of the name in the file."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tenant, instead of the tenant in the file.",
            autocompletion=complete_tenants,
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="BAND",
            help="The priority, instead of the priority in the file.",
            autocompletion=complete_bands,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set an environment variable; may be repeated."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Add a label; may be repeated."),
    ] = None,
) -> int:
    """Check a job file, and submit the job.

    Its id is printed once the job can no longer be lost.
    """
    changes = {"name": name, "tenant": tenant, "priority": priority}
    added = {
        "envs": values.assignments(env or [], "--env"),
        "labels": values.assignments(label or [], "--label"),
    }
    document, folder = _read(file, changes, added)
    changed = {field for field, value in changes.items() if value is not None}
    with session.client() as client:
        if dry_run:
            with _placed(file, changed):
                explanation = client.dry_run(document, workdir=folder)
            session.show(explanation, lambda: say_explanation(explanation))
            return 0
        with _placed(file, changed):
            receipt = client.submit(document, workdir=folder)
        for warning in receipt.warnings:
            note(f"warning: {warning}")
        if not (wait or follow):
            session.show(receipt, lambda: say(receipt.id))
            if sys.stdout.isatty():
                note(f"{receipt.name} is submitted; its story: topmast status {receipt.id}")
            return 0
        note(f"{receipt.name} is submitted as {receipt.id}")
        job = _see_through(session, client, receipt.id, follow)
    session.show(_with_job(receipt, job), lambda: say(receipt.id))
    return _verdict([job])


def _read(
    file: Path, changes: dict[str, str | None], added: dict[str, dict[str, str]]
) -> tuple[dict[str, Any], Path | None]:
    """The document of the job in ``file``, changed and checked, and the folder it works in."""
    from topmast.client import document_of
    from topmast.model.files.jobfile import parse_job

    try:
        document, folder = document_of(file)
    except InvalidInput as error:
        error.more += _fault_of_folder(file, [error, *error.more])
        raise
    given: dict[str, Any] = {f: value for f, value in changes.items() if value is not None}
    given |= {
        field: {**document.get(field, {}), **entries} for field, entries in added.items() if entries
    }
    if given:
        document |= given
        parse_job(document, where="command line")
    return document, folder


def _fault_of_folder(file: Path, found: Sequence[InvalidInput]) -> tuple[InvalidInput, ...]:
    """What is wrong with the work folder of a job file with other errors, if it is no folder."""
    from topmast.client.workdir import check_folder
    from topmast.model.files.source import JOB_LIMITS, Kind, read_file

    with suppress(InvalidInput):
        node = read_file(file, JOB_LIMITS).entries.get("workdir")
        told = any(error.field == "workdir" for error in found)
        if node is None or node.kind is not Kind.TEXT or told or node.text.startswith("sha256:"):
            return ()
        try:
            check_folder(file.parent / Path(node.text).expanduser())
        except InvalidInput as error:
            return (_with_place(error, f"{file}:{node.line}"),)
    return ()


@contextmanager
def _placed(file: Path, changed: Collection[str]) -> Iterator[None]:
    """Name the line of the job file in errors; ``changed``: fields that an option gave."""
    from topmast.model.files.every import line_of
    from topmast.model.files.source import JOB_LIMITS, read_file

    def placed(error: InvalidInput) -> InvalidInput:
        line = line_of(root, error.field)
        if error.where or not error.field:
            return error
        if error.field in changed:
            return _with_place(error, "command line")
        return _with_place(error, f"{file}:{line}") if line else error

    try:
        yield
    except InvalidInput as error:
        root = read_file(file, JOB_LIMITS)
        first, *more = (placed(one) for one in (error, *error.more))
        first.more = tuple(more)
        raise first from None


def _with_place(error: InvalidInput, where: str) -> InvalidInput:
    """The same error, with the place that it is about."""
    return InvalidInput(error.message, field=error.field, where=where, remedy=error.remedy)


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
        str | None, typer.Option(metavar="TIME", help="Stop waiting after this time: 90, 10m, 2h.")
    ] = None,
) -> int:
    """Wait until jobs have ended.

    The exit code is 0 only if all of them succeeded.
    """
    timeout_s = values.duration_s(timeout, "--timeout")
    try:
        with session.client() as client, Watch() as watch:
            ended = client.wait(jobs, timeout_s=timeout_s, on_change=watch.update)
    except KeyboardInterrupt:
        named = " ".join(dict.fromkeys(jobs))
        note(
            f"what has not ended goes on without you: topmast wait {named}, topmast cancel {named}"
        )
        raise
    session.show({"jobs": ended}, lambda: say_states(ended))
    return _verdict(ended)


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
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep colours and control characters.")
    ] = False,
) -> None:
    """The output of a task of a job, with that of its setup."""
    with session.client() as client:
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
