"""The pictures of the dashboard in README and docs: python -m tests.support.weblab.gallery FOLDER."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.support.live import eventually
from tests.support.weblab.browser import Viewer, browser
from tests.support.weblab.past import BUSY_S, past, record
from tests.support.weblab.stage import stage

WIDTH_PX = 1200
RAN_S = 20.0
"""So long the jobs run first, so that there is something to see."""
PAGES = {
    "queue": ("/", "light"),
    "job": ("/jobs/{waits}", "light"),
    "fleet": ("/fleet", "light"),
    "fleet-dark": ("/fleet?by=use", "dark"),
    "tenants": ("/tenants", "light"),
    "whatif": ("/whatif?id=w1", "light"),
    "system": ("/system", "dark"),
}
CHANGE = {"for_s": 21_600, "add_hosts": {"east-2": 4}}


def main() -> None:
    """Draw them all."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, stage(Path(name), wheel=False, hostile=False) as on:
        httpx.post(f"{on.url}/api/v1/whatif", json=CHANGE).raise_for_status()
        time.sleep(RAN_S)
        eventually(
            lambda: httpx.get(f"{on.url}/api/v1/whatif/w1").json()["state"] == "done",
            "both futures",
        )
        with browser() as chromium:
            viewer = Viewer(chromium, on.url)
            for shown, (path, theme) in PAGES.items():
                with viewer.window(theme=theme, width_px=WIDTH_PX) as window:
                    page = window.open(path.format(**on.jobs))
                    page.wait_for_timeout(1_000)
                    page.screenshot(path=folder / f"{shown}.png")
            with (
                past(record(Path(name))) as url,
                Viewer(chromium, url).window(width_px=WIDTH_PX) as window,
            ):
                page = window.open(f"/fleet?at={BUSY_S}")
                page.wait_for_timeout(1_000)
                page.screenshot(path=folder / "replay.png")


if __name__ == "__main__":
    main()
