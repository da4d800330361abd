"""All that is wrong with the jobs of a `launch` at once: what is seen here, and what a server says.

Only a server knows the tenants, GPU models and jobs that there are. It is asked about the rest of a
job with errors, as in a dry run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from topmast.cli.command import Session
from topmast.cli.jobsource import Job, JobSource
from topmast.cli.overrides import with_changes
from topmast.model.errors import MOST_TOLD, Faults, InvalidInput, Refused, TopmastError

PATIENCE_S = 5.0
"""How long an answer about a job with errors is waited for: they are told without it, too."""


def checked(
    session: Session,
    parts: Sequence[JobSource],
    changes: Mapping[str, Any],
    wrong: Sequence[InvalidInput] = (),
) -> list[Job]:
    """The jobs of a file with the options' changes.

    Raises InvalidInput, with all that is wrong; ``wrong`` is what options say wrongly.
    """
    found, called, refused = list[Job](), Counter[str](), Refused()
    refused.add_all(wrong)
    rest: list[tuple[JobSource, Job, set[str]]] = []
    for part in parts:
        told = {one.field for one in wrong}
        try:
            job: object = _changed(part, changes, called)
        except InvalidInput as error:
            refused.add(error)
            told |= {one.field for one in (error, *error.more)}
            job = error.rest
        if isinstance(job, tuple):
            found.append(job)
            called[str(job[0].get("name", ""))] += 1
            rest.append((part, job, told))
    if refused:
        refused.add_all(_told_by_server(session, rest[:MOST_TOLD], changes))
    refused.refuse()
    return found


def _changed(source: JobSource, changes: Mapping[str, Any], before: Mapping[str, int]) -> Job:
    """One job. Raises InvalidInput, with all that is wrong; ``rest`` is the job without that."""
    faults = Faults()
    job = faults.rest_of(partial(source.read, before))
    if job is not None:
        job = faults.rest_of(partial(with_changes, *job, changes, before))
    if job is not None:
        faults.of(partial(source.check_folder, job[1], changes))
    faults.refuse(job)
    return cast(Job, job)


def _told_by_server(
    session: Session,
    jobs: Sequence[tuple[JobSource, Job, set[str]]],
    changes: Mapping[str, Any],
) -> list[InvalidInput]:
    """What a server finds wrong with jobs beside the fields that are told; nothing if none is near.

    Nothing of their folders is sent.
    """
    found: list[InvalidInput] = []
    try:
        with session.client(PATIENCE_S) as client:
            for source, (document, _), told in jobs:
                try:
                    with source.placed(changes):
                        client.dry_run(alone(document))
                except InvalidInput as error:
                    found += [one for one in (error, *error.more) if one.field not in told]
    except TopmastError:
        pass
    return found


def alone(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job without those of its own file that it waits for: the server knows nothing of them."""
    from topmast.model.ids import job_number, sweep_number

    waits = document.get("depends_on", [])
    known = [to for to in waits if job_number(to["job"]) >= 0 or sweep_number(to["job"]) >= 0]
    return {**document, "depends_on": known} if waits else dict(document)
