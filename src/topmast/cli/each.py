"""One action on each of several things: what fails is reported at the end, on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from topmast.model.errors import TopmastError, Unavailable

T = TypeVar("T")


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
