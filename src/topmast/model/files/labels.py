"""The labels of a job file: words that people sort their jobs by."""

from __future__ import annotations

import re

from topmast.model.files.fields import Value

LABELS_LIMIT = 50
KEY_LIMIT = 63
VALUE_LIMIT = 127

_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:@+-]*[A-Za-z0-9])?")


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
    if len(key) > KEY_LIMIT or not _KEY.fullmatch(key):
        letters = "letters, digits, '.', '_', '/' and '-', a letter or digit at both ends"
        raise entry.error("is not the key of a label", f"at most {KEY_LIMIT} {letters}")
    text = entry.raw(limit_bytes=VALUE_LIMIT)
    if not _VALUE.fullmatch(text):
        letters = "letters, digits and . _ / : @ + -, a letter or digit at both ends"
        raise entry.error("is not the value of a label", letters)
    return text
