"""The jobs that take part in a round, and what there is to grant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.kinds import Kind
from topmast.fast.queue.rounds.quota import RoundQuota
from topmast.policies.base import Floats, Ints, SharesView


class Pairs(Struct, frozen=True):
    """Contenders that may share GPUs: ``rows`` (p x 2), ``speeds`` (p x m x 2), 0: not there."""

    rows: Ints
    speeds: Floats


class RoundCandidate(Struct):
    """A job that wants GPUs in the round that begins."""

    record: JobRecord
    kind: Kind
    left_s: float
    """Work left, at speed 1."""
    weight: float
    tenant: int
    """The tenant's number."""
    at: int = -1
    """The model (number) on which it runs; -1 while it waits."""
    stays: bool = False
    """It may not be stopped now."""
    partner: str = ""
    """The job that has the same GPUs now."""


class Account(Struct):
    """What the rounds know of a job."""

    received_s: Floats
    """Seconds received on each model lately; older ones count less."""
    behind_s: Floats | None = None
    """(m) what it should have received until it was forgotten last, less what it did."""
    fractions: Floats | None = None
    """(m) its parts of the time; None while it has none."""
    isolated_s: float = 0.0
    """How long its work so far would have taken on a share of its own."""
    left_s: float = math.inf
    """Work left, as of the last time fractions were computed."""
    isolated_speed: float = 0.0
    """The speed on a share of its own, as of then."""


class TimeShare(Struct, frozen=True):
    """A part of the time: that of one contender, or that of two on the same GPUs."""

    rows: tuple[int, ...]
    number: int
    """The number of the job, the older one of two."""
    runs_on: int
    """The model where it runs now, two on the same GPUs; -1 for none."""
    fractions: Floats
    """(m) what is due of the time."""
    received_s: Floats
    """(m)"""
    behind_s: Floats | None = None
    """(m) of its account; None: 0."""


class RoundCapacity(Struct, frozen=True):
    """What there is to grant."""

    models: tuple[str, ...]
    gpus: Ints
    """(m) GPUs of the fleet."""
    free_milli: Ints
    """(m) thousandths of them that contenders may have."""
    tenant_weights: Floats
    pairs: Callable[[], Pairs | None] = lambda: None
    """The contenders that may have the same GPUs; called when fractions are computed."""
    steps_per_s: Callable[[JobRecord], float] | None = None
    """Of a job at speed 1, if steps count."""
    quota: RoundQuota | None = None
    """What tenants may have; None if no tenant has a quota."""


def view_of(
    contenders: Sequence[RoundCandidate],
    accounts: Sequence[Account],
    stage: RoundCapacity,
    now: float,
    pairs: Pairs | None,
) -> SharesView:
    """The jobs, and pairs of them, in columns."""
    records = [c.record for c in contenders]
    deadlines = [
        math.nan if r.spec.deadline_s is None else r.submit_s + r.spec.deadline_s - now
        for r in records
    ]
    nothing, steps = np.zeros(len(stage.models)), stage.steps_per_s
    before = [nothing if a.fractions is None else a.fractions for a in accounts]
    return SharesView(
        ids=tuple(r.id for r in records),
        models=stage.models,
        gpus=stage.gpus,
        speeds=np.array([c.kind.speeds for c in contenders]),
        width=np.array([c.kind.width for c in contenders]),
        weight=np.array([c.weight for c in contenders]),
        left_s=np.array([c.left_s for c in contenders]),
        elapsed_s=np.array([now - r.submit_s for r in records]),
        isolated_s=np.array([a.isolated_s for a in accounts]),
        deadline_s=np.array(deadlines),
        submit_s=np.array([r.submit_s for r in records]),
        tenant=np.array([c.tenant for c in contenders], np.int64),
        tenant_weights=stage.tenant_weights,
        before=np.array(before),
        steps_per_s=None if steps is None else np.array([steps(r) for r in records]),
        pair_rows=None if pairs is None else pairs.rows,
        pair_speeds=None if pairs is None else pairs.speeds,
    )
