"""Acts on several things: which they are, and what fails, reported at the end, on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import typer

from topmast.cli import values
from topmast.model.errors import TopmastError, Unavailable

T = TypeVar("T")


def named_or_selected(
    names: Iterable[str] | None, selector: str | None, what: str, every: str
) -> list[str]:
    """The names that an act is about, each once; none where a selector chooses.

    ``every`` is the selector of all. Raises BadParameter if both are given, or neither.
    """
    named = list(dict.fromkeys(names or ()))
    if bool(named) == bool(selector):
        both = "not both" if named else f"{every} for all"
        raise typer.BadParameter(f"name {what}s, or give --selector; {both}")
    return named


def require_each(names: Sequence[str], there: Iterable[str], what: str) -> None:
    """Raises an error for the names of things that there are not, with those that are near."""
    known = list(there)
    with for_each(names) as attempt:
        attempt(lambda name: values.required(name, known, what))


class Attempt(Protocol):
    """Acts on each name; what it returns is what the actions returned that did not fail."""

    def __call__(self, act: Callable[[str], T], /) -> list[T]: ...


@contextmanager
def for_each(names: Sequence[str]) -> Iterator[Attempt]:
    """Act on each of ``names``; at the end of the block, fail with all errors, if there are any."""
    errors: list[TopmastError] = []

    def attempt(act: Callable[[str], T], /) -> list[T]:
        done = []
        for name in dict.fromkeys(names):
            try:
                done.append(act(name))
            except Unavailable:
                raise
            except TopmastError as error:
                errors.append(error)
        return done

    yield attempt
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TopmastError("; ".join(str(error) for error in errors))
