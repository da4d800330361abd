"""What is sent of a job that shall be submitted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topmast.model.job import JobSpec

if TYPE_CHECKING:
    from topmast.model.files.jobfile import JobFile

Job = JobSpec | Mapping[str, Any] | str | os.PathLike[str]
"""A job to submit: a spec, a document (a job file as a mapping), or the path of a job file."""


def document_of(
    job: Job, before: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], Path | None]:
    """The document of a job as it is sent, and the folder it wants a snapshot of.

    ``before``: how many jobs that are sent before it in the same request have a name.
    """
    from topmast.model.files.jobfile import dump_job, read_job

    if isinstance(job, JobSpec):
        return dump_job(job), None
    if isinstance(job, Mapping):
        document = dict(job)
        folder = document.get("workdir")
        if not isinstance(folder, str) or folder.startswith("sha256:"):
            return document, None
        del document["workdir"]
        return document, Path(folder).expanduser()
    path = Path(job)
    return sent_document(read_job(path, tenant_default="", before=before or {}), path.parent)


def sent_document(file: JobFile, folder: Path) -> tuple[dict[str, Any], Path | None]:
    """The same of a job that was read from a file in ``folder``."""
    from topmast.model.files.jobfile import dump_job

    document = dump_job(file.spec)
    if not file.spec.tenant:
        del document["tenant"]  # the server knows the tenant of the user
    if file.workdir is None:
        return document, None
    return document, folder / Path(file.workdir).expanduser()
