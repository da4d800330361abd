"""The order of all waiting jobs, in columns: sorted as a whole at times, kept in order in between.

Jobs stand in rows. A `rerank` computes the keys of all rows and sorts them, in numpy.
Until the next one keys are frozen, so that a change is an insert, a removal or a change of band: an
insert goes into a short sorted list beside the sorted rows, a removal only marks its row.

The jobs of a blocked class (see `blocked`) are passed over, many at a time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from topmast.fast.queue.backlog.ordered_index import (
    FIRST_CAPACITY,
    JOB_CLASS,
    PLACEMENT,
    Key,
    OrderedIndex,
)
from topmast.fast.queue.backlog.waiting import RowsView, Waiting
from topmast.policies.base import Floats, Ints, OrderPolicy, QueueView

LATE_LIMIT = 1 << 16
"""So many inserts are kept beside the sorted rows before they are sorted in."""
MANY = 64
"""More inserts than this, and not few beside what is there, are sorted in at once."""
FEW = 16
"""So many inserts, and a sixteenth of what is there, are worth keeping beside the sorted rows."""
BLOCK = 1_024
"""So many rows are read at a time."""
LOOKED_AT_FIRST = 3
"""So many rows are looked at one by one before many at a time."""
SCAN_FIRST, SCAN_MOST = 64, 1 << 16

_TYPES: dict[str, type[np.generic]] = {
    "alive": np.bool_,
    "job_class": np.int64,
    "number": np.int64,
    "band": np.int16,
    "tenant": np.int64,
    "tasks": np.int64,
    "submit_s": np.float64,
    "gpus": np.float64,
    "duration_s": np.float64,
    "remaining_s": np.float64,
    "attained_gpu_s": np.float64,
    "turn": np.float64,
    "executed_s": np.float64,
    "first_start_s": np.float64,
    "since_s": np.float64,
}

_TOLD = [name for name in _TYPES if name not in ("alive", "job_class", "number", "tenant")]
_told_of = attrgetter(*_TOLD)
"""What an order sees of a `Waiting`, but for its tenant, which has a number here."""


class Ranking:
    """All waiting jobs in the order of a policy, seen in two ways: within quota, and over it.

    Over quota every job counts as opportunistic. ``fairness`` gives the fairness of a tenant; it is
    called at a `rerank`, and for tenants that come later.
    """

    def __init__(self, order: OrderPolicy, fairness: Callable[[str], float]) -> None:
        self.order = order
        self.ranked_at_s = 0.0
        self.times_ranked = 0
        self._fairness_of = fairness
        self._tenants: dict[str, int] = {}
        self._fairness: Floats = np.ones(16)
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(FIRST_CAPACITY, dtype=kind) for name, kind in _TYPES.items()
        }
        self._jobs: list[str] = [""] * FIRST_CAPACITY
        self._keys: Floats = np.zeros((FIRST_CAPACITY, 0))
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(FIRST_CAPACITY - 1, -1, -1))
        self._left: list[int] = []
        """Rows of jobs that left; used again after a sort, for the indices still name them."""
        self._staged: list[int] = []
        self._within, self._over = OrderedIndex(), OrderedIndex()
        self.exempt: str | None = None
        """A job that is tried although its placement class is blocked."""
        self._all_unblocked = False
        """Whether all was unblocked since the head was looked up."""

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, job: str) -> bool:
        return job in self._row_of

    # --- changes ----------------------------------------------------------------------------------

    def add(self, waiting: Waiting) -> None:
        """Let a job in; it is put in order when the head is looked up. O(1)."""
        if not self._free:
            self._grow()
        columns, row = self._columns, self._free.pop()
        self._jobs[row] = waiting.job
        self._row_of[waiting.job] = row
        self._staged.append(row)
        columns["alive"][row] = True
        columns["job_class"][row] = waiting.job_class
        columns["number"][row] = waiting.number
        columns["tenant"][row] = self.tenant_number(waiting.tenant)
        for name, value in zip(_TOLD, _told_of(waiting), strict=True):
            columns[name][row] = value

    def add_alike(
        self, first: Waiting, jobs: Sequence[str], numbers: Sequence[int], runs_s: Sequence[float]
    ) -> None:
        """As `add`, for jobs that are like the ``first`` but for these. O(jobs).

        None of them has begun: what is left is the whole of its run (s).
        """
        while len(self._free) < len(jobs):
            self._grow()
        columns, free = self._columns, self._free[: -len(jobs) - 1 : -1]
        del self._free[-len(jobs) :]
        self._staged += free
        self._row_of.update(zip(jobs, free, strict=True))
        rows = np.array(free)
        for row, job in zip(free, jobs, strict=True):
            self._jobs[row] = job
        columns["alive"][rows], columns["job_class"][rows] = True, first.job_class
        columns["tenant"][rows] = self.tenant_number(first.tenant)
        for name, value in zip(_TOLD, _told_of(first), strict=True):
            columns[name][rows] = value
        columns["number"][rows] = numbers
        columns["duration_s"][rows] = columns["remaining_s"][rows] = runs_s

    def remove(self, jobs: Iterable[str]) -> None:
        """Take out jobs that are in. O(jobs)."""
        alive, staged = self._columns["alive"], self._staged
        for job in jobs:
            row = self._row_of.pop(job)
            alive[row] = False
            if staged and staged[-1] == row:
                self._free.append(staged.pop())  # no index names it yet
            else:
                self._left.append(row)

    def take_turns(self, turns: Mapping[str, float]) -> None:
        """Note the turns of jobs in a new round; they count from the next `rerank` on. O(turns)."""
        turn = self._columns["turn"]
        for job, at in turns.items():
            row = self._row_of.get(job)
            if row is not None:
                turn[row] = at

    def tenant_number(self, name: str) -> int:
        """By which columns name a tenant. O(1)."""
        known = self._tenants.get(name)
        if known is None:
            known = self._tenants[name] = len(self._tenants)
            if known >= len(self._fairness):
                self._fairness = np.concatenate([self._fairness, np.ones(len(self._fairness))])
            self._fairness[known] = self._fairness_of(name)
        return known

    def _grow(self) -> None:
        old = len(self._jobs)
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.zeros_like(column)])
        self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
        self._jobs += [""] * old
        self._free = [*range(2 * old - 1, old - 1, -1), *self._free]

    # --- order ------------------------------------------------------------------------------------

    def rerank(self, now: float) -> None:
        """Compute all keys as of ``now`` and sort. O(jobs log jobs), in numpy."""
        self.ranked_at_s = now
        self.times_ranked += 1
        for name, at in self._tenants.items():
            self._fairness[at] = self._fairness_of(name)
        self._staged = []
        rows = np.flatnonzero(self._columns["alive"])
        self._set_keys(rows, self._compute(rows))
        self._sort(rows)

    def _compute(self, rows: Ints | slice) -> Floats:
        view = RowsView(self.ranked_at_s, self._columns, rows, self._fairness)
        return self.order.keys(cast(QueueView, view))

    def _sort(self, rows: Ints) -> None:
        """Sort by the last key first; every sort keeps the order of the one before."""
        submit_s, number = self._columns["submit_s"][rows], self._columns["number"][rows]
        if not _ascends(submit_s, number):
            rows = rows[np.lexsort((number, submit_s))]
        for column in reversed(range(self._keys.shape[1])):
            rows = rows[np.argsort(self._keys[rows, column], kind="stable")]
        self._over.reset(rows)
        if self.order.by_band:
            rows = rows[np.argsort(-self._columns["band"][rows], kind="stable")]
        self._within.reset(rows)
        self._free += self._left
        self._left = []

    def _settle(self) -> None:
        """Put in order what was added since the head was looked up. O(added x late), or a sort."""
        if self._all_unblocked:
            self._settle_blocks()
        if not self._staged:
            return
        alive = self._columns["alive"]
        staged, self._staged = [row for row in self._staged if alive[row]], []
        if not staged:
            return
        rows = slice(staged[0], staged[0] + 1) if len(staged) == 1 else np.array(staged)
        self._set_keys(rows, self._compute(rows))
        if self._is_worth_a_sort(len(staged)):
            self._sort(np.flatnonzero(alive))
            return
        for row in staged:
            last = self._last_of(row)
            band = (-float(self._columns["band"].item(row)),) if self.order.by_band else ()
            for index, key in ((self._within, (*band, *last)), (self._over, self._over_key(last))):
                if index.insert(key, row) and self._is_unblocked(index, row):
                    index.step_back(key)

    def _is_worth_a_sort(self, added: int) -> bool:
        """Whether to sort all rows: inserts are searched one by one, sorted rows many at a time."""
        many = added > MANY and 8 * added > len(self)
        late = len(self._within.late) + added
        return many or late > FEW + len(self) // 16 or late > LATE_LIMIT

    def _set_keys(self, rows: Ints | slice, keys: Floats) -> None:
        if self._keys.shape[1] != keys.shape[1]:
            self._keys = np.zeros((len(self._jobs), keys.shape[1]))
        if keys.shape[1]:
            self._keys[rows] = keys

    def _key(self, row: int, over_quota: bool) -> Key:
        last = self._last_of(row)
        if over_quota:
            return self._over_key(last)
        band = (-float(self._columns["band"].item(row)),) if self.order.by_band else ()
        return (*band, *last)

    def _over_key(self, last: Key) -> Key:
        """Over quota no band counts."""
        return (0.0, *last) if self.order.by_band else last

    def _last_of(self, row: int) -> Key:
        """A row's key behind its band."""
        columns = self._columns
        last = (columns["submit_s"].item(row), columns["number"].item(row), row)
        return (*self._keys[row].tolist(), *last) if self._keys.shape[1] else last

    def key(self, job: str, over_quota: bool) -> Key | None:
        """Where a job ranks, lower first; None for one that is not in. O(1)."""
        self._settle()
        row = self._row_of.get(job)
        return None if row is None else self._key(row, over_quota)

    def view_of(self, others: Sequence[Waiting], now: float, *, running: bool) -> QueueView:
        """Jobs that are not in, as the order sees them at a time. O(others)."""
        tenant = np.array([self.tenant_number(other.tenant) for other in others])
        rows = np.array([_told_of(other) for other in others]).T
        columns = {name: row.astype(_TYPES[name]) for name, row in zip(_TOLD, rows, strict=True)}
        return self.seen(tenant, now, running=running, **columns)

    def seen(
        self, tenant: Ints, now: float, *, running: bool, **columns: NDArray[Any]
    ) -> QueueView:
        """Jobs as the order sees them (n), by the other columns of a `QueueView`."""
        runs, fairness = np.full(len(tenant), running), self._fairness[tenant]
        return QueueView(now, tenant=tenant, fairness=fairness, running=runs, **columns)

    def key_of(self, other: Waiting) -> Key:
        """Where a job that is not in would rank if it waited, with its band. O(1)."""
        keys = self.order.keys(self.view_of([other], self.ranked_at_s, running=False))
        band = (-float(other.band),) if self.order.by_band else ()
        return (*band, *keys[0].tolist(), other.submit_s, other.number)

    def remaining_s(self, job: str) -> float | None:
        """What was said to be left of a job's run; None for one that is not in. O(1)."""
        row = self._row_of.get(job)
        return None if row is None else float(self._columns["remaining_s"][row])

    def in_order(
        self,
        over_quota: bool = False,
        job_classes: Sequence[int] | None = None,
        after: Key | None = None,
    ) -> Iterator[tuple[Key, str]]:
        """Every job from the head on, passed over or not; not to be changed meanwhile.

        ``job_classes``: only those of some; ``after``: only what stands behind that key. Amortised
        O(1) for each in Python, O(jobs) in numpy.
        """
        self._settle()
        index = self._over if over_quota else self._within
        alive, class_of = self._columns["alive"], self._columns["job_class"]
        is_meant = np.full(int(class_of.max()) + 1, job_classes is None)
        is_meant[list(job_classes or ())] = True
        sorted_rows, keys = index.base, index.late
        if after is not None:
            key_of = partial(self._key, over_quota=over_quota)
            sorted_rows = sorted_rows[bisect_right(sorted_rows, after, key=key_of) :]
            keys = keys[bisect_right(keys, after) :]
        blocks = (sorted_rows[at : at + BLOCK] for at in range(0, len(sorted_rows), BLOCK))
        meant = (block[alive[block] & is_meant[class_of[block]]] for block in blocks)
        base = (self._key(row, over_quota) for rows in meant for row in rows.tolist())
        late_rows = ((key, int(key[-1])) for key in keys)
        late = (key for key, row in late_rows if alive[row] and is_meant[class_of[row]])
        for key in heapq.merge(base, late):
            yield key, self._jobs[int(key[-1])]

    # --- the next job that is not passed over -----------------------------------------------------

    def first_unblocked(self, over_quota: bool) -> tuple[Key, str] | None:
        """The first job that is not passed over. Amortised O(1) in Python, O(jobs) in numpy."""
        index = self._over if over_quota else self._within
        if len(self._staged) == 1 == len(self._row_of) and not self._all_unblocked:
            row = self._staged[0]  # it comes alone, and there is no order to put it in
            self._set_keys(slice(row, row + 1), self._compute(slice(row, row + 1)))
            if self._is_unblocked(index, row):
                return self._key(row, over_quota), self._jobs[row]
        if self._staged or self._all_unblocked:
            self._settle()
        if not self._row_of:
            return None
        found = self._head(index, over_quota)
        exempt = None if self.exempt is None else self._row_of.get(self.exempt)
        if exempt is not None and self._is_job_class_unblocked(index, exempt):
            key = self._key(exempt, over_quota)
            found = key if found is None else min(found, key)
        return None if found is None else (found, self._jobs[int(found[-1])])

    def _head(self, index: OrderedIndex, over_quota: bool) -> Key | None:
        """The key of the first row that is not passed over. O(1) unless the head changed."""
        found = index.head
        if index.knows_head and (found is None or self._columns["alive"].item(int(found[-1]))):
            return found
        found = None
        if index.cursor < len(index.base):
            index.cursor = self._seek(index, index.base, index.cursor)
        if index.late_cursor < len(index.late):
            index.late_cursor = self._seek(index, index.late_rows, index.late_cursor)
        if index.cursor < len(index.base):
            found = self._key(index.base.item(index.cursor), over_quota)
        if index.late_cursor < len(index.late):
            late = index.late[index.late_cursor]
            found = late if found is None else min(found, late)
        index.head, index.knows_head = found, True
        return found

    def all_within(self) -> bool:
        """Whether no job is passed over within quota: then none over quota comes first. O(1)."""
        return self._all_unblocked or not self._within.blocked

    def first_jobs(self, count: int) -> tuple[list[str], list[int]]:
        """The first jobs within quota that are not passed over, and the numbers of their classes.

        O(count + rows passed over), in numpy.
        """
        self._settle()
        rows, late = self._upcoming(self._within, count)
        if late:
            rows = [int(key[-1]) for key in self._merged(rows, late, False, count)]
        names = self._jobs
        classes: list[int] = self._columns["job_class"][rows].tolist()
        return [names[row] for row in rows], classes

    def upcoming(self, over_quota: bool, count: int) -> list[tuple[Key, str]]:
        """The first jobs that are not passed over. O(count + rows passed over)."""
        self._settle()
        rows, late = self._upcoming(self._over if over_quota else self._within, count)
        keys = self._merged(rows, late, over_quota, count)
        return [(key, self._jobs[int(key[-1])]) for key in keys]

    def _merged(
        self, rows: list[int], late: list[Key], over_quota: bool, count: int
    ) -> Iterator[Key]:
        base = (self._key(row, over_quota) for row in rows)
        return islice(heapq.merge(base, late), count)

    def _upcoming(self, index: OrderedIndex, count: int) -> tuple[list[int], list[Key]]:
        """The first rows that are not passed over, and the keys of the first late ones."""
        alive, job_class = self._columns["alive"], self._columns["job_class"]
        left_s = self._columns["remaining_s"]
        rows: list[int] = []
        at, size = index.cursor, SCAN_FIRST
        while at < len(index.base) and len(rows) < count:
            block = index.base[at : at + size]
            hits = alive[block] & index.are_unblocked(job_class[block], left_s[block])
            rows += block[hits].tolist()
            at, size = at + len(block), min(4 * size, SCAN_MOST)
        behind = index.late_rows[index.late_cursor :]
        hits = alive[behind] & index.are_unblocked(job_class[behind], left_s[behind])
        late = [index.late[index.late_cursor + i] for i in np.flatnonzero(hits)[:count].tolist()]
        return rows[:count], late

    def _is_unblocked(self, index: OrderedIndex, row: int) -> bool:
        columns = self._columns
        if not columns["alive"][row]:
            return False
        if not index.blocked:
            return True
        from_s = index.blocked_from_s(columns["job_class"].item(row))
        return bool(columns["remaining_s"].item(row) < from_s)

    def _is_job_class_unblocked(self, index: OrderedIndex, row: int) -> bool:
        """As `_is_unblocked`, whatever there is of its placement class."""
        columns = self._columns
        from_s = index.from_s.item(JOB_CLASS, columns["job_class"].item(row))
        return bool(columns["alive"].item(row) and columns["remaining_s"].item(row) < from_s)

    def _seek(self, index: OrderedIndex, rows: Ints, at: int) -> int:
        """Where the first row from a place on is that is not passed over; behind the last if none.

        O(rows), in numpy.
        """
        near = min(at + LOOKED_AT_FIRST, len(rows))
        while at < near:
            if self._is_unblocked(index, rows.item(at)):
                return at  # most often the head left, and the one behind it is next
            at += 1
        alive, job_class = self._columns["alive"], self._columns["job_class"]
        left_s = self._columns["remaining_s"]
        size = SCAN_FIRST
        while at < len(rows):
            some = rows[at : at + size]
            hits = alive.take(some) & index.are_unblocked(job_class.take(some), left_s.take(some))
            first = int(hits.argmax())
            if hits[first]:
                return at + first
            at += len(some)
            size = min(4 * size, SCAN_MOST)
        return at

    def is_passed_over(self, job: str) -> bool:
        """Whether a job is passed over, within quota and over it. O(1)."""
        row, indices = self._row_of[job], (self._within, self._over)
        passed_over = not any(self._is_unblocked(index, row) for index in indices)
        return not self._all_unblocked and passed_over

    # --- blocks -----------------------------------------------------------------------------------

    def add_job_class(self, job_class: int, within: int, over: int) -> None:
        """There is a job class of these numbers: its own, and those of its placement classes.

        It begins unblocked, unless its placement classes are blocked. Amortised O(1).
        """
        for index, placement in ((self._within, within), (self._over, over)):
            index.add(JOB_CLASS, job_class)
            index.placement_of[job_class] = placement

    def add_class(self, placement: int) -> None:
        """There is a placement class of this number; it begins unblocked. Amortised O(1)."""
        for index in (self._within, self._over):
            index.add(PLACEMENT, placement)

    def block(self, kind: int, number: int, over_quota: bool, from_s: float = -np.inf) -> None:
        """Pass over a class from now on, or its jobs that need ``from_s`` or more. O(1)."""
        self._settle_blocks()
        (self._over if over_quota else self._within).block(kind, number, from_s)

    def unblock(self, kind: int, number: int, over_quota: bool) -> None:
        """Do not pass over a class any more, within quota or over it. O(1)."""
        index = self._over if over_quota else self._within
        if index.unblock(kind, number):
            index.rewind()

    def unblock_unused(self, kind: int, number: int, over_quota: bool) -> None:
        """As `unblock`, of a class without jobs. O(1)."""
        index = self._over if over_quota else self._within
        if index.blocked:
            index.unblock(kind, number)

    def unblock_all(self) -> None:
        """Pass over no job. O(1); O(classes) in numpy when the head is looked up."""
        self._all_unblocked = True

    def _settle_blocks(self) -> None:
        if self._all_unblocked:
            self._all_unblocked = False
            for index in (self._within, self._over):
                index.unblock_all()


def _ascends(first: Floats, second: Ints) -> bool:
    """Whether rows are sorted by two columns already."""
    step, next_step = np.diff(first), np.diff(second)
    return bool(np.all((step > 0) | ((step == 0) & (next_step > 0))))
