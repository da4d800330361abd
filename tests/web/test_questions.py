"""A newcomer's ten questions: each is answered within two clicks from the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.docs.pages import REPO

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(1200)]

GUIDE: Path = REPO / "docs" / "guides" / "dashboard.md"
Go = Callable[["Page", "Stage"], None]


def nav(name: str) -> Go:
    """A click on a page of the navigation."""
    return lambda page, stage: page.get_by_role("link", name=name, exact=True).first.click()


def link(text: str) -> Go:
    """A click on a link of the page, by its text; ``{name}`` is the id of a job of the stage."""
    return lambda page, stage: (
        page.locator("main").get_by_role("link", name=text.format(**stage.jobs)).first.click()
    )


def choose(name: str, value: str, button: str = "Show") -> Go:
    """Choose from a list, and send the form."""

    def act(page: Page, stage: Stage) -> None:
        page.locator(f"main select[name={name}]").first.select_option(value)
        if button:
            page.get_by_role("button", name=button, exact=True).first.click()

    return act


QUESTIONS: dict[str, tuple[tuple[Go, ...], tuple[str, ...]]] = {
    "Which job waits longest, and why?": (
        (choose("group", "tenant"),), ("Waits longest", "{impossible}"),
    ),
    "When does mine start?": ((link("{waits}"),), ("Expected start",)),
    "Which tenant uses the H100s?": ((nav("Tenants"),), ("vision", "H100", "used")),
    "What is idle, but held?": (
        (nav("Fleet"), choose("by", "use", "")), ("in use by a job that runs",),
    ),
    "Which host is sick?": ((nav("Fleet"), link("west-2-0")), ("It is cordoned",)),
    "What did the last preemption cost?": (
        (nav("Events"), link("{borrower}")), ("preempted", "lost"),
    ),
    "Which account cancelled a job?": (
        (nav("Events"), link("Audit")), ("cancel", "{dropped}", "user:"),
    ),
    "Is the data there?": ((nav("Data"),), ("digits", "complete")),
    "What would 16 more GPUs change?": (
        (nav("What-if"), choose("add", "east-2", "Compare the futures")), ("Both futures",),
    ),
    "Is the leader healthy?": ((nav("System"),), ("This server leads",)),
}  # fmt: skip
"""The clicks, and what is then on the page."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(
    stage: Stage, viewer: Viewer, question: str
) -> None:
    clicks, answers = QUESTIONS[question]
    assert len(clicks) <= 2
    with viewer.window() as window:
        page = window.open("/")
        for click in clicks:
            click(page, stage)
            page.wait_for_load_state()
        for answer in answers:
            shown = page.locator("main").get_by_text(answer.format(**stage.jobs)).first
            shown.wait_for(state="attached", timeout=60_000)
        assert window.complaints == []


def test_the_guide_has_the_way_to_each_answer() -> None:
    text = GUIDE.read_text("utf-8")
    assert [question for question in QUESTIONS if question not in text] == []
