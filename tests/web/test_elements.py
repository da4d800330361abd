"""The elements of the dashboard in a real browser, with made-up data."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.support.weblab.fleets import fleet_map
from tests.support.weblab.stand import page, stand

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.weblab.browser import Window

pytestmark = pytest.mark.web

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 180
STORY = {
    "now_s": 100_000.0,
    "job": {
        "submit_s": 0.0, "start_s": 90_000.0, "finish_s": None, "attempts": 3, "gpus": 8.0,
        "gpu_model": "H100", "region": "east", "cluster": "east-1", "state": "RUNNING",
    },
    "attempts": [
        {
            "epoch": 1, "region": "east", "cluster": "east-1", "gpu_model": "H100", "gpus": 8.0,
            "start_s": 60.0, "end_s": 4_000.0, "kept_s": 3_000.0, "outcome": "preempted",
        },
        {
            "epoch": 2, "region": "west", "cluster": HOSTILE, "gpu_model": "A100", "gpus": 16.0,
            "start_s": 80_000.0, "end_s": 85_000.0, "kept_s": 5_000.0, "outcome": "host_lost",
        },
    ],
}  # fmt: skip
TENANTS = [
    {
        "name": name, "gpu_model": "H100", "nominal": nominal, "used": used, "borrowed": borrowed,
        "lent": lent, "pending": pending, "parent": parent,
    }
    for name, parent, nominal, used, borrowed, lent, pending in (
        ("research", None, 64.0, 48.0, 0.0, 8.0, 0.0),
        ("vision", "research", 32.0, 16.0, 0.0, 8.0, 0.0),
        (HOSTILE, "research", 32.0, 32.0, 8.0, 0.0, 24.0),
        ("guests", None, None, 3.5, 0.0, 0.0, 100.0),
    )
]  # fmt: skip
SERIES = {
    "x": [1_700_000_000 + 3600 * i for i in range(48)],
    "unit": "GPUs", "label": "Supply and demand",
    "series": [
        {"label": "present", "values": [64] * 48},
        {"label": HOSTILE[:40], "values": [i % 50 for i in range(48)]},
    ],
}  # fmt: skip


def element(name: str, data: Any) -> str:
    text = json.dumps(data).replace("<", "\\u003c")
    script = f'<script type="application/json">{text}</script>'
    return page(name, f"<{name}>{script}<p>{html.escape('the same as text')}</p></{name}>")


ANSWERS = {
    "/timeline": element("attempt-timeline", STORY),
    "/tree": element("quota-tree", TENANTS),
    "/series": element("time-series", SERIES),
    "/map": element("gpu-map", fleet_map(hosts=24, gpus=8, hostile=HOSTILE)),
    "/busy": element("gpu-map", fleet_map(hosts=8, gpus=8)).replace("STARTING", "RUNNING"),
    "/large": page("gpu-map", '<gpu-map src="/large.json"></gpu-map>'),
    "/large.json": json.dumps(fleet_map(hosts=12_500, gpus=8)),
}
DRAWN = {
    "/timeline": "attempt-timeline svg [role=listitem]",
    "/tree": "quota-tree svg [role=listitem]",
    "/series": "time-series canvas",
    "/map": "gpu-map canvas[role=img]",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stand(ANSWERS) as found:
        yield found


def opened(chromium: Browser, url: str, **options: Any) -> Any:
    from tests.support.weblab.browser import Viewer

    return Viewer(chromium, url).window(**options)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", sorted(DRAWN))
def test_an_element_is_drawn_and_nothing_is_wrong_with_it(
    chromium: Browser, url: str, path: str, theme: str
) -> None:
    window: Window
    for width_px in (360, 1360):
        with opened(chromium, url, theme=theme, width_px=width_px) as window:
            window.open(path).wait_for_selector(DRAWN[path])
            assert window.violations() == []
            assert window.complaints == []
            assert window.too_wide_px() <= 0


def test_a_timeline_folds_long_waits_and_tells_each_part_in_words(
    chromium: Browser, url: str
) -> None:
    with opened(chromium, url) as window:
        parts = window.open("/timeline").locator("attempt-timeline [role=listitem]")
        parts.first.wait_for()
        words = [part.get_attribute("aria-label") for part in parts.all()]
    assert [text.split(" from ")[0] for text in words if text.startswith("waited")] == [
        "waited 1 min", "waited 21 h 7 min", "waited 1 h 23 min",
    ]  # fmt: skip
    assert words[1].startswith("Attempt 1: preempted, 8 GPUs H100 in east-1, 1 h 6 min from")
    assert words[1].endswith("2.09 GPU-hours of work lost")
    assert words[-1].startswith("Attempt 3: now, 8 GPUs H100 in east-1, 2 h 47 min from")


def test_lines_over_time_have_the_times_of_the_page(chromium: Browser, url: str) -> None:
    """One form, hours of the day, and the zone."""
    with opened(chromium, url) as window:
        value = window.open("/series").locator("time-series .u-series").first.locator(".u-value")
        value.wait_for()
        assert re.fullmatch(r"2023-11-1\d \d\d:\d\d:\d\d [A-Z]\S+", value.inner_text())


def test_a_tree_shows_children_below_their_parents(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as window:
        rows = window.open("/tree").locator("quota-tree [role=listitem]")
        rows.first.wait_for()
        words = [row.get_attribute("aria-label") or "" for row in rows.all()]
    assert [text.partition(":")[0] for text in words] == [
        "research", "vision", HOSTILE.partition(":")[0], "guests",
    ]  # fmt: skip
    assert words[2].endswith(
        "32 used within it, 8 borrowed, 0 lent, 24 asked for by jobs that wait"
    )
    assert "no quota" in words[3]


def test_a_bar_of_a_tree_leads_to_its_tenant_by_keys(chromium: Browser, url: str) -> None:
    """Each has one stop of the tab key."""
    with opened(chromium, url) as window:
        page = window.open("/tree")
        links = page.locator("quota-tree [role=listitem] a")
        links.first.wait_for()
        assert links.nth(1).get_attribute("href") == "/tenants?tenant=vision"
        assert links.nth(2).get_attribute("href") == f"/tenants?tenant={quote(HOSTILE, safe='()')}"
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert links.nth(1).evaluate("one => one === one.getRootNode().activeElement")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tenants?tenant=vision")


def test_a_host_is_found_by_keys_alone_and_explained(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as window:
        page = window.open("/map")
        place = page.locator("gpu-map .list li button")
        place.first.wait_for()
        place.first.focus()
        for key in ("Enter", "Enter", "ArrowDown", "Enter", "Enter"):
            page.keyboard.press(key)
        about = page.locator("gpu-map .about")
        about.locator("h2").wait_for()
        assert about.locator("h2").inner_text() == "h4"
        assert "8 GPUs H100" in about.inner_text()
        assert "host=h4" in page.url
        assert window.complaints == []


def test_a_click_on_a_cell_tells_of_its_host(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as window:
        page = window.open("/map")
        page.locator("gpu-map canvas[role=img]").first.click(position={"x": 10, "y": 10})
        assert page.locator("gpu-map .about h2").inner_text() == "h0"
        link = page.locator("gpu-map .about a").first
        assert (link.get_attribute("href") or "").startswith("/jobs/j")


def test_another_question_gives_the_cells_other_kinds(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as window:
        page = window.open("/map")
        page.locator("gpu-map select").select_option("health")
        legend = page.locator("gpu-map .legend").inner_text()
        assert "healthy (" in legend
        assert "down (8)" in legend
        page.locator("gpu-map select").select_option("use")
        assert "held by a job that does not run" in page.locator("gpu-map .legend").inner_text()
        assert "No GPU is idle but held" not in page.locator("gpu-map .legend").inner_text()


def test_what_was_asked_for_and_is_not_there_is_said(chromium: Browser, url: str) -> None:
    """Of GPUs that are idle but held the legend tells also that there are none."""
    with opened(chromium, url) as window:
        page = window.open("/busy")
        page.locator("gpu-map select").select_option("use")
        assert "No GPU is idle but held." in page.locator("gpu-map .legend").inner_text()
        assert window.violations() == []
        page.locator("gpu-map select").select_option("health")
        assert "idle but held" not in page.locator("gpu-map .legend").inner_text()


SHARES = """async () => {
    const { kindsOf } = await import("/elements/gpu-kinds.js");
    const jobs = {};
    for (const [at, tenant] of ["vision", "nlp", "vision", "speech"].entries())
        jobs[`j${at}`] = { tenant, band: "normal", state: "RUNNING", name: "" };
    const told = {};
    for (const [name, gpus, held] of [
        ["shares beside whole ones", 3, { j0: 0.3, j1: 2, j2: 0.5 }],
        ["two on one", 1, { j0: 0.5, j3: 0.5 }],
        ["a share of the next", 2, { j0: 0.7, j3: 0.7 }],
        ["a rest that is free", 4, { j0: 0.3, j1: 2 }],
    ]) {
        const host = { name, rack: "", model: "H100", gpus, state: "healthy", closed: "", held };
        const regions = [{ name: "east", reachable: true, clusters: [{ name: "a", hosts: [host] }] }];
        told[name] = kindsOf("tenant", { at_s: 0, jobs, regions }).of(host).map((kind) => kind.label);
    }
    return told;
}"""


def test_jobs_that_share_a_gpu_have_one_cell_and_whole_gpus_one_each(
    chromium: Browser, url: str
) -> None:
    with opened(chromium, url) as window:
        told = window.open("/map").evaluate(SHARES)
        assert told == {
            "shares beside whole ones": ["nlp", "nlp", "vision"],
            "two on one": ["vision"],
            "a share of the next": ["vision", "speech"],
            "a rest that is free": ["nlp", "nlp", "vision", "free"],
        }


COLOURS = """async () => {
    const { kindsOf } = await import("/elements/gpu-kinds.js");
    const told = [];
    for (const tenants of [["nlp", "vision"], ["default", "nlp", "vision"], ["default", "speech", "vision"], ["nlp", "vision"]]) {
        const jobs = Object.fromEntries(tenants.map((tenant) => [tenant, { tenant, band: "", state: "RUNNING", name: "" }]));
        const { list } = kindsOf("tenant", { at_s: 0, jobs, regions: [] });
        told.push(Object.fromEntries(list.map((kind) => [kind.label, kind.look])));
    }
    return told;
}"""


def test_a_tenant_keeps_its_colour_when_others_come_and_go(chromium: Browser, url: str) -> None:
    """And no two have the same."""
    with opened(chromium, url) as window:
        told = window.open("/map").evaluate(COLOURS)
        assert len(told) == 4
        assert len({looks["vision"] for looks in told}) == 1
        assert told[0]["nlp"] == told[1]["nlp"] == told[3]["nlp"]
        assert all(len(set(looks.values())) == len(looks) for looks in told)


@pytest.mark.slow
def test_100_000_gpus_are_drawn_and_changed(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as window:
        page = window.open("/large")
        page.locator("gpu-map canvas[role=img]").first.wait_for()
        assert "of 50,000 GPUs free" in page.locator("gpu-map .list").inner_text()
        took = page.evaluate("""async () => {
            const map = document.querySelector("gpu-map");
            const fleet = await (await fetch("/large.json")).json();
            const times = {};
            let begun = performance.now();
            map.setAttribute("by", "band");
            times.draw_ms = performance.now() - begun;
            const hosts = fleet.regions.flatMap((r) => r.clusters.flatMap((c) => c.hosts));
            for (const host of hosts.slice(500, 625)) host.held = {};
            begun = performance.now();
            map.update(fleet);
            times.update_ms = performance.now() - begun;
            return times;
        }""")
        assert window.complaints == []
        assert took["update_ms"] < took["draw_ms"]
