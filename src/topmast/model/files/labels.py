"""The labels of a job file: words that people sort their jobs by."""

from __future__ import annotations

import re

from topmast.model.files.fields import Value

LABELS_LIMIT = 50
KEY_LIMIT = 63
VALUE_LIMIT = 127

LABEL_KEY = rf"[A-Za-z0-9](?:[A-Za-z0-9._/-]{{0,{KEY_LIMIT - 2}}}[A-Za-z0-9])?"
"""What keys are, as a regular expression."""
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:@+-]*[A-Za-z0-9])?")


LABEL_KEYS = (
    f"at most {KEY_LIMIT} letters, digits, '.', '_', '/' and '-', a letter or digit at both ends"
)
"""What keys are, in words."""


def is_label_key(text: str) -> bool:
    """Whether a label can have this key."""
    return re.fullmatch(LABEL_KEY, text) is not None


def read_labels(value: Value | None) -> dict[str, str]:
    """The field ``labels``, by key. Raises InvalidInput."""
    if value is None:
        return {}
    return {
        key: _checked(entry, key)
        for key, entry in sorted(value.entries(limit=LABELS_LIMIT).items())
    }


def _checked(entry: Value, key: str) -> str:
    """The value of a label: what a selector can name without quotes."""
    if not is_label_key(key):
        raise entry.error("is not the key of a label", LABEL_KEYS)
    text = entry.raw(limit_bytes=VALUE_LIMIT)
    if not _VALUE.fullmatch(text):
        letters = "letters, digits and . _ / : @ + -, a letter or digit at both ends"
        raise entry.error("is not the value of a label", letters)
    return text
