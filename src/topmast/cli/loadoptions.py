"""Options that benchmarks of a server have in common: how much it has to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import Session
from topmast.cli.rootoptions import BenchOptions


@dataclass(frozen=True)
class LoadOptions:
    """How many jobs, from how many clients, for how long."""

    jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs.")] = None
    clients: Annotated[int | None, typer.Option(min=1, help="How many at once.")] = None
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long, for example 30s.")
    ] = None
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0

    def bench(self, session: Session, **more: Any) -> BenchOptions:
        """As the root takes them, with ``more`` of them."""
        return BenchOptions(
            jobs=self.jobs, clients=self.clients, seed=self.seed,
            duration_s=values.duration_s(self.duration, "--duration"),
            state=session.state, json=session.json, **more,
        )  # fmt: skip
