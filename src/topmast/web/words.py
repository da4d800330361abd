"""How templates write numbers, times and states: the filters, which escape what they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from jinja2 import Environment, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from topmast.model.units import format_bytes, format_duration
from topmast.web.glossary import can, reason_means, term_word, word

SHORT = 26
"""Characters of the longest id that a table has room for on one line."""
_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def number(value: float) -> str:
    """A number without needless digits, thousands apart."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0").rstrip(".")


def amount(value: float) -> str:
    """A number of two digits after the point at most, of which what is little is not nothing."""
    return "less than 0.01" if 0 < value < 0.005 else number(value)


def share(part: float) -> str:
    """A part of a whole in percent, of which what is little is not nothing."""
    return "less than 0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def moment(at_s: float | None) -> Markup:
    """A point in time, by the server's clock; a script writes it in the reader's time zone."""
    if at_s is None:
        return Markup("")
    at = datetime.fromtimestamp(at_s, UTC)
    return Markup('<time datetime="{}" data-at="{:.3f}">{} UTC</time>').format(
        at.isoformat(), at_s, at.strftime("%Y-%m-%d %H:%M:%S")
    )


def clock(at_s: float) -> str:
    """A point in time in UTC, as inputs of the type ``datetime-local`` have it."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pass_context
def ago(context: Context, at_s: float | None) -> Markup:
    """How long ago something was, by the server's clock; a script keeps it current."""
    return _relative(context, at_s, "{} ago", "ago")


@pass_context
def since(context: Context, at_s: float | None) -> Markup:
    """The time since something."""
    return _relative(context, at_s, "{}", "since")


@pass_context
def until(context: Context, at_s: float | None) -> Markup:
    """How long it is until something."""
    return _relative(context, at_s, "in {}", "until")


def _relative(context: Context, at_s: float | None, words: str, kind: str) -> Markup:
    if at_s is None:
        return Markup("")
    away_s = float(context["now_s"]) - at_s
    shown = words.format(
        format_duration(float(max(0, int(-away_s if kind == "until" else away_s))))
    )
    at = datetime.fromtimestamp(at_s, UTC).isoformat(" ")
    # Each row has one, so it is put together by hand: nothing in it is what a user wrote.
    return Markup(  # noqa: S704
        f'<time datetime="{at.replace(" ", "T")}" data-{kind}="{at_s:.3f}"'
        f' title="{at[:19]} UTC">{shown}</time>'
    )


def as_json(value: Any) -> Markup:
    """A value for a ``<script type="application/json">``, which nothing in it can end."""
    return Markup(msgspec.json.encode(value).decode().translate(_IN_SCRIPT))  # noqa: S704


def plural(count: float, noun: str, more: str = "") -> str:
    """``1 job``, ``2 jobs``; ``more``: the plural where it is not made by an s."""
    return f"{number(count)} {noun if count == 1 else more or f'{noun}s'}"


_ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that turn the direction of what follows, or act on a terminal where they are put."""


def harmless(page: str) -> str:
    """A page, in which no text that a user wrote acts on what is around it. O(page)."""
    return _ACTING.sub("\N{REPLACEMENT CHARACTER}", page)


def named(text: str) -> Markup:
    """What a user wrote, kept from turning the direction of the text around it."""
    return Markup(f"<bdi>{escape(text)}</bdi>")  # noqa: S704  a quarter of the time of `format`


def whole(text: str) -> Markup:
    """An id or a short name in a table, which no line breaks; longer ones may be of any length."""
    if len(text) > SHORT:
        return named(text)
    return Markup(f'<bdi class="whole">{escape(text)}</bdi>')  # noqa: S704


def either(models: list[str]) -> str:
    """GPU models that a job asks for; the first two of many."""
    return " or ".join(models[:2]) + (" …" if len(models) > 2 else "")


def marked(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    parts = re.split("`([^`]+)`", text)
    words = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )
    return Markup("<bdi>{}</bdi>").format(Markup("").join(words))


def spaced(token: str) -> str:
    """A token such as ``WaitingForQuota`` in words: ``Waiting for quota``."""
    words = "".join(f" {char.lower()}" if char.isupper() else char for char in token).strip()
    return words[:1].upper() + words[1:]


_SEQUENCE = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Output of a task without what moves or colours a terminal."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def once(text: str, kind: str, *, of_state: bool = False) -> str:
    """A text of the history without the word that stands before it already.

    ``of_state``: the word is that of a state, and a sentence goes on with the text.
    """
    rest = text
    while rest.lower().startswith(f"{kind.lower()}: "):
        rest = rest[len(kind) + 2 :]
    if rest.lower().startswith((f"{kind.lower()} by ", f"{kind.lower()} in ")) and not of_state:
        rest = rest[len(kind) + 1 :]
    return "" if rest.lower() == kind.lower() else rest


def points(score: float) -> str:
    """Points of a score, or of one of its terms."""
    return "0" if abs(score) < 0.0005 else f"{score:.4g}"


FILTERS: Mapping[str, Any] = {
    "number": number, "amount": amount, "share": share, "moment": moment, "clock": clock,
    "ago": ago, "since": since, "until": until, "as_json": as_json, "plural": plural,
    "named": named, "whole": whole, "marked": marked, "spaced": spaced, "duration": format_duration,
    "bytes": format_bytes, "plain": plain, "points": points, "reason_means": reason_means,
    "can": can, "once": once,
}  # fmt: skip


def install(environment: Environment) -> None:
    """Give templates the filters, and `word` for words that not everybody knows."""
    environment.filters.update(FILTERS)
    environment.globals |= {"word": word, "term_word": term_word}
