"""Who takes part in a round, and what there is to grant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.rounds.kinds import Kind
from topmast.policies.base import Floats, Ints, SharesView


class Pairs(Struct, frozen=True):
    """Contenders who may have the same GPUs: ``rows`` (p x 2), and their ``speeds`` then (p x m x 2), 0 where they may not."""

    rows: Ints
    speeds: Floats


class RoundCandidate(Struct):
    """A job that wants GPUs in the round that begins.

    ``at``: the model (number) on which it runs, -1 for one that waits. ``stays``: it may not be stopped now.
    ``left_s``: work left, at speed 1; ``tenant`` numbers tenants. ``partner``: the job that has the same GPUs now.
    """

    record: JobRecord
    kind: Kind
    left_s: float
    weight: float
    tenant: int
    at: int = -1
    stays: bool = False
    partner: str = ""


class Account(Struct):
    """What the rounds know of a job: seconds that it received on each model lately, what is long ago less.

    ``fractions`` (m): its parts of the time; None while it has none. ``isolated_s``: how long its work so far would have taken
    on a share of its own; ``left_s`` and ``isolated_speed`` are as of the last time fractions were computed.
    """

    received_s: Floats
    fractions: Floats | None = None
    isolated_s: float = 0.0
    left_s: float = math.inf
    isolated_speed: float = 0.0


class RoundCapacity(Struct, frozen=True):
    """What there is to grant: ``gpus`` (m) of the fleet by model, and ``free_milli`` (m) of them, in thousandths,
    that contenders may have. ``tenant_weights``: of tenants, by number.
    ``pairs``: tells which contenders may have the same GPUs; asked when fractions are computed.
    """

    models: tuple[str, ...]
    gpus: Ints
    free_milli: Ints
    tenant_weights: Floats
    pairs: Callable[[], Pairs | None] = lambda: None


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
        pair_rows=None if pairs is None else pairs.rows,
        pair_speeds=None if pairs is None else pairs.speeds,
    )
