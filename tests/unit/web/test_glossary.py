"""Each word of the pages that not everybody knows has a sentence."""

import re

from topmast.model.engines import Capability
from topmast.model.reason import BACK_OFF, PendingReason, Rejection
from topmast.model.states import JobState
from topmast.web.candidates import MEANING
from topmast.web.glossary import CAN, REASONS, STATES, TERMS, WORDS, anchor, term_word, word
from topmast.web.routes import TEMPLATES


def test_each_token_has_a_sentence() -> None:
    """Of all reasons to wait, states, reasons why a place is none, and what engines can do."""
    assert list(REASONS) == [*PendingReason, BACK_OFF]
    assert list(STATES) == list(JobState)
    assert set(MEANING) == set(Rejection)
    assert set(CAN) == set(Capability)
    sentences = [*(text for both in REASONS.values() for text in both), *STATES.values()]
    for sentence in [*sentences, *WORDS.values(), *TERMS.values()]:
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


def test_a_term_of_a_score_is_explained_as_far_as_it_is_known() -> None:
    """A profile may bring terms of its own."""
    assert term_word("data") == (
        f'<a class="word" href="/words#term-data" title="{TERMS["data"]}">data</a>'
    )
    assert term_word("<mine>") == "&lt;mine&gt;"
