"""Local search from a hint: where the relaxation would have replicas, and would serve workloads."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data import search_kernels as kernels
from topmast.slow.data.columns import Columns
from topmast.slow.data.objective import terms_of
from topmast.slow.data.search_kernels import Fixed, Log, State


class LocalSearch:
    """A state of one problem, and the moves on it. The state keeps every hard rule."""

    def __init__(self, columns: Columns, extra: Floats | None = None, seed: int = 1) -> None:
        self.columns = columns
        cost = columns.replica_cost()
        self.true = _fixed(columns, cost)
        self.fixed = self.true if extra is None else _fixed(columns, cost + extra)
        self.seed = np.array([seed * 2654435761 + 88172645463325252], np.uint64)
        tables, regions, workloads, models = columns.shape()
        most = int(np.diff(columns.reads.start).max(initial=0)) + 2
        length = (int(np.diff(columns.readers.start).max(initial=0)) + 2) * (2 * regions + 4) * most
        kind, table, region, source = np.zeros((4, length), np.int64)
        self.log = Log(kind, table, region, source, np.zeros(1, np.int64))
        self.state = State(
            at=np.full(workloads, -1, np.int64),
            users=np.zeros((tables, regions), np.int64),
            placed=np.zeros((tables, regions), np.bool_),
            source=np.full((tables, regions), -1, np.int64),
            count=np.zeros(tables, np.int64),
            idle=np.zeros(tables, np.int64),
            stored=np.zeros(regions),
            moved=np.zeros(1),
            carried=np.zeros((regions, regions)),
            load=np.zeros((regions, models)),
            busy=np.zeros(regions),
        )
        choices = columns.may_serve.sum(axis=1)
        self.works: Ints = np.nonzero((choices > 0) & (columns.loss > 0))[0]

    def charge(self, extra: Floats) -> None:
        """Charge replicas ``extra`` [D, R] beside what they cost, from now on."""
        self.fixed = _fixed(self.columns, self.columns.replica_cost() + extra)

    def adopt(self, placed: Bools, source: Ints) -> None:
        """Begin with a placement that keeps every hard rule, its copies coming from ``source``
        [D, R].
        """
        columns, state = self.columns, self.state
        fresh = placed & ~columns.held
        state.at[:] = -1
        state.users[:] = 0
        state.placed[:] = placed
        state.source[:] = np.where(fresh, source, -1)
        state.count[:] = placed.sum(axis=1)
        state.idle[:] = state.count
        state.stored[:] = (columns.size_bytes[:, None] * placed).sum(axis=0)
        state.moved[0] = (columns.size_bytes[:, None] * fresh).sum()
        state.carried[:] = 0.0
        d, r = np.nonzero(fresh & (source >= 0))
        np.add.at(state.carried, (source[d, r], r), columns.size_bytes[d])
        state.load[:] = 0.0
        state.busy[:] = 0.0

    def saved(self) -> State:
        """The state, to come back to."""
        return State(*(array.copy() for array in self.state))

    def restore(self, saved: State) -> None:
        """Come back to a state."""
        for mine, its in zip(self.state, saved, strict=True):
            mine[...] = its

    def cost(self) -> float:
        """The objective here, every workload being in one region."""
        return terms_of(self.columns, self.state.placed, self.shares()).total()

    def fill(self, prefer: Floats) -> bool:
        """Give every table its least replicas, where ``prefer`` [D, R] is highest; whether that
        fits.
        """
        order = np.lexsort((np.arange(len(prefer)), -self.columns.size_bytes))
        return int(kernels.fill(self.fixed, self.state, order, prefer, self.log)) < 0

    def begin(self) -> bool:
        """Any placement near that at the start; whether one was found: else the state is of no
        use.
        """
        columns = self.columns
        held = (columns.held & columns.can).astype(float)
        if self.fill(held):
            return True
        self.adopt(np.zeros_like(columns.can), np.full(held.shape, -1, np.int64))
        self.place(columns.held & columns.can, np.arange(len(held)))
        return self.fill(held)

    def place(self, placed: Bools, rows: Ints) -> None:
        """Add replicas [rows, R] of the tables ``rows``, where they fit; those that are held
        first.
        """
        at, regions = np.nonzero(placed)
        tables = rows[at]
        order = np.lexsort((regions, tables, ~self.columns.held[tables, regions]))
        kernels.place(self.fixed, self.state, tables[order], regions[order], self.log)

    def assign(self, shares: Floats) -> None:
        """Serve each workload where its share is largest, the surest first."""
        wish = shares.argmax(axis=1)
        sure = shares.max(axis=1, initial=0.0)
        wish = np.where(sure > 1e-6, wish, -1)
        order = np.lexsort((np.arange(len(sure)), -sure * self.columns.loss))
        kernels.assign(self.fixed, self.state, order, wish, self.log)

    def descend(self, sweeps: int) -> float:
        """Move workloads while that pays."""
        return float(kernels.descend(self.fixed, self.state, self.works, self.log, sweeps))

    def anneal(self, steps: int, warm: float, cold: float, together: float = 0.05) -> float:
        """Random moves at falling temperatures, to regions where a workload may be served, or
        nowhere.
        """
        listed, count = self._choices
        works = self.works[count[self.works] > 1]
        return float(
            kernels.anneal(
                self.fixed,
                self.state,
                works,
                listed,
                count,
                self.log,
                self.seed,
                steps,
                warm,
                cold,
                together,
            )
        )

    @cached_property
    def _choices(self) -> tuple[Ints, Ints]:
        """Where each workload may go, [W, R + 1] with -1 for nowhere, and how many count."""
        may = self.columns.may_serve
        padded = np.concatenate([may, np.ones((len(may), 1), bool)], axis=1)
        order = np.argsort(~padded, axis=1, kind="stable")
        return np.where(order == may.shape[1], -1, order), padded.sum(axis=1)

    def shares(self) -> Floats:
        """Where workloads are, as shares [W, R]."""
        found = np.zeros(self.columns.may_serve.shape)
        served = np.nonzero(self.state.at >= 0)[0]
        found[served, self.state.at[served]] = 1.0
        return found


def _fixed(columns: Columns, cost: Floats) -> Fixed:
    want_w, want_g = np.nonzero(columns.demand)
    start = np.zeros(len(columns.demand) + 1, np.int64)
    start[1:] = np.cumsum(np.bincount(want_w, minlength=len(columns.demand)))
    return Fixed(
        size=columns.size_bytes,
        cost=cost,
        can=columns.can,
        held=columns.held,
        homeless=~columns.held.any(axis=1),
        least=columns.least,
        storage=columns.storage_bytes,
        budget=columns.budget_bytes,
        link=columns.link_bytes,
        edge_start=columns.reads.start,
        edge_table=columns.reads.items,
        reader_start=columns.readers.start,
        reader=columns.readers.items,
        loss=columns.loss,
        may=columns.may_serve,
        want_start=start,
        want_model=want_g.astype(np.int64),
        want=columns.demand[want_w, want_g],
        cpu=columns.needs_cpus,
        cpus=columns.cpus,
        supply=columns.supply,
        room=columns.room,
        prices=columns.price,
    )
