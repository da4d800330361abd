"""The result for people: the jobs, the decisions with their reasons, what to try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topmast.demo.findings import Decision, Findings, JobRow
from topmast.demo.screen import STYLES, colours
from topmast.model.states import JobState
from topmast.model.units import format_bytes

PIPED_WIDTH = 132


def result_console() -> Console:
    """Stdout; where it is no terminal, lines as wide as they must be."""
    console = Console(highlight=False, color_system=colours())
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def show_result(console: Console, findings: Findings) -> None:
    """The jobs, the decisions, and why one job waits."""
    show_jobs(console, findings)
    console.print(_title("Decisions, and why (a score is the sum of its terms; lower is better)"))
    console.print(_decisions(findings.decisions))
    _show_explanation(console, findings)


def show_jobs(console: Console, findings: Findings) -> None:
    """What became of each job, and where."""
    console.print(_title("Jobs"))
    console.print(_jobs(findings))


def show_claims(console: Console, findings: Findings, wall_s: float) -> None:
    """What the demo promises, point by point."""
    console.print(_title("What had to happen"))
    console.print(_claims(findings))
    console.print(
        f"preemptions {findings.preemptions}, resumes {findings.resumes}, "
        f"host losses {findings.host_losses}, copies {findings.copies} "
        f"({format_bytes(findings.copied_bytes)}), all in {wall_s:.0f} s"
    )


def show_commands(console: Console, findings: Findings, state: Path | None) -> None:
    """What to try next; ``state``: the folder that was kept."""
    waiting = findings.explanation
    if state is not None and findings.engines:  # the hosts are gone: a server would wait for them
        commands = [(f"topmast replay --state {state}", "what was decided, from the journal")]
    elif state is not None:
        job, name = (waiting.job, waiting.name) if waiting else ("JOB", "a job")
        commands = [
            (f"topmast replay --state {state}", "what was decided, from the journal"),
            (f"topmast up --state {state}", "the same fleet again; then, beside it:"),
            (f"topmast queue --state {state}", "its jobs"),
            (f"topmast explain {job} --state {state}", f"why {name} waits, cluster by cluster"),
        ]
    else:
        commands = [
            ("topmast up", "a server on this machine"),
            ("topmast launch JOB.yaml", "a job of your own; --dry-run shows where it would run"),
            ("topmast explain JOB", "why it runs there, or why it waits"),
            ("topmast demo --keep --state ./demo", "run the demo again, and keep its files"),
        ]
    longest = max(len(command) for command, _ in commands)
    console.print(_title("Next"))
    for command, purpose in commands:
        line = Text("  ").append(command.ljust(longest), "bold").append(f"  {purpose}", "dim")
        console.print(line, soft_wrap=True)


def _title(text: str) -> Text:
    return Text(f"\n{text}", "bold")


def _table(*titles: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def _jobs(findings: Findings) -> Table:
    table = _table(
        "ID", "JOB", "TENANT", "BAND", "STATE", "WHERE", "ATTEMPTS", "RESUMED FROM", "LOSS",
        right=("ATTEMPTS", "RESUMED FROM", "LOSS"),
    )  # fmt: skip
    for job in findings.jobs:
        first = findings.first_losses.get(job.name)
        loss = "" if job.final_loss is None else f"{first or 0:.2f} to {job.final_loss:.2f}"
        table.add_row(
            job.id, job.name, job.tenant, job.band,
            Text(job.state, STYLES.get(JobState(job.state), "")),
            _where(job, findings.engines),
            str(job.attempts),
            "-" if job.resumed_from_step is None else f"step {job.resumed_from_step}",
            loss or "-",
        )  # fmt: skip
    return table


def _where(job: JobRow, engines: Mapping[str, str]) -> str:
    if not job.cluster:
        return "-"
    where = f"{job.region}/{job.cluster}"
    return f"{where} ({engines.get(job.cluster, 'local')})" if engines else where


def _decisions(decisions: Sequence[Decision]) -> Table:
    table = _table("AT", "JOB", "DECISION", "WHY", right=("AT",))
    for line in decisions:
        what = Text(line.deed.what, line.deed.style)
        table.add_row(f"{line.at_s:.1f} s", line.job, what, line.deed.why)
    return table


def _show_explanation(console: Console, findings: Findings) -> None:
    found = findings.explanation
    if found is None:
        return
    console.print(_title(f"Why {found.name} waits"))
    console.print(Text(f"{found.reason}: {found.summary}"))
    for help_ in found.would_help:
        console.print(Text(f"  would help: {help_}", "dim"))


def verdict(findings: Findings) -> str:
    """What is to be said of a claim without evidence."""
    return "not seen before time was up" if findings.gave_up else "did not happen"


def _claims(findings: Findings) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for claim in findings.claims:
        happened = claim.evidence is not None
        table.add_row(
            Text("yes", "green") if happened else Text("NO", "bold red"),
            claim.what,
            Text(claim.evidence or verdict(findings), "dim"),
        )
    return table
