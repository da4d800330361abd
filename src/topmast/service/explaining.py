"""What explanations may cost: the machines stand still for parts of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from topmast.model.access import Caller
from topmast.model.errors import TooLarge
from topmast.model.job import JobSpec
from topmast.service.limits import Limits
from topmast.service.turns import OneEach

MOST_SEATED = 10_000
"""Tasks of a job with several groups: they are seated one by one, and in each place anew."""


class Explaining:
    """One explanation of each account at a time; used on the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._each = OneEach()

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """The turn of an account: all its questions together delay others by one at most."""
        self._limits.take(caller, "explain")
        async with self._each.turn(caller):
            yield

    def pay(self, caller: Caller, cost_s: float) -> None:
        """Count what a look took of the processor: each second but the first is a question more."""
        self._limits.charge(caller, "explain", max(0.0, cost_s - 1.0))


def refuse_too_large(spec: JobSpec) -> None:
    """Raises TooLarge for a job that others would wait too long for."""
    tasks = sum(group.most for group in spec.groups)
    if len(spec.groups) > 1 and tasks > MOST_SEATED:
        why = f"{tasks:,} tasks in {len(spec.groups)} groups are too many to explain"
        remedy = f"ask about at most {MOST_SEATED:,}, or about one group; it is placed all the same"
        raise TooLarge(why, field="groups", remedy=remedy)
