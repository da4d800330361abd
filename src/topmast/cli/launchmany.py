"""`launch` of a file with several jobs: one submission, in which jobs name those before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from topmast.cli.afteroptions import AfterList
from topmast.cli.command import Session
from topmast.cli.explain import say_explanation
from topmast.cli.jobcheck import alone
from topmast.cli.jobs import say_states
from topmast.cli.jobsource import Job, JobSource
from topmast.cli.output import note, say, say_block, warn
from topmast.cli.watch import Watch

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.views import JobView

_OF_ONE = {"name": "--name", "depends_on": "--set"}
"""Fields that several jobs cannot have from one option."""


def refuse_of_one(parts: Sequence[JobSource], changes: Mapping[str, Any]) -> None:
    """Raises BadParameter for options that only one job can have."""
    for field, option in _OF_ONE.items():
        if field in changes:
            message = f"{parts[0].where} has {len(parts)} jobs: write {field} there"
            given = changes[field]
            named = given.option(0) if isinstance(given, AfterList) else option
            raise typer.BadParameter(message, param_hint=f"'{named}'")


def dry_run_all(session: Session, client: Client, jobs: Sequence[Job]) -> int:
    """Say where each job would run if it were alone; the exit code."""
    explained = {}
    for document, folder in jobs:
        explained[document["name"]] = client.dry_run(alone(document), workdir=folder)

    def tell() -> None:
        for name, explanation in explained.items():
            say(f"{name}:")
            say_explanation(explanation)

    session.show({"jobs": list(explained.values())}, tell)
    return 0


def launch_all(session: Session, client: Client, jobs: Sequence[Job], wait: bool) -> list[JobView]:
    """Submit all jobs or none, and say their ids; what became of them, with ``wait``."""
    sent = [
        document if folder is None else {**document, "workdir": str(folder)}
        for document, folder in jobs
    ]
    receipt = client.submit_many(sent)
    for warning in receipt.warnings:
        warn(warning)
    if not wait:
        session.show(receipt, lambda: say_block("\n".join(receipt.ids)))
        return []
    note(f"{len(jobs)} jobs are submitted as {', '.join(receipt.ids)}")
    with Watch() as watch:
        ended = client.wait(list(receipt.ids), on_change=watch.update)
    whole = {"ids": receipt.ids, "warnings": receipt.warnings, "jobs": ended}
    session.show(whole, lambda: say_states(ended))
    return ended
