"""Acts on several things: which they are, and all that are not there, reported together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import typer

from topmast.cli import values
from topmast.model.errors import Faults


def named_or_selected(
    names: Iterable[str] | None, selector: str | None, what: str, every: str
) -> list[str]:
    """The names that an act is about, each once; none where a selector chooses.

    ``every`` is the selector of all. Raises BadParameter if both are given, or neither.
    """
    named = list(dict.fromkeys(names or ()))
    if bool(named) == bool(selector):
        both = "not both" if named else f"{every} for all"
        raise typer.BadParameter(f"name {what}s, or give --selector; {both}")
    return named


def require_each(names: Sequence[str], there: Iterable[str], what: str) -> None:
    """Raises an error for each name of a thing that there is not, with those that are near."""
    known, faults = list(there), Faults()
    for name in dict.fromkeys(names):
        faults.of(partial(values.required, name, known, what))
    faults.refuse()
