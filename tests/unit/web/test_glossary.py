"""Each word of the pages that not everybody knows has a sentence."""

import re

from topmast.model.reason import PendingReason, Rejection
from topmast.model.states import JobState
from topmast.web.candidates import MEANING
from topmast.web.glossary import REASONS, STATES, WORDS, anchor, word
from topmast.web.routes import TEMPLATES


def test_each_token_has_a_sentence() -> None:
    """Of all reasons to wait, states and reasons why a place is none."""
    assert list(REASONS) == list(PendingReason)
    assert list(STATES) == list(JobState)
    assert set(MEANING) == set(Rejection)
    sentences = [*(text for both in REASONS.values() for text in both), *STATES.values()]
    for sentence in [*sentences, *WORDS.values()]:
        assert re.fullmatch(r"[A-Z][^\n]*\.", sentence), sentence


def test_words_of_templates_are_explained() -> None:
    """Whatever a template gives to `word`; no two words have one place on the page."""
    used = [
        name
        for template in TEMPLATES.glob("*.html")
        for name in re.findall(r'\bword\("([^"]*)"', template.read_text("utf-8"))
    ]
    assert used
    assert set(used) <= set(WORDS)
    assert len({anchor(name) for name in WORDS}) == len(WORDS)


def test_a_word_leads_to_its_meaning() -> None:
    assert word("Fair share", "its <share>") == (
        f'<a class="word" href="/words#fair-share" title="{WORDS["Fair share"]}">'
        "its &lt;share&gt;</a>"
    )
