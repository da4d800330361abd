"""The formats that can be read, by name."""

from __future__ import annotations

from topmast.traces.formats import counted, gavel, openb, pai, topmast
from topmast.traces.formats.base import Format, Options

__all__ = ["FORMATS", "Format", "Options", "looks_like"]

FORMATS: dict[str, Format] = {
    known.name: known
    for known in (topmast.FORMAT, pai.FORMAT, openb.FORMAT, *counted.FORMATS, *gavel.FORMATS)
}


def looks_like(names: list[str]) -> str:
    """The formats that find all required columns in a header, as a hint; empty if none does."""
    fitting = [
        known.name
        for known in FORMATS.values()
        if any(
            not layout.columns and all(column in names for column in layout.required())
            for layout in known.layouts
        )
    ]
    return f"this looks like --format {' or '.join(fitting)}" if fitting else ""
