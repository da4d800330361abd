"""Reading the bodies of requests: bounded, and off the event loop when they are long."""

from __future__ import annotations

import asyncio
import codecs
import json
import math
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from fastapi import HTTPException, Request

from topmast.api.large_bodies import LargeBodies, Room
from topmast.api.wire import faults, truth
from topmast.model.errors import (
    MOST_TOLD,
    InvalidInput,
    NotFound,
    Refused,
    TooLarge,
    TooMany,
    TopmastError,
    as_invalid,
    refuse_all,
)
from topmast.service.limits import Timer

T = TypeVar("T")
Body = dict[str, Any]

SMALL_BYTES = 2 * 1024 * 1024
"""What any route takes; those that take more say so."""
MOST_SEPARATORS = 2_000_000
"""Commas and opening brackets in one document: each value costs memory and time."""
LONGEST_VALUE_BYTES = 2 * 1024 * 1024
_ALTERNATIVES = frozenset({"jobs", "hosts", "clusters", "tenants", "selector", "cluster", "region"})
"""Fields that say what a request is about: one of those of a route is enough."""
_Decoder = codecs.getincrementaldecoder("utf-8")
_SIZE = "topmast.body_bytes"
Check = Callable[[Body], object]
"""Raises InvalidInput for what is wrong with a body, if its fields are of their types."""
CheckNames = Callable[[Body], Awaitable[object]]
"""Raises InvalidInput or NotFound for what the fields that are of their types name wrongly."""


async def read_bytes(request: Request, limit_bytes: int = SMALL_BYTES) -> bytearray:
    """The body, refused as soon as it grows over the limit."""
    data = bytearray()
    bodies: LargeBodies = request.app.state.large_bodies
    with bodies.room(request) as room:
        await _read(request, limit_bytes, room, data.extend)
    return data


async def read_object(
    request: Request,
    fields: Collection[str] | None = None,
    limit_bytes: int = SMALL_BYTES,
    checks: Iterable[Check] = (),
    beside: CheckNames | None = None,
) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object.

    ``fields`` are those it may have, with their schemas; None if the caller checks that. What is
    wrong by them and by ``checks`` is told at once: raises InvalidInput. If anything is, ``beside``
    adds what the route itself would find only later; it is given what is of its type. Raises
    TooMany where the request is one too many: else one that is wrong would cost nothing.
    """
    bodies: LargeBodies = request.app.state.large_bodies
    text = Text()
    with bodies.room(request) as room:
        await _read(request, limit_bytes, room, text.add)
        document, timer = cast(Any, {}), Timer()
        request.scope[_SIZE] = text.size_bytes
        if text.size_bytes:
            _check_type(request)
            document = await bodies.decoded(request, text.document, text.size_bytes, timer)
    if not isinstance(document, dict):
        raise InvalidInput("must be a JSON object", field="body")
    if fields is not None:
        every: list[Check] = [*checks, partial(_require_all, _required(request))]
        found = timer.run(lambda: list(islice(_faults(document, fields, every), MOST_TOLD)))
        if found:
            bodies.charge(request, timer.took_s)
        if found and beside is not None:
            told = {one.field for one in found}
            if told.intersection(_ALTERNATIVES):  # what is left of a request may name nothing
                told.update(_ALTERNATIVES - document.keys())
            rest = {name: value for name, value in document.items() if name not in told}
            try:
                await beside(rest)
            except (InvalidInput, NotFound) as error:
                found += [one for one in _each(error) if one.field not in told]
            except TooMany:
                raise  # what it would cost to look is owed already
            except TopmastError:
                pass  # what is wrong comes before what cannot be now, or is not allowed
        refused = Refused()
        refused.add_all(found)
        refused.refuse()
    return document


def size_bytes(request: Request) -> int:
    """How long the body was that `read_object` has read."""
    size: int = request.scope.get(_SIZE, 0)
    return size


async def acted(
    request: Request,
    fields: Collection[str],
    act: Callable[..., Awaitable[T]],
    checks: Iterable[Check] = (),
    limit_bytes: int = SMALL_BYTES,
) -> tuple[T, bool]:
    """What ``act`` makes of a body, and whether that was a dry run.

    It is called with the body and ``dry_run``. Where the body has errors, a dry run of the rest
    tells what is wrong beside them.
    """
    beside = partial(act, dry_run=True)
    body = await read_object(request, fields, limit_bytes, checks, beside)
    dry_run = truth(body, "dry_run")
    return await act(body, dry_run=dry_run), dry_run


def _required(request: Request) -> tuple[str, ...]:
    """The fields that the body of a route must have, as its description says."""
    content = (getattr(request.scope.get("route"), "openapi_extra", None) or {}).get("requestBody")
    schema = (content or {}).get("content", {}).get("application/json", {}).get("schema", {})
    return tuple(schema.get("required", ()))


def _require_all(names: tuple[str, ...], document: dict[str, Any]) -> None:
    refuse_all(InvalidInput("missing", field=name) for name in names if name not in document)


def _check_type(request: Request) -> None:
    """Refuse types that a form or script of a web page can send freely. Raises HTTPException."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        detail = f"the body is '{given[:100]}', not application/json (name it in Content-Type)"
        raise HTTPException(415, detail)


async def _read(
    request: Request, limit_bytes: int, room: Room, take: Callable[[bytes], None]
) -> None:
    size_bytes = 0
    room.task = asyncio.current_task()
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise TooLarge(f"the body is larger than {limit_bytes} bytes", field="body")
        room.grow_to(size_bytes)
        take(chunk)


class Text:
    """A document as it arrives: refused before it is read when it would cost too much to read.

    Threads take turns between the values of a document, so no single one of them may be large.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._pieces: list[str] = []
        self._decoder = _Decoder()
        self._last = b""
        self._separators = 0
        self._unquoted_bytes = 0
        self._has_surrogates = False

    def add(self, chunk: bytes) -> None:
        """Take the next piece. Raises InvalidInput."""
        self.size_bytes += len(chunk)
        self._separators += chunk.count(b",") + chunk.count(b"{") + chunk.count(b"[")
        if self._separators > MOST_SEPARATORS:
            message = f"the body has more than {MOST_SEPARATORS:,} commas and brackets"
            raise TooLarge(message, field="body", remedy="send several requests")
        seen = self._last + chunk
        # Whatever is a part of one text: a quotation mark in it has a backslash before it.
        quotes = chunk.count(b'"') - seen.count(b'\\"', max(0, len(self._last) - 1))
        self._unquoted_bytes = 0 if quotes > 0 else self._unquoted_bytes + len(chunk)
        if self._unquoted_bytes > LONGEST_VALUE_BYTES:
            message = f"a value is longer than {LONGEST_VALUE_BYTES:,} bytes"
            raise TooLarge(message, field="body", remedy="a job file has at most 1 MiB")
        self._has_surrogates |= b"\\ud" in seen or b"\\uD" in seen
        self._last = seen[-2:]
        try:
            self._pieces.append(self._decoder.decode(chunk))
        except UnicodeDecodeError as error:
            raise InvalidInput(f"not JSON: {error}", field="body") from None

    def document(self) -> Any:
        """What it says: JSON and nothing else, with no field twice. Raises InvalidInput.

        One pass of the standard library, which comes by here for every object.
        """
        try:
            self._pieces.append(self._decoder.decode(b"", final=True))
            text = "".join(self._pieces)
            if text.startswith("\ufeff"):
                raise ValueError("it begins with a byte order mark (BOM)")
            found = _JSON.decode(text)
            if self._has_surrogates:
                _refuse_halves(found)
        except RecursionError:
            remedy = "leave out the inner lists and objects"
            raise InvalidInput("nested too deeply", field="body", remedy=remedy) from None
        except ValueError as error:
            raise InvalidInput(f"not JSON: {error}", field="body") from None
        return found


def _refuse_halves(document: Any) -> None:
    """Refuse half surrogate pairs, which cannot be written. Raises UnicodeEncodeError."""
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is out of range")
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field given twice: which of the two counts, every reader decides for itself."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            name = name[:100].encode(errors="replace").decode()
            raise InvalidInput("given twice", field=name, remedy="keep one of the two")
        seen.add(name)
    return found


_JSON = json.JSONDecoder(
    object_pairs_hook=_each_once, parse_constant=_no_number, parse_float=_finite
)


def _faults(
    document: dict[str, Any], fields: Collection[str], checks: Iterable[Check]
) -> Iterator[InvalidInput]:
    """All that is wrong with a body; of each field, what is found first."""
    told: set[str] = set()
    for error in _each_fault(document, fields, checks):
        if error.field not in told:
            told.add(error.field)
            yield error


def _each_fault(
    document: dict[str, Any], fields: Collection[str], checks: Iterable[Check]
) -> Iterator[InvalidInput]:
    for name in document:
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            remedy = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(fields)}"
            yield InvalidInput("unknown field", field=name[:100], remedy=remedy)
    if isinstance(fields, Mapping):
        yield from faults(document, fields)
    for check in checks:
        yield from _found_by(check, document)


def _found_by(check: Check, document: dict[str, Any]) -> tuple[InvalidInput, ...]:
    try:
        check(document)
    except InvalidInput as error:
        return _each(error)
    return ()


def _each(error: InvalidInput | NotFound) -> tuple[InvalidInput, ...]:
    return tuple(as_invalid(one) for one in (error, *error.more))
