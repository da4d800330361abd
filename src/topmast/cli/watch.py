"""Jobs on their way, on stderr: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from topmast.cli.jobs import FINISHED, state_of, where
from topmast.cli.output import Cell, Column, console_on, note, rich_table
from topmast.cli.text import clean

if TYPE_CHECKING:
    from topmast.model.views import JobView

_SHOWN = 15
_COLUMNS = [
    Column("ID", whole=True), Column("NAME", folds=True), Column("STATE", whole=True),
    Column("WHERE OR WHY"),
    Column("STEP", right=True), Column("TRIES", right=True), Column("FOR", right=True),
]  # fmt: skip


class Watch:
    """Shows jobs as they change. Use it as a context; when interrupted, its last output stays."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobView] = {}
        self._live: Any = None
        self._room = 80

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.live import Live

            console = console_on(sys.stderr)
            self._room = console.width
            self._live = Live(
                get_renderable=self._table, console=console, refresh_per_second=4, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.transient = kind is None
            self._live.stop()

    def update(self, job: JobView) -> None:
        """Take in how a job stands now."""
        before = self._jobs.get(job.id)
        self._jobs[job.id] = job
        if self._live is None and (before is None or _gist(before) != _gist(job)):
            why = f" {where(job) or job.reason or ''}".rstrip()
            note(f"{job.id} {job.name}: {state_of(job).text}{why}{_cause(job)}")

    def _table(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        jobs = list(self._jobs.values())
        # What is still going on comes first, as far as there is room.
        shown = sorted(jobs, key=lambda job: job.state in FINISHED)[:_SHOWN]
        rows = [
            [
                Cell(clean(text) or "-", style)
                for text, style in (
                    (job.id, ""), (job.name, ""), state_of(job),
                    (where(job) or job.reason or "", ""),
                    ("" if job.step is None else str(job.step), ""),
                    (str(job.attempts), ""), (_running(job), ""),
                )
            ]
            for job in shown
        ]  # fmt: skip
        counts = Counter(job.state for job in jobs)
        total = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        return Group(rich_table(_COLUMNS, rows, self._room), Text(total, style="dim"))


def _gist(job: JobView) -> tuple[str, str | None, str]:
    return state_of(job).text, job.reason, where(job)


def _cause(job: JobView) -> str:
    """What a reason alone does not say of a job that may wait without end."""
    if job.state == "RECOVERING" and job.cause:
        return f" ({clean(job.cause)})"
    if job.state == "PENDING" and job.reason == "NoMatchingHardware":
        return f" (`topmast status {job.id}` says why)"
    return ""


def _running(job: JobView) -> str:
    from topmast.model.units import format_duration

    since_s = job.submit_s if job.start_s is None else job.start_s
    end_s = time.time() if job.finish_s is None else job.finish_s
    return format_duration(max(0.0, end_s - since_s))
