"""What `msgspec` finds wrong with a document, in the words that all other errors use."""

from __future__ import annotations

import re

import msgspec

_WORDS = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
    "array": "a list", "object": "a mapping", "null": "nothing", "array-like": "a list",
}  # fmt: skip
_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_PLACE = " - at `$"


def in_words(error: msgspec.ValidationError) -> tuple[str, str]:
    """The message, and the field that it is about (empty: the document itself)."""
    message, _, place = str(error).partition(_PLACE)
    field = place.rstrip("`").lstrip(".")
    if found := _TYPE.fullmatch(message):
        return f"wanted {_kinds(found[1])}, found {_kinds(found[2])}", field
    for pattern, text in ((_UNKNOWN, "unknown field"), (_MISSING, "the field is missing")):
        if found := pattern.fullmatch(message):
            return text, f"{field}.{found[1]}" if field else found[1]
    # Messages begin small, as they stand after the name of a field.
    return message[:1].lower() + message[1:].replace("`", "'"), field


def _kinds(types: str) -> str:
    """One type or several, for people: ``int | null`` is a whole number or nothing."""
    names = [name for name in types.split(" | ") if not (name == "int" and "float" in types)]
    return " or ".join(_WORDS.get(name, name) for name in names)
