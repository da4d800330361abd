"""Sweeps in tables: a line in the queue, and what `status` and `wait` say of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from topmast.cli.command import Session
from topmast.cli.output import Cell, Row, note, say_fields
from topmast.cli.text import RankedLines, moment, number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.sweep_views import SweepView


def is_sweep(name: str) -> bool:
    """Whether a name is that of a sweep."""
    from topmast.model.ids import sweep_number

    return sweep_number(name) >= 0


def sweep_row(sweep: SweepView, now_s: float) -> Row:
    """A sweep among the jobs of the queue."""
    from topmast.model.units import format_duration

    end_s = now_s if sweep.finish_s is None else sweep.finish_s
    return [
        sweep.id, sweep.name, sweep.tenant, sweep.band, Cell(f"{percent(sweep)} done", "cyan"),
        states(sweep), "", number(sweep.gpus), "", "",
        format_duration(float(max(0, int(end_s - sweep.submit_s)))),
    ]  # fmt: skip


def percent(sweep: SweepView) -> str:
    """How much of a sweep is done; 100% only when all is."""
    return f"{int(100 * sweep.done)}%"


def states(sweep: SweepView) -> str:
    """Its jobs by state, and how many of those that have not ended are held."""
    by_state = ", ".join(f"{count:,} {state}" for state, count in sweep.states.items())
    return by_state + (f"; {sweep.held:,} held" if sweep.held else "")


def say_sweep(sweep: SweepView) -> None:
    """What `status` says of a sweep."""
    say_fields(
        [
            ("sweep", f"{sweep.id}  {sweep.name}"),
            ("done", f"{percent(sweep)} of {plural(sweep.jobs, 'job')}"),
            ("jobs", states(sweep)),
            ("failed", _failed(sweep, "queue")),
            ("again", _failed(sweep, "requeue")),
            ("from", f"{sweep.first_job} ({sweep.id}[0])"),
            ("variables", ", ".join(sweep.variables)),
            ("at once", "" if sweep.max_parallel is None else f"{sweep.max_parallel:,} at most"),
            ("gpus", number(sweep.gpus)),
            ("tenant", sweep.tenant),
            ("user", sweep.user),
            ("priority", sweep.band),
            ("labels", ",".join(f"{key}={value}" for key, value in sweep.labels.items())),
            ("submitted", moment(sweep.submit_s)),
            ("finished", "" if sweep.finish_s is None else moment(sweep.finish_s)),
        ]
    )


def _failed(sweep: SweepView, verb: str) -> str:
    """The command for the jobs that failed; empty if none did."""
    return f"topmast {verb} -l sweep={sweep.id},state=FAILED" if "FAILED" in sweep.states else ""


def wait_for(client: Client, name: str, timeout_s: float | None) -> SweepView:
    """Wait until a sweep has ended, and say how far it is whenever that changes."""
    from topmast.client import WaitTimeout

    said = ""

    def tell(sweep: SweepView) -> None:
        nonlocal said
        line = f"{sweep.id} {sweep.name}: {percent(sweep)} done ({states(sweep)})"
        if line != said:
            said = line
            note(line)

    found = client.wait_sweep(name, timeout_s=timeout_s, on_change=tell)
    if found is None:
        raise WaitTimeout(f"time is up: {name} has not ended within {timeout_s:g} s")
    return found


def say_sweep_logs(session: Session, client: Client, sweep: str, follow: bool, raw: bool) -> None:
    """The output of all jobs of a sweep."""
    if not session.json:
        if not write_sweep_logs(client, sweep, follow, sys.stdout, raw):
            note(f"nothing written yet: {percent(client.sweep(sweep))} of {sweep} is done")
        return
    found: dict[int, dict[int, list[str]]] = {}
    names: dict[int, str] = {}
    for chunk in client.sweep_logs(sweep, follow=follow):
        names[chunk.index] = chunk.job
        found.setdefault(chunk.index, {}).setdefault(chunk.attempt, []).append(chunk.text)
    jobs = [
        {
            "index": index,
            "job": names[index],
            "attempts": [
                {"attempt": attempt, "text": "".join(texts)}
                for attempt, texts in found[index].items()
            ],
        }
        for index in sorted(found)
    ]
    session.show({"sweep": sweep, "jobs": jobs}, lambda: None)


def write_sweep_logs(
    client: Client, sweep: str, follow: bool, stream: TextIO, raw: bool = False
) -> bool:
    """Write them line by line, each with the number of its job; whether there was any."""
    lines, written = RankedLines(raw), False
    try:
        for chunk in client.sweep_logs(sweep, follow=follow):
            stream.write(lines.feed(chunk.index, chunk.text))
            stream.flush()
            written = True
    except KeyboardInterrupt:
        if follow:
            note(f"{sweep} goes on without you: topmast wait {sweep}, topmast cancel {sweep}")
        raise
    stream.write(lines.finish())
    stream.flush()
    return written


def succeeded(sweep: SweepView) -> bool:
    """Whether all jobs of a sweep did."""
    return sweep.states == {"SUCCEEDED": sweep.jobs}
