"""Python's collector of cycles, told to look less often while a run makes many values and few
cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 50_000
"""So many more values than were let go, and the youngest are looked through."""


@contextmanager
def calm() -> Iterator[None]:
    """Leave what is there already out of collections, and collect seldom, until the end.

    By default every 700 new values are looked through: some 7% of a run.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(EVERY, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
