"""What operators do on the pages, by mouse and by keyboard; each page first says what is hit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.live import eventually
from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.weblab.browser import Viewer, Window
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]
BY = pytest.mark.parametrize("by_keys", [False, True], ids=["mouse", "keys"])
Press = Callable[[str], None]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if why := missing():
        pytest.skip(why)
    from tests.support.weblab.stage import stage as set_up

    with set_up(tmp_path_factory.mktemp("operating"), wheel=False) as found:
        yield found


@pytest.fixture(scope="module")
def viewer(chromium: Browser, stage: Stage) -> Viewer:
    from tests.support.weblab.browser import Viewer

    return Viewer(chromium, stage.url)


def presser(page: Page, by_keys: bool) -> Press:
    """Presses a button, and waits until it can be pressed."""

    def press(name: str) -> None:
        button = page.get_by_role("button", name=name, exact=True).and_(page.locator(":visible"))
        button.first.wait_for()
        eventually(lambda: button.first.is_enabled(), f"{name} can be pressed")
        if by_keys:
            button.first.focus()
            page.keyboard.press("Enter")
        else:
            button.first.click()

    return press


def told(page: Page, *words: str) -> None:
    """What the dialog says that the act would do."""
    dialog = page.locator("dialog[open]")
    for each in words:
        eventually(lambda each=each: each in dialog.inner_text(), each)  # type: ignore[misc]


def done(window: Window) -> None:
    """The act is done, the page says so, and nothing was wrong."""
    window.page.locator("dialog[open]").wait_for(state="detached")
    assert window.page.locator("#said").inner_text().startswith("Done.")
    assert window.complaints == []


def state(stage: Stage, name: str) -> str:
    return next(host.state for host in stage.client.hosts() if host.name == name)


@BY
def test_a_host_is_put_aside_and_brought_back(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    with viewer.window() as window:
        page = window.open("/fleet?host=north-1-2")
        press = presser(page, by_keys)
        press("Cordon")
        told(page, "It changes 1 host with 4 GPUs.")
        press("Not now")
        assert state(stage, "north-1-2") == "healthy"
        press("Cordon")
        page.get_by_label("Reason").fill("the fan is loud")
        press("Do it")
        done(window)
        assert state(stage, "north-1-2") == "cordoned"
        press("Uncordon")
        assert "the fan is loud" in page.locator("main").inner_text()
        press("Do it")
        done(window)
        assert state(stage, "north-1-2") == "healthy"


@pytest.mark.parametrize("job", ["trains", "pair"])
def test_a_drain_promises_no_more_than_its_dry_run(stage: Stage, viewer: Viewer, job: str) -> None:
    """Beside a job that stays nothing says that the jobs of the host move."""
    host = stage.client.job(stage.jobs[job]).hosts[0]
    with viewer.window() as window:
        page = window.open(f"/fleet?host={host}")
        presser(page, False)("Drain")
        told(page, "It changes 1 host", "what can move elsewhere moves", "elsewhere, ")
        assert "its jobs move" not in page.locator("dialog[open]").inner_text()
        assert window.complaints == []


@BY
def test_hosts_that_are_selected_are_put_aside_together(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    """By their boxes, and by the filters."""
    with viewer.window() as window:
        page = window.open("/fleet?cluster=west-2")
        press = presser(page, by_keys)
        for host in ("west-2-0", "west-2-1"):
            page.get_by_label(f"Select {host}", exact=True).check()
        assert page.locator(".acts .count:visible").inner_text() == "2 hosts selected"
        bar = page.get_by_role("group", name="Acts on the selected hosts")
        bar.get_by_role("button", name="Drain").click()
        told(page, "It changes 2 hosts with 8 GPUs.")
        press("Not now")
        page.get_by_label("that the filters leave").check()
        bar.get_by_role("button", name="Cordon", exact=True).click()
        told(page, "It changes 1 host with 4 GPUs.")
        page.locator("dialog select[name=until_s]").select_option("4")
        told(page, "It changes 2 hosts with 8 GPUs.")
        press("Do it")
        done(window)
        hosts = [host for host in stage.client.hosts() if host.cluster == "west-2"]
        assert [(host.state, host.until_s is not None) for host in hosts] == [
            ("cordoned", True)
        ] * 2
    stage.client.uncordon("west-2-1")
    stage.client.cordon("west-2-0")


@BY
def test_a_cluster_is_closed_for_a_while_and_opened(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    def cluster() -> tuple[str, bool]:
        found = next(one for one in stage.client.clusters() if one.name == "north-1")
        return found.state, found.until_s is not None

    with viewer.window() as window:
        page = window.open("/fleet?cluster=north-1")
        press = presser(page, by_keys)
        press("Close…")
        told(page, "3 hosts with 12 GPUs take no new work.", "jobs there go on")
        page.locator("dialog select[name=until_s]").select_option("12")
        told(page, "take no new work")
        press("Do it")
        done(window)
        assert cluster() == ("closed", True)
        press("Open")
        press("Do it")
        done(window)
        assert cluster() == ("open", False)


@BY
def test_clusters_that_are_selected_are_closed_together(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    """What was selected in another table is so no longer: an act is about one list."""

    def states() -> list[str]:
        found = {one.name: one.state for one in stage.client.clusters()}
        return [found[name] for name in ("east-2", "north-1")]

    with viewer.window() as window:
        page = window.open("/fleet")
        press = presser(page, by_keys)
        page.get_by_label("Select west-2-1", exact=True).check()
        for name in ("east-2", "north-1"):
            box = page.get_by_label(f"Select cluster {name}")
            box.focus()
            page.keyboard.press("Space") if by_keys else box.click()
        assert not page.get_by_label("Select west-2-1", exact=True).is_checked()
        assert page.locator(".acts .count:visible").inner_text() == "2 clusters selected"
        press("Close…")
        told(
            page, "It changes 2 clusters.", "east-2: 2 hosts with 16 GPUs take no new work.",
            "north-1: 3 hosts with 12 GPUs take no new work.",
        )  # fmt: skip
        page.get_by_label("Reason").fill("new switches")
        page.locator("dialog select[name=until_s]").select_option("4")
        told(page, "It changes 2 clusters.")
        press("Do it")
        done(window)
        assert states() == ["closed", "closed"]
        row = page.locator('[data-key="cluster east-2"]')
        eventually(lambda: "new switches" in row.inner_text(), "the table says why")
        assert "it opens in" in row.inner_text()
        for name in ("east-1", "east-2", "north-1"):
            page.get_by_label(f"Select cluster {name}").check()
        press("Open")
        told(page, "It changes 2 clusters. 1 cluster stays as now.")
        press("Do it")
        done(window)
    assert states() == ["open", "open"]


@BY
def test_hosts_are_reserved_and_let_go(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    before = {one.name for one in stage.client.reservations()}
    with viewer.window() as window:
        page = window.open("/fleet?host=west-2-0")
        press = presser(page, by_keys)
        press("Reserve…")
        told(page, "1 host with 4 GPUs, from")
        page.locator("dialog select[name=until_s]").select_option("8")
        page.get_by_label("Tenants that may start there").fill("vision")
        page.get_by_label("Reason").fill("a demonstration")
        told(page, "1 host with 4 GPUs, from")
        press("Do it")
        done(window)
        (made,) = [one for one in stage.client.reservations() if one.name not in before]
        assert made.hosts == ("west-2-0",)
        assert (made.tenants, made.reason) == (("vision",), "a demonstration")
        assert made.by  # the account of this browser
        assert made.until_s - made.from_s == pytest.approx(8 * 3600, abs=60)
        row = page.locator(f'[data-key="reservation {made.name}"]')
        row.get_by_role("button", name="End").click()
        told(page, "1 host with 4 GPUs")
        press("Do it")
        done(window)
    assert {one.name for one in stage.client.reservations()} == before


@BY
def test_a_tenant_is_paused_and_has_another_quota(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    def tenant() -> tuple[bool, float | None]:
        found = [one for one in stage.client.tenants() if one.name == "speech"]
        return bool(found[0].paused), {one.gpu_model: one.nominal for one in found}["L4"]

    with viewer.window() as window:
        page = window.open("/tenants?tenant=speech")
        press = presser(page, by_keys)
        press("Pause…")
        told(page, "None of these is stopped.")
        page.get_by_label("stop what runs").check()
        told(page, "stop at a checkpoint")
        page.get_by_label("stop what runs").uncheck()
        told(page, "None of these is stopped.")
        press("Do it")
        done(window)
        assert tenant() == (True, 2.0)
        press("Resume")
        press("Do it")
        done(window)
        press("Quota for a while…")
        page.get_by_label("GPUs by model").fill("L4=5")
        page.get_by_label("Reason").focus()
        told(page, "5 L4")
        press("Do it")
        done(window)
        assert tenant() == (False, 5.0)
        press("End that quota")
        told(page, "2 L4")
        press("Do it")
        done(window)
        assert tenant() == (False, 2.0)


@BY
def test_tenants_that_are_selected_are_paused_together(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    def paused() -> set[str]:
        return {one.name for one in stage.client.tenants() if one.paused}

    with viewer.window() as window:
        page = window.open("/tenants")
        press = presser(page, by_keys)
        for name in ("speech", "vision"):
            page.get_by_label(f"Select tenant {name}").check()
        press("Pause…")
        told(page, "It changes 2 tenants.", "speech: ", "vision: ", "None of these is stopped.")
        page.get_by_label("Reason").fill("the budget is spent")
        press("Do it")
        done(window)
        assert paused() == {"speech", "vision"}
        row = page.locator('[data-key^="speech "]').first
        eventually(lambda: "the budget is spent" in row.inner_text(), "the table says why")
        page.get_by_label("Select all tenants").check()
        assert page.locator(".acts .count").inner_text() == "3 tenants selected"
        press("Resume")
        press("Do it")
        done(window)
    assert paused() == set()


@BY
def test_the_policies_of_the_next_leader_are_set(
    stage: Stage, viewer: Viewer, by_keys: bool
) -> None:
    before = stage.client.profile().later
    wanted = "mast" if by_keys else "fifo-skip"
    with viewer.window() as window:
        page = window.open("/system")
        press = presser(page, by_keys)
        press("Policies of the next leader…")
        told(page, "Nothing is changed")
        assert page.get_by_role("button", name="Do it").is_disabled()
        page.locator("dialog select[name=profile]").select_option(wanted)
        page.get_by_label("Other settings").fill("score.nonsense=2, score.worse=1")
        page.get_by_label("Reason").focus()
        told(page, "Refused:", "score.nonsense: there is no such option", "score.worse: there")
        window.complaints.clear()  # the browser notes the answer of 422
        page.get_by_label("Other settings").fill("score.data=2.5, min_runtime_s=1")
        page.get_by_label("Reason").fill("data is near now")
        told(page, f"The next leader decides by {wanted} with ", "score.data=2.5")
        press("Do it")
        done(window)
        page.get_by_text("Next leader", exact=True).wait_for()
    found = stage.client.profile()
    assert (found.later.name, found.later.options["score.data"]) == (wanted, 2.5)
    assert found.now.name == "mast"
    assert before != found.later


def test_what_cannot_be_read_is_refused_in_words(stage: Stage, viewer: Viewer) -> None:
    with viewer.window() as window:
        page = window.open("/tenants?tenant=speech")
        press = presser(page, False)
        press("Quota for a while…")
        for said, why in (
            ("many", "'many' is no model with a whole number of GPUs; such as H100=16, A100=8"),
            ("A100=8, L4=", "'L4=' is no model with a whole number of GPUs"),
            ("L4=0x10", "'L4=0x10' is no model with a whole number of GPUs"),
            ("L4=1, L4=2", "it names L4 twice"),
            ("", "it is empty"),
        ):
            page.get_by_label("GPUs by model").fill(said)
            told(page, f"Refused: GPUs by model: {why}")
            assert page.get_by_role("button", name="Do it").is_disabled()


@BY
def test_a_dataset_is_copied_and_dropped(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    def regions() -> set[str]:
        (found,) = stage.client.datasets()
        return {one.region for one in found.replicas if one.state == "complete"}

    with viewer.window() as window:
        page = window.open("/data?dataset=digits")
        press = presser(page, by_keys)
        press("Copy here")
        told(page, "go over the link", "Now it is complete in east, north.")
        page.get_by_label("Reason").fill("its jobs are there")
        press("Do it")
        done(window)
        eventually(lambda: "west" in regions(), "the copy is complete")
        page.reload()
        row = page.locator('[data-key="in west"]')
        row.get_by_role("button", name="Drop").click()
        told(page, "Now it is complete in east, north, west.")
        assert "west" in regions()
        page.get_by_label("Reason").fill("room is short")
        press("Do it")
        done(window)
        eventually(lambda: "west" not in regions(), "it is gone")
        page.goto(viewer.url + "/events?show=audit&object=digits")
        rows = page.locator("main tbody").inner_text()
        assert "room is short" in rows
        assert "its jobs are there" in rows


@BY
def test_what_a_job_asks_for_is_changed(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    """All that `topmast edit` can; a field that stays empty changes nothing."""
    job = stage.jobs["kept-back"]
    hours = 3.0 if by_keys else 2.5
    with viewer.window() as window:
        page = window.open(f"/jobs/{job}")
        press = presser(page, by_keys)
        press("Change…")
        told(page, "Say what changes.")
        assert page.get_by_role("button", name="Do it").is_disabled()
        page.get_by_label("Time limit, in hours").fill("two")
        page.get_by_label("Restarts at most").fill("7")
        page.get_by_label("Reason").focus()
        told(
            page, "Refused: Time limit, in hours: 'two' is no number of hours; such as 1.5, or none"
        )
        page.get_by_label("Time limit, in hours").fill(f"{hours:g}")
        page.get_by_label("Expected to run, in hours").fill("1")
        page.get_by_label("May be preempted").select_option("no")
        told(page, "It changes 1 job.")
        press("Do it")
        done(window)
    found = stage.client.job_file(job).job
    assert found["time_limit"] == 3_600 * hours
    assert found["expected_duration"] == 3_600
    assert (found["max_restarts"], found["preemptible"]) == (7, False)


def test_a_webhook_is_made_tried_and_removed(stage: Stage, viewer: Viewer) -> None:
    """Nothing listens there, and the page says so."""
    with viewer.window() as window:
        page = window.open("/system")
        press = presser(page, False)
        press("New webhook…")
        page.get_by_label("Name", exact=True).fill("ops")
        page.get_by_label("URL").fill("http://127.0.0.1:9/hook")
        press("Do it")
        done(window)
        row = page.locator('[data-key="webhook ops"]')
        row.get_by_role("button", name="Test").click()
        press("Do it")
        told(page, "Refused")
        window.complaints.clear()  # the browser notes the answer of 503
        press("Not now")
        row.get_by_role("button", name="Remove").click()
        press("Do it")
        done(window)
        row.wait_for(state="detached")


def test_a_sweep_is_one_object(stage: Stage, viewer: Viewer) -> None:
    """With how far it is; what is done to it is done to its jobs."""
    sweep = stage.jobs["rates"]
    with viewer.window() as window:
        page = window.open("/")
        page.get_by_role("link", name="Sweeps").click()
        page.locator("main").get_by_role("link", name=sweep).click()
        assert "at most 1 at a time" in page.locator("main").inner_text()
        press = presser(page, False)
        press("Hold")
        told(page, "It changes")
        press("Do it")
        done(window)
        press("Release")
        press("Do it")
        done(window)
