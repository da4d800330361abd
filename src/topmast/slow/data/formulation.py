"""The problem as a mixed-integer program, whole or with some replicas decided beforehand.

Variables, in this order: a replica x for each table and region that is open; a share y for each
workload and region where it could be served; overload o for each region, model and segment; a
route z for each copy that could come over several links that might fill up.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.columns import Columns
from topmast.slow.highs import INF, Model, Rows


class Routes(Struct, frozen=True):
    """Copies that need a link which might fill up: ``scarce`` [R, R] links, and the copies that
    would use them.

    Entry i: table ``table[i]`` over the link ``source[i]`` to ``target[i]``; ``choices[i]`` is
    how many such entries the same copy has.
    """

    scarce: Bools
    table: Ints
    source: Ints
    target: Ints
    choices: Ints


class Formulation(Struct, frozen=True):
    """A model for HiGHS, and where its variables are: numbers of variables, -1 where there is
    none.
    """

    model: Model
    replica: Ints
    share: Ints
    overload: Ints

    def start(self, placed: Bools) -> tuple[Ints, Floats]:
        """The replicas of a known answer, by variable: HiGHS finds the rest of that point."""
        there = self.replica >= 0
        return self.replica[there], placed[there].astype(float)


def routes_of(columns: Columns, low: Bools, high: Bools) -> Routes:
    """The copies over links that might fill up, of tables that may move between ``low`` and
    ``high``.

    O(D R^2), in parts.
    """
    size, link = columns.size_bytes, columns.link_bytes
    fresh = high & ~columns.held
    could = np.einsum("ds,dr,d->sr", columns.held.astype(float), fresh.astype(float), size)
    scarce = could > link
    parts: list[list[Ints]] = [[], [], []]
    easy = np.zeros(fresh.shape, bool)
    for s in range(len(link)):
        usable = columns.held[:, s, None] & fresh & (link[s] >= size[:, None])
        easy |= usable & ~scarce[s]
    for s in range(len(link)):
        usable = columns.held[:, s, None] & fresh & (link[s] >= size[:, None]) & ~easy
        tables, targets = np.nonzero(usable)
        for part, found in zip(parts, (tables, np.full(len(tables), s), targets), strict=True):
            part.append(found)
    table, source, target = (np.concatenate(part).astype(np.int64) for part in parts)
    regions = len(link)
    count = np.bincount(table * regions + target, minlength=1)
    return Routes(scarce, table, source, target, count[table * regions + target])


def formulate(columns: Columns, low: Bools, high: Bools, slack: float = 0.0) -> Formulation:
    """The program with replicas between ``low`` and ``high`` [D, R], both within what is possible.

    ``slack``: the part of every limit in bytes that is left free, against rounding.
    """
    builder = _Builder(columns, low, high, slack)
    builder.tables()
    builder.workloads()
    builder.gpus()
    builder.copies()
    return builder.done()


class _Builder:
    def __init__(self, columns: Columns, low: Bools, high: Bools, slack: float) -> None:
        self.columns, self.low, self.slack = columns, low, slack
        self.high = high & columns.can
        self.rows = Rows()
        self.free = self.high & ~low
        self.count = 0
        self.costs: list[Floats] = []
        self.tops: list[Floats] = []
        self.whole: list[Bools] = []
        self.offset = float(columns.replica_cost()[low].sum())
        self.replica = np.full(columns.can.shape, -1, np.int64)
        self.replica[self.free] = self._new(columns.replica_cost()[self.free], 1.0, True)
        # Bytes are counted in units in which tables are neither tiny nor huge to the solver.
        self.unit = max(1.0, float(columns.size_bytes.max(initial=0.0)) / 1e3)

    def _new(self, cost: Floats, top: float, whole: bool) -> Ints:
        numbers = np.arange(self.count, self.count + len(cost))
        self.count += len(cost)
        self.costs.append(np.asarray(cost, float))
        self.tops.append(np.full(len(cost), top))
        self.whole.append(np.full(len(cost), whole))
        return numbers

    def _limit(self, limit: Floats | float) -> Floats | float:
        return limit * (1.0 - self.slack) / self.unit

    def tables(self) -> None:
        """Enough replicas, enough storage, and no more copies than the budget has room for."""
        columns, rows = self.columns, self.rows
        missing = columns.least - self.low.sum(axis=1)
        short = np.nonzero(missing > 0)[0]
        first = rows.add(len(short), missing[short], INF)
        number = np.full(len(missing), -1)
        number[short] = np.arange(first, first + len(short))
        d, r = np.nonzero(self.free & (number >= 0)[:, None])
        rows.put(number[d], self.replica[d, r], 1.0)
        size = columns.size_bytes / self.unit
        used = (columns.size_bytes[:, None] * self.low).sum(axis=0)
        first = rows.add(len(used), -INF, self._limit(columns.storage_bytes) - used / self.unit)
        d, r = np.nonzero(self.free)
        rows.put(first + r, self.replica[d, r], size[d])
        if columns.budget_bytes < np.inf:
            d, r = np.nonzero(self.free & ~columns.held)
            decided = (columns.size_bytes[:, None] * (self.low & ~columns.held)).sum() / self.unit
            row = rows.add(1, -INF, self._limit(columns.budget_bytes) - decided)
            rows.put(row, self.replica[d, r], size[d])

    def workloads(self) -> None:
        """Shares, at most one in all, and only where all tables are."""
        columns, rows, reads = self.columns, self.rows, self.columns.reads
        owners = reads.owners()
        missing = np.zeros(columns.may_serve.shape, np.int64)
        np.add.at(missing, owners, ~self.high[reads.items])
        here = columns.may_serve & (missing == 0) & (columns.loss > 0)[:, None]
        w, r = np.nonzero(here)
        self.share = np.full(here.shape, -1, np.int64)
        self.share[here] = self._new(-columns.loss[w], 1.0, False)
        self.offset += float(columns.loss.sum())
        first = rows.add(len(here), -INF, 1.0)
        rows.put(first + w, self.share[w, r], 1.0)
        free_of_item = self.free[reads.items] & here[owners]
        item, r = np.nonzero(free_of_item)
        first = rows.add(len(item), -INF, 0.0)
        order = np.arange(first, first + len(item))
        rows.put(order, self.share[owners[item], r], 1.0)
        rows.put(order, self.replica[reads.items[item], r], -1.0)
        want = columns.needs_cpus @ here
        for region in np.nonzero(want > columns.cpus)[0]:
            users = np.nonzero(here[:, region] & (columns.needs_cpus > 0))[0]
            scale = float(columns.cpus[region])
            row = rows.add(1, -INF, 1.0)
            rows.put(row, self.share[users, region], columns.needs_cpus[users] / scale)

    def gpus(self) -> None:
        """The load of each region and model: what is beyond the supply is overload, by segment."""
        columns, rows = self.columns, self.rows
        want = np.einsum("wr,wg->rg", (self.share >= 0).astype(float), columns.demand)
        busy = want > columns.supply
        self.overload = np.full((*busy.shape, len(columns.price)), -1, np.int64)
        for r, g in np.argwhere(busy):
            users = np.nonzero((self.share[:, r] >= 0) & (columns.demand[:, g] > 0))[0]
            row = rows.add(1, -INF, columns.supply[r, g])
            rows.put(row, self.share[users, r], columns.demand[users, g])
            numbers = self._new(columns.price, INF, False)
            self.tops[-1][:-1] = columns.room[r, g, :-1]
            rows.put(row, numbers, -1.0)
            self.overload[r, g] = numbers

    def copies(self) -> None:
        """Links that might fill up, and over which of them a copy comes."""
        columns, rows = self.columns, self.rows
        routes = routes_of(columns, self.low, self.high)
        if not len(routes.table):
            return
        pairs = np.full(columns.link_bytes.shape, -1, np.int64)
        used = np.unique(routes.source * len(pairs) + routes.target)
        limits = columns.link_bytes.ravel()[used]
        first = rows.add(len(used), -INF, self._limit(limits))
        pairs.ravel()[used] = np.arange(first, first + len(used))
        link = pairs[routes.source, routes.target]
        size = columns.size_bytes[routes.table] / self.unit
        open_here = self.replica[routes.table, routes.target]
        single = routes.choices == 1
        alone = single & (open_here >= 0)
        rows.put(link[alone], open_here[alone], size[alone])
        fixed = single & (open_here < 0)
        self._fixed_routes(link[fixed], size[fixed])
        several = np.nonzero(~single)[0]
        numbers = self._new(np.zeros(len(several)), 1.0, True)
        rows.put(link[several], numbers, size[several])
        copy = routes.table[several] * len(pairs) + routes.target[several]
        copies, of = np.unique(copy, return_inverse=True)
        there = self.replica.ravel()[copies]
        decided = np.where(there < 0, 1.0, 0.0)
        first = rows.add(len(copies), decided, decided)
        rows.put(first + of, numbers, 1.0)
        undecided = np.nonzero(there >= 0)[0]
        rows.put(first + undecided, there[undecided], -1.0)

    def _fixed_routes(self, link: Ints, size: Floats) -> None:
        """Copies that are decided take up their only link: a variable that is 1 says so."""
        for row, amount in zip(link, size, strict=True):
            number = self._new(np.zeros(1), 1.0, False)
            pinned = self.rows.add(1, 1.0, 1.0)
            self.rows.put(pinned, number, 1.0)
            self.rows.put(row, number, amount)

    def done(self) -> Formulation:
        """The model."""
        model = Model(
            cost=np.concatenate(self.costs),
            low=np.zeros(self.count),
            high=np.concatenate(self.tops),
            rows=self.rows,
            whole=np.concatenate(self.whole),
            offset=self.offset,
        )
        return Formulation(model, self.replica, self.share, self.overload)
