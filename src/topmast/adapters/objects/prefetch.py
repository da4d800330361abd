"""Reading one slice ahead, so that a disk reads while a processor hashes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items; each is fetched by a thread while the one before is worked on.

    Two are in memory at a time. What fetching raises is raised here, in its place.
    """
    with ThreadPoolExecutor(1, "topmast-prefetch") as pool:
        coming = pool.submit(_fetch, items)
        while found := coming.result():
            coming = pool.submit(_fetch, items)
            yield found[0]


def _fetch(items: Iterator[Item]) -> tuple[Item] | None:
    """The next item, or None after the last."""
    for item in items:
        return (item,)
    return None
