"""Where the job of a `launch` comes from: a file, standard input, another job, or options alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from topmast.model.errors import InvalidInput

if TYPE_CHECKING:
    from topmast.client import Client

STDIN = "-"
"""Stands for a job file on standard input."""
COMMAND_LINE = "command line"
NONE_BEFORE: Mapping[str, int] = MappingProxyType({})


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

    def read(self, before: Mapping[str, int] = NONE_BEFORE) -> tuple[dict[str, Any], Path | None]:
        """The document, checked, and the folder that the job works in.

        ``before``: how many jobs that come before it in the same submission have a name.
        """
        from topmast.client.documents import sent_document
        from topmast.model.files.jobfile import job_in

        if self.document is not None:
            return dict(self.document), None
        try:
            file = job_in(self.data, self.where, name=self.stem, tenant_default="", before=before)
            return sent_document(file, self.folder)
        except InvalidInput as error:
            error.more += self._fault_of_folder([error, *error.more])
            raise

    def _fault_of_folder(self, found: Sequence[InvalidInput]) -> tuple[InvalidInput, ...]:
        """What is wrong with the work folder of a file with other errors, if it is no folder."""
        from topmast.client.workdir import check_folder
        from topmast.model.files.source import JOB_LIMITS, Kind, parse_text

        with suppress(InvalidInput):
            node = parse_text(self.data, self.where, JOB_LIMITS).entries.get("workdir")
            told = any(error.field == "workdir" for error in found)
            if (
                node is None
                or node.kind is not Kind.TEXT
                or told
                or node.text.startswith("sha256:")
            ):
                return ()
            try:
                check_folder(self.folder / Path(node.text).expanduser())
            except InvalidInput as error:
                return (_with_place(error, f"{self.where}:{node.line}"),)
        return ()

    @contextmanager
    def placed(self, changed: Collection[str]) -> Iterator[None]:
        """Name the line of the job file in errors; ``changed``: fields that an option gave."""
        from topmast.model.files.every import line_of
        from topmast.model.files.source import JOB_LIMITS, parse_text

        def placed(error: InvalidInput) -> InvalidInput:
            if error.where or not error.field:
                return error
            if any(error.field == name or error.field.startswith(f"{name}.") for name in changed):
                return _with_place(error, COMMAND_LINE)
            line = line_of(root, error.field) if root else 0
            return _with_place(error, f"{self.where}:{line}") if line else error

        try:
            yield
        except InvalidInput as error:
            root = parse_text(self.data, self.where, JOB_LIMITS) if self.data else None
            first, *more = (placed(one) for one in (error, *error.more))
            first.more = tuple(more)
            raise first from None


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


def _with_place(error: InvalidInput, where: str) -> InvalidInput:
    """The same error, with the place that it is about."""
    return InvalidInput(error.message, field=error.field, where=where, remedy=error.remedy)
