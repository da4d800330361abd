"""What-ifs of several changes, by mouse and by keyboard, and the audit log by time."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.live import eventually
from tests.web.test_operating import BY, presser

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]


def choose(page: Page, name: str, *values: str) -> None:
    """Choose in the last row of a kind of change."""
    row = page.locator(f'#whatif .change:has([name="{name}"])').last
    fields = row.locator("input, select").all()
    for field, value in zip(fields, values, strict=True):
        if field.evaluate("field => field.localName") == "select":
            field.select_option(value)
        else:
            field.fill(value)


@BY
def test_several_changes_of_each_kind_are_compared(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    """Rows are added, and taken away again; the page of the result has them all."""
    job = stage.jobs["waits"]
    with viewer.window() as window:
        page = window.open("/whatif")
        press = presser(page, by_keys)
        choose(page, "add", "west-2", "2")
        press("Another cluster")
        assert page.evaluate("document.activeElement.name") == "add"
        choose(page, "add", "north-1", "1")
        choose(page, "quota", "vision:H100", "8")
        press("Another quota")
        choose(page, "quota", "speech:A100", "32")
        choose(page, "job", job, "priority=high")
        press("Another job")
        choose(page, "job", job, "preemptible=false")
        choose(page, "lose", "east")
        press("Another region")
        press("Remove")  # the first of these: west-2
        assert page.evaluate("document.activeElement.dataset.another") == ""
        page.get_by_label("Look ahead").select_option("1h")
        press("Compare the futures")
        page.wait_for_url("**/whatif?id=*")
        number = page.url.rpartition("=")[2]
        asked = stage.client.whatif(number).asked
        assert (asked.add_hosts, asked.lose_regions) == ({"north-1": 1}, ("east",))
        assert asked.quotas == {"vision:H100": 8, "speech:A100": 32}
        assert asked.jobs == {job: {"priority": "high", "preemptible": False}}
        kept = page.locator('#whatif [name="quota"]').evaluate_all("all => all.map(x => x.value)")
        assert kept == ["vision:H100", "speech:A100"]
        assert window.complaints == []
    eventually(lambda: stage.client.whatif(number).state != "running", "it ends")


def test_while_one_runs_another_is_told_which_and_of_which_account(
    stage: Stage, viewer: Viewer
) -> None:
    """The page says so before it is asked, refuses the second in words, and forgets it at its end."""
    with viewer.window() as window, viewer.window() as other:
        page, late = window.open("/whatif"), other.open("/whatif")
        page.get_by_label("Look ahead").select_option("7d")
        page.get_by_role("button", name="Compare the futures").click()
        page.wait_for_url("**/whatif?id=*")
        number = page.url.rpartition("=")[2]
        os.kill(process_of_whatif(stage), signal.SIGSTOP)
        late.get_by_role("button", name="Compare the futures").click()
        trouble = late.locator("#whatif-trouble")
        trouble.get_by_text(f"what-if {number} of user:root runs: wait until it is done").wait_for()
        note = late.locator("#whatif-other")
        note.get_by_text(f"What-if {number} of user:root has run for ").wait_for()
        other.complaints.clear()  # the browser notes the answer of 409
        assert other.violations() == []
        os.kill(process_of_whatif(stage), signal.SIGCONT)
        note.wait_for(state="detached", timeout=120_000)
        trouble.wait_for(state="hidden")
        late.get_by_role("link", name=number, exact=True).wait_for()
        assert other.complaints == []
        second = window.open("/whatif?id=" + number)
        assert f"{number} done" in second.locator("main li").first.inner_text()


def process_of_whatif(stage: Stage) -> int:
    """The one that the server has begun."""
    found = [
        int(entry.parent.name)
        for entry in Path("/proc").glob("[0-9]*/cmdline")
        if b"whatif" in (words := readable(entry)) and str(stage.server.state).encode() in words
    ]
    assert len(found) == 1, found
    return found[0]


def readable(entry: Path) -> bytes:
    """A file of a process that may have ended."""
    try:
        return entry.read_bytes()
    except OSError:
        return b""


@BY
def test_each_fault_is_told_at_its_field(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    """First what the page knows, then what the server refuses; nothing is begun."""
    with viewer.window() as window:
        page = window.open("/whatif")
        press = presser(page, by_keys)
        choose(page, "add", "west-2", "2")
        press("Another cluster")
        choose(page, "add", "west-2", "3")
        choose(page, "job", "", "priority=high")
        press("Compare the futures")
        eventually(lambda: page.locator(".fault:visible").all_inner_texts() == [
            "west-2 is there twice: leave one", "say which job, such as j7",
        ], "both are told")  # fmt: skip
        trouble = page.locator("#whatif-trouble")
        assert trouble.inner_text() == "2 fields are wrong, see above."
        wrong = page.locator("[aria-invalid=true]")
        assert wrong.evaluate_all("all => all.map(x => x.name)") == ["add", "job"]
        assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
        assert window.violations() == []
        choose(page, "add", "north-1", "3")
        choose(page, "job", "j999", "priority=high")
        press("Another job")
        choose(page, "job", "mine", "priority=low")
        press("Compare the futures")
        eventually(lambda: page.locator(".fault:visible").all_inner_texts() == [
            "no job 'j999' that has not ended", "'mine' is not the id of a job",
        ], "both are told")  # fmt: skip
        assert page.url.endswith("/whatif")
        window.complaints.clear()  # the browser notes the answer of 422
        assert window.violations() == []


def test_the_audit_log_is_asked_for_by_time(viewer: Viewer) -> None:
    """A date is one of the reader's time zone; what is no time is said beside its field."""
    with viewer.window() as window:
        page = window.open("/events?show=audit")
        page.get_by_label("Since").fill("2020-01-31 12:00")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**since=2020-01-31T12%3A00%2B00%3A00**")
        assert page.locator("main tbody tr[data-row]").count() > 1
        page.get_by_label("Until").fill("1e3d")
        page.get_by_label("Until").press("Enter")
        page.wait_for_url("**until=1e3d**")
        assert page.locator("[aria-invalid=true]").get_attribute("name") == "until"
        assert (
            "Until: '1e3d' is not a time; write 2h (ago)" in page.get_by_role("alert").inner_text()
        )
        window.complaints.clear()  # the browser notes the answer of 422
        assert window.violations() == []
