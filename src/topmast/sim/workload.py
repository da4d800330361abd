"""The jobs of a trace as people would submit them: rows become job specs when their time comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import UNSET, Struct

from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, Accelerator, Band, Checkpoint, JobSpec, Resources, TaskGroup
from topmast.model.units import bytes_of_gb
from topmast.sim.heap import instant
from topmast.traces.cells import Expected, MoreTasks, expected_of, more_tasks_of
from topmast.traces.throughputs import Throughputs, Work
from topmast.traces.trace import Texts, Trace

CHUNK = 4_096
"""Rows made into Python values at a time, so that a million jobs are never all objects."""
PLACE = "checkpoints"
"""Every job says that it checkpoints, so that its interval counts when victims are chosen."""
BANDS = {int(band): band for band in Band}
NEVER_S = 1e12
"""The interval of a job that says 0."""


class Arrival(Struct, gc=False):
    """A job on its way to the queue, with what the queue is not told."""

    row: int
    submit_s: float
    duration_s: float
    spec: JobSpec
    gpus: float
    """Of the whole gang."""
    expects: tuple[tuple[float, float], ...] = ()
    """What it says on its way of how long it will run, as `Expected.later`."""
    depends_on: tuple[str, ...] = ()
    home_region: str = ""
    deadline_s: float = float("nan")


class Workload:
    """The arrivals of a trace, in order."""

    def __init__(
        self,
        trace: Trace,
        fleet: Fleet,
        throughputs: Throughputs | None = None,
        *,
        durations_told: bool = True,
    ) -> None:
        self.trace = trace
        self._told = durations_told
        self._throughputs = throughputs
        self._models = fleet.models()
        self._groups: dict[tuple[Any, ...], tuple[TaskGroup, ...]] = {}
        self._checkpoints: dict[float, Checkpoint] = {}
        self._lists: dict[str, tuple[str, ...]] = {}

    def arrivals(self) -> Iterator[Arrival]:
        """Every job, by time of submission. O(1) each, and memory for a chunk of them."""
        for begin in range(0, len(self.trace), CHUNK):
            rows = slice(begin, begin + CHUNK)
            yield from (self._arrival(begin + i, x) for i, x in enumerate(self._chunk(rows)))

    def _chunk(self, rows: slice) -> Iterator[tuple[Any, ...]]:
        trace = self.trace
        columns = [
            trace.job_id[rows], trace.submit_s[rows].tolist(), trace.duration_s[rows].tolist(),
            _texts(trace.expected_s, rows), _texts(trace.more_tasks, rows),
            trace.gpus[rows].tolist(), trace.tasks[rows].tolist(), trace.band[rows].tolist(),
            *(_texts(x, rows) for x in (trace.tenant, trace.user, trace.group, trace.datasets)),
            *(_texts(x, rows) for x in (trace.gpu_models, trace.speeds, trace.home_region)),
            trace.cpus[rows].tolist(), trace.memory_gb[rows].tolist(),
            trace.gpu_memory_gb[rows].tolist(), trace.preemptible[rows].tolist(),
            trace.checkpoint_interval_s[rows].tolist(), trace.deadline_s[rows].tolist(),
            _texts(trace.depends_on, rows), _texts(trace.model, rows), trace.skew[rows].tolist(),
            trace.min_tasks[rows].tolist(), trace.max_tasks[rows].tolist(),
        ]  # fmt: skip
        return zip(*columns, strict=True)

    def _arrival(self, row: int, values: tuple[Any, ...]) -> Arrival:
        (
            job, submit_s, duration_s, expected, more, gpus, tasks, band, tenant, user, group,
            datasets, models, speeds, home, cpus, memory_gb, gpu_memory_gb, preemptible, interval_s,
            deadline_s, after, model, skew, fewest, most,
        ) = values  # fmt: skip
        limits = (fewest, most) if fewest < most else (None, None)
        told = expected_of(expected) if expected else Expected(duration_s)
        rest = more_tasks_of(more)
        spec = JobSpec(
            name=job,
            groups=self._group(
                gpus, tasks, models, speeds, cpus, memory_gb, gpu_memory_gb, model, *limits, rest
            ),
            tenant=tenant,
            user=user,
            band=BANDS[band],
            datasets=self._split(datasets),
            checkpoint=self._checkpoint(interval_s),
            preemptible=preemptible,
            group=group,
            duration_s=told.first_s if self._told else None,
            home=home,
            deadline_s=None if math.isnan(deadline_s) else deadline_s,
            skew=None if skew != skew else skew,  # NaN: not known
            work=model if model and self._throughputs is not None else UNSET,
        )
        return Arrival(
            row,
            instant(submit_s),
            duration_s,
            spec,
            gpus * tasks + (sum([of.gpus * of.tasks for of in rest]) if rest else 0),
            told.later if self._told else (),
            self._split(after),
            home,
            deadline_s,
        )

    def _split(self, text: str) -> tuple[str, ...]:
        if not text:
            return ()
        known = self._lists.get(text)
        if known is None:
            known = self._lists[text] = tuple(text.split("|"))
        return known

    def _checkpoint(self, interval_s: float) -> Checkpoint:
        known = self._checkpoints.get(interval_s)
        if known is None:
            known = self._checkpoints[interval_s] = Checkpoint(PLACE, interval_s or NEVER_S)
        return known

    def _group(self, *shape: Any) -> tuple[TaskGroup, ...]:
        """The task groups of a shape, made once: jobs that ask alike share them."""
        known = self._groups.get(shape)
        if known is None:
            known = self._groups[shape] = self._make_groups(*shape)
        return known

    def _make_groups(
        self,
        gpus: float,
        tasks: int,
        models: str,
        speeds: str,
        cpus: float,
        memory_gb: float,
        gpu_memory_gb: float,
        model: str,
        fewest: int | None,
        most: int | None,
        more: tuple[MoreTasks, ...],
    ) -> tuple[TaskGroup, ...]:
        """Those of other sizes take the same GPU models, and are as fast there."""
        total = gpus * tasks + sum(of.gpus * of.tasks for of in more)
        models_of = self._accelerators(models, speeds, model, total)
        of_gpu = bytes_of_gb(gpu_memory_gb)
        first = Resources(models_of(gpus), cpus, bytes_of_gb(memory_gb), of_gpu)
        groups = [TaskGroup("tasks", tasks, first, "", "", fewest, most)]
        for number, of in enumerate(more, 2):
            memory_bytes, per_gpu = bytes_of_gb(of.memory_gb), of_gpu if of.gpus else 0
            own = Resources(models_of(of.gpus), of.cpus, memory_bytes, per_gpu)
            groups.append(TaskGroup(f"tasks-{number}", of.tasks, own, ""))
        return tuple(groups)

    def _accelerators(
        self, models: str, speeds: str, model: str, total_gpus: float
    ) -> Callable[[float], tuple[Accelerator, ...]]:
        """What a task of so many GPUs takes: a GPU model each, in order of preference."""
        names = [*(self._split(models) or self._models)]
        rates = [float(x) for x in self._split(speeds)] or [1.0] * len(names)
        measured = {} if speeds or not model else self._measured(Work(model, round(total_gpus)))
        if measured:
            names = [n for n in names if n in measured] or [*measured]
            names = names if models else sorted(names, key=lambda n: (-measured[n], n))
            rates = [measured[n] / measured[names[0]] for n in names]

        def of(gpus: float) -> tuple[Accelerator, ...]:
            milli = round(gpus * MILLI) if gpus >= 1 else max(1, round(gpus * MILLI)) if gpus else 0
            if milli and not (models or speeds or measured):
                return (Accelerator(None, milli),)
            listed = zip(names, rates, strict=True)
            return tuple(Accelerator(name, milli, rate) for name, rate in listed if milli)

        return of

    def _measured(self, work: Work) -> dict[str, float]:
        """Steps per second by GPU model, of a job type on so many GPUs, else on one."""
        if self._throughputs is None:
            return {}
        return self._throughputs.speeds(work) or self._throughputs.speeds(Work(work.model, 1))


def _texts(column: Texts, rows: slice) -> list[str]:
    names = column.names
    return [names[code] for code in column.codes[rows].tolist()]


def first_and_last_s(trace: Trace) -> tuple[float, float]:
    """The times of the first and the last submission; zeros for an empty trace."""
    if not len(trace):
        return 0.0, 0.0
    return instant(float(np.min(trace.submit_s))), instant(float(np.max(trace.submit_s)))
