"""Traces made up from published figures: the same kind, number and seed give the same trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.traces.generate import gandiva, gavel, mast, pai, philly
from topmast.traces.source import MAX_ROWS
from topmast.traces.trace import Trace

__all__ = ["KINDS", "generate"]

KINDS = {
    "pai-like": pai.generate,
    "philly-like": philly.generate,
    "mast-like": mast.generate,
    "gavel-like": gavel.generate,
    "gandiva-like": gandiva.generate,
    "gandiva-elastic-like": gandiva.elastic,
}


def generate(
    kind: str, jobs: int, seed: int, days: float | None = None
) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` jobs, and the fleet that belongs to it, as the document of a fleet file.

    ``days``: over how long they are submitted, for `mast-like`; None, as that kind has it.
    """
    if kind not in KINDS:
        message = f"no kind {show(kind)} is known"
        raise InvalidInput(message, field="kind", remedy=", ".join(KINDS))
    if not 1 <= jobs <= MAX_ROWS:
        raise InvalidInput("is out of range", field="jobs", remedy=f"from 1 to {MAX_ROWS:,}")
    if seed < 0:
        raise InvalidInput("is negative", field="seed", remedy="a number from 0")
    if days is not None:
        if kind != "mast-like":
            raise InvalidInput("is for mast-like only", field="days")
        return mast.generate(jobs, np.random.default_rng(seed), days)
    return KINDS[kind](jobs, np.random.default_rng(seed))
