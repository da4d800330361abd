"""Every page on a real server from the wheel: both themes, three widths, and the keyboard."""

from __future__ import annotations

import os
import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.live import eventually
from tests.web.conftest import WHEEL

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.timeout(1200)]

PICTURES = Path(os.environ.get("TOPMAST_SCREENSHOTS") or ".venv/.screenshots")
PATHS = {
    "queue": "/",
    "job": "/jobs/{trains}",
    "job-waits": "/jobs/{waits}",
    "fleet": "/fleet",
    "host": "/fleet?host={host}",
    "fleet-job": "/fleet?job={waits}",
    "cluster": "/fleet?cluster=west-2",
    "fleet-file": "/fleet/file",
    "queue-groups": "/?group=tenant",
    "sweeps": "/sweeps",
    "sweep": "/sweeps/{rates}",
    "tenants": "/tenants",
    "tenant": "/tenants?tenant=vision",
    "dataset": "/data?dataset=digits",
    "account": "/account",
    "data": "/data",
    "usage": "/usage?period=24h",
    "usage-by-user": "/usage?by=user",
    "events": "/events",
    "audit": "/events?show=audit",
    "system": "/system",
    "whatif": "/whatif",
    "whatif-many": "/whatif?add=west-2&count=2&add=east-1&count=1&quota=vision:H100&gpus=8"
    "&quota=speech:A100&gpus=32&job={waits}&change=priority%3Dhigh&job={reads}",
    "words": "/words",
    "not-there": "/jobs/j999",
}
QUICK = ("queue", "fleet", "tenants")
"""Those of the smoke test."""


def address(stage: Stage, name: str) -> str:
    """The path of a page, with the jobs of the stage."""
    host = next(iter(stage.client.job(stage.jobs["trains"]).hosts))
    return PATHS[name].format(host=host, **stage.jobs)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PATHS]
)
def test_a_page_has_no_fault_in_any_theme_and_width(
    stage: Stage, viewer: Viewer, name: str
) -> None:
    """No axe violation, nothing on the console, no report of the policy, no request elsewhere."""
    from tests.support.weblab.browser import THEMES, WIDTHS_PX

    looks = [(theme, width_px) for theme in THEMES for width_px in WIDTHS_PX]
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = address(stage, name)
    for theme, width_px in looks if WHEEL else (looks[0], looks[-1]):
        with viewer.window(theme=theme, width_px=width_px) as window:
            page = window.open(path)
            page.wait_for_timeout(300)
            shot = PICTURES / f"{name}-{theme}-{width_px}.png"
            page.screenshot(path=shot, full_page=True)
            where = f"{path} {theme} {width_px}"
            faults = [text for text in window.complaints if "404" not in text]
            assert faults == [], where
            assert window.too_wide_px() <= 0, where
            assert window.violations() == [], where
            assert page.evaluate(UNNAMED) == [], where


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in PATHS if n != "not-there"])
def test_a_page_can_be_read_without_scripts(stage: Stage, viewer: Viewer, name: str) -> None:
    """What only scripts can draw says so, and where the same stands in words."""
    with viewer.window(scripts=False) as window:
        page = window.open(address(stage, name))
        assert page.locator("h1").inner_text()
        assert page.locator("main table, main form, main dl").count() >= 1
        for panel in page.locator("main .panel").all():
            lines = panel.inner_text().splitlines()
            assert len([line for line in lines if line.strip()]) > 1, "a panel is empty"


@pytest.mark.slow
def test_the_text_of_users_stays_text(stage: Stage, viewer: Viewer) -> None:
    with viewer.window() as window:
        opened: list[str] = []
        window.page.on("dialog", lambda dialog: opened.append(dialog.message))
        for name in ("queue", "events", "audit", "usage-by-user"):
            window.open(address(stage, name))
        window.open(f"/jobs/{stage.jobs['hostile']}")
        assert opened == []
        assert window.complaints == []


@pytest.mark.parametrize("name", ["queue", "job", "job-long", "fleet", "tenants", "audit"])
def test_on_a_telephone_nothing_is_cut_or_overprinted(
    stage: Stage, viewer: Viewer, name: str
) -> None:
    """The header reaches both edges, each page of the menu is seen, and fields keep their place."""
    path = "/jobs/{hostile}" if name == "job-long" else PATHS[name]
    with viewer.window(width_px=360) as window:
        page = window.open(path.format(**stage.jobs))
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(1_000)
        found = page.evaluate(BOUNDS)
    assert found["header"] == [0, 360]
    for part in ("menu", "fields", "covered", "titles", "beyond"):
        assert found[part] == [], part
    assert found["pictures"] == {"job": 1, "job-long": 1, "fleet": 5, "tenants": 4}.get(name, 0)


@pytest.mark.parametrize(("name", "most_px"), [("queue", 170), ("events", 110), ("fleet", 90)])
def test_on_a_telephone_rows_are_short(
    stage: Stage, viewer: Viewer, name: str, most_px: float
) -> None:
    """A row is a card of few lines, in the mean: its fields stand beside each other."""
    with viewer.window(width_px=390) as window:
        page = window.open(address(stage, name))
        rows = page.locator("main tr[data-row]")
        rows.first.wait_for()
        heights_px = rows.evaluate_all("(all) => all.map((one) => one.offsetHeight)")
    assert sum(heights_px) / len(heights_px) <= most_px


def test_the_back_button_leads_to_fields_that_say_what_is_listed(
    stage: Stage, viewer: Viewer
) -> None:
    """Browsers fill in again what was typed there, and the list is that of the address."""
    with viewer.window() as window:
        page = window.open("/")
        page.locator("input[name=tenant]").fill("speech")
        page.keyboard.press("Enter")
        page.wait_for_url("**tenant=speech**")
        page.go_back()
        page.wait_for_url(f"{stage.url}/")
        page.locator(f'tr[data-key="{stage.jobs["trains"]}"]').wait_for()
        assert page.locator("input[name=tenant]").input_value() == ""
        page.go_forward()
        page.wait_for_url("**tenant=speech**")
        assert page.locator("input[name=tenant]").input_value() == "speech"


@pytest.mark.parametrize("name", ["queue", "tenants", "host"])
def test_on_a_telephone_what_has_the_focus_is_seen(stage: Stage, viewer: Viewer, name: str) -> None:
    """Each stop of the tab key, also in the head of a table, has a ring, and nothing covers it."""
    with viewer.window(width_px=390) as window:
        page = window.open(address(stage, name))
        page.wait_for_timeout(1_000)
        stops = 0
        while (found := page.evaluate(FOCUS)) is not None or stops == 0:
            assert found is None or (found["ring"] and found["seen"]), found
            page.keyboard.press("Tab")
            stops += 1
        assert stops > 20


@pytest.mark.parametrize(("name", "most_px"), [("queue", 660), ("audit", 330)])
def test_on_a_telephone_filters_are_folded_above_the_rows(
    stage: Stage, viewer: Viewer, name: str, most_px: float
) -> None:
    """They open by keyboard and stay open as the page is drawn anew; wider windows show them."""
    field = 'main form[aria-label="Filters"] input[name=tenant]'
    with viewer.window(width_px=390) as window:
        page = window.open(address(stage, name))
        row = page.locator("main tr[data-row]").first.bounding_box()
        assert row is not None
        assert row["y"] <= most_px
        assert page.locator(field).is_hidden()
        page.get_by_text("Filters", exact=True).focus()
        page.keyboard.press("Enter")
        page.locator(field).wait_for()
        page.evaluate("document.addEventListener('topmast:drawn', () => { window.anew = true; })")
        page.locator("#main").evaluate(REFRESH)
        page.wait_for_function("() => window.anew")
        page.locator(field).fill("speech")
        page.keyboard.press("Enter")
        page.wait_for_url("**tenant=speech**")
        page.get_by_text("Filters: 1 set", exact=True).wait_for()
        assert window.violations() == []
        assert window.too_wide_px() <= 0
    with viewer.window(width_px=768) as window:
        page = window.open(address(stage, name))
        assert page.locator(field).is_visible()
        assert page.get_by_text("Filters", exact=True).is_hidden()
        page.locator(f"{field.partition(' input')[0]} input:visible").first.focus()
        assert page.evaluate("document.activeElement.matches('input')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_table_shows_at_its_edge_that_it_scrolls(
    stage: Stage, viewer: Viewer, theme: str
) -> None:
    """A shadow is where something is hidden, and only there; keys scroll it."""
    from PIL import Image

    def edges(table: Locator) -> tuple[bool, bool]:
        """Whether the left and the right edge have a shadow: on an empty strip of the table."""
        picture = Image.open(BytesIO(table.screenshot())).convert("L")
        strip = picture.crop((0, picture.height - 2, picture.width, picture.height - 1)).tobytes()
        paper = strip[len(strip) // 2]
        return abs(strip[1] - paper) > 8, abs(strip[-2] - paper) > 8

    with viewer.window(theme=theme, width_px=768) as window:
        page = window.open(address(stage, "job"))
        table = page.get_by_role("region", name="Plans")
        assert edges(table) == (False, True)
        table.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        eventually(lambda: table.evaluate("(one) => one.scrollLeft") > 0, "keys scroll it")
        table.evaluate("(one) => one.scrollTo({ left: 1e6, behavior: 'instant' })")
        assert edges(table) == (True, False)
        assert edges(page.get_by_role("region", name="What happened to the job")) == (False, False)
        assert window.complaints == []


def test_on_a_tablet_the_queue_is_seen_whole(stage: Stage, viewer: Viewer) -> None:
    """No column is cut, and the sentence of a job has the width of its row."""
    with viewer.window(width_px=800) as window:
        page = window.open(address(stage, "queue"))
        found = page.evaluate(TABLE)
    assert found["cut_px"] <= 0
    assert found["sentence"] >= 0.8


@pytest.mark.parametrize("name", ["queue", "job-waits", "job", "fleet", "audit"])
def test_no_line_breaks_an_id_where_there_is_room(stage: Stage, viewer: Viewer, name: str) -> None:
    """`user:root`, `east-1-0` and `north/north-1` stand on one line each."""
    with viewer.window(width_px=1280) as window:
        page = window.open(address(stage, name))
        found = page.evaluate(BROKEN)
        assert found["all"] > 0
        assert found["broken"] == []
        assert window.too_wide_px() <= 0


@pytest.mark.parametrize("name", ["audit", "job"])
def test_times_have_one_form_and_name_their_zone(stage: Stage, viewer: Viewer, name: str) -> None:
    """With and without scripts: a time without its zone may be that of the server or the reader."""
    with viewer.window() as window:
        page = window.open(address(stage, name))
        page.wait_for_timeout(300)
        texts = page.locator("main time[data-at]").all_text_contents()
    assert texts
    for text in texts:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]\S+", text), text


FOCUS = """() => {
  let one = document.activeElement;
  while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
  if (!one || one === document.body) return null;
  const { x, y, width, height } = one.getBoundingClientRect();
  const top = one.getRootNode().elementFromPoint(x + width / 2, y + Math.min(height / 2, innerHeight / 4));
  const style = getComputedStyle(one);
  const stroked = [...one.querySelectorAll("rect")].some((rect) => getComputedStyle(rect).strokeWidth === "3px");
  return {
    html: one.outerHTML.slice(0, 200), ring: stroked || parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none",
    seen: top !== null && (one.contains(top) || top.contains(one) && top.localName !== "tr"),
  };
}"""
"""What has the focus, and whether it is seen; null: nothing has it."""
REFRESH = """async () => {
  const files = document.querySelector("script[src$='/app.js']").src.replace("app.js", "live.js");
  (await import(files)).refresh();
}"""
"""Draws the page anew."""
UNNAMED = """() => [...document.querySelectorAll(".scroll")]
  .filter((one) => one.tabIndex !== 0 || one.role !== "region" || !one.ariaLabel)
  .map((one) => one.outerHTML.slice(0, 200))"""
"""The tables that scroll without a key or a name."""
BROKEN = """() => {
  const all = [...document.querySelectorAll("main .whole")];
  const broken = all.filter((one) => one.getClientRects().length > 1).map((one) => one.textContent);
  return { all: all.length, broken };
}"""
"""The ids of a page that more than one line has."""
TABLE = """() => {
  const table = document.querySelector("#jobs");
  const wide = (one) => one.getBoundingClientRect().width;
  return {
    cut_px: table.parentElement.scrollWidth - table.parentElement.clientWidth,
    sentence: wide(table.querySelector("td.long")) / wide(table),
  };
}"""
"""How the table of the queue lies in its window."""
DRAWN = """() => [...document.querySelectorAll("attempt-timeline, quota-tree, gpu-map")].every(
  (one) => one.shadowRoot?.querySelector("svg, canvas"))"""
"""Whether each element has its picture: on a busy machine that takes more than a second."""
BOUNDS = """() => {
  const box = (one) => one.getBoundingClientRect();
  const header = box(document.querySelector("header.top"));
  const out = (one) => box(one).right > innerWidth || box(one).left < 0;
  const inside = (tag, what) => [...document.querySelectorAll(tag)].flatMap((one) => [...one.shadowRoot.querySelectorAll(what)]);
  const pictures = [
    ...inside("attempt-timeline", "svg").map((one) => [one, one.parentElement]),
    ...inside("quota-tree", "svg").map((one) => [one, one.parentElement]),
    ...inside("gpu-map", "figure canvas").map((one) => [one, one.closest(".region")]),
  ];
  const figures = inside("quota-tree", "text").map((one) => [one, one.ownerSVGElement]);
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const text = (one) => { const all = document.createRange(); all.selectNodeContents(one); return all; };
  return {
    header: [header.left, header.right],
    menu: [...document.querySelectorAll(".top nav a")].filter(out).map((one) => one.textContent),
    fields: [...document.querySelectorAll("table.cards td[data-label]:not(:has(.name))")].filter((one) =>
      one.getClientRects().length && box(text(one)).right > box(one).right + 1).map((one) => one.outerHTML),
    covered: [...document.querySelectorAll("main td.pick input")].flatMap((pick) =>
      [...pick.closest("tr").querySelectorAll("td:not(.pick, :has(.name))")].filter((one) =>
        one.getClientRects().length && !apart(box(text(one)), box(pick))).map((one) => one.outerHTML)),
    titles: [...document.querySelectorAll("h1 .name")].filter((one) =>
      one.scrollWidth > one.clientWidth).map((one) => one.textContent),
    pictures: pictures.length,
    beyond: [...pictures, ...figures].filter(([one, around]) =>
      box(one).right > box(around).right + 0.5).map(([one]) => one.outerHTML.slice(0, 200)),
  };
}"""
"""What a narrow window cuts, or prints over something else."""
