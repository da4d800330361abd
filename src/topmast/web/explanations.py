"""Explanations, which many open pages share: each is a search on the thread that decides."""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from topmast.model.errors import TooMany, Unavailable
from topmast.model.views import Explanation, JobView
from topmast.service.service import Service
from topmast.web.page import Ask

FRESH_S = 5.0
"""An explanation is a search: for so long it serves, and for longer if it took long."""
REST = 20.0
"""An explanation that took a second serves for so many."""
MOST_KEPT = 500


class Told(Struct):
    """An explanation, and how long it serves."""

    what: tuple[Any, ...]
    """The job as it stood then, and the reader."""
    explanation: Explanation
    until_s: float


_kept: WeakKeyDictionary[Service, dict[tuple[str, str], Told]] = WeakKeyDictionary()


async def explanation_of(ask: Ask, job: JobView) -> tuple[Explanation | None, str]:
    """Why the job stands there; or why that is not told now."""
    kept = _kept.setdefault(ask.service, {})
    key = (job.id, ask.caller.principal.subject)
    what = (job.state, job.reason, job.attempts, job.band, job.hold)
    known, begun_s = kept.get(key), time.monotonic()
    if known is not None and known.what == what and begun_s < known.until_s:
        return known.explanation, ""
    try:
        found = await ask.service.explain(ask.caller, job.id)
    except TooMany as error:
        return known.explanation if known else None, str(error)
    except Unavailable as error:
        return None, str(error)
    took_s = time.monotonic() - begun_s
    while len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]
    kept[key] = Told(what, found, begun_s + max(FRESH_S, REST * took_s))
    return found, ""
