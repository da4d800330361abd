"""The options of `launch` that let a job wait for others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from topmast.cli.completion import complete_jobs

_OPTIONS = {"started": "--after", "ok": "--after-ok", "any": "--after-any"}
_AT = re.compile(r"depends_on\[(\d+)\]\.job")


class AfterList(list[dict[str, str]]):
    """The field ``depends_on`` as these options make it, and not ``--set`` nor a file."""

    def option(self, at: int) -> str:
        """The option that gave one."""
        return _OPTIONS[self[at]["after"]]


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

    def dependencies(self) -> AfterList:
        """The field ``depends_on`` that they stand for; empty without any."""
        options = (("started", self.after), ("ok", self.after_ok), ("any", self.after_any))
        named = ((what, text.split(",")) for what, texts in options for text in texts or ())
        return AfterList(
            {"job": job.strip(), "after": what}
            for what, jobs in named
            for job in jobs
            if job.strip()
        )


def option_of(field: str, message: str, changed: Mapping[str, Any]) -> str:
    """The option that an error of ``depends_on`` is about; any other field as it is."""
    named = changed.get("depends_on")
    at = _AT.fullmatch(field)
    if not isinstance(named, AfterList) or (at is None and field != "depends_on"):
        return field
    if at is not None:
        return named.option(int(at[1]))
    about = (n for n, one in enumerate(named) if f"'{one['job']}'" in message)
    return next(map(named.option, about), field)
