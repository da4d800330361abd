"""What people do on the pages of the queue and of a job, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.live import eventually, until_state
from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]
SLEEPER = {"tenant": "speech", "resources": {"accelerators": "L4:500"}, "run": "true"}
"""It waits for ever: no host is so large."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if why := missing():
        pytest.skip(why)
    from tests.support.weblab.stage import stage as set_up

    with set_up(tmp_path_factory.mktemp("acts"), wheel=False) as found:
        yield found


@pytest.fixture(scope="module")
def viewer(chromium: Browser, stage: Stage) -> Viewer:
    from tests.support.weblab.browser import Viewer

    return Viewer(chromium, stage.url)


def sleepers(stage: Stage, name: str, count: int) -> list[str]:
    """Jobs that wait for ever, and are held."""
    jobs = [stage.client.submit({"name": f"{name}-{n}", **SLEEPER}).id for n in range(count)]
    stage.client.hold(jobs, reason="for a test")
    return jobs


def expect(locator: Locator) -> Any:
    """What a page comes to show."""
    from playwright.sync_api import expect

    return expect(locator)


def confirm(page: Page, reason: str = "") -> str:
    """Read what an act would do, and do it; what it said."""
    dialog = page.locator("dialog[open]")
    expect(dialog.get_by_role("button", name="Do it")).to_be_enabled()
    said = dialog.inner_text()
    if reason:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name="Do it").click()
    dialog.wait_for(state="detached")
    return said


def test_jobs_are_cancelled_by_mouse(stage: Stage, viewer: Viewer) -> None:
    """First what it would do, then the act; the list shows it without a reload."""
    jobs = sleepers(stage, "mouse", 3)
    with viewer.window() as window:
        page = window.open("/?name=mouse-*")
        assert page.get_by_role("group", name="Acts on the selected jobs").is_hidden()
        for job in jobs[:2]:
            page.get_by_label(f"Select {job}", exact=True).check()
        assert page.locator(".acts .count").inner_text() == "2 jobs selected"
        page.get_by_role("button", name="Cancel").click()
        said = confirm(page, "not needed")
        assert "It changes 2 jobs. Tenant: speech (2). User: ann (2)." in said
        assert f"{jobs[0]}: will change" in said
        expect(page.locator("tr[data-row]")).to_have_count(1)
        page.get_by_role("group", name="Acts on the selected jobs").wait_for(state="hidden")
        assert "It changes 2 jobs." in page.locator("#said").inner_text()
        assert window.complaints == []
    assert [stage.client.job(job).state for job in jobs] == ["CANCELLED", "CANCELLED", "PENDING"]


def test_jobs_are_walked_selected_and_released_by_keyboard(stage: Stage, viewer: Viewer) -> None:
    """`j`, `x`, `a`, Tab and Enter are enough."""
    jobs = sleepers(stage, "keys", 2)
    with viewer.window() as window:
        page = window.open("/?name=keys-*")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert page.locator(".acts .count").inner_text() == "2 jobs selected"
        page.keyboard.press("a")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Release"
        page.keyboard.press("Enter")
        expect(page.locator("dialog[open] [data-part=do]")).to_be_enabled()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Do it"
        page.keyboard.press("Enter")
        page.locator("dialog[open]").wait_for(state="detached")  # until then it has the keys
        assert not any(stage.client.job(job).hold for job in jobs)
        page.keyboard.press("?")
        assert page.get_by_role("heading", name="Keys").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type(jobs[0])
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/jobs/{jobs[0]}")
        assert window.complaints == []
    stage.client.cancel(jobs[0])
    stage.client.cancel(jobs[1])


def test_a_row_keeps_the_focus_when_the_page_is_drawn_anew(stage: Stage, viewer: Viewer) -> None:
    """Also if other rows come before it: `x` selects the row that was walked to, not the first."""
    jobs = sleepers(stage, "focus", 2)
    with viewer.window() as window:
        page = window.open("/?name=focus-*")
        rows = page.locator("tr[data-row]")
        page.keyboard.press("j")
        page.keyboard.press("j")
        walked = rows.nth(1).get_attribute("data-key")
        urgent = stage.client.submit({"name": "focus-0", **SLEEPER, "priority": "high"}).id
        expect(rows).to_have_count(3)
        assert rows.nth(0).get_attribute("data-key") == urgent
        page.wait_for_timeout(100)  # a browser takes the focus away when it next paints
        page.keyboard.press("x")
        assert page.locator("[data-select]:checked").get_attribute("data-select") == walked
        page.keyboard.press("k")
        page.keyboard.press("x")
        expect(page.locator("[data-select]:checked")).to_have_count(2)
        assert not page.get_by_label(f"Select {urgent}", exact=True).is_checked()
        assert window.complaints == []
    for job in (*jobs, urgent):
        stage.client.cancel(job)


FOCUS = (
    "document.activeElement.closest('[data-key]')?.dataset.key ?? document.activeElement.nodeName"
)
"""The row that has the focus, or what else has it."""


def test_the_focus_returns_after_an_act_by_keyboard(stage: Stage, viewer: Viewer) -> None:
    """To the row that the act was about; once that is gone, to another; never to nothing."""
    jobs = sleepers(stage, "back-to", 3)
    with viewer.window() as window:
        page = window.open("/?name=back-to-*")
        rows = page.locator("tr[data-row]")
        page.keyboard.press("j")
        page.keyboard.press("j")
        walked = rows.nth(1).get_attribute("data-key")
        page.keyboard.press("x")
        page.keyboard.press("a")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # Release
        expect(page.locator("dialog[open] [data-part=do]")).to_be_enabled()
        page.keyboard.press("Escape")
        page.locator("dialog[open]").wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "Release"
        page.keyboard.press("Enter")
        expect(page.locator("dialog[open] [data-part=do]")).to_be_enabled()
        page.locator("dialog[open] [data-part=do]").press("Enter")
        page.locator("dialog[open]").wait_for(state="detached")
        assert page.evaluate(FOCUS) == walked
        expect(page.locator(f"tr[data-key={walked}]")).not_to_contain_text("Held")
        assert page.evaluate(FOCUS) == walked
        page.keyboard.press("x")
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.locator("dialog[open] [data-part=do]")).to_be_enabled()
        page.locator("dialog[open] [data-part=do]").press("Enter")
        expect(rows).to_have_count(2)
        eventually(lambda: page.evaluate(FOCUS) in jobs, "a row has the focus")
        assert window.complaints == []
        page = window.open(f"/jobs/{next(job for job in jobs if job != walked)}")
        page.get_by_role("button", name="Release").press("Enter")
        expect(page.locator("dialog[open] [data-part=do]")).to_be_enabled()
        page.locator("dialog[open] [data-part=do]").press("Enter")
        page.get_by_role("button", name="Hold").wait_for()
        assert page.evaluate("document.activeElement.nodeName") == "BUTTON"
        assert window.complaints == []
    for job in jobs:
        stage.client.cancel(job)


def test_a_preemption_promises_no_gpus_that_the_same_job_may_take_again(
    stage: Stage, viewer: Viewer
) -> None:
    """What goes back into the queue may start at once on the same GPUs."""
    with viewer.window() as window:
        page = window.open(f"/jobs/{stage.jobs['trains']}")
        for verb, again in (("Preempt", True), ("Suspend", False)):
            page.get_by_role("button", name=verb, exact=True).click()
            dialog = page.locator("dialog[open]")
            expect(dialog.get_by_role("button", name="Do it")).to_be_enabled()
            said = dialog.inner_text()
            assert ("may start again on the same GPUs at once" in said) == again
            assert ("free, and" in said) != again
            page.get_by_role("button", name="Not now").click()
        assert window.complaints == []


def test_what_comes_to_match_a_filter_after_its_dry_run_is_not_in_the_act(
    stage: Stage, viewer: Viewer
) -> None:
    """Only the jobs that were shown are changed: of the late one nobody was told."""
    jobs = sleepers(stage, "match", 2)
    with viewer.window() as window:
        page = window.open("/?name=match-*")
        page.get_by_label("that the filters leave").check()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("dialog[open]")).to_contain_text("It changes 2 jobs.")
        late = stage.client.submit({"name": "match-late", **SLEEPER}).id
        confirm(page)
        expect(page.locator("#said")).to_contain_text("It changes 2 jobs.")
        assert window.complaints == []
    assert [stage.client.job(job).state for job in jobs] == ["CANCELLED", "CANCELLED"]
    assert stage.client.job(late).state == "PENDING"
    stage.client.cancel(late)


def test_more_jobs_than_are_named_are_changed_by_their_filter(stage: Stage, viewer: Viewer) -> None:
    """The dialog says that what comes meanwhile is changed, too; and so it is."""
    many = [{"name": f"crowd-{n}", **SLEEPER} for n in range(10_001)]
    for first in (0, 5_000, 10_000):
        document = {"jobs": many[first : first + 5_000], "user": "ann"}
        httpx.post(f"{stage.url}/api/v1/jobs/bulk", json=document, timeout=120).raise_for_status()
    with viewer.window() as window:
        page = window.open("/?name=crowd-*")
        page.get_by_label("all 10,001 that the filters leave").check()
        page.get_by_role("button", name="Cancel").click()
        dialog = page.locator("dialog[open]")
        expect(dialog).to_contain_text("It changes 10,001 jobs.", timeout=60_000)
        late = stage.client.submit({"name": "crowd-late", **SLEEPER}).id
        said = confirm(page)
        assert "what comes to match the filters until it is done is changed, too." in said
        assert "and 9,981 more" in said
        expect(page.locator("#said")).to_contain_text("It changes 10,002 jobs.")
        assert window.complaints == []
    eventually(lambda: stage.client.job(late).state == "CANCELLED", "the late one, too")
    assert not any(stage.client.jobs(selector="state=active,name=crowd-*"))


def test_an_act_on_a_job_that_has_ended_meanwhile_says_so(stage: Stage, viewer: Viewer) -> None:
    """Nothing is done then, and the page says why; a dry run says the same before."""
    (job,) = sleepers(stage, "over", 1)
    with viewer.window() as window:
        page = window.open(f"/jobs/{job}")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("dialog[open]")).to_contain_text("It changes 1 job.")
        stage.client.cancel(job)
        confirm(page)
        ended = f"Nothing is changed: {job} has ended: CANCELLED."
        expect(page.locator("#said")).to_have_text(ended)
        page = window.open("/?name=over-*&state=CANCELLED")
        page.get_by_label(f"Select {job}", exact=True).check()
        page.get_by_role("button", name="Preempt").click()
        expect(page.locator("dialog[open]")).to_contain_text(ended)
        expect(page.locator("dialog[open] [data-part=do]")).to_be_disabled()
        assert window.complaints == []


@pytest.mark.parametrize("count", [1, 3])
def test_the_words_of_an_act_are_those_of_one_job_and_of_many(
    stage: Stage, viewer: Viewer, count: int
) -> None:
    """What is said of the act is so for any number of jobs."""
    jobs = sleepers(stage, f"words-{count}", count)
    notes = []
    with viewer.window() as window:
        page = window.open(f"/?name=words-{count}-*")
        page.get_by_label("that the filters leave").check()
        for verb in ("Hold", "Release", "Suspend", "Preempt", "Requeue", "Cancel"):
            page.get_by_role("button", name=verb, exact=True).click()
            notes.append(page.locator("dialog[open] [data-part=note]").inner_text())
            page.get_by_role("button", name="Not now").click()
    assert [note for note in notes if not note.startswith("What ")] == []
    for job in jobs:
        stage.client.cancel(job)


def test_all_that_the_filters_leave_are_changed_at_once(stage: Stage, viewer: Viewer) -> None:
    """Also those that are on no page: the server is first told the filters, not the jobs."""
    jobs = sleepers(stage, "all", 3)
    with viewer.window() as window:
        page = window.open("/?name=all-*&state=PENDING")
        page.get_by_label("that the filters leave").check()
        page.get_by_role("button", name="Change…").click()
        expect(page.locator("dialog[open]")).to_contain_text("Say what changes.")
        page.get_by_label("Priority").last.select_option("high")
        expect(page.locator("dialog[open]")).to_contain_text("It changes 3 jobs.")
        assert "It changes 3 jobs." in confirm(page)
        eventually(lambda: all(stage.client.job(job).band == "high" for job in jobs), "high")
        assert window.complaints == []
    for job in jobs:
        stage.client.cancel(job)


def test_an_open_page_follows_without_losing_focus_or_selection(
    stage: Stage, viewer: Viewer
) -> None:
    """A job that comes appears by itself; what the reader has in hand stays."""
    first = sleepers(stage, "live", 1)[0]
    with viewer.window() as window:
        page = window.open("/?name=live-*")
        box = page.get_by_label(f"Select {first}", exact=True)
        box.check()
        box.focus()
        second = sleepers(stage, "live", 1)[0]
        page.get_by_label(f"Select {second}", exact=True).wait_for()
        assert box.is_checked()
        assert page.evaluate("document.activeElement.dataset.select") == first
        assert window.complaints == []
    stage.client.cancel(first)
    stage.client.cancel(second)


def test_two_tabs_share_one_stream(stage: Stage, viewer: Viewer, chromium: Browser) -> None:
    """HTTP/1.1 gives a browser six connections; and both tabs follow."""
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    pages = [context.new_page() for _ in range(2)]
    for page in pages:
        page.goto(f"{stage.url}/?name=tabs-*")
        page.wait_for_timeout(500)
    job = sleepers(stage, "tabs", 1)[0]
    for page in pages:
        page.get_by_label(f"Select {job}", exact=True).wait_for()
    assert sum("/api/v1/events" in url for url in asked) == 1
    context.close()
    stage.client.cancel(job)


def test_output_follows_and_begins_at_the_end(stage: Stage, viewer: Viewer) -> None:
    """A running job's lines appear as they are written."""
    with viewer.window() as window:
        page = window.open(f"/jobs/{stage.jobs['trains']}")
        log = page.locator("job-log .log")
        eventually(lambda: "step" in log.inner_text(), "what it has written")
        before = log.inner_text()
        eventually(lambda: len(log.inner_text()) > len(before), "more")
        assert window.complaints == []


def test_output_that_grows_fast_is_followed_at_its_end(stage: Stage, viewer: Viewer) -> None:
    """More is written in a second than one look reads; what was left out can be asked for."""
    chatty = {"tenant": "vision", "resources": {"accelerators": "L4:1"}}
    run = "while true; do seq 1 60000; sleep 0.5; done"  # 0.7 MB a second
    job = stage.client.submit({"name": "chatty", **chatty, "priority": "high", "run": run}).id
    until_state(stage.client, job, "RUNNING")

    with viewer.window() as window:
        page = window.open(f"/jobs/{job}")
        beyond = f"{stage.url}/api/v1/jobs/{job}/logs?task=0&attempt=1&limit=1&offset={2**49}"

        def end_bytes() -> int:
            return int(page.request.get(beyond).headers["x-next-offset"])

        page.locator("job-log .log").wait_for()
        begun_bytes = end_bytes()
        eventually(lambda: end_bytes() > begun_bytes + 4_000_000, "it grew")
        shown = page.locator("job-log p")
        eventually(
            lambda: (
                end_bytes() - int(shown.inner_text().split(" to ")[1].replace(",", "")) < 2_500_000
            ),
            "the end is shown",
        )
        page.get_by_role("button", name="From the start").click()
        eventually(lambda: shown.inner_text().startswith("Bytes 0 "), "the start is shown")
        page.get_by_label("follow").check()
        eventually(lambda: not shown.inner_text().startswith("Bytes 0 "), "the end is shown again")
        assert window.complaints == []
    stage.client.cancel(job)


def test_a_page_says_that_the_server_is_away_and_returns(stage: Stage, viewer: Viewer) -> None:
    """It keeps what it shows, and goes on by itself."""
    with viewer.window() as window:
        page = window.open("/")
        rows = page.locator("tr[data-row]").count()
        assert page.locator("#link").is_hidden()
        stage.server.port = int(stage.url.rpartition(":")[2])
        stage.server.stop()
        page.locator("#link").wait_for()
        assert "does not answer" in page.locator("#link").inner_text()
        assert page.locator("tr[data-row]").count() == rows
        page.get_by_label(f"Select {stage.jobs['waits']}", exact=True).check()
        page.get_by_role("button", name="Hold").click()
        expect(page.locator("dialog[open]")).to_contain_text("The server does not answer.")
        page.get_by_role("button", name="Not now").click()
        stage.server.start()
        stage.server.wait_ready()
        page.locator("#link").wait_for(state="hidden")
        job = sleepers(stage, "back", 1)[0]
        page.get_by_label(f"Select {job}", exact=True).wait_for()


def test_a_confirmation_goes_on_when_the_server_is_back(stage: Stage, viewer: Viewer) -> None:
    """What was not answered is asked anew, so that the act shows whether it was done; the reason stays."""
    with viewer.window() as window:
        page = window.open("/")
        page.get_by_label(f"Select {stage.jobs['waits']}", exact=True).check()
        page.get_by_role("button", name="Hold").click()
        dialog = page.locator("dialog[open]")
        do_it, reason = dialog.get_by_role("button", name="Do it"), dialog.get_by_label("Reason")
        reason.fill("the store moves")
        expect(do_it).to_be_enabled()
        before = dialog.locator("[data-part=summary]").inner_text()
        stage.server.port = int(stage.url.rpartition(":")[2])
        stage.server.stop()
        do_it.click()
        expect(dialog).to_contain_text("Look whether it was done before you try again.")
        expect(do_it).to_be_disabled()
        stage.server.start()
        stage.server.wait_ready()
        expect(do_it).to_be_enabled(timeout=20_000)
        expect(dialog.locator("[data-part=summary]")).to_have_text(before)
        expect(reason).to_have_value("the store moves")
        page.get_by_role("button", name="Not now").click()


def test_the_theme_stays_chosen(stage: Stage, viewer: Viewer) -> None:
    """Over pages, and before the first paint."""
    with viewer.window(theme="light") as window:
        page = window.open("/")
        page.get_by_role("button", name="Light or dark").click()
        page.goto(f"{stage.url}/jobs/{stage.jobs['good']}")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert window.complaints == []
