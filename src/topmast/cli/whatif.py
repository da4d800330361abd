"""`whatif`: the state of a system, run ahead as it is and with something changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.completion import complete_profiles, complete_settings
from topmast.cli.output import Column, Row, say, say_fields, say_table, warn
from topmast.cli.rootoptions import WhatIfOptions
from topmast.cli.simulate import Progress
from topmast.cli.text import moment, number

AddHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--add-hosts",
        metavar="CLUSTER:N",
        help="More hosts, like its last one with GPUs; or CLUSTER:N:KIND, a GPU model or `cpu`.",
    ),
]
Quota = Annotated[
    list[str] | None,
    typer.Option("--quota", metavar="TENANT:MODEL=N", help="Another quota, in whole GPUs."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Other policies.", autocompletion=complete_profiles),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change an option, or @FILE of calibrate; may be repeated.",
        autocompletion=complete_settings,
    ),
]
Lose = Annotated[
    list[str] | None,
    typer.Option("--lose-region", metavar="REGION", help="All hosts of a region fail at once."),
]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job",
        metavar="JOB:KEY=VALUE",
        help="Of a job: priority, time_limit_s, max_restarts, preemptible, expected_duration_s.",
    ),
]
Throughputs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The table of speeds that the server was given."),
]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="How far to look: 6h, 2d.")]
Until = Annotated[
    str | None,
    typer.Option(metavar="T", help="Start from an earlier time: 2h (ago), 2030-01-31T12:00."),
]
ProgressJson = Annotated[
    bool, typer.Option("--progress-json", help="Tell progress on stderr as lines of JSON.")
]
LINE_S = 1.0
"""A server shows each line to the people that wait for it."""


def add(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app, "whatif", asks=FOLDER,
        example="topmast whatif --state ./state --add-hosts east-1:4 --for 6h\n"
        "topmast whatif --state ./state --quota team-a:H100=64 --json",
    )  # fmt: skip
    def whatif(
        session: Session,
        add_hosts: AddHosts = None,
        quota: Quota = None,
        profile: ProfileName = None,
        settings: Settings = None,
        lose_region: Lose = None,
        job: Jobs = None,
        throughputs: Throughputs = None,
        for_: For = "24h",
        until: Until = None,
        progress_json: ProgressJson = False,
    ) -> None:
        """Try a change on a copy of the system, and compare.

        The state folder is only read; its server may run. No further jobs are submitted.
        """
        for_s = values.duration_s(for_) or 0.0
        if for_s <= 0:
            raise typer.BadParameter("must be more than 0, for example 6h", param_hint="'--for'")
        if session.state is None and (session.server or os.environ.get("TOPMAST_SERVER")):
            raise typer.BadParameter(
                "whatif asks no server: name the server's state folder", param_hint="'--state'"
            )
        given = settings or []
        options = WhatIfOptions(
            state=session.state_folder(),
            until_s=values.past_s(until, "--until"),
            for_s=for_s,
            add_hosts=_added(add_hosts),
            quotas=_quotas(quota),
            profile=profile,
            settings=values.assignments(text for text in given if not text.startswith("@")),
            found=values.assignments(text for text in given if text.startswith("@")),
            lose_regions=tuple(lose_region or ()),
            jobs=_edits(job),
            throughputs=throughputs,
        )
        progress = Progress(line_s=LINE_S, write=write_json if progress_json else None)
        document = session.root.whatif(options, progress)
        progress.clear()
        session.show(document, lambda: say_futures(document))


def write_json(over: int, jobs: int, text: str) -> None:
    """Progress for the server, on a line of stderr."""
    import msgspec

    from topmast.model.whatif_views import WhatIfProgress

    sys.stderr.write(msgspec.json.encode(WhatIfProgress(over, jobs, text)).decode() + "\n")
    sys.stderr.flush()


def _added(texts: list[str] | None) -> dict[str, int]:
    """How many hosts more, by ``CLUSTER`` or ``CLUSTER:KIND``."""
    found: dict[str, int] = {}
    for text in texts or ():
        cluster, _, rest = text.partition(":")
        count, _, kind = rest.partition(":")
        if not cluster or not count.isdecimal() or int(count) < 1 or text.endswith(":"):
            form = "CLUSTER:N or CLUSTER:N:KIND, as east-1:2 or east-1:2:H100"
            raise typer.BadParameter(f"{text!r} is not {form}", param_hint="'--add-hosts'")
        values.once(found, f"{cluster}:{kind}" if kind else cluster, int(count), "--add-hosts")
    return found


def _quotas(texts: list[str] | None) -> dict[str, int]:
    """Whole GPUs by ``TENANT:MODEL``."""
    found: dict[str, int] = {}
    for text in texts or ():
        name, _, count = text.rpartition("=")
        if not name or not all(name.partition(":")) or not count.isdecimal():
            raise typer.BadParameter(f"{text!r} is not TENANT:MODEL=N", param_hint="'--quota'")
        values.once(found, name, int(count), "--quota")
    return found


def _edits(texts: list[str] | None) -> dict[str, dict[str, Any]]:
    """What changes, by job. A value is JSON; what is none is a text."""
    found: dict[str, dict[str, Any]] = {}
    said: dict[str, Any] = {}
    for text in texts or ():
        job, _, change = text.partition(":")
        key, equals, value = change.partition("=")
        if not (job and key and equals and value):
            form = "JOB:KEY=VALUE, as j7:priority=high"
            raise typer.BadParameter(f"{text!r} is not {form}", param_hint="'--job'")
        values.once(said, f"{key} of {job}", _value(value), "--job")
        found.setdefault(job, {})[key] = _value(value)
    return found


def _value(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


_ROWS = (
    ("jobs", "jobs"), ("waiting", "waiting at first"), ("started", "of these started"),
    ("still_waiting", "still waiting"), ("finished", "finished"), ("wait_s.mean", "wait, mean (s)"),
    ("wait_s.p50", "wait, median (s)"), ("wait_s.p90", "wait, 90% (s)"),
    ("jct_s.mean", "JCT, mean (s)"), ("jct_s.p90", "JCT, 90% (s)"), ("gpus", "GPUs in service"),
    ("allocation_rate", "allocated"), ("preemptions", "preemptions"),
)  # fmt: skip


def say_futures(document: Mapping[str, Any]) -> None:
    """Both futures side by side, for people."""
    base, changed = document["base"], document["changed"]
    if not document["changes"]:
        warn("both runs are the same: name a change (see `topmast whatif --help`)")
    for line in document["warnings"]:
        warn(line)
    say_fields(
        [
            ("as of", moment(document["at_s"])),
            ("looked ahead", f"{document['for_s'] / 3600:g} h"),
            ("profile", base["profile"]),
            ("changed", "; ".join(document["changes"]) or "nothing"),
        ]
    )
    say()
    columns = [Column(""), *(Column(x, right=True) for x in ("AS IT IS", "CHANGED", "DIFFERENCE"))]
    rows: list[Row] = []
    for key, title in _ROWS:
        one, other = _at(base, key), _at(changed, key)
        difference = "" if one is None or other is None else f"{other - one:+.4g}"
        rows.append([title, _figure(one), _figure(other), difference])
    say_table(columns, rows)
    say()
    _say_tenants(base["tenants"], changed["tenants"])
    if base["changed_jobs"]:
        say()
        _say_jobs(document["at_s"], base["changed_jobs"], changed["changed_jobs"])


def _say_jobs(at_s: float, base: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """The jobs that were changed: when they start and end, from now on."""
    columns = [Column("JOB", whole=True), Column("FUTURE")]
    columns += [Column(title, right=True) for title in ("START", "END", "PREEMPTED")]
    rows: list[Row] = []
    for job in base:
        for name, part in (("as it is", base[job]), ("changed", changed[job])):
            times = (part["start_s"], part["finish_s"])
            shown = [_figure(None if time_s is None else time_s - at_s) for time_s in times]
            rows.append([job, name, *shown, number(part["preemptions"])])
    say_table(columns, rows, title="Jobs that change (seconds from now on)")


def _say_tenants(base: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    titles = ("STARTED", "WAIT", "JCT", "PREEMPTED", "GPU-H")
    columns = [Column("TENANT", whole=True), Column("FUTURE")]
    columns += [Column(title, right=True) for title in titles]
    rows: list[Row] = []
    for tenant in base:
        for name, part in (("as it is", base[tenant]), ("changed", changed[tenant])):
            rows.append(
                [
                    tenant, name, f"{part['started']} of {part['waiting']}",
                    _figure(_at(part, "wait_s.mean")), _figure(_at(part, "jct_s.mean")),
                    number(part["preemptions"]), number(part["held_gpu_s"] / 3600),
                ]
            )  # fmt: skip
    say_table(columns, rows, title="By tenant (means, in seconds)")


def _at(document: Mapping[str, Any], key: str) -> float | None:
    value: Any = document
    for part in key.split("."):
        value = value[part]
    return None if value is None else float(value)


def _figure(value: float | None) -> str:
    return "-" if value is None else number(round(value, 3))
