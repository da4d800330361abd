"""Policy `hierarchical`: entities share the machines, and their jobs share what is the entity's."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import InvalidInput, TopmastError
from topmast.policies.base import Bools, Floats
from topmast.policies.shares.climbing import Climb
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.filling import fullest
from topmast.policies.shares.program import Solution
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): hierarchical policies by water-filling"
NAME = "hierarchical"
PRICED = 1e-7
"""The part of the price of a step that makes a floor count as one that holds it."""
DUST = 1e-9
"""What a level rises by less than this, of the highest, is rounding."""
SLACKS = (0.0, 1e-10, 1e-8, 1e-6)
"""How far a floor may be undercut that rounding has put a little too high, tried in turn."""


def solve(columns: Columns) -> Shares:
    """Water-filling: all levels (scale * speed / speed on an equal part) rise until some are stuck.

    A linear program finds how far. A floor with a price above 0 is tight in *all* optimal solutions
    (complementary slackness): its job can rise no further, and is done. There is always one, so
    that at most n programs are solved. A stuck job without a price is found by the next program, at
    height 0. The vector of levels is unique.
    """
    if not columns.entities:
        message = f"missing, and {NAME} needs it"
        raise InvalidInput(message, field="entities", remedy='such as {"team": {"weight": 1}}')
    columns.need_speeds(NAME, columns.has_measure)
    unit = np.where(columns.can_run, columns.equal_speeds / columns.scale, 1.0)
    levels, rising = np.zeros(columns.count), np.ones(columns.count, bool)
    objective: float | None = None
    cells = np.zeros(len(columns.cells.one))
    reached = np.zeros(columns.count)
    climb = Climb(columns)
    while rising.any():
        parts = _parts(columns, rising)
        # What the last allocation keeps is within reach, whatever rounding did to the levels.
        found = _step(climb, parts * unit, np.minimum(levels * unit, reached))
        rise = found.height * parts
        levels = levels + np.where(rise > DUST * levels.max(initial=1.0), rise, 0.0)
        cells = found.cells
        reached = columns.speeds_of(*columns.cells.spread(cells))
        if objective is None:
            objective = found.height
        held = rising & (found.prices * parts * unit > PRICED)
        if not held.any():
            held = np.arange(columns.count) == np.argmax(np.where(parts > 0, found.prices, -1.0))
        rising &= ~held
    cells = fullest(columns, reached, cells)
    return Shares(objective, *columns.cells.spread(cells), levels=levels)


def _step(climb: Climb, slope: Floats, base: Floats) -> Solution:
    for slack in SLACKS:
        found = climb.step(slope, base * (1 - slack))
        if found is not None:
            return found
    raise TopmastError("water-filling failed: levels that were reached cannot be reached again")


def _parts(columns: Columns, rising: Bools) -> Floats:
    """How fast each level rises (n): an entity's weight, split among its jobs that rise. O(n)."""
    parts = np.zeros(columns.count)
    for name, entity in columns.entities.items():
        mine = rising & np.array([owner == name for owner in columns.entity], bool)
        if not mine.any():
            continue
        if entity.policy == "fifo":
            rows = np.flatnonzero(mine)
            parts[rows[np.argmin(columns.arrival_s[rows])]] = entity.weight
        else:
            parts[mine] = entity.weight * columns.weight[mine] / columns.weight[mine].sum()
    return parts
