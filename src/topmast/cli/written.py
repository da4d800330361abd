"""What a server refuses, said of what was written: options and arguments in place of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from topmast.cli.groups import written
from topmast.model.errors import InvalidInput

_FIELD = re.compile(r"(?:changes\.)?([a-z_]+)(?:\[[0-9]+\])?(?:\.(.+))?")
_OTHERWISE: Mapping[str, str] = {
    "band": "priority", "for_": "until_s", "gpus": "quota", "life": "ttl_s", "only": "state",
    "settings": "options",
}  # fmt: skip
"""The fields of requests that are not called as the parameters that they come from."""


@contextmanager
def as_written(context: typer.Context) -> Iterator[None]:
    """Name what was written in what a server refuses, in place of the fields that it became."""
    try:
        yield
    except InvalidInput as error:
        if error.problem is None:
            raise
        raise _renamed(error, lambda field: _name_of(context, field)) from None


def _renamed(error: InvalidInput, name: Callable[[str], str]) -> InvalidInput:
    """The same error and its document, with other names of fields."""
    from msgspec.structs import replace

    first, *more = (one.at(field=name(one.field)) for one in (error, *error.more))
    first.more = tuple(more)
    if error.problem is not None:
        faults = tuple(replace(one, field=name(one.field)) for one in error.problem.errors or ())
        own = replace(error.problem, field=name(error.problem.field))
        first.problem = replace(own, errors=faults) if faults else own
    return first


def _name_of(context: typer.Context, field: str) -> str:
    """What was written for a field of a request; the field itself if nothing was."""
    found = _FIELD.fullmatch(field)
    parameters: list[Any] = list(context.command.params) if found else []
    for parameter in parameters:
        base, part = found.groups() if found else ("", None)
        given = context.params.get(parameter.name) not in (None, ())
        if given and base in _fields_of(parameter.name) and not (part and _is_flag(parameter)):
            return f"{written(parameter)} {part}" if part else written(parameter)
    return field


def _fields_of(parameter: str) -> tuple[str, ...]:
    """What a field may be called that a parameter becomes."""
    plain = parameter.rstrip("_")
    return plain, f"{plain}s", f"{plain}_s", _OTHERWISE.get(parameter, plain)


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))
