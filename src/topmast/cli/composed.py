"""Commands that compose a system: `up`, `demo`, `replay`, `bench`. The root does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

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
    database,
    doctor,
    up,
    values,
    whatif,
)
from topmast.cli.command import FOLDER, SYSTEM, Session, command, group
from topmast.cli.documents import say_document
from topmast.cli.jobs import say_jobs
from topmast.cli.output import say
from topmast.cli.root import (
    BenchOptions,
    DemoOptions,
    ReplayOptions,
    Root,
)
from topmast.cli.text import moment


def add(app: typer.Typer, root: Root) -> None:
    """Add the commands."""
    up.add(app, root)
    _add_demo(app, root)
    _add_replay(app, root)
    whatif.add(app, root)
    database.add(app, root)
    doctor.add(app, root)
    bench = group(
        app,
        "bench",
        help="Measure this machine.",
        panel=SYSTEM,
        example="topmast bench submit --json",
    )
    bench_submit.add(bench, root)
    _add_benchmark(
        bench, root, "recover", "Measure how fast a killed server is back.", "--jobs 100000"
    )
    _add_benchmark(
        bench, root, "ranking", "Measure how fast the queue is put in order.", "--jobs 1000000"
    )
    _add_benchmark(
        bench, root, "eta", "Measure how fast an expected start is found.", "--jobs 10000"
    )
    bench_fleet.add(bench, root)
    bench_policies.add(bench, root)
    bench_plan.add(bench, root)
    bench_slow.add(bench, root)
    bench_engines.add(bench, root)
    bench_closed_loop.add(bench, root)
    bench_compare.add(bench, root)


def _add_demo(app: typer.Typer, root: Root) -> None:
    @command(
        app,
        "demo",
        panel=SYSTEM,
        asks=FOLDER,
        example="topmast demo\ntopmast demo --engines\ntopmast demo --keep --state ./demo",
    )
    def demo(
        session: Session,
        keep: Annotated[bool, typer.Option(help="Keep the demo's folder.")] = False,
        engines: Annotated[
            bool,
            typer.Option("--engines", help="Start a Slurm cluster and SSH hosts, and use them."),
        ] = False,
    ) -> int:
        """Run a small fleet with training jobs on this machine.

        It says what happened and why, and ends by itself.
        """
        state = session.state.expanduser().absolute() if session.state else None
        options = DemoOptions(state=state, keep=keep, json=session.json, engines=engines)
        return root.demo(options)


def _add_replay(app: typer.Typer, root: Root) -> None:
    @command(
        app,
        "replay",
        panel=SYSTEM,
        asks=FOLDER,
        example="topmast replay --state ./state --until 2h\n"
        "topmast replay --state ./state --serve --port 0",
    )
    def replay(
        session: Session,
        until: Annotated[
            str | None,
            typer.Option(metavar="T", help="The time to look at: 2h (ago), 2030-01-31T12:00."),
        ] = None,
        serve: Annotated[
            bool, typer.Option("--serve", help="Show any moment in the dashboard, for reading.")
        ] = False,
        host: Annotated[
            str, typer.Option(metavar="ADDRESS", help="With --serve: the loopback address.")
        ] = "127.0.0.1",
        port: Annotated[
            int, typer.Option(min=0, max=65_535, help="With --serve: the port; 0: any.")
        ] = 0,
    ) -> None:
        """Rebuild the past from a state folder."""
        if serve and until is not None:
            raise typer.BadParameter(
                "with --serve, the pages choose the time", param_hint="--until"
            )
        options = ReplayOptions(
            state=session.state_folder(),
            until_s=values.moment_s(until, "--until"),
            json=session.json,
            serve=serve,
            host=host,
            port=port,
        )
        document = root.replay(options)
        if serve:
            return
        session.show(document, lambda: _say_past(document))


def _say_past(document: object) -> None:
    """The jobs of the past as `queue` shows those of today, and all else as any document."""
    from topmast.model.views import JobView

    past = dict(document) if isinstance(document, dict) else {}
    jobs, at_s = past.pop("jobs", None), past.pop("until_s", None)
    if not isinstance(jobs, list) or not all(isinstance(job, JobView) for job in jobs):
        say_document(document)
        return
    say_document({"as of": moment(at_s)} | past)
    say()
    say_jobs(jobs, at_s)


def _add_benchmark(app: typer.Typer, root: Root, name: str, purpose: str, example: str) -> None:
    def benchmark(
        session: Session,
        jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs.")] = None,
        clients: Annotated[int | None, typer.Option(min=1, help="How many at once.")] = None,
        duration: Annotated[
            str | None, typer.Option(metavar="TIME", help="How long, for example 30s.")
        ] = None,
        seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
    ) -> None:
        options = BenchOptions(
            jobs=jobs,
            clients=clients,
            duration_s=values.duration_s(duration, "--duration"),
            seed=seed,
            state=session.state,
            json=session.json,
        )
        document = root.bench(name, options)
        session.show(document, lambda: say_document(document))

    benchmark.__doc__ = purpose
    declare: Callable[..., Any] = command(
        app, name, asks=FOLDER, example=f"topmast bench {name} {example}"
    )
    declare(benchmark)
