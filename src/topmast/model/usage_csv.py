"""GPU-hours as comma-separated values, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from topmast.model.views import UsageRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes what begins so for a formula."""


def usage_csv(by: str, rows: Iterable[UsageRow], since_s: float, until_s: float) -> str:
    """A line for each row; what a spreadsheet would take for a formula is text."""
    key, *figures = UsageRow.__struct_fields__
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([by, *figures, "since_s", "until_s"])
    for row in rows:
        name = getattr(row, key)
        formula = name[:1] in _FORMULA and name != "-"  # what has no name is a dash
        shown = f"'{name}" if formula else name
        writer.writerow([shown, *(getattr(row, figure) for figure in figures), since_s, until_s])
    return text.getvalue()
