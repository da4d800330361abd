"""Options that acts have in common: why they are done, whether at all, and for how long."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.output import note


@dataclass(frozen=True)
class ActOptions:
    """What every act has."""

    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why; it is shown, and the audit log keeps it."),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Do nothing: only show what that concerns, and its cost."),
    ] = False

    @property
    def given(self) -> dict[str, Any]:
        """As methods of the client take them."""
        return {"reason": self.reason or "", "dry_run": self.dry_run}

    def tell(self) -> None:
        """Say so if nothing was done."""
        if self.dry_run:
            note("nothing was done")

    def passive(self, verb: str) -> str:
        """What is done to one thing, or would be."""
        return f"would be {verb}" if self.dry_run else f"is {verb}"


@dataclass(frozen=True)
class PeriodOptions:
    """When something begins, and when it ends by itself."""

    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="When it begins: a time, or 4h from now.",
            callback=values.COMING,
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When it ends by itself, likewise.", callback=values.COMING
        ),
    ] = None
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long it lasts, in place of --until.",
            callback=values.DURATION,
        ),
    ] = None

    @property
    def ends(self) -> int:
        """How often it is said when it ends: once is right."""
        return (self.until is not None) + (self.for_ is not None)

    @property
    def fault(self) -> str:
        """What is wrong with when it ends; empty: nothing."""
        if self.ends > 1:
            return "--until and --for both say when it ends: give only one of them"
        return "" if self.ends else "say when it ends: with --until, or with --for"

    def bounds_s(self) -> tuple[float | None, float]:
        """From when (None: from now) until when. It `ends` once."""
        from_s = values.coming_s(self.from_, "--from")
        until_s = values.coming_s(self.until, "--until")
        if until_s is None:
            values.with_unit(self.for_, "--for")
            lasts_s = values.duration_s(self.for_, "--for") or 0.0
            until_s = (time.time() if from_s is None else from_s) + lasts_s
        return from_s, until_s
