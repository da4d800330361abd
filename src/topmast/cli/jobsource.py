"""Where the job of a `launch` comes from: a file, standard input, another job, or options alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from topmast.cli.afteroptions import option_of
from topmast.model.errors import InvalidInput

if TYPE_CHECKING:
    from topmast.client import Client

STDIN = "-"
"""Stands for a job file on standard input."""
COMMAND_LINE = "command line"
NONE_BEFORE: Mapping[str, int] = MappingProxyType({})
Job = tuple[dict[str, Any], Path | None]
"""The document of a job, and the folder that it works in."""


@dataclass(frozen=True)
class JobSource:
    """A job as it was written, before options change it."""

    where: str = COMMAND_LINE
    """What errors call it."""
    data: bytes = b""
    """The text of a job file; empty: there is none."""
    folder: Path = Path()
    """What a relative ``workdir`` starts from."""
    stem: str = ""
    """The name of a job without one."""
    document: dict[str, Any] | None = None
    """What there is in place of a text."""

    def parts(self) -> list[JobSource]:
        """The jobs of a file: one, or several between lines of three dashes.

        Errors name the lines of the file.
        """
        from topmast.model.files.source import documents_in

        return [replace(self, data=text) for text in documents_in(self.data)]

    def read(self, before: Mapping[str, int] = NONE_BEFORE) -> Job:
        """The document, checked, and the folder that the job works in.

        Raises InvalidInput, with all that is wrong; ``rest`` is the same pair without that.
        ``before``: how many jobs that come before it in the same submission have a name.
        """
        from topmast.client.documents import sent_document
        from topmast.model.files.jobfile import JobFile, job_in

        if self.document is not None:
            return dict(self.document), None
        try:
            file = job_in(self.data, self.where, name=self.stem, tenant_default="", before=before)
        except InvalidInput as error:
            if isinstance(error.rest, JobFile):
                error.rest = sent_document(error.rest, self.folder)
            raise
        return sent_document(file, self.folder)

    def check_folder(self, folder: Path | None, changed: Mapping[str, Any]) -> None:
        """Raises InvalidInput for a work folder that is none; ``changed``: as of `placed`."""
        from topmast.client.workdir import check_folder

        if folder is not None:
            with self.placed(changed):
                check_folder(folder)

    @contextmanager
    def placed(self, changed: Mapping[str, Any]) -> Iterator[None]:
        """Name the line of the job file in errors; ``changed``: fields with what options gave."""
        from topmast.model.errors import restated
        from topmast.model.files.every import at_lines
        from topmast.model.files.source import JOB_LIMITS

        in_file = at_lines(self.data, self.where, JOB_LIMITS)

        def placed(error: InvalidInput) -> InvalidInput:
            told = error.field
            if not error.where and any(told == f or told.startswith(f"{f}.") for f in changed):
                return error.at(where=COMMAND_LINE, field=option_of(told, error.message, changed))
            return in_file(error) if self.data else error

        with restated(placed):
            yield


def source_of(file: Path | None) -> JobSource:
    """The job in a file, on standard input, or, without either, one that options describe."""
    from topmast.model.files.source import JOB_LIMITS, read_bytes
    from topmast.model.units import show

    if file is None:
        return JobSource(document={})
    if str(file) == STDIN:
        return JobSource("standard input", sys.stdin.buffer.read(JOB_LIMITS.bytes + 1), Path())
    where = str(file) if str(file).isprintable() else show(str(file))
    return JobSource(where, read_bytes(file, where, JOB_LIMITS), file.parent, file.stem)


def source_like(client: Client, job: str) -> JobSource:
    """The job that another was submitted as, with the same work folder."""
    return JobSource(document=client.job_file(job).job)
