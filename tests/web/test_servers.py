"""Pages of servers of their own: of one that plans where data is, and of one that is flooded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_data_plans import FLEET, PLANNED_S, TABLES
from tests.support.live import eventually, live
from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]
FLOOD_JOBS = 20_000
ANSWERS_MS = 1_000.0
"""So soon a page answers to a click while jobs flood in."""
TAB_BYTES = 300e6
SETTLED_S = 30.0
CLICK_MS = """() => new Promise((tell) => {
  const begun = performance.now();
  document.getElementById("theme").click();
  requestAnimationFrame(() => setTimeout(() => tell(performance.now() - begun)));
})"""
"""From a click to the picture after it, where whatever the page is busy with comes between."""


def expect(locator: Locator) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def test_the_page_of_data_shows_todays_plan_with_its_proven_gap(
    tmp_path: Path, chromium: Browser
) -> None:
    """As the server planned it: the gap, what it moves and why."""
    if why := missing():
        pytest.skip(why)
    settings = {"on_demand_copies": "false", "slow.plan_data_every_s": "3", "slow.growth": "2"}
    with live(tmp_path, FLEET, settings) as (_, client):
        for name in TABLES:
            source = tmp_path / name
            source.mkdir()
            (source / "part-0").write_bytes(bytes(1_000))
            client.add_dataset(name, "east", source=source)
        for at in range(12):
            client.submit({"name": f"j{at}", "run": "sleep 600", "datasets": [TABLES[at % 3]],
                           "resources": {"accelerators": "H100:1"}})  # fmt: skip
        eventually(lambda: client.data_plan().moves, "a plan moves data", PLANNED_S)
        page = chromium.new_page()
        page.goto(f"{client.url}/data")
        expect(page.locator("main")).to_contain_text("no plan for the same forecast could be")
        assert page.locator("dt:text-is('Proven gap') + dd").inner_text()[0].isdigit()
        expect(page.locator('[aria-label="Moves of the plan"]')).to_contain_text("copy from east")
        page.close()


def test_an_open_queue_stays_at_hand_while_jobs_flood_in(tmp_path: Path, chromium: Browser) -> None:
    """It answers to clicks, keeps its memory, and comes to show the newest state."""
    if why := missing():
        pytest.skip(why)
    job = {"run": "sleep 900", "resources": {"accelerators": "H100:2"}}
    with live(tmp_path, FLEET) as (_, client), ThreadPoolExecutor(1) as beside:

        def flood() -> float:
            begun_s = time.monotonic()
            for first in range(0, FLOOD_JOBS, 5_000):
                client.submit_many([{"name": f"f{first + n}", **job} for n in range(5_000)])
            return FLOOD_JOBS / (time.monotonic() - begun_s)

        page = chromium.new_page()
        page.goto(f"{client.url}/")
        flooding, clicks_ms = beside.submit(flood), []
        while not flooding.done():
            clicks_ms.append(page.evaluate(CLICK_MS))
            page.wait_for_timeout(100)
        print(f"{flooding.result():.0f} jobs/s; {len(clicks_ms)} clicks, {max(clicks_ms):.0f} ms")
        assert max(clicks_ms) < ANSWERS_MS
        waits = page.locator("li.tile", has_text="Jobs that wait")  # two jobs fill the fleet
        expect(waits).to_contain_text(f"{FLOOD_JOBS - 2:,}", timeout=1_000 * SETTLED_S)
        last = client.submit({"name": "the-last", **job, "priority": "high"}).id
        expect(page.locator(f'tr[data-key="{last}"]')).to_be_visible(timeout=1_000 * SETTLED_S)
        assert page.evaluate("performance.memory.usedJSHeapSize") < TAB_BYTES
        page.close()
