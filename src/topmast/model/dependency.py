"""What a job waits for of other jobs before it may start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from topmast.model.states import TERMINAL, JobState


class After(StrEnum):
    """What another job must have come to."""

    STARTED = "started"
    """It has had its first attempt, or has ended without one."""
    OK = "ok"
    """It has succeeded."""
    ANY = "any"
    """It has ended, no matter how."""
    TURN = "turn"
    """It is a sweep, and has fewer jobs under way than it may have."""


_WORDS = {
    After.STARTED: "has started", After.OK: "has succeeded", After.ANY: "has ended",
    After.TURN: "has a turn for it",
}  # fmt: skip


def is_met(after: After, state: JobState, has_started: bool) -> bool | None:
    """Whether a job in a state is what is waited for; None: not yet, but it may come to it."""
    if state not in TERMINAL:
        return True if after is After.STARTED and has_started else None
    return state is JobState.SUCCEEDED if after is After.OK else True


def awaited(dependencies: Mapping[str, After]) -> str:
    """What is waited for, in words: ``j7 has succeeded and j8 has ended``."""
    parts = [f"{job} {_WORDS[after]}" for job, after in dependencies.items()]
    if len(parts) > 4:
        parts[3:] = [f"{len(parts) - 3} more jobs have come so far"]
    return " and ".join(parts)


def never(job: str, state: str) -> str:
    """Why a job can no longer run after another, in words."""
    return f"{job} has {state}, and this job runs only after its success"
