"""A newcomer's ten questions: each is answered within two clicks from the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.weblab.questions import QUESTIONS

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(
    stage: Stage, viewer: Viewer, question: str
) -> None:
    way = QUESTIONS[question]
    with viewer.window() as window:
        page = window.open("/")
        for click in way.clicks:
            click.act(page, stage)
        for answer in way.shown:
            shown = page.locator("main").get_by_text(answer.format(**stage.jobs)).first
            shown.wait_for(state="attached", timeout=60_000)
        assert window.complaints == []


def test_no_click_is_lost_while_a_page_loads(viewer: Viewer) -> None:
    """What takes scripts is shown when they have run: before, a button would send a bare form."""
    late: list[Route] = []
    with viewer.window() as window:
        window.page.route("**/whatif.js", lambda route: late.append(route), times=1)
        window.page.goto(viewer.url + "/whatif", wait_until="commit")
        page, button = window.page, window.page.get_by_role("button", name="Compare the futures")
        loaded = "performance.getEntriesByType('resource').some(e => e.name.endsWith('/live.js'))"
        while not (late and page.evaluate(loaded)):
            page.wait_for_timeout(20)
        page.wait_for_timeout(200)  # the other modules run meanwhile
        assert button.is_hidden()
        late[0].continue_()
        button.click()
        page.wait_for_url("**/whatif?id=*")
        assert window.complaints == []
