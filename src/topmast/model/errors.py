"""Errors that people see: each says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable


class TopmastError(Exception):
    """Anything Topmast reports to a person in one line."""


class InvalidInput(TopmastError):
    """A file, argument or request that cannot be accepted.

    ``field`` is the dotted path of the field at fault (``resources.accelerators``). ``where`` is
    the place that it was read from (``job.yaml:7``). ``remedy`` says what to write instead.
    ``more`` holds the other errors of the same document. ``refers`` is the part of it that does not
    define what the field names.
    """

    more: tuple[InvalidInput, ...] = ()
    refers = ""

    def __init__(self, message: str, *, field: str = "", where: str = "", remedy: str = "") -> None:
        self.message = message
        self.field = field
        self.where = where
        self.remedy = remedy
        super().__init__(self.line())

    def line(self) -> str:
        """The whole error as one line."""
        place = f"{self.where}: " if self.where else ""
        field = f"{self.field}: " if self.field else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{place}{field}{self.message}{remedy}"


def refuse_all(errors: Iterable[InvalidInput]) -> None:
    """Raise the first of ``errors``, with the others in ``more``; nothing if there are none."""
    found = tuple(errors)
    if found:
        found[0].more = found[1:]
        raise found[0]


class TooLarge(InvalidInput):
    """Something sent is larger than what is accepted."""


class NotFound(TopmastError):
    """A job, host, region or dataset that does not exist."""


class Conflict(TopmastError):
    """A request that the present state does not allow, for example a second use of a key."""


class Forbidden(TopmastError):
    """A request that the roles of its principal do not allow."""

    is_noted = False
    """Whether the audit log has it already."""


class TooMany(TopmastError):
    """More requests of a kind than one principal may make; ``retry_s`` says when to try again."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Unavailable(TopmastError):
    """A part of the system that cannot be reached now."""
