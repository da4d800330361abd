"""The guide's table of questions has the ways that the tests of the browser go."""

from __future__ import annotations

import pytest

from tests.support.weblab.questions import QUESTIONS, table
from tests.unit.docs.pages import REPO

PAGE = REPO / "docs" / "guides" / "dashboard.md"
HEADING, NEXT = "## Questions\n", "\n## "
INTRODUCTION = (
    "From the page of the queue each is answered with two clicks at most, on links or buttons; what is chosen in a "
    "form comes\nbefore its button. The tests go these ways."
)


def page() -> str:
    """The guide as it should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(HEADING)
    _, found, after = rest.partition(NEXT)
    return f"{before}{HEADING}\n{INTRODUCTION}\n\n{table()}\n{found}{after}"


def test_the_guide_has_the_way_to_each_answer() -> None:
    """After a change of the ways: python -m tests.unit.docs.test_questions."""
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize("question", QUESTIONS)
def test_two_clicks_are_enough(question: str) -> None:
    assert 1 <= len(QUESTIONS[question].clicks) <= 2


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
