"""Explanations, which many open pages share: each is a search on the thread that decides."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from topmast.model.access import Caller
from topmast.model.errors import TooLarge, TooMany, Unavailable
from topmast.model.reason import Rejection
from topmast.model.views import Explanation, JobView
from topmast.service.service import Service
from topmast.web.page import Ask

T = TypeVar("T")

FRESH_S = 5.0
"""An explanation is a search: for so long it serves, and for longer if it took long."""
REST = 20.0
"""An explanation that took a second serves for so many."""
MOST_KEPT = 500


class Told(Struct):
    """An explanation, and how long it serves."""

    what: tuple[Any, ...]
    """The job as it stood then, and the reader."""
    answer: Any
    until_s: float


_kept: WeakKeyDictionary[Service, dict[tuple[str, str, str], Told]] = WeakKeyDictionary()


async def explanation_of(ask: Ask, job: JobView) -> tuple[Explanation | None, str]:
    """Why the job stands there; or why that is not told now."""
    return await _told(ask, job, ask.service.explain)


async def rejections_of(ask: Ask, job: JobView) -> dict[str, Rejection]:
    """Why hosts are no place for the job, by name; none if that is not told now."""
    found, _ = await _told(ask, job, ask.service.rejected_hosts)
    return found or {}


async def _told(
    ask: Ask, job: JobView, question: Callable[[Caller, str], Awaitable[T]]
) -> tuple[T | None, str]:
    kept = _kept.setdefault(ask.service, {})
    key = (job.id, ask.caller.principal.subject, question.__name__)
    what = (job.state, job.reason, job.attempts, job.band, job.hold)
    known, begun_s = kept.get(key), time.monotonic()
    if known is not None and known.what == what and begun_s < known.until_s:
        return known.answer, ""
    try:
        found = await question(ask.caller, job.id)
    except TooMany as error:
        return known.answer if known else None, str(error)
    except (TooLarge, Unavailable) as error:
        return None, str(error)
    took_s = time.monotonic() - begun_s
    while len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]
    kept[key] = Told(what, found, begun_s + max(FRESH_S, REST * took_s))
    return found, ""
