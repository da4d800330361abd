"""What people are shown of many jobs at once."""

from __future__ import annotations

from msgspec import Struct


class JobGroup(Struct, frozen=True):
    """The jobs of one tenant, user or band."""

    key: str
    jobs: int
    waiting: int
    """Those that have no place."""
    held_gpus: float
    """What the others hold."""
    waiting_gpus: float
    """What those that wait ask for."""
    longest_wait_s: float
    """How long the one that waits longest has waited."""
    longest: str
    """That job; empty: none waits."""


class JobsGlance(Struct, frozen=True):
    """All jobs that have not ended, of the tenants that a caller may see."""

    placed: int
    """Those in a state in which jobs hold GPUs."""
    waiting: int
    """Those in a state in which jobs wait."""
    waiting_gpus: float
    """What these ask for."""
    longest_wait_s: float
    """How long the one that waits longest has waited."""
    longest: str
    """That job; empty: none waits."""
