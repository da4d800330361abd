"""A browser for all tests of a module's run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage


WHEEL = not os.environ.get("TOPMAST_WEB_SOURCE")
"""Whether the server is that of the wheel, and not that of the source, for the smoke test."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if why := missing():
        pytest.skip(why)
    from tests.support.weblab.browser import browser

    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if why := missing():
        pytest.skip(why)
    from tests.support.weblab.stage import stage as set_up

    with set_up(tmp_path_factory.mktemp("web"), wheel=WHEEL) as found:
        yield found


@pytest.fixture(scope="session")
def viewer(chromium: Browser, stage: Stage) -> Viewer:
    from tests.support.weblab.browser import Viewer

    return Viewer(chromium, stage.url)
