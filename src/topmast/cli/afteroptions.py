"""The options of `launch` that let a job wait for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from topmast.cli.completion import complete_jobs


@dataclass(frozen=True)
class AfterOptions:
    """The jobs that must have come to something before this one starts."""

    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="JOB",
            help="Start it only when JOB has started; may be repeated.",
            autocompletion=complete_jobs,
        ),
    ] = None
    after_ok: Annotated[
        list[str] | None,
        typer.Option(
            "--after-ok",
            metavar="JOB",
            help="Start it only when JOB has succeeded; may be repeated.",
            autocompletion=complete_jobs,
        ),
    ] = None
    after_any: Annotated[
        list[str] | None,
        typer.Option(
            "--after-any",
            metavar="JOB",
            help="Start it only when JOB has ended, no matter how; may be repeated.",
            autocompletion=complete_jobs,
        ),
    ] = None

    def dependencies(self) -> list[dict[str, str]]:
        """The field ``depends_on`` that they stand for; empty without any."""
        options = (("started", self.after), ("ok", self.after_ok), ("any", self.after_any))
        named = ((what, text.split(",")) for what, texts in options for text in texts or ())
        return [
            {"job": job.strip(), "after": what}
            for what, jobs in named
            for job in jobs
            if job.strip()
        ]


_OPTIONS = {"started": "--after", "ok": "--after-ok", "any": "--after-any"}


def option_of(field: str, message: str, changed: Mapping[str, Any]) -> str:
    """The option that an error of ``depends_on`` is about; any other field as it is."""
    named = changed.get("depends_on", []) if field == "depends_on" else []
    found = [_OPTIONS[one["after"]] for one in named if f"'{one['job']}'" in message]
    return found[0] if found else field
