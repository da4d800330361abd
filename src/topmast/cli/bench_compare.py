"""`bench all` and `bench compare`: what became faster or slower since another version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import Column, say, say_table
from topmast.cli.rootoptions import BenchOptions


def add(app: typer.Typer) -> None:
    """Add the commands to those of `bench`."""
    _add_all(app)
    _add_compare(app)


def _add_all(app: typer.Typer) -> None:
    @command(
        app, "all", asks=FOLDER,
        example="topmast bench all --out before.json\n"
        "topmast bench all --only search,queue --turns 5 --out after.json",
    )  # fmt: skip
    def measure_all(
        session: Session,
        out: Annotated[Path, typer.Option(metavar="FILE", help="Write the figures there.")],
        turns: Annotated[
            int, typer.Option(min=1, help="How often each benchmark runs, in turns.")
        ] = 3,
        only: Annotated[
            str, typer.Option(metavar="NAME,NAME,...", help="Only these benchmarks.")
        ] = "",
    ) -> None:
        """Run the benchmarks in turns, and write one file of all figures."""
        options = BenchOptions(
            out=out, turns=turns, names=tuple(name for name in only.split(",") if name)
        )
        document: Any = session.root.bench("all", options)
        session.show(document, lambda: say(f"{len(document.figures)} figures are in {out}"))


def _add_compare(app: typer.Typer) -> None:
    @command(
        app, "compare", asks=FOLDER, example="topmast bench compare before.json after.json --json"
    )
    def compare(
        session: Session,
        before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A file of bench all.")],
        after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one.")],
    ) -> None:
        """Show which figures of two files differ by more than noise."""
        document: Any = session.root.bench("compare", BenchOptions(before=before, after=after))
        session.show(document, lambda: _say(document))


def _say(document: dict[str, Any]) -> None:
    changes = [change for change in document["changes"] if change.verdict != "same"]
    if changes:
        titles = ("FIGURE", "BEFORE", "AFTER", "RATIO", "NOISE", "VERDICT")
        columns = [Column(title, right=0 < index < 5) for index, title in enumerate(titles)]
        say_table(columns, [_cells(change) for change in changes])
    if not document["same_machine"]:
        say("The files are of different machines or versions of Python or Topmast.")
    say(
        f"{document['faster']} faster, {document['same']} the same within the noise, "
        f"{document['slower']} slower; a ratio above 1 is slower"
    )


def _cells(change: Any) -> list[str]:
    return [
        change.figure, f"{change.before:.4g}", f"{change.after:.4g}", f"{change.ratio:.2f}",
        f"{change.noise:.0%}", change.verdict,
    ]  # fmt: skip
