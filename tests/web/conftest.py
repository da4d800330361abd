"""A browser for all tests of a module's run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if why := missing():
        pytest.skip(why)
    from tests.support.weblab.browser import browser

    with browser() as found:
        yield found
