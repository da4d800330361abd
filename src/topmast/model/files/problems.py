"""A problem for a planner, read from JSON; an error names the field and the remedy.

`msgspec` converts the document to a type. The planner's own ``check`` tests what the type cannot
express, with the functions below, and finds everything that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from topmast.model.errors import Faults, InvalidInput, Refused
from topmast.model.files.fields import one_of
from topmast.model.files.wording import in_words
from topmast.model.units import show

P = TypeVar("P")
Check = Callable[[Faults, P], None]
"""Adds what makes no sense in a problem."""


def parse(text: bytes, kind: type[P], check: Check[P], where: str) -> P:
    """A JSON text as a ``kind`` that ``check`` accepts; `InvalidInput` says which field of
    ``where`` is wrong.
    """
    return _checked(lambda: msgspec.json.decode(text, type=kind), kind, check, where)


def convert(document: Mapping[str, Any], kind: type[P], check: Check[P], where: str) -> P:
    """The same from a document that is in memory already."""
    return _checked(lambda: msgspec.convert(document, kind), kind, check, where)


def _checked(read: Callable[[], P], kind: type[P], check: Check[P], where: str) -> P:
    try:
        problem = read()
    except msgspec.ValidationError as error:
        message, field = in_words(error)
        unknown = message == "unknown field" and "." not in field
        remedy = one_of(field, _names_in(kind)) if unknown else ""
        raise InvalidInput(message, field=field, where=where, remedy=remedy) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not JSON: {error}", where=where) from None
    except RecursionError:
        raise InvalidInput("nested too deeply", where=where) from None
    faults, refused = Faults(), Refused()
    check(faults, problem)
    try:
        faults.refuse()
    except InvalidInput as error:
        refused.add_all(one.at(where=where) for one in (error, *error.more))
    refused.refuse()
    return problem


def _names_in(kind: Any) -> list[str]:
    """The fields of a type, if it is one that has any."""
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return [field.name for field in msgspec.structs.fields(kind)] if is_struct else []


def check_name(faults: Faults, field: str, name: str) -> None:
    """A name is not blank."""
    if not name.strip():
        faults.add("must not be empty", field, "give it a name")


def check_amount(faults: Faults, field: str, value: float, high: float) -> None:
    """An amount is finite, and from 0 to ``high``."""
    if not math.isfinite(value) or not 0 <= value <= high:
        faults.add(f"{value:g} is out of range", field, f"from 0 to {high:g}, finite")


def check_unique(faults: Faults, field: str, names: Sequence[str], what: str = "name") -> None:
    """No two entries of a list have one name. O(entries)."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            message = f"the {what} {show(name)} is that of {field}[{first[name]}] too"
            faults.add(message, f"{field}[{index}].{what}", f"{what}s are unique")
