"""A problem for a planner, read from JSON; an error names the field and the remedy.

`msgspec` converts the document to a type. The planner's own ``check`` tests what the type cannot
express, with the functions below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import one_of
from topmast.model.files.wording import in_words
from topmast.model.units import show

P = TypeVar("P")


def parse(text: bytes, kind: type[P], check: Callable[[P], None], where: str) -> P:
    """A JSON text as a ``kind`` that ``check`` accepts; `InvalidInput` says which field of
    ``where`` is wrong.
    """
    return _checked(lambda: msgspec.json.decode(text, type=kind), kind, check, where)


def convert(
    document: Mapping[str, Any], kind: type[P], check: Callable[[P], None], where: str
) -> P:
    """The same from a document that is in memory already."""
    return _checked(lambda: msgspec.convert(document, kind), kind, check, where)


def _checked(read: Callable[[], P], kind: type[P], check: Callable[[P], None], where: str) -> P:
    try:
        problem = read()
        check(problem)
    except msgspec.ValidationError as error:
        message, field = in_words(error)
        unknown = message == "unknown field" and "." not in field
        remedy = one_of(field, _names_in(kind)) if unknown else ""
        raise InvalidInput(message, field=field, where=where, remedy=remedy) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not JSON: {error}", where=where) from None
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=error.field, where=where, remedy=error.remedy
        ) from None
    except RecursionError:
        raise InvalidInput("nested too deeply", where=where) from None
    return problem


def _names_in(kind: Any) -> list[str]:
    """The fields of a type, if it is one that has any."""
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return [field.name for field in msgspec.structs.fields(kind)] if is_struct else []


def refuse(field: str, message: str, remedy: str) -> NoReturn:
    """Raise what is wrong with a field, and what would do."""
    raise InvalidInput(message, field=field, remedy=remedy)


def check_name(field: str, name: str) -> None:
    """A name is not blank."""
    if not name.strip():
        refuse(field, "must not be empty", "give it a name")


def check_amount(field: str, value: float, high: float) -> None:
    """An amount is finite, and from 0 to ``high``."""
    if not math.isfinite(value) or not 0 <= value <= high:
        refuse(field, f"{value:g} is out of range", f"from 0 to {high:g}, finite")


def check_unique(field: str, names: Sequence[str], what: str = "name") -> None:
    """No two entries of a list have one name. O(entries)."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            message = f"the {what} {show(name)} is that of {field}[{first[name]}] too"
            refuse(f"{field}[{index}].{what}", message, f"{what}s are unique")
