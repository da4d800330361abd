"""`plan capacity`: hosts assigned to clusters on their own, and made-up problems to try it on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import NOTHING, Session, command
from topmast.cli.output import Column, note, say, say_fields, say_json, say_table
from topmast.cli.plan_files import ProblemArgument, TimeOption, bytes_of, compiling_told, limit_s
from topmast.cli.text import number

SHOWN = 10


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group `plan`."""
    command(
        group, "capacity", asks=NOTHING,
        example="topmast plan capacity hosts.json\n"
        "topmast plan capacity --time-limit 5m --json hosts.json > answer.json",
    )(capacity)  # fmt: skip
    command(
        group, "capacity-example", asks=NOTHING,
        example="topmast plan capacity-example --hosts 10000 --clusters 40 --out hosts.json",
    )(capacity_example)  # fmt: skip


def capacity(session: Session, problem: ProblemArgument, time_limit: TimeOption = "60") -> int:
    """Decide which hosts belong to which clusters, with a proven gap.

    Each cluster gets what it asks for even while any one fault domain is down, with few moves and a
    shared buffer for random failures. What is lacking is priced and listed, so that there always is
    an answer.
    """
    from topmast.slow.capacity.planner import compile_kernels, plan
    from topmast.slow.capacity.reading import parse_problem
    from topmast.slow.capacity.shortage import shortages_of

    seconds = limit_s(time_limit)
    read = parse_problem(bytes_of(problem), str(problem))
    with compiling_told():
        compile_kernels()
    document = plan(read, seconds, time.monotonic)
    session.show(document, lambda: _say(document))
    for shortage in shortages_of(read)[:SHOWN]:
        note(f"topmast: {shortage}")
    return 0


def _say(document: Mapping[str, Any]) -> None:
    """The answer for people: what it costs and how good it is, then what is lacking."""
    say_fields(
        [
            ("status", document["status"]),
            *((name, number(document[name])) for name in ("objective", "bound", "wall_s")),
            ("gap", f"{document['gap']:.3%}"),
            *((f"cost of {name}", number(cost)) for name, cost in document["terms"].items()),
        ]
    )
    lacking = [
        (gpus, cluster, model)
        for cluster, models in document["shortfall"].items()
        for model, gpus in models.items()
        if gpus > 0
    ]
    if lacking:
        say()
        rows = [[c, m, number(g)] for g, c, m in sorted(lacking, key=lambda x: (-x[0], *x[1:]))]
        titles = [Column("CLUSTER"), Column("MODEL"), Column("GPUS", right=True)]
        say_table(titles, rows[:SHOWN], title=f"{len(rows)} capacities are not met")


def capacity_example(
    session: Session,
    hosts: Annotated[int, typer.Option("--hosts", min=1, help="Hosts.")] = 10_000,
    clusters: Annotated[int, typer.Option("--clusters", min=1, help="Clusters.")] = 40,
    domains: Annotated[int, typer.Option("--domains", min=1, help="Fault domains.")] = 40,
    asked: Annotated[
        float,
        typer.Option(
            "--asked", min=0.0, max=10.0, help="The part of all GPUs that clusters ask for."
        ),
    ] = 0.9,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of all random numbers.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there, not to stdout.")
    ] = None,
) -> None:
    """Make up a problem for `plan capacity`, of a given size."""
    import msgspec

    from topmast.slow.capacity.generate import Shape, make

    document = make(Shape(hosts=hosts, clusters=clusters, domains=domains, asked=asked, seed=seed))
    if out is None:
        say_json(document)
        return
    out.write_bytes(msgspec.json.encode(document))
    written = {
        "out": str(out), "hosts": hosts, "clusters": clusters, "domains": domains, "asked": asked,
        "seed": seed,
    }  # fmt: skip
    session.show(written, lambda: say(str(out)))
