"""Words: what the words of all pages mean, and why jobs wait."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.web.candidates import MEANING
from topmast.web.glossary import REASONS, STATES, TERMS, WORDS, anchor
from topmast.web.page import Ask, Page


async def view(ask: Ask) -> dict[str, Any]:
    """All of them; nothing depends on the server's state."""
    return {
        "reasons": REASONS, "states_mean": STATES, "rejections": MEANING, "anchor": anchor,
        "terms": TERMS,
        "words": sorted(WORDS.items(), key=lambda one: one[0].lower()),
    }  # fmt: skip


PAGE = Page("/words", "Words", Permission.SELF, "words.html", view)
