"""`bench`: measurements of this machine. The root does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from topmast.cli import (
    bench_closed_loop,
    bench_compare,
    bench_engines,
    bench_fleet,
    bench_plan,
    bench_policies,
    bench_slow,
    bench_submit,
)
from topmast.cli.command import FOLDER, Session, command, group
from topmast.cli.documents import say_document
from topmast.cli.loadoptions import LoadOptions


def add(app: typer.Typer) -> None:
    """Add the group and its commands."""
    bench = group(app, "bench", example="topmast bench submit --json")
    bench_submit.add(bench)
    _add_benchmark(bench, "recover", "Measure how fast a killed server is back.", "--jobs 100000")
    _add_benchmark(
        bench, "ranking", "Measure how fast the queue is put in order.", "--jobs 1000000"
    )
    _add_benchmark(bench, "eta", "Measure how fast an expected start is found.", "--jobs 10000")
    bench_fleet.add(bench)
    bench_policies.add(bench)
    bench_plan.add(bench)
    bench_slow.add(bench)
    bench_engines.add(bench)
    bench_closed_loop.add(bench)
    bench_compare.add(bench)


def _add_benchmark(app: typer.Typer, name: str, purpose: str, example: str) -> None:
    def benchmark(session: Session, load: LoadOptions = LoadOptions()) -> None:
        document = session.root.bench(name, load.bench(session))
        session.show(document, lambda: say_document(document))

    benchmark.__doc__ = purpose
    declare: Callable[..., Any] = command(
        app, name, asks=FOLDER, example=f"topmast bench {name} {example}"
    )
    declare(benchmark)
