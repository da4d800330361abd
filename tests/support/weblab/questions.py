"""A newcomer's ten questions: the clicks to each answer, from the page of the queue.

The tests of the browser go these ways, and the guide has them as a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.weblab.stage import Stage


class Click(NamedTuple):
    """A link or a button; what is chosen in its form comes first."""

    words: str
    """What the reader does."""
    act: Callable[[Page, Stage], None]


class Way(NamedTuple):
    """How one question is answered."""

    clicks: tuple[Click, ...]
    answer: str
    """Where the answer stands, in words."""
    shown: tuple[str, ...]
    """What is then on the page; ``{name}`` is the id of a job of the stage."""


def _open(name: str) -> Click:
    """A page of the navigation."""
    return Click(
        f"*{name}*",
        lambda page, stage: page.get_by_role("link", name=name, exact=True).first.click(),
    )


def _link(text: str, words: str) -> Click:
    """A link of the page, by its text."""
    return Click(
        words,
        lambda page, stage: (
            page.locator("main").get_by_role("link", name=text.format(**stage.jobs)).first.click()
        ),
    )


def _choose(words: str, button: str = "", fill: tuple[str, str] = ("", ""), **chosen: str) -> Click:
    """Choose from lists, fill in a number, and send the form; without a button the page reacts."""

    def act(page: Page, stage: Stage) -> None:
        for name, value in chosen.items():
            page.locator(f"main select[name={name}]").first.select_option(value)
        if fill[0]:
            page.locator(f"main input[name={fill[0]}]").fill(fill[1])
        if button:
            page.get_by_role("button", name=button, exact=True).first.click()

    return Click(words, act)


MORE_GPUS = _choose(
    "more hosts: 2 of 8 GPUs, then *Compare the futures*", "Compare the futures",
    ("count", "2"), add="east-2",
)  # fmt: skip
QUESTIONS: dict[str, Way] = {
    "Which job waits longest, and why?": Way(
        (_link("{borrower}", 'the job below "Waits longest"'),),
        "the first sentence of its page", ("Waiting for quota", "would exceed its quota"),
    ),
    "When does mine start?": Way(
        (_link("{waits}", "the job"),), '"Expected start", with a time axis',
        ("Expected start", "This rests on"),
    ),
    "Which tenant uses the H100s?": Way(
        (_open("Tenants"),), "the bars of H100", ("vision", "H100", "of 8 used"),
    ),
    "What is idle, but held?": Way(
        (_open("Fleet"), _choose('colours tell "idle but held"', by="use")),
        "the legend of the map, with numbers of GPUs", ("in use by a job that runs",),
    ),
    "Which host is sick?": Way(
        (_open("Fleet"), _link("west-2-0", "the host that is named above the map")),
        "the first sentence about the host", ("It is cordoned",),
    ),
    "What did the last preemption cost?": Way(
        (_open("Events"), _link("{borrower}", 'the job of the first line "preempting"')),
        'the column "Lost" of its attempts', ("preempted", "Lost"),
    ),
    "Which account cancelled a job?": Way(
        (_open("Events"), _link("Audit", "*Audit*")), 'the line with the act "cancel"',
        ("cancel", "{dropped}", "user:"),
    ),
    "Is the data there?": Way(
        (_open("Data"),), "the row of the dataset, a column for each region",
        ("digits", "complete"),
    ),
    "What would 16 more GPUs change?": Way(
        (_open("What-if"), MORE_GPUS), "the table of both futures",
        ("2 more hosts in east-2", "Both futures", "+16"),
    ),
    "Is the leader healthy?": Way((_open("System"),), "the first sentence", ("This server leads",)),
}  # fmt: skip


def table() -> str:
    """The ways, as the guide shows them."""
    lines = ["| question | first click | second click | the answer |", "|---|---|---|---|"]
    for question, way in QUESTIONS.items():
        words = [click.words for click in way.clicks]
        cells = [question, *words, *[""] * (2 - len(words)), way.answer]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
