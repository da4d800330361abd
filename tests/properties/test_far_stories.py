"""More stories of far engines: a sixth in each run, and all of them with those that are slow."""

from typing import Any

import pytest

from tests.conftest import part_number
from tests.properties.test_far_protocol import BATCH
from tests.properties.test_far_protocol import STORIES as FIRST
from tests.support.fakelauncher import tell

LAST = 3000
TURNS = 6


def batches() -> list[Any]:
    """The seeds after those of each run; the commit tells which have their turn."""
    turn = part_number(TURNS)
    return [
        pytest.param(first, marks=() if first // BATCH % TURNS == turn else pytest.mark.slow)
        for first in range(FIRST, LAST, BATCH)
    ]


@pytest.mark.parametrize("first", batches())
def test_starts_once_and_ends_truly(first: int) -> None:
    """As in each run."""
    tell(range(first, first + BATCH))
