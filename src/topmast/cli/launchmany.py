"""`launch` of a file with several jobs: one submission, in which jobs name those before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from topmast.cli.command import Session
from topmast.cli.explain import say_explanation
from topmast.cli.jobs import say_states
from topmast.cli.jobsource import JobSource
from topmast.cli.output import note, say, say_block, warn
from topmast.cli.overrides import with_changes
from topmast.cli.watch import Watch

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.views import JobView

_OF_ONE = {"name": "--name", "depends_on": "--after"}
"""Fields that several jobs cannot have from one option."""

Documents = list[tuple[dict[str, Any], Path | None]]
"""Jobs, each with the folder that it works in."""


def documents_of(parts: Sequence[JobSource], changes: Mapping[str, Any]) -> Documents:
    """The jobs of a file with the options' changes, checked.

    Raises BadParameter, and InvalidInput with the errors of all of them.
    """
    for field, option in _OF_ONE.items():
        if field in changes:
            message = f"{parts[0].where} has {len(parts)} jobs: write {field} there"
            raise typer.BadParameter(message, param_hint=f"'{option}'")
    from topmast.model.errors import InvalidInput, Refused

    found, called, refused = Documents(), Counter[str](), Refused()
    for part in parts:
        try:
            document, folder = part.read(called)
            found.append(with_changes(document, folder, dict(changes), called))
        except InvalidInput as error:
            refused.add(error)
        else:
            called[document["name"]] += 1
    refused.refuse()
    return found


def dry_run_all(session: Session, client: Client, jobs: Documents) -> int:
    """Say where each job would run if it were alone; the exit code."""
    explained = {}
    for document, folder in jobs:
        alone = {**document, "depends_on": _submitted_before(document)}
        explained[document["name"]] = client.dry_run(alone, workdir=folder)

    def tell() -> None:
        for name, explanation in explained.items():
            say(f"{name}:")
            say_explanation(explanation)

    session.show({"jobs": list(explained.values())}, tell)
    return 0


def launch_all(session: Session, client: Client, jobs: Documents, wait: bool) -> list[JobView]:
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


def _submitted_before(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """What a job waits for that the server knows already: not those of its own file."""
    from topmast.model.ids import job_number, sweep_number

    waits = document.get("depends_on", [])
    return [to for to in waits if job_number(to["job"]) >= 0 or sweep_number(to["job"]) >= 0]
