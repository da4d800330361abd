"""An error as a problem document: the one form in which programs are told what is wrong."""

from __future__ import annotations

from msgspec import UNSET

from topmast.model.errors import (
    Conflict,
    Forbidden,
    Full,
    InvalidInput,
    NotFound,
    TooLarge,
    TooMany,
    TopmastError,
    Unavailable,
)
from topmast.model.views import Fault, Problem

_STATUS: dict[type[TopmastError], tuple[int, str]] = {
    TooLarge: (413, "Too large"),
    InvalidInput: (422, "Invalid input"),
    NotFound: (404, "Not found"),
    Conflict: (409, "Conflict"),
    Forbidden: (403, "Forbidden"),
    TooMany: (429, "Too many requests"),
    Full: (507, "Full"),
    Unavailable: (503, "Unavailable"),
}


def status_of(error: TopmastError) -> tuple[int, str]:
    """The HTTP status of an error, and its title."""
    return next((known for kind, known in _STATUS.items() if isinstance(error, kind)),
                (400, "Failed"))  # fmt: skip


def problem_of(error: TopmastError) -> Problem:
    """The document of an error: as a server told it, if one did."""
    if error.problem is not None:
        return error.problem
    status, title = status_of(error)
    if isinstance(error, InvalidInput):
        every = (error, *error.more) if error.more else ()
        faults = tuple([Fault(_detail(one), one.field, one.remedy) for one in every])
        return made(status, title, _detail(error), error.field, error.remedy, faults)
    if isinstance(error, Forbidden):
        return made(status, title, error.message, remedy=error.remedy)
    others = tuple([Fault(str(one), one.field) for one in error.more])
    faults = (Fault(str(error), error.field), *others) if others else ()
    return made(status, title, str(error), error.field, faults=faults)


def made(
    status: int,
    title: str,
    detail: str,
    field: str = "",
    remedy: str = "",
    faults: tuple[Fault, ...] = (),
) -> Problem:
    """A problem document."""
    return Problem("about:blank", title, status, detail, field, remedy, faults or UNSET)


def _detail(error: InvalidInput) -> str:
    """What is wrong. One job of many is named; that a lone job is a job needs no saying."""
    named = error.where not in ("", "job", "request")
    return f"{error.where}: {error.message}" if named else error.message
