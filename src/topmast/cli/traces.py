"""`traces`: convert public traces, describe them, make up new ones, and fleets to run them on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import NOTHING, Session, command, group
from topmast.cli.documents import say_document
from topmast.cli.output import Column, note, say, say_block, say_fields, say_table, warn
from topmast.cli.text import number, plural

if TYPE_CHECKING:
    from topmast.traces.trace import Trace

TRACE_FORMATS = (
    "topmast, pai, pai-tasks, openb, philly, helios, helios-jobs, gavel, shockwave, tiresias, "
    "muri, muri-iterations or sia"
)
MACHINE_FORMATS = "pai-machines or openb-nodes"
KINDS = "pai-like, philly-like, mast-like, gavel-like, gandiva-like or gandiva-elastic-like"

TraceArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The trace.")]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="NAME", help=f"Its format: {TRACE_FORMATS}.")
]
HostGpusOption = Annotated[
    int,
    typer.Option(
        min=1, max=65_536,
        help="GPUs of the largest host, for formats that give one number of GPUs per job.",
    ),
]  # fmt: skip
SkipOption = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and count them.")
]
ThroughputsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The table of throughputs for gavel, else the one beside the trace."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Only the first N of the remaining jobs.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="T", help="Only jobs submitted at this time or later: 2h, 86400."
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="T", help="Only jobs submitted before this time: 7d.")
]
LoadOption = Annotated[
    float | None, typer.Option(metavar="X", help="Let jobs arrive X times as fast.")
]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    traces = group(
        app, "traces",
        example="topmast traces describe philly.csv.gz --format philly",
    )  # fmt: skip
    command(
        traces, "convert", asks=NOTHING,
        example="topmast traces convert philly.csv.gz --format philly --out jobs.csv.gz\n"
        "topmast traces convert jobs.csv --out day2.parquet --from 1d --to 2d --load 1.2",
    )(convert)  # fmt: skip
    command(
        traces, "describe", asks=NOTHING,
        example="topmast traces describe jobs.csv\n"
        "topmast traces describe pai_task_table.csv --format pai --out figures --json",
    )(describe)  # fmt: skip
    command(
        traces, "generate", asks=NOTHING,
        example="topmast traces generate --kind mast-like --jobs 20000 --out jobs.csv "
        "--fleet-out fleet.yaml",
    )(generate)  # fmt: skip
    command(
        traces, "fleet", asks=NOTHING,
        example="topmast traces fleet pai_machine_spec.csv --format pai-machines --out fleet.yaml",
    )(fleet)  # fmt: skip


def convert(
    session: Session,
    file: TraceArgument,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Where to write: .csv, .csv.gz, or .parquet."),
    ],
    format: FormatOption = "topmast",
    host_gpus: HostGpusOption = 8,
    skip_bad_rows: SkipOption = False,
    throughputs: ThroughputsOption = None,
    limit: LimitOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    load: LoadOption = None,
) -> None:
    """Write a trace in the topmast format.

    The time range is applied first, then the number of jobs, then the load.
    """
    from topmast.traces.writing import write

    part = _Part(limit, values.duration_s(from_, "--from"), values.duration_s(to, "--to"), load)
    trace = part.of(_read(file, format, host_gpus, skip_bad_rows, throughputs))
    write(trace, out)
    document = {
        "out": str(out),
        "jobs": len(trace),
        "skipped": trace.skipped,
        "span_s": float(trace.submit_s[-1] - trace.submit_s[0]),
    }
    session.show(document, lambda: say_document(document))


def describe(
    session: Session,
    file: TraceArgument,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write plots, as PNG and SVG, into this folder."),
    ] = None,
    format: FormatOption = "topmast",
    host_gpus: HostGpusOption = 8,
    skip_bad_rows: SkipOption = False,
    throughputs: ThroughputsOption = None,
    limit: LimitOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    load: LoadOption = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also show what each kind of host in this fleet offers beside GPUs, "
            "and what jobs ask for.",
        ),
    ] = None,
) -> None:
    """Say what a trace is like: run times, waits, requests, gangs, recurrence, arrivals."""
    from topmast.traces.describe import describe as describe_trace

    part = _Part(limit, values.duration_s(from_, "--from"), values.duration_s(to, "--to"), load)
    trace = part.of(_read(file, format, host_gpus, skip_bad_rows, throughputs))
    document: dict[str, Any] = describe_trace(trace)
    if fleet is not None:
        from topmast.model.files.fleetfile import read_fleet
        from topmast.traces.capacity import capacity

        document["capacity"] = capacity(trace, read_fleet(fleet))
    if out is not None:
        from topmast.traces.pictures import draw

        document["figures"] = [str(path) for path in draw(trace, out)]
    session.show(document, lambda: _say_description(document))


def generate(
    session: Session,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"{KINDS}.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write: .csv, .csv.gz, or .parquet.")
    ],
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="How many jobs.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")] = 0,
    fleet_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the matching fleet file."),
    ] = None,
) -> None:
    """Make up a trace with the published marginals of a real one.

    The same kind, number and seed give the same file.
    """
    from topmast.traces.generate import generate as generate_trace
    from topmast.traces.machines import write_fleet
    from topmast.traces.writing import write

    trace, plan = generate_trace(kind, jobs, seed)
    write(trace, out)
    document: dict[str, Any] = {"kind": kind, "jobs": jobs, "seed": seed, "out": str(out)}
    if fleet_out is not None:
        made = write_fleet(plan, fleet_out)
        document |= {"fleet": str(fleet_out), "gpus": made.gpus()}
    session.show(document, lambda: say_document(document))


def fleet(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The list of machines.")],
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"Its format: {MACHINE_FORMATS}.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the fleet file; without it: stdout."),
    ] = None,
) -> None:
    """Make a fleet file of a public list of machines."""
    from topmast.traces.machines import fleet_text, read_machines, write_fleet

    plan = read_machines(file, format)
    if out is None:
        session.show(plan, lambda: say_block(fleet_text(plan)))
        return
    made = write_fleet(plan, out)
    hosts = sum(len(c.hosts) for region in made.regions for c in region.clusters)
    document = {"out": str(out), "hosts": hosts, "gpus": made.gpus()}
    session.show(document, lambda: say_document(document))


def _read(
    file: Path, format: str, host_gpus: int, skip_bad_rows: bool, throughputs: Path | None
) -> Trace:
    from topmast.traces.reading import read

    trace = read(
        file, format, host_gpus=host_gpus, skip_bad_rows=skip_bad_rows, throughputs=throughputs
    )
    if trace.skipped:
        warn(f"{plural(trace.skipped, 'bad row')} left out")
    return trace


@dataclass(frozen=True)
class _Part:
    """Which part of a trace is meant, and how fast it comes."""

    limit: int | None
    from_s: float | None
    to_s: float | None
    load: float | None

    def of(self, trace: Trace) -> Trace:
        """That part: cut by time, then by number, then changed in load."""
        from topmast.model.errors import InvalidInput

        if self.from_s is not None or self.to_s is not None:
            last_s = float(trace.submit_s[-1])
            to_s = math.inf if self.to_s is None else self.to_s
            trace = trace.between(self.from_s or 0.0, to_s)
            if not len(trace):
                remedy = f"the last job comes at {last_s:g} s"
                raise InvalidInput("no job is left", field="--from, --to", remedy=remedy)
        if self.limit is not None:
            trace = trace.head(self.limit)
        return trace if self.load is None else trace.with_load(self.load)


# ----------------------------------------------------------------------------------- a description


def _say_description(document: dict[str, Any]) -> None:
    """Single figures first, then distributions side by side, then what is most frequent."""
    from topmast.model.units import format_duration

    arrivals, gangs = document["arrivals"], document["gangs"]
    recurrence, users = document["recurrence"], document["users"]
    fields = [
        ("trace", document["trace"]),
        ("jobs", f"{document['jobs']:,}, {document['gpu_jobs']:,} of them with GPUs"),
        ("bad rows left out", f"{document['skipped']:,}" if document["skipped"] else ""),
        ("unfinished", f"{document['unfinished']:,} left out" if document["unfinished"] else ""),
        ("span", format_duration(document["span_s"])),
        ("arrivals", f"{number(arrivals['per_hour'])} per hour"),
        ("GPU hours", f"{document['gpu_hours']:,.0f}"),
        ("gangs", _of_jobs(gangs["gang_share"], gangs["gang_gpu_time_share"])),
        ("several GPUs", _of_jobs(gangs["multi_gpu_share"], gangs["multi_gpu_time_share"])),
        ("shares of a GPU", f"{gangs['shared_gpu_share']:.1%} of jobs"),
        (
            "largest job",
            f"{number(gangs['largest_job_gpus'])} GPUs, {gangs['largest_gang']:,} tasks",
        ),
        ("recurrence", _recurrence(recurrence)),
        ("users", _who(users)),
        ("tenants", _who(document["tenants"])),
    ]  # fmt: skip
    say_fields(fields)
    say()
    _say_distributions(document)
    for name in ("gpu_requests", "gpu_models", "bands", "busiest_tenants"):
        say()
        _say_shares(document[name], name.replace("_", " "))
    say()
    if "capacity" in document:
        _say_capacity(document["capacity"])
        say()
    hours = " ".join(f"{share:.1%}" for share in arrivals["share_by_hour"])
    say_fields([("arrivals by hour", hours)])
    for path in document.get("figures", ()):
        note(f"drawn: {path}")


def _of_jobs(jobs: float, gpu_time: float) -> str:
    return f"{jobs:.1%} of jobs, {gpu_time:.1%} of GPU time"


def _recurrence(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not known: no job has a group"
    often = next(share for name, share in found.items() if name.startswith("in_groups_of"))
    groups, first = plural(found["groups"], "group"), found["first_time_share"]
    return (
        f"{often:.1%} of jobs in groups of 5 and more, {first:.1%} first of their kind ({groups})"
    )


def _who(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['count']:,}; the busiest 5% submit {found['busiest_5_percent_share']:.1%}"


def _say_distributions(document: dict[str, Any]) -> None:
    requests = document["requests"]
    summaries = {
        "run time, s": document["runtime_s"],
        "waiting, s": document["wait_s"],
        "gap between arrivals, s": document["arrivals"]["gap_s"],
        "GPUs per job": requests["gpus_per_job"],
        "GPUs per task": requests["gpus_per_task"],
        "CPUs per task": requests["cpus_per_task"],
        "memory per task, GB": requests["memory_gb_per_task"],
    }
    known = {name: summary for name, summary in summaries.items() if summary is not None}
    marks = list(next(iter(known.values()))) if known else []
    columns = [Column("", whole=True), *(Column(mark.upper(), right=True) for mark in marks)]
    rows = [[name, *(number(summary[mark]) for mark in marks)] for name, summary in known.items()]
    say_table(columns, rows)


def _say_shares(records: list[dict[str, Any]], title: str) -> None:
    first = next(iter(records[0]))
    columns = [
        Column(first.replace("_", " ").upper(), whole=True), Column("JOBS", right=True),
        Column("SHARE", right=True), Column("OF GPU TIME", right=True),
    ]  # fmt: skip
    rows = [
        [
            record[first] if isinstance(record[first], str) else number(record[first]),
            f"{record['jobs']:,}",
            f"{record['share']:.1%}",
            f"{record['gpu_time_share']:.1%}",
        ]
        for record in records
    ]
    say_table(columns, rows, title=title)


def _say_capacity(records: list[dict[str, Any]]) -> None:
    """By kind of host: what is offered and requested with a GPU, and the GPUs that are stranded."""
    columns = [
        Column("GPU MODEL", whole=True), Column("HOSTS", right=True), Column("GPUS", right=True),
        Column("CPUS PER GPU", right=True), Column("REQUESTED", right=True),
        Column("GB PER GPU", right=True), Column("REQUESTED", right=True),
        Column("STRANDED GPUS", right=True),
    ]  # fmt: skip
    rows = [
        [
            f"{record['gpu_model']} x {record['gpus_per_host']}",
            f"{record['hosts']:,}",
            f"{record['gpus']:,}",
            *(_amount(record[name][key]) for name in ("cpus_per_gpu", "memory_gb_per_gpu")
              for key in ("offered", "requested")),
            f"{record['stranded_gpus']:,.0f}",
        ]
        for record in records
    ]  # fmt: skip
    say_table(columns, rows, title="capacity")


def _amount(value: float | None) -> str:
    return "any" if value is None else number(value)
