"""`demo` and `replay`, which compose a system. The root does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.documents import say_document
from topmast.cli.jobs import say_jobs
from topmast.cli.output import say
from topmast.cli.rootoptions import DemoOptions, ReplayOptions
from topmast.cli.text import moment


def add(app: typer.Typer) -> None:
    """Add the commands."""
    _add_demo(app)
    _add_replay(app)


def _add_demo(app: typer.Typer) -> None:
    @command(
        app,
        "demo",
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
        return session.root.demo(options)


def _add_replay(app: typer.Typer) -> None:
    @command(
        app,
        "replay",
        asks=FOLDER,
        example="topmast replay --state ./state --until 2h\n"
        "topmast replay --state ./state --serve --port 0",
    )
    def replay(
        session: Session,
        until: Annotated[
            str | None,
            typer.Option(
                metavar="T",
                help="The time to look at: 2h (ago), 2030-01-31T12:00.",
                callback=values.MOMENT,
            ),
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
            until_s=values.past_s(until, "--until"),
            json=session.json,
            serve=serve,
            host=host,
            port=port,
        )
        document = session.root.replay(options)
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
