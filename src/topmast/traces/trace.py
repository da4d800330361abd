"""A trace in memory: the jobs of a cluster over time, in columns.

Texts are dictionary-encoded (`Texts`), numbers are arrays, so a million jobs take some 250 MB.
Rows are sorted by (submit_s, row in the file). `trace_of` builds one from what a reader or
generator has and fills in the defaults of the `topmast` format; what a column means is said there
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.model.units import BYTE_UNITS
from topmast.traces.cells import more_tasks_of
from topmast.traces.values import LATEST_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Bools = NDArray[np.bool_]
Rows = NDArray[Any]

DEFAULT_CHECKPOINT_INTERVAL_S = 600.0
DEFAULT_TENANT = "default"
DEFAULT_HOST_GPUS = 8


class Texts(Struct, frozen=True, eq=False):
    """A column of text: row i reads ``names[codes[i]]``; no name stands twice in ``names``."""

    codes: Codes
    names: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.names[int(self.codes[row])]

    def values(self) -> list[str]:
        """The text of every row. O(n)."""
        names = self.names
        return [names[code] for code in self.codes.tolist()]

    def take(self, rows: Rows) -> Texts:
        """The same column of some rows, in their order. O(rows)."""
        return Texts(self.codes[rows], self.names)

    def counts(self) -> dict[str, int]:
        """How many rows read each name that is used, the most frequent first. O(n)."""
        number = np.bincount(self.codes, minlength=len(self.names))
        order = np.argsort(-number, kind="stable")
        return {self.names[i]: int(number[i]) for i in order.tolist() if number[i]}


def texts_of(values: Iterable[str]) -> Texts:
    """Encode a column, names in order of first appearance. O(n)."""
    known: dict[str, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return Texts(np.array(codes, dtype=np.int32), list(known))


def same_text(value: str, length: int) -> Texts:
    """A column that reads ``value`` in every row."""
    return Texts(np.zeros(length, dtype=np.int32), [value])


class Sizes(Struct, frozen=True, eq=False):
    """A column of amounts of memory. `sizes_of` makes one, and nothing else should: numbers
    come with their unit.
    """

    gb: Floats
    """In GB of 10^9 bytes, as everywhere in Topmast."""


def sizes_of(values: Sequence[float] | Floats, unit: str) -> Sizes:
    """A column of memory from numbers in ``unit``: GB is 10^9 bytes, GiB 2^30."""
    if unit not in BYTE_UNITS:
        raise ValueError(f"{unit} is no unit of memory: {', '.join(BYTE_UNITS)}")
    units_in_gb = BYTE_UNITS["GB"] / BYTE_UNITS[unit]  # exact of powers of two, and of GB itself
    return Sizes(np.asarray(values, dtype=np.float64) / units_in_gb)


class Trace(Struct, frozen=True, eq=False):
    """Jobs of a trace (n) in columns, sorted by (submit_s, row in the file)."""

    name: str
    job_id: list[str]
    submit_s: Floats
    """From the start of the trace."""
    duration_s: Floats
    """Alone, on the first GPU model listed (or on any, at speed 1)."""
    expected_s: Texts
    """How long the job says that it will run, and what else on its way (`cells.expected_of`);
    empty: ``duration_s``.
    """
    gpus: Floats
    """Per task: whole, or a share below 1."""
    tasks: Ints
    more_tasks: Texts
    """Tasks of other sizes in the same gang (`cells.more_tasks_of`); empty: none."""
    tenant: Texts
    user: Texts
    group: Texts
    """The recurrence tag; empty for none."""
    band: Ints
    """Values of `Band`."""
    gpu_models: Texts
    """``H100|A100`` in order of preference; empty: any model, at speed 1."""
    speeds: Texts
    """``1|0.6``, one for each model listed; empty: 1 each."""
    cpus: Floats
    """Per task; 0 does not limit, here and for the memories."""
    memory_gb: Floats
    gpu_memory_gb: Floats
    """Per GPU."""
    datasets: Texts
    """``a|b``; empty for none."""
    home_region: Texts
    """Empty: a region that holds the first dataset, else the first by name."""
    preemptible: Bools
    checkpoint_interval_s: Floats
    deadline_s: Floats
    """After submission; NaN for none."""
    model: Texts
    """A key of a throughput table; empty for none."""
    min_tasks: Ints
    max_tasks: Ints
    skew: Floats
    """Tensor skew of the model; NaN for none."""
    depends_on: Texts
    """``a|b``, ids of this trace; empty for none."""
    waited_s: Floats
    """How long the job waited in the cluster that was recorded; NaN where that is not known.

    Only for descriptions; the `topmast` format has no such column.
    """
    skipped: int = 0
    """Bad rows that were left out on request."""
    unfinished: int = 0
    """Rows that are no jobs by their own account: not over when the recording ended, or never
    begun.
    """

    def __len__(self) -> int:
        return len(self.job_id)

    def total_gpus(self) -> Floats:
        """GPUs of the whole gang (n)."""
        more = [sum(m.gpus * m.tasks for m in more_tasks_of(x)) for x in self.more_tasks.names]
        return self.gpus * self.tasks + np.array(more, np.float64)[self.more_tasks.codes]

    def total_tasks(self) -> Ints:
        """Tasks of the whole gang (n)."""
        more = [sum(m.tasks for m in more_tasks_of(x)) for x in self.more_tasks.names]
        return self.tasks + np.array(more, np.int64)[self.more_tasks.codes]

    def take(self, rows: Rows) -> Trace:
        """Some of the jobs, in the order given. O(rows x columns)."""
        changed: dict[str, Any] = {}
        for column in COLUMNS:
            value = getattr(self, column)
            if isinstance(value, Texts):
                changed[column] = value.take(rows)
            elif isinstance(value, list):
                changed[column] = [value[i] for i in np.asarray(rows).tolist()]
            else:
                changed[column] = value[rows]
        return structs.replace(self, **changed)

    def head(self, jobs: int) -> Trace:
        """The first ``jobs`` jobs; what they depend on and is cut off counts as done."""
        return self if jobs >= len(self) else self.take(np.arange(max(jobs, 0)))._independent()

    def between(self, from_s: float = 0.0, to_s: float = np.inf) -> Trace:
        """The jobs submitted in [from_s, to_s), cut off as `head` does; time counts from
        ``from_s``.
        """
        begin, end = np.searchsorted(self.submit_s, [from_s, to_s], side="left")
        cut = self.take(np.arange(begin, max(begin, end)))._independent()
        return structs.replace(cut, submit_s=cut.submit_s - from_s) if from_s else cut

    def _independent(self) -> Trace:
        """The same jobs, waiting for none that is not among them. O(n) if any waits, else O(1)."""
        if not any(self.depends_on.names):
            return self
        there = dict.fromkeys(self.job_id)
        names = [
            "|".join(name for name in text.split("|") if name in there)
            for text in self.depends_on.names
        ]
        renamed = texts_of(names)
        left = Texts(renamed.codes[self.depends_on.codes], renamed.names)
        return structs.replace(self, depends_on=left)

    def with_load(self, load: float) -> Trace:
        """The same jobs, arriving ``load`` times as fast."""
        if not (np.isfinite(load) and load > 0):
            raise InvalidInput("is not a number above 0", field="load", remedy="for example 1.2")
        with np.errstate(over="ignore"):
            submit_s = self.submit_s / load
        if submit_s.max(initial=0.0) > LATEST_S:
            raise InvalidInput(
                f"lets jobs arrive later than {LATEST_S:g} s", field="load",
                remedy="take a larger one, such as 0.1",
            )  # fmt: skip
        return structs.replace(self, submit_s=submit_s)

    def in_order(self) -> Trace:
        """The same jobs, sorted by submission; those of one instant keep their order."""
        if bool(np.all(self.submit_s[1:] >= self.submit_s[:-1])):
            return self
        return self.take(np.argsort(self.submit_s, kind="stable"))


COLUMNS = tuple(
    name for name in Trace.__struct_fields__ if name not in ("name", "skipped", "unfinished")
)
"""The fields of a `Trace` that have a value per job."""


def trace_of(
    name: str,
    *,
    submit_s: Sequence[float] | Floats,
    duration_s: Sequence[float] | Floats,
    gpus: Sequence[float] | Floats,
    job_id: Sequence[str] | None = None,
    memory: Sizes | None = None,
    gpu_memory: Sizes | None = None,
    skipped: int = 0,
    unfinished: int = 0,
    **given: Any,
) -> Trace:
    """A trace of the columns given, the others at their defaults, sorted by submission.

    Text columns may be `Texts`, a list, or one text for all rows; numbers an array, a list, or one
    number for all rows. Jobs without ids are named by their row, from 0. Memories are of
    `sizes_of`, so that no reader can leave out their unit; 0 where none is given.
    """
    jobs = len(submit_s)
    tasks = _numbers(given.pop("tasks", 1), jobs, np.int64)
    columns: dict[str, Any] = {
        "memory_gb": _numbers(0.0 if memory is None else memory.gb, jobs, np.float64),
        "gpu_memory_gb": _numbers(0.0 if gpu_memory is None else gpu_memory.gb, jobs, np.float64),
        "submit_s": _numbers(submit_s, jobs, np.float64),
        "duration_s": _numbers(duration_s, jobs, np.float64),
        "gpus": _numbers(gpus, jobs, np.float64),
        "tasks": tasks,
        "min_tasks": _numbers(given.pop("min_tasks", tasks), jobs, np.int64),
        "max_tasks": _numbers(given.pop("max_tasks", tasks), jobs, np.int64),
    }
    for column, default in _TEXTS.items():
        columns[column] = _texts(given.pop(column, default), jobs)
    for column, (fill, kind) in _NUMBERS.items():
        columns[column] = _numbers(given.pop(column, fill), jobs, kind)
    if given:
        raise TypeError(f"no such column: {', '.join(given)}")
    ids = list(job_id) if job_id is not None else [str(row) for row in range(jobs)]
    found = Trace(name=name, job_id=ids, skipped=skipped, unfinished=unfinished, **columns)
    return found.in_order()


_TEXTS = {
    "tenant": DEFAULT_TENANT, "user": "", "group": "", "gpu_models": "", "speeds": "",
    "datasets": "", "home_region": "", "model": "", "depends_on": "", "more_tasks": "",
    "expected_s": "",
}  # fmt: skip
_NUMBERS: dict[str, tuple[float, type]] = {
    "band": (int(Band.NORMAL), np.int64),
    "cpus": (0.0, np.float64),
    "preemptible": (True, np.bool_),
    "checkpoint_interval_s": (DEFAULT_CHECKPOINT_INTERVAL_S, np.float64),
    "deadline_s": (np.nan, np.float64),
    "skew": (np.nan, np.float64),
    "waited_s": (np.nan, np.float64),
}


def _numbers(value: Any, jobs: int, kind: type) -> NDArray[Any]:
    column: NDArray[Any] = np.asarray(value, dtype=kind)
    return np.full(jobs, column, dtype=kind) if column.ndim == 0 else column


def _texts(value: Any, jobs: int) -> Texts:
    if isinstance(value, Texts):
        return value
    return same_text(value, jobs) if isinstance(value, str) else texts_of(value)


def gangs(counts: Floats, host_gpus: int) -> tuple[Floats, Ints]:
    """GPUs per task and tasks of jobs that ask for ``counts`` GPUs in one number.

    One task if a host can hold them, else n/g tasks of g, where g is the largest divisor of n that
    a host holds. A count above 1 that is not whole is rounded up first. O(n + d x host_gpus) for d
    different counts that no host holds.
    """
    if host_gpus < 1:
        raise InvalidInput("is below 1", field="host-gpus", remedy="GPUs of the largest host: 8")
    whole = np.where(counts > 1, np.ceil(counts), counts).astype(np.float64)
    gpus, tasks = whole.copy(), np.ones(len(whole), dtype=np.int64)
    for count in np.unique(whole[whole > host_gpus]).tolist():
        rows = whole == count
        per_task = next(g for g in range(host_gpus, 0, -1) if count % g == 0)
        gpus[rows], tasks[rows] = per_task, int(count) // per_task
    return gpus, tasks
