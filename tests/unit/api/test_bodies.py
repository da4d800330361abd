"""Bodies of requests: what is read, and what is refused before it costs anything."""

import asyncio
import json
from typing import Any, cast

import pytest
from fastapi import Request
from msgspec import Struct
from starlette.applications import Starlette

from topmast.api.bodies import (
    LONGEST_VALUE_BYTES,
    MOST_SEPARATORS,
    SMALL_BYTES,
    Check,
    Text,
    read_bytes,
    read_object,
)
from topmast.api.large_bodies import (
    ALL_LARGE_BYTES,
    BULK_BYTES,
    ON_LOOP_BYTES,
    ONE_LARGE_BYTES,
    LargeBodies,
)
from topmast.model.access import Caller, Principal, local_caller
from topmast.model.errors import InvalidInput, TooLarge, Unavailable, refuse_all
from topmast.routing import CALLER
from topmast.service.limits import Limits, Rate, Rates
from topmast.service.turns import ASKED_AT_ONCE

CHUNK = 65_536


def text_of(body: bytes, chunk_bytes: int = CHUNK) -> Text:
    """A body that arrives in pieces."""
    text = Text()
    for at in range(0, len(body), chunk_bytes):
        text.add(body[at : at + chunk_bytes])
    return text


def request_of(bodies: LargeBodies, body: bytes, caller: Caller | None = None) -> Request:
    """A request with a body, to a process with these large bodies under way."""
    app = Starlette()
    app.state.large_bodies = bodies
    pieces = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "app": app, "headers": headers, CALLER: caller}
    return Request(scope, cast(Any, receive))


def request_that_stays(bodies: LargeBodies, body: bytes, caller: Caller) -> Request:
    """One of which no more comes."""
    request = request_of(bodies, body, caller)
    receive = request.receive

    async def begun() -> Any:
        message = await receive()
        if not message["body"]:
            await asyncio.Event().wait()
        return {**message, "more_body": True}

    request._receive = begun
    return request


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, CHUNK])
def test_a_document_is_read_whatever_its_pieces(chunk_bytes: int) -> None:
    """Characters, escapes and quotation marks may be cut in two."""
    document = {"run": 'echo "ä€😀\\" \\\\', "n": [1, 2.5, -3e4, True, None], "more": {"a": {}}}
    for ascii_only in (True, False):
        body = json.dumps(document, ensure_ascii=ascii_only).encode()
        assert text_of(body, chunk_bytes).document() == document


@pytest.mark.parametrize("chunk_bytes", [1, 3, CHUNK])
@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b'{"a": "\\ud800"}', "surrogates"),
        (b'{"a": [["\\uDc00"]]}', "surrogates"),
        (b'{"\\ud800": 1}', "surrogates"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'{"a": "\xe2\x82', "not JSON"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'{"b": [{"a": 1, "a": 2}]}', "given twice"),
        (b'{"a": "\n"}', "control character"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 100_000, "^body: nested too deeply"),
    ],
)
def test_what_others_might_read_differently_is_refused(
    body: bytes, want: str, chunk_bytes: int
) -> None:
    """Also deep inside, and however it is cut."""
    with pytest.raises(InvalidInput, match=want):
        text_of(body, chunk_bytes).document()


def test_a_document_of_very_many_values_is_refused_before_it_is_read() -> None:
    """A few bytes each on the wire would be many in memory."""
    with pytest.raises(TooLarge, match="commas and brackets"):
        text_of(b'{"jobs":[' + b'{"":1},' * (MOST_SEPARATORS // 2 + 1))


@pytest.mark.parametrize("filler", [b"x", b'\\"', b" ", b'\\\\\\"'])
def test_a_single_value_without_end_is_refused_before_it_is_read(filler: bytes) -> None:
    """No thread could take a turn while it is decoded; a quotation mark inside does not end it."""
    body = b'{"run":"' + filler * (2 * LONGEST_VALUE_BYTES // len(filler))
    for chunk_bytes in (CHUNK, CHUNK + 1):
        with pytest.raises(TooLarge, match="a value is longer"):
            text_of(body, chunk_bytes)


def test_the_longest_script_that_a_job_may_have_is_read() -> None:
    """Also when it is nothing but quotation marks and backslashes."""
    for filler in ('"', "\\", '\\"'):
        document = {"jobs": [{"run": filler * ((1 << 19) // len(filler))}] * 3}
        assert text_of(json.dumps(document).encode()).document() == document


def test_only_a_route_that_says_so_takes_more_than_two_mebibytes() -> None:
    """What one needs to cancel a job is short."""
    body = json.dumps({"user": ["x" * 1000] * (SMALL_BYTES // 1000)}).encode()
    assert len(body) > SMALL_BYTES
    with pytest.raises(TooLarge, match="2097152 bytes"):
        asyncio.run(read_object(request_of(LargeBodies(), body)))
    assert len(asyncio.run(read_object(request_of(LargeBodies(), body), None, BULK_BYTES))) == 1
    with pytest.raises(TooLarge):
        asyncio.run(read_bytes(request_of(LargeBodies(), body)))


def test_one_principal_leaves_room_for_the_large_bodies_of_others() -> None:
    """However many connections it has; the one person of a machine without a login has it all."""
    ann, bob = (Caller(Principal(f"sa:{name}"), name, "10.0.0.1", "1") for name in ("ann", "bob"))
    bodies = LargeBodies()
    with bodies.room(request_of(bodies, b"", ann)) as first:
        first.grow_to(ONE_LARGE_BYTES)
        with bodies.room(request_of(bodies, b"", ann)) as second:
            second.grow_to(ON_LOOP_BYTES)
            with pytest.raises(Unavailable):
                second.grow_to(ON_LOOP_BYTES + 1)
        with bodies.room(request_of(bodies, b"", bob)) as other:
            other.grow_to(ONE_LARGE_BYTES)
    assert (bodies.held_bytes, bodies.of) == (0, {})
    here = local_caller("me")
    with bodies.room(request_of(bodies, b"", here)) as first:
        first.grow_to(ALL_LARGE_BYTES)
    assert bodies.held_bytes == 0


def test_large_bodies_share_their_room_and_give_it_back() -> None:
    """Beyond it a large one has to come again, and a small one is read."""
    bodies = LargeBodies()
    bodies.held_bytes = ALL_LARGE_BYTES - ON_LOOP_BYTES
    large = b"x" * (ON_LOOP_BYTES + CHUNK)
    with pytest.raises(Unavailable, match="at once"):
        asyncio.run(read_bytes(request_of(bodies, large), BULK_BYTES))
    small = large[:ON_LOOP_BYTES]
    assert asyncio.run(read_bytes(request_of(bodies, small))) == small
    assert bodies.held_bytes == ALL_LARGE_BYTES - ON_LOOP_BYTES
    bodies.held_bytes = 0
    assert asyncio.run(read_bytes(request_of(bodies, large), BULK_BYTES)) == large
    assert bodies.held_bytes == 0


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("asker", "want_lost"), [("ann", []), ("bob", ["sa:ann"]), ("new", ["sa:ann"])]
)
def test_bodies_that_come_slowly_make_way_for_those_of_others(
    asker: str, want_lost: list[str]
) -> None:
    """The oldest of the principal that holds most: two could else keep all others out for an hour."""
    held = {"ann": (60, 40), "bob": (60,), "cy": (96,)}
    callers = {one: Caller(Principal(f"sa:{one}"), one, "::1", "1") for one in (*held, "new")}
    bodies = LargeBodies()
    ask = b"x" * MIB

    async def story() -> None:
        slow = {
            (one, size): asyncio.create_task(
                read_bytes(request_that_stays(bodies, b"x" * size * MIB, callers[one]), BULK_BYTES)
            )
            for one, sizes in held.items() for size in sizes
        }  # fmt: skip
        for _ in range(10_000):
            await asyncio.sleep(0)
        assert bodies.held_bytes == ALL_LARGE_BYTES
        asked = read_bytes(request_of(bodies, ask, callers[asker]), BULK_BYTES)
        if want_lost:
            assert await asyncio.wait_for(asked, 20) == ask
        else:
            with pytest.raises(Unavailable, match="at once"):
                await asyncio.wait_for(asked, 20)
        await asyncio.sleep(0)
        lost = {key: one.exception() for key, one in slow.items() if one.done()}
        assert list(lost) == [("ann", 60)] * len(want_lost)
        for error, owner in zip(lost.values(), want_lost, strict=True):
            assert isinstance(error, Unavailable)
            assert owner in str(error)
        for one in slow.values():
            one.cancel()
        await asyncio.gather(*slow.values(), return_exceptions=True)

    asyncio.run(story())
    assert (bodies.held_bytes, bodies.of) == (0, {})


class Account(Struct):
    """What counts its requests."""

    limits: Limits


def test_long_bodies_of_an_account_are_read_one_by_one_and_paid_if_refused() -> None:
    """A hundred of them at once kept all others out for as long as it took to read them."""
    now = 0.0
    bodies = LargeBodies(Account(Limits(Rates(submit=Rate(1.0, 3.0)), lambda: now)))
    ann, bob = (Caller(Principal(f"sa:{one}"), one, "::1", "1") for one in ("ann", "bob"))
    wrong = b'{"jobs":[' + b"{}," * 50_000 + b'{}],"zzz":1}'

    async def story(caller: Caller, count: int) -> list[str]:
        fields = {"jobs": {"type": "array", "items": {"type": "string"}}}
        asked = [read_object(request_of(bodies, wrong, caller), fields) for _ in range(count)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [type(one).__name__ for one in found]

    kinds = asyncio.run(story(ann, ASKED_AT_ONCE + 8))
    assert kinds.count("InvalidInput") + kinds.count("TooMany") == ASKED_AT_ONCE + 8
    assert 1 <= kinds.count("InvalidInput") < 10
    assert asyncio.run(story(bob, 1)) == ["InvalidInput"]
    assert asyncio.run(story(ann, 1)) == ["TooMany"]
    now = 1000.0
    assert asyncio.run(story(ann, 1)) == ["InvalidInput"]


FIELDS: dict[str, Any] = {
    "reason": {"type": "string"}, "user": {"type": "string"}, "dry_run": {"type": "boolean"},
    "until_s": {"type": "number"}, "rows": {"type": "integer"}, "quota": {"type": "object"},
    "hosts": {"type": "array", "items": {"type": "string"}},
    "words": {"type": "array", "items": {"type": "string", "maxLength": 20_000}},
}  # fmt: skip


def refused(document: dict[str, Any], *checks: Check) -> dict[str, str]:
    """What is wrong with a body, by field."""
    request = request_of(LargeBodies(), json.dumps(document).encode())
    with pytest.raises(InvalidInput) as found:
        asyncio.run(read_object(request, FIELDS, checks=checks))
    return {error.field: error.message for error in (found.value, *found.value.more)}


def test_all_that_is_wrong_with_a_body_is_said_at_once() -> None:
    """Names, types and what the route checks: each field once."""

    def check(body: dict[str, Any]) -> None:
        refuse_all([InvalidInput("x", field="until_s"), InvalidInput("empty", field="quota")])

    body = {
        "reson": "", "reason": 1, "user": [], "dry_run": "yes", "until_s": "x", "rows": 1.5,
        "hosts": ["a", 1], "quota": {}, "words": ["x" * 20_000],
    }  # fmt: skip
    assert refused(body, check) == {
        "reson": "unknown field", "reason": "must be a text", "user": "must be a text",
        "dry_run": "must be true or false", "until_s": "must be a number",
        "rows": "must be a whole number", "hosts": "must be a list of texts", "quota": "empty",
    }  # fmt: skip


def test_what_is_too_much_is_told_from_what_is_of_another_type() -> None:
    body = {"reason": "x" * 10_001, "until_s": 1e308, "rows": 10**30, "words": ["x" * 20_001]}
    assert refused(body) == {
        "reason": "must have at most 1,000 characters",
        "until_s": "must be from -1e+15 to 1e+15", "rows": "must be from -1e+15 to 1e+15",
        "words": "must have at most 20,000 characters",
    }  # fmt: skip
    many = refused({f"x{i}": 1 for i in range(50)})
    assert len(many) == 20


@pytest.mark.parametrize(
    "name", ["\u202eadmin", "a\u001b[2J", "a\nb", "a\u2066b", "a\u200fb", "\x7f", "a\u2028b"]
)
def test_a_user_neither_controls_a_terminal_nor_turns_what_is_written(name: str) -> None:
    assert "control a terminal" in refused({"user": name})["user"]


def test_a_user_has_any_letters_but_not_too_many() -> None:
    for name in ("", "Ann Lee", "zoë", "李", "x" * 200):
        request = request_of(LargeBodies(), json.dumps({"user": name}).encode())
        assert asyncio.run(read_object(request, FIELDS)) == {"user": name}
    assert refused({"user": "x" * 201}) == {"user": "must have at most 200 characters"}
