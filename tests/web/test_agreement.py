"""The pages say what the command line says: both are read at one moment, and compared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.live import eventually
from topmast.model.states import HOLDING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = """() => Object.fromEntries([...document.querySelectorAll("main tr[data-key]")].map((row) => [
  row.dataset.key,
  Object.fromEntries([...row.querySelectorAll("[data-label]")].map((cell) =>
    [cell.dataset.label, cell.textContent.trim()])),
]))"""
"""What the tables of a page say: by row, and by the label of the field."""
TILES = """() => Object.fromEntries([...document.querySelectorAll("main .tile")].map((tile) =>
  [tile.querySelector(".label").textContent, tile.querySelector(".value").textContent.trim()]))"""
STATES = """() => Object.fromEntries([...document.querySelectorAll(".counts a:has(b):has(.state)")].map((one) =>
  [one.querySelector(".state").textContent.toUpperCase(), Number(one.querySelector("b").textContent)]))"""


def asked(url: str, *words: str) -> Any:
    """What a command answers with ``--json``."""
    command = [sys.executable, "-m", "topmast.app", *words, "--json", "--server", url]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    return json.loads(done.stdout)


def agree(
    page: Page, path: str, said: Callable[[Page], Any], told: Callable[[], Any], what: str
) -> None:
    """Wait for a moment at which a page and a command say the same: jobs go on meanwhile."""
    pair: list[Any] = []

    def same() -> bool:
        page.goto(path, wait_until="load")
        pair[:] = [said(page), told()]
        return bool(pair[0] == pair[1])

    try:
        eventually(same, what, patience_s=30.0)
    except AssertionError:
        assert pair[0] == pair[1], what
        raise


def whole(text: str) -> float:
    """A number as a page writes it."""
    return float(text.replace(",", "").split()[0])


def jobs_of(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(url, "queue", "--unfold", "--limit", "0")["jobs"]
    return found


def test_the_queue_agrees(stage: Stage, viewer: Viewer) -> None:
    """Which jobs, in which order; how many in each state; what waits, and for how many GPUs."""
    url = viewer.url

    def rows(page: Page) -> Any:
        return {key: whole(row["GPUs"]) for key, row in page.evaluate(ROWS).items()}

    with viewer.window() as window:
        page = window.page
        agree(
            page, f"{url}/", lambda page: list(rows(page).items()),
            lambda: [(job["id"], job["gpus"]) for job in jobs_of(url)], "rows",
        )  # fmt: skip
        agree(
            page, f"{url}/", lambda page: page.evaluate(STATES),
            lambda: Counter(
                job["state"] for job in asked(url, "queue", "--all", "--unfold", "-n", "0")["jobs"]
            ),
            "states",
        )  # fmt: skip
        agree(
            page, f"{url}/", lambda page: whole(page.evaluate(TILES)["Jobs that wait"]),
            lambda: sum(job["state"] == "PENDING" for job in jobs_of(url)), "jobs that wait",
        )  # fmt: skip
        assert window.complaints == []


def test_the_fleet_agrees(stage: Stage, viewer: Viewer) -> None:
    """Its tiles with the sum of all hosts; each cluster and each host with its line."""
    url = viewer.url

    def tiles(page: Page) -> Any:
        found = page.evaluate(TILES)
        return whole(found["GPUs in use"]), whole(found["Hosts that take work"])

    def hosts() -> Any:
        found = asked(url, "hosts")["hosts"]
        # Also those on a host that takes no work: what runs there may go on.
        held = [job["gpus"] for job in jobs_of(url) if job["state"] in HOLDING]
        return sum(held), sum(h["state"] == "healthy" for h in found)

    def clusters(page: Page) -> Any:
        return {
            key.removeprefix("cluster "): (row["State"], whole(row["Free"]), whole(row["Jobs"]))
            for key, row in page.evaluate(ROWS).items()
            if key.startswith("cluster ")
        }

    with viewer.window() as window:
        agree(window.page, f"{url}/fleet", tiles, hosts, "tiles")
        agree(
            window.page, f"{url}/fleet", clusters,
            lambda: {
                one["name"]: (one["state"], one["free_gpus"], one["running_jobs"])
                for one in asked(url, "clusters")["clusters"]
            },
            "clusters",
        )  # fmt: skip
        assert window.complaints == []


def test_tenants_and_usage_agree(stage: Stage, viewer: Viewer) -> None:
    """By tenant and GPU model: used within the quota, borrowed, lent, waited for; and attempts."""
    url = viewer.url
    fields = {
        "Used within it": "used",
        "Borrowed": "borrowed",
        "Lent": "lent",
        "Waited for": "pending",
    }

    def tenants() -> Any:
        return {
            f"{one['name']} {one['gpu_model']}": [one[key] for key in fields.values()]
            for one in asked(url, "tenants")["tenants"]
        }

    with viewer.window() as window:
        agree(
            window.page, f"{url}/tenants",
            lambda page: {
                key: [whole(row[label]) for label in fields]
                for key, row in page.evaluate(ROWS).items()
                if "Quota" in row
            },
            tenants, "tenants",
        )  # fmt: skip
        agree(
            window.page, f"{url}/usage",
            lambda page: {k: whole(row["Attempts"]) for k, row in page.evaluate(ROWS).items()},
            lambda: {one["key"]: one["attempts"] for one in asked(url, "usage")["usage"]}, "usage",
        )  # fmt: skip
        assert window.complaints == []


@pytest.mark.parametrize("name", ["waits", "impossible", "over-quota", "trains", "bad"])
def test_a_job_agrees(stage: Stage, viewer: Viewer, name: str) -> None:
    """Its state and attempts with `status`; why it waits, and where how many hosts say no, with `explain`."""
    url, job = viewer.url, stage.jobs[name]

    def said(page: Page) -> Any:
        fields = page.locator("main dl.fields").all_inner_texts()
        attempts = next(t for t in "\n".join(fields).split("Attempts")[1].split("\n") if t.strip())
        return page.locator(".title .state").inner_text().upper(), int(attempts.split(",")[0])

    def status() -> Any:
        found = asked(url, "status", job)["job"]
        return found["state"], found["attempts"]

    def clusters(page: Page) -> Any:
        rows = page.evaluate(ROWS).items()
        return {key: row["GPUs free"] for key, row in rows if "Verdict" in row}

    with viewer.window() as window:
        agree(window.page, f"{url}/jobs/{job}", said, status, "status")
        if name != "bad":
            agree(
                window.page, f"{url}/jobs/{job}",
                lambda page: asked(url, "explain", job)["summary"] in page.locator("#summary").inner_text(),
                lambda: True, "why",
            )  # fmt: skip
        agree(
            window.page, f"{url}/jobs/{job}", clusters,
            lambda: {
                f"{region['region']}/{one['cluster']}": f"{one['free_gpus']:.0f} of {one['total_gpus']:.0f}"
                for region in (asked(url, "explain", job)["regions"] if name != "bad" else ())
                for one in region["clusters"]
            },
            "clusters",
        )  # fmt: skip
        assert window.complaints == []


def test_data_acts_and_the_system_agree(stage: Stage, viewer: Viewer) -> None:
    """The regions of each dataset, the acts of the audit log, the jobs by state, and the clusters of a what-if."""
    url = viewer.url

    def replicas() -> Any:
        return {
            f"dataset {one['name']}": sorted(
                r["region"] for r in one["replicas"] if r["state"] == "complete"
            )
            for one in asked(url, "datasets")["datasets"]
        }

    with viewer.window() as window:
        page = window.page
        agree(
            page, f"{url}/data",
            lambda page: {
                key: sorted(name for name, text in row.items() if text == "✓ complete")
                for key, row in page.evaluate(ROWS).items()
                if key.startswith("dataset ")
            },
            replicas, "datasets",
        )  # fmt: skip
        agree(
            page, f"{url}/events?show=audit",
            lambda page: page.locator("main tbody tr td[data-label=Object]").all_inner_texts(),
            lambda: [act["object"] for act in asked(url, "audit")["acts"]], "acts",
        )  # fmt: skip
        agree(
            page, f"{url}/system",
            lambda page: {
                words.split()[1].upper(): whole(words)
                for words in page.locator("main dd a[href^='/?state=']").all_inner_texts()
            },
            lambda: dict(stage.client.health().jobs), "jobs by state",
        )  # fmt: skip
        agree(
            page, f"{url}/whatif",
            lambda page: [o.get_attribute("value") for o in page.locator("[name=add] option").all()][1:],
            lambda: [one["name"] for one in asked(url, "clusters")["clusters"]], "clusters",
        )  # fmt: skip
        assert window.complaints == []
