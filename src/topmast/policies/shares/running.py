"""The policies of this folder applied to a running fleet: columns in, fractions of time out.

It solves the same problem that `topmast allocate` reads. A job that makes no sense in it is named
and left out; the others are served.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import numpy as np

from topmast.model.errors import InvalidInput, TopmastError
from topmast.model.job import MILLI
from topmast.policies.base import Floats, Parts, SharesView
from topmast.policies.options import Profile, ShareOptions, Within
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.objectives import hierarchical
from topmast.policies.shares.problem import Entity, Job, Pair, Problem
from topmast.policies.shares.registry import Policy, columns_for, policy_named
from topmast.policies.shares.shares import Shares

_JOB = re.compile(r"jobs\[(\d+)\]")


class Running:
    """One policy of the registry, asked again and again by the queue."""

    def __init__(self, profile: Profile) -> None:
        options = profile.shares
        self._options: ShareOptions = options
        self._policy: Policy = policy_named(options.policy)
        self._solve = self._policy.begin() if self._policy.begin else self._policy.solve
        self.moves = self._policy.moves or options.aware
        self.fills = self._policy.fills
        self.every_pair = self._policy.every_pair

    def parts(self, view: SharesView) -> Parts:
        """As the hook says. O(one solve), and another for each job that has to be left out."""
        named: dict[int, str] = {}
        some = view.gpus.any()  # perhaps every host is lost just now
        rows: list[int] = np.flatnonzero((view.speeds > 0).any(axis=1) & some).tolist()
        late: set[int] = set()
        while rows:
            columns = self._columns(view, rows, late)
            try:
                shares = self._solve(columns)
            except InvalidInput as error:
                found = _JOB.match(error.field or "")
                if found is None:
                    raise
                named[rows.pop(int(found[1]))] = error.message
                continue
            if shares.objective is not None:
                return _spread(view, columns, rows, shares, named)
            for violated in shares.violated:
                named[rows[violated]] = "not all deadlines can be met, and its own is ignored"
                late.add(rows[violated])
        nothing = np.zeros(view.speeds.shape)
        return Parts(nothing, np.zeros(len(view.ids)), named, _no_pairs(view))

    def _columns(self, view: SharesView, rows: list[int], late: set[int]) -> Columns:
        """The problem with these jobs; of those that are ``late`` the deadline does not count."""
        entities = _entities(view, rows, self._options.within) if self._has_entities() else {}
        unit = _unit_milli(view, rows)
        jobs = [_job(view, row, unit, bool(entities), row not in late) for row in rows]
        workers = {
            m: gpus * MILLI // unit for m, gpus in zip(view.models, view.gpus.tolist(), strict=True)
        }
        prices = {m: usd for m, usd in self._options.prices.items() if m in workers}
        pairs = _pairs(view, rows) if self._policy.pairs else []
        problem = Problem(workers, jobs, pairs, prices, entities)
        columns = columns_for(self._policy, problem, agnostic=not self._options.aware)
        columns.is_warm = True
        return columns

    def _has_entities(self) -> bool:
        return self._options.policy == hierarchical.NAME


def _unit_milli(view: SharesView, rows: list[int]) -> int:
    """The largest part of a GPU of which all gangs take a whole number: a worker of the problem."""
    return math.gcd(MILLI, *(round(width * MILLI) for width in view.width[rows].tolist()))


def _entities(view: SharesView, rows: list[int], within: Within) -> dict[str, Entity]:
    """The tenants that have jobs here."""
    tenants = dict.fromkeys(view.tenant[rows].tolist())
    how: Literal["fairness", "fifo"] = "fifo" if within is Within.FIFO else "fairness"
    return {str(t): Entity(float(view.tenant_weights[t]), how) for t in tenants}


def _job(view: SharesView, row: int, unit_milli: int, has_entity: bool, is_due: bool) -> Job:
    deadline_s, steps = float(view.deadline_s[row]), _steps_per_s(view, row)
    before = () if view.before is None else view.before[row].tolist()
    return Job(
        id=view.ids[row],
        throughputs={
            m: speed * steps
            for m, speed in zip(view.models, view.speeds[row].tolist(), strict=True)
            if speed > 0
        },
        before={m: part for m, part in zip(view.models, before, strict=False) if part > 0},
        scale_factor=round(view.width.item(row) * MILLI) // unit_milli,
        weight=view.weight.item(row),
        steps_left=view.left_s.item(row) * steps,
        elapsed_s=view.elapsed_s.item(row),
        isolated_s=view.isolated_s.item(row),
        deadline_s=deadline_s if is_due and not math.isnan(deadline_s) else None,
        arrival_s=view.submit_s.item(row),
        entity=str(view.tenant[row]) if has_entity else None,
    )


def _steps_per_s(view: SharesView, row: int) -> float:
    """At speed 1; 1 where nothing is known, so that a step is a second."""
    return 1.0 if view.steps_per_s is None else view.steps_per_s.item(row)


def _pairs(view: SharesView, rows: list[int]) -> list[Pair]:
    """The pairs of which both jobs are asked about. O(p m)."""
    if view.pair_rows is None or view.pair_speeds is None:
        return []
    asked = np.zeros(len(view.ids), bool)
    asked[rows] = True
    kept = np.flatnonzero(asked[view.pair_rows].all(axis=1))
    steps = np.array([_steps_per_s(view, row) for row in range(len(view.ids))])
    scaled = view.pair_speeds[kept] * steps[view.pair_rows[kept]][:, None, :]
    both, speeds = view.pair_rows[kept].tolist(), scaled.tolist()
    return [
        Pair(
            (view.ids[one], view.ids[other]),
            {m: (a, b) for m, (a, b) in zip(view.models, of_model, strict=True) if a > 0 and b > 0},
        )
        for (one, other), of_model in zip(both, speeds, strict=True)
    ]


def _no_pairs(view: SharesView) -> Floats | None:
    return None if view.pair_rows is None else np.zeros((len(view.pair_rows), len(view.models)))


def _spread(
    view: SharesView, columns: Columns, rows: list[int], shares: Shares, named: dict[int, str]
) -> Parts:
    """An answer for some rows as one for all."""
    if not np.isfinite(shares.single).all():
        raise TopmastError("the solver returned fractions that are no numbers")
    fractions = np.zeros(view.speeds.shape)
    fractions[rows] = shares.single
    isolated: Floats = np.zeros(len(view.ids))
    steps = np.array([_steps_per_s(view, row) for row in rows])
    isolated[rows] = columns.isolated_speeds / steps
    return Parts(fractions, isolated, named, _spread_pairs(view, columns, rows, shares))


def _spread_pairs(
    view: SharesView, columns: Columns, rows: list[int], shares: Shares
) -> Floats | None:
    """The answer for pairs; the solver leaves out those that get nowhere. O(p m)."""
    pairs = _no_pairs(view)
    if pairs is None or view.pair_rows is None or not len(columns.pair_jobs):
        return pairs
    if not np.isfinite(shares.pair).all():
        raise TopmastError("the solver returned fractions that are no numbers")
    number = {tuple(both): at for at, both in enumerate(view.pair_rows.tolist())}
    of = np.array(rows)[columns.pair_jobs].tolist()
    pairs[[number[tuple(both)] for both in of]] = shares.pair
    return pairs
