"""What-if: a change that is tried on a copy of the system, and the two futures."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class WhatIfAsk(Struct, frozen=True):
    """The changes in one of two futures."""

    for_s: float = 86_400.0
    """How far to look ahead."""
    add_hosts: dict[str, int] = {}
    """So many more hosts by ``CLUSTER``, like its last one with GPUs, or by ``CLUSTER:KIND``."""
    quotas: dict[str, int] = {}
    """Whole GPUs by ``TENANT:MODEL``."""
    profile: str = ""
    """Other policies; empty: those of the server."""
    lose_regions: tuple[str, ...] = ()
    """Regions that fail at once."""
    jobs: dict[str, dict[str, str | bool | float | None]] = {}
    """What jobs ask for instead, by job: ``priority``, ``time_limit_s``, ``max_restarts``,
    ``preemptible``."""


class WhatIfProgress(Struct, frozen=True):
    """How far a what-if is, as its process tells the server."""

    jobs_over: int
    jobs: int
    """Of both futures together."""
    text: str
    """The same for people, with the time that is left."""


class WhatIfView(Struct, frozen=True):
    """A what-if on its way, or its result."""

    id: str
    asked: WhatIfAsk
    state: str
    """``running``, ``done`` or ``failed``."""
    begun_s: float
    progress: str = ""
    """How far it is, in words; or what it waits for."""
    jobs_over: int = 0
    """Of ``jobs``, in both futures together."""
    jobs: int = 0
    """Jobs of both futures; 0 until they run."""
    ended_s: float | None = None
    why: str = ""
    """Why it failed."""
    result: dict[str, Any] = {}
    """The document of `topmast whatif --json`, once it is done."""
    by: str = ""
    """The account that asked."""
