"""What the answer of a server says that is none: what went wrong, and where the leader is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx
import msgspec

from topmast.model.decoding import decode
from topmast.model.views import Fault, Problem


def leader_in(answer: httpx.Response) -> str | None:
    """Where the leader is, from a server that does not lead; empty if that knows of none."""
    if answer.status_code != 503 or b'"leader"' not in answer.content:
        return None
    with suppress(msgspec.MsgspecError):
        body = decode(answer.content, object)
        if isinstance(body, dict) and isinstance(body.get("leader"), str):
            return str(body["leader"])
    return None


def problem_of(answer: httpx.Response) -> Problem:
    """The problem details in an answer, as far as it has any."""
    title = f"{answer.status_code} {answer.reason_phrase}".strip()
    body: Any = None
    with suppress(msgspec.MsgspecError):
        body = decode(answer.content, object)
    given = body if isinstance(body, dict) else {}
    texts = {
        name: str(given.get(name) or "") for name in ("type", "title", "detail", "field", "remedy")
    }
    texts["title"] = texts["title"] or title
    texts["type"] = texts["type"] or "about:blank"
    faults: tuple[Fault, ...] = ()
    with suppress(msgspec.MsgspecError):
        faults = msgspec.convert(given.get("errors", ()), tuple[Fault, ...])
    return Problem(status=answer.status_code, **texts, errors=faults or msgspec.UNSET)
