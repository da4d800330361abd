"""Errors that people see: each says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar, cast

if TYPE_CHECKING:
    from topmast.model.views import Problem

T = TypeVar("T")


class TopmastError(Exception):
    """Anything Topmast reports to a person in one line.

    ``problem`` is the document of a server that reported it, which clients hand on as it is.
    ``field`` is what of a request is at fault; ``more`` holds the other errors of the same request.
    """

    problem: Problem | None = None
    field = ""
    more: tuple[TopmastError, ...] = ()


class InvalidInput(TopmastError):
    """A file, argument or request that cannot be accepted.

    ``field`` is the dotted path of the field at fault (``resources.accelerators``). ``where`` is
    the place that it was read from (``job.yaml:7``). ``remedy`` says what to write instead.
    ``more`` holds the other errors of the same document. ``refers`` is the part of it that does not
    define what the field names. ``conceals`` is what a role forbids, where the error says only that
    there is no such thing: the audit log is told. ``may_conceal``: the caller does not see all that
    there is, so it is counted as a refusal whether it conceals something or not. ``rest`` is what
    its reader makes of the document without the parts at fault, where it can make anything of it.
    """

    more: tuple[InvalidInput, ...] = ()
    refers = ""
    conceals = ""
    may_conceal = False
    rest: object = None

    def __init__(self, message: str, *, field: str = "", where: str = "", remedy: str = "") -> None:
        self.message = message
        self.field = field
        self.where = where
        self.remedy = remedy
        super().__init__(self.line())

    def at(self, *, field: str | None = None, where: str | None = None) -> Self:
        """The same error, said of another field or of another place."""
        other = type(self)(
            self.message, field=self.field if field is None else field,
            where=self.where if where is None else where, remedy=self.remedy,
        )  # fmt: skip
        other.refers, other.conceals = self.refers, self.conceals
        other.may_conceal = self.may_conceal
        return other

    def line(self) -> str:
        """The whole error as one line."""
        place = f"{self.where}: " if self.where else ""
        field = f"{self.field}: " if self.field else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{place}{field}{self.message}{remedy}"


class UnknownRecord(TopmastError):
    """A record of the journal has a form that this program does not know."""


def refuse_all(errors: Iterable[InvalidInput | NotFound], rest: object = None) -> None:
    """Raise the first of ``errors``, with the others in ``more``; nothing if there are none.

    If nothing else is wrong, it is that something is not there. ``rest``: as of `InvalidInput`.
    """
    found = tuple(errors)
    absent = [error for error in found if isinstance(error, NotFound)]
    if absent and len(absent) == len(found):
        absent[0].more = tuple(absent[1:])
        raise absent[0]
    wrong = tuple(as_invalid(error) for error in found)
    if wrong:
        wrong[0].more, wrong[0].rest = wrong[1:], rest
        raise wrong[0]


@contextmanager
def restated(change: Callable[[InvalidInput], InvalidInput]) -> Iterator[None]:
    """Raise what is refused within with each error as ``change`` says it."""
    try:
        yield
    except InvalidInput as error:
        refuse_all((change(one) for one in (error, *error.more)), error.rest)


def as_invalid(error: InvalidInput | NotFound) -> InvalidInput:
    """An error as one of several of a request, of which others are not that something is absent."""
    if isinstance(error, InvalidInput):
        return error
    return InvalidInput(str(error), field=error.field)


class Faults:
    """The errors of several inputs that are read one after the other, to be told at once."""

    def __init__(self) -> None:
        self._errors: list[InvalidInput | NotFound] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._errors)

    def of(self, read: Callable[[], T]) -> T:
        """What ``read`` returns; where it finds an error, nothing, and `refuse` raises it."""
        try:
            return read()
        except (InvalidInput, NotFound) as error:
            self.take(error)
            return cast(T, None)

    def rest_of(self, read: Callable[[], T]) -> T | None:
        """What ``read`` returns; where it finds errors, what it can make of the rest, if anything.

        `refuse` raises the errors.
        """
        try:
            return read()
        except (InvalidInput, NotFound) as error:
            self.take(error)
            return cast(T, error.rest) if isinstance(error, InvalidInput) else None

    def take(self, error: InvalidInput | NotFound) -> None:
        """Note an error with all that is told with it."""
        self._errors += (error, *error.more)

    def add(self, message: str, field: str, remedy: str = "") -> None:
        """Note one more."""
        self._errors.append(InvalidInput(message, field=field, remedy=remedy))

    def refuse(self, rest: object = None) -> None:
        """Raise what was found, before any of what was read is used; nothing if all is well.

        ``rest`` is what could be read.
        """
        refuse_all(self._errors, rest)


MOST_TOLD = 20
"""Errors of several documents that are told one by one."""


class Refused:
    """The errors of several documents that are accepted together or not at all."""

    def __init__(self) -> None:
        self._errors: list[InvalidInput] = []

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, error: InvalidInput) -> None:
        """Take all errors of one document.

        That it depends on what there is not may come from a document that was refused before it.
        """
        first, every = not self._errors, (error, *error.more)
        self._errors += [one for one in every if first or "depends_on" not in one.field]

    def add_all(self, errors: Iterable[InvalidInput]) -> None:
        """Take errors that come from no other document."""
        self._errors += errors

    def refuse(self, *, is_all: bool = True) -> None:
        """Raise what was taken: some one by one, the rest as a count; nothing if there is none.

        ``is_all``: false if there may be others, which were not looked for.
        """
        told, left = self._errors[:MOST_TOLD], len(self._errors) - MOST_TOLD
        if left > 0:
            rest = "" if is_all else "; what comes after them was not read"
            told.append(InvalidInput(f"and {left:,} more errors{rest}"))
        refuse_all(told)


class TooLarge(InvalidInput):
    """Something sent is larger than what is accepted."""


class NotFound(TopmastError):
    """A job, host, region or dataset that does not exist."""

    more: tuple[NotFound, ...] = ()

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Conflict(TopmastError):
    """A request that the present state does not allow, for example a second use of a key."""


class Forbidden(TopmastError):
    """A request that the roles of its principal do not allow; ``remedy`` says which would."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} ({remedy})" if remedy else message)

    is_noted = False
    """Whether the audit log has it already."""


class TooMany(TopmastError):
    """More requests of a kind than one principal may make; ``retry_s`` says when to try again."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Unavailable(TopmastError):
    """A part of the system that cannot be reached now."""


class Full(Unavailable):
    """Something sent for which there is no room, until room is made."""
