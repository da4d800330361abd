"""Slices are read one ahead, and nobody who takes them can tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from topmast.adapters.objects.prefetch import one_ahead


@pytest.mark.parametrize("items", [[], [1], [1, 2, 3], [None, 0, b""]])
def test_the_same_items(items: list[object]) -> None:
    """In their order, whatever they are."""
    assert list(one_ahead(iter(items))) == items


def test_the_next_is_fetched_meanwhile() -> None:
    """While the first is worked on, the second is there already, and the third is not."""
    fetched: list[int] = []
    second = threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(3):
            fetched.append(number)
            if number == 1:
                second.set()
            yield number

    ahead = one_ahead(numbers())
    assert next(ahead) == 0
    assert second.wait(10)
    assert fetched == [0, 1]
    ahead.close()
    assert fetched == [0, 1]


def test_an_error_comes_in_its_place() -> None:
    """After what was read before it."""

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("torn cable")

    ahead = one_ahead(broken())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="torn cable"):
        next(ahead)
