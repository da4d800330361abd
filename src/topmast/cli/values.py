"""The values of options as people type them; a `BadParameter` says what would be right."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from topmast.cli.groups import Later

if TYPE_CHECKING:
    from topmast.model.fleet_selector import Named

T = TypeVar("T")
V = TypeVar("V", bound="Named")

MOST_SHOWN = 80
"""Of a value, in a refusal."""


def checked(read: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A callback of an option with a text that ``read`` can read; the command reads it again.

    What a callback refuses is told together with all else that is wrong.
    """

    def check(value: Any) -> Any:
        if value is not None:
            read(value)
        return value

    return check


def told_later(read: Callable[[str], object]) -> Callable[[str | None], str | None]:
    """Likewise of a field of a job file: it is told with the faults of the file, if it can be."""

    def check(text: str | None) -> str | None:
        try:
            checked(read)(text)
        except typer.BadParameter as error:
            raise Later(error.message, text) from None
        return text

    return check


def whole_number(text: str) -> int:
    """A number like 4."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter("wanted a whole number") from None


def duration_s(text: str | None, option: str = "") -> float | None:
    """Seconds of ``90``, ``10m``, ``1h30m``."""
    if text is None:
        return None
    from topmast.model.errors import InvalidInput
    from topmast.model.units import parse_duration_s

    try:
        return parse_duration_s(text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint=_hint(option)) from None


def duration_or_none_s(text: str, option: str = "") -> float | None:
    """The same, or None for ``none``."""
    return None if text.lower() == "none" else duration_s(text, option)


def with_unit(text: str | None, option: str) -> None:
    """Say what a duration without a unit means: one that means hours is easily typed so."""
    if text is not None and text.replace(".", "", 1).isdecimal():
        from topmast.cli.output import note

        note(
            f"{option} {text} means {text}s, seconds; for others write {text}m, {text}h or {text}d"
        )


def size_bytes(text: str | None, option: str = "") -> int | None:
    """Bytes of ``1GB``, ``512MiB``."""
    if text is None:
        return None
    from topmast.model.errors import InvalidInput
    from topmast.model.units import parse_bytes

    try:
        return parse_bytes(text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint=_hint(option)) from None


def moment_s(text: str | None, option: str = "", ago: str = "ago") -> float | None:
    """Seconds since the epoch of ``2h`` (two hours ago), ``2030-01-31T12:00`` or such a number.

    ``ago`` is what a refusal says of durations.
    """
    if text is None:
        return None
    from topmast.model.errors import InvalidInput
    from topmast.model.moments import parse_moment_s

    try:
        return parse_moment_s(text, time.time(), ago=ago)
    except InvalidInput as error:
        message = f"{error.message}; {error.remedy}"
        raise typer.BadParameter(message, param_hint=_hint(option)) from None


def past_s(text: str | None, option: str) -> float | None:
    """The same, said in full where it is a duration without a unit."""
    from topmast.model.moments import dated_s

    found_s = moment_s(text, option)
    if text is not None and dated_s(text) is None:
        with_unit(text, option)
    return found_s


def coming_s(text: str | None, option: str = "") -> float | None:
    """The same of a time to come: ``2h`` is in two hours."""
    from topmast.model.moments import dated_s

    found_s = _coming_s(text, option)
    if text is not None and dated_s(text) is None:
        with_unit(text, option)
    return found_s


def _coming_s(text: str | None, option: str = "") -> float | None:
    from topmast.model.moments import dated_s

    now_s, at_s = time.time(), moment_s(text, option, ago="from now")
    if text is None or at_s is None or at_s > now_s:
        return at_s
    if dated_s(text) is not None:
        message = f"{text!r} has passed: write a time to come, or 4h for in four hours"
        raise typer.BadParameter(message, param_hint=_hint(option))
    return now_s + (duration_s(text, option) or 0.0)


def whole_numbers(text: str) -> tuple[int, ...]:
    """The numbers of ``1,2,4``, each at least 1."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"{text!r} is not a list like 1,2,4")
    return tuple(int(word) for word in words)


def assignments(texts: Iterable[str], option: str = "") -> dict[str, str]:
    """The names and values of ``NAME=VALUE``; ``@FILE`` stands for the lines of a file.

    What comes later holds instead of a line of an earlier file. Nothing else is replaced: of two
    values for a name one is a mistake.
    """
    found: dict[str, str] = {}
    files: dict[str, str] = {}
    for file, text in _lines_of_files(texts, option):
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=_hint(option))
        if files.setdefault(name, file) in ("", file):
            once(found, name, value, option)
        found[name], files[name] = value, file
    return found


def once(found: dict[str, T], name: str, value: T, option: str = "") -> None:
    """Note the value of a name that has no other one. Raises BadParameter."""
    first = found.setdefault(name, value)
    if first != value:
        raise typer.BadParameter(
            f"{name} is given twice, as {_short(first)} and as {_short(value)}: leave out one",
            param_hint=_hint(option),
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def counts(texts: Iterable[str], option: str = "") -> dict[str, int]:
    """The models and numbers of ``MODEL=N``."""
    found = {}
    for model, count in assignments(texts, option).items():
        if not (count.isascii() and count.isdigit()):
            message = f"'{model}={count}' is not MODEL=N"
            raise typer.BadParameter(message, param_hint=_hint(option))
        found[model] = int(count)
    return found


def _lines_of_files(texts: Iterable[str], option: str) -> Iterable[tuple[str, str]]:
    """Each text, with the file that has it; none for what was typed."""
    for text in texts:
        if not text.startswith("@"):
            yield "", text
            continue
        try:
            lines = Path(text[1:]).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(
                f"{text[1:]} cannot be read: {error}", param_hint=_hint(option)
            ) from None
        said = (line for line in lines if line.strip() and not line.startswith("#"))
        yield from ((text, line) for line in said)


def _hint(option: str) -> str | None:
    """How an error names the option at fault."""
    return f"'{option}'" if option else None


def required(name: str, names: Iterable[str], what: str) -> str:
    """A name that has to be one of those that there are; else NotFound, with the nearest."""
    known(name, names, what)
    return name


def known(name: str | None, names: Iterable[str], what: str) -> None:
    """Refuse a name, if one is given, of something that there is not."""
    there = sorted(set(names))
    if name is None or name in there:
        return
    from topmast.model.errors import NotFound
    from topmast.model.files.fields import one_of

    remedy = one_of(name, there)
    raise NotFound(f"no {what} '{name}'" + (f" ({remedy})" if remedy else ""))


def selected(kind: str, selector: str | None, rows: list[V]) -> list[V]:
    """The hosts or clusters that a selector means, as acts on them read it; without one, all."""
    if selector is None:
        return rows
    from topmast.model.errors import restated
    from topmast.model.fleet_selector import selected

    with restated(lambda error: error.at(field="--selector")):
        return selected(kind, selector, rows, may_be_none=True)


def selector_option(what: str, keys: str) -> Any:
    """The option that chooses things of the fleet by what is known of them."""
    said = f"{what} by KEY=VALUE,... of {keys}; * stands for any characters."
    return typer.Option("--selector", "-l", metavar="KEY=VALUE,...", help=said)


def loopback(host: str) -> str:
    """An address that only this machine can reach: there is no authentication yet."""
    try:
        safe = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        safe = False
    if not safe:
        message = f"{host!r} is not a loopback address"
        raise typer.BadParameter(
            f"{message}; requests are not authenticated, so only loopback addresses are allowed"
        )
    return host


DURATION, MOMENT, COMING = checked(duration_s), checked(moment_s), checked(_coming_s)
DURATION_OR_NONE, ASSIGNMENTS = checked(duration_or_none_s), checked(assignments)
SIZE = checked(size_bytes)
COUNTS = checked(counts)
TASKS, TIME_LIMIT = told_later(whole_number), told_later(duration_s)
"""What an option is checked by, as its ``callback``."""
