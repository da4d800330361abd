"""The past of a simulation in a browser: the slider, by hand and by keyboard; without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.live import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.weblab.browser import Viewer

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(1200)]

PATHS = {
    "queue": "/", "job": "/jobs/j20", "fleet": "/fleet", "tenants": "/tenants", "data": "/data",
    "usage": "/usage?period=24h", "events": "/events", "system": "/system", "account": "/account",
}  # fmt: skip


@pytest.fixture(scope="module")
def watcher(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.past import past, record

    with past(record(tmp_path_factory.mktemp("past"), jobs=120)) as url:
        yield Viewer(chromium, url)


def moment_s(page: Page) -> float:
    """The moment that the address names."""
    return float(parse_qs(urlsplit(page.url).query)["at"][0])


def shown_s(page: Page) -> float:
    """The moment that the page shows."""
    return float(page.locator("#main").get_attribute("data-now") or "nan")


def settle(page: Page) -> float:
    """Wait until the page shows the moment of the address."""
    eventually(lambda: abs(moment_s(page) - shown_s(page)) < 0.002, "the moment is drawn")
    return shown_s(page)


@pytest.mark.parametrize("name", PATHS)
def test_a_page_of_the_past_has_no_fault_in_any_theme_and_width(watcher: Viewer, name: str) -> None:
    from tests.support.weblab.browser import THEMES, WIDTHS_PX

    path = PATHS[name]
    glue = "&" if "?" in path else "?"
    for theme in THEMES:
        for width_px in WIDTHS_PX:
            with watcher.window(theme=theme, width_px=width_px) as window:
                page = window.open(f"{path}{glue}at=3000")
                page.wait_for_timeout(200)
                where = f"{path} {theme} {width_px}"
                assert page.locator("[data-act]").count() == 0, where
                assert window.complaints == [], where
                assert window.too_wide_px() <= 0, where
                assert window.violations() == [], where


def test_the_slider_moves_by_keyboard_and_keeps_the_focus(watcher: Viewer) -> None:
    with watcher.window() as window:
        page = window.open("/fleet?at=3000")
        slider = page.get_by_role("slider", name="Moment")
        slider.focus()
        before_s = settle(page)
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        eventually(lambda: shown_s(page) > before_s, "the slider moved on")
        settle(page)
        page.keyboard.press("Home")
        eventually(lambda: shown_s(page) < before_s, "the slider is at the beginning")
        assert page.locator("gpu-map").get_attribute("src") == (
            f"/api/v1/fleet/map?at={shown_s(page):.3f}"
        )
        assert slider.evaluate("(element) => element === document.activeElement")
        assert "UTC" in (slider.get_attribute("aria-valuetext") or "")
        assert window.complaints == []


def test_time_passes_until_it_is_paused(watcher: Viewer) -> None:
    with watcher.window() as window:
        page = window.open("/?at=3000")
        page.get_by_role("button", name="Play").click()
        eventually(lambda: shown_s(page) > 3000.5, "time passes")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Play").wait_for()
        assert settle(page) > 3000
        assert window.complaints == []


def test_a_link_keeps_the_moment_and_so_does_the_next_page(watcher: Viewer) -> None:
    with watcher.window() as window:
        page = window.open("/?at=3000")
        page.get_by_role("link", name="Fleet", exact=True).click()
        page.wait_for_url("**/fleet?at=3000.000")
        assert shown_s(page) == 3000.0


def test_without_scripts_a_form_has_the_time(watcher: Viewer) -> None:
    with watcher.window(scripts=False) as window:
        page = window.open("/?tenant=vc0&at=3000")
        page.get_by_label("Time (UTC)").fill("1970-01-01T00:10:00")
        page.locator("#replay").get_by_role("button", name="Show").click()
        assert shown_s(page) == 600.0
        assert "tenant=vc0" in page.url
        page.get_by_role("link", name="Fleet", exact=True).click()
        assert shown_s(page) == 600.0
