"""The times of a simulated world, fitted to jobs that really ran."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.experiments.collector import calm
from topmast.experiments.holding import CHECKPOINT, RESTORE, STARTUP, Held, fitted, is_known
from topmast.experiments.rounds_found import rounds_of
from topmast.experiments.run import RunOptions, checked, load, run
from topmast.model.errors import InvalidInput
from topmast.policies.registry import NO_SHARES
from topmast.sim.books import JOBS, Tables
from topmast.sim.settings import (
    GPU_SPEED,
    OVERHEADS,
    PREFIX,
    ROUNDS_ALONE,
    ROUNDS_SHARED,
    Settings,
    check_models,
)
from topmast.sim.simulation import Simulation

COLUMNS = ("job_id", "submit_s", "finish_s")
"""Of the table of jobs that `simulate --out` writes; others are not read."""
HOLDING = ("wait_s", "preemptions", "restarts")
"""With these it is known how long a job had GPUs, and in how many attempts."""
MODEL = "gpu_model"
"""Where a job ran last: then the speeds of these models are fitted, too."""
FIRST_START = "first_start_s"
"""With it rounds are found: jobs that waited start at multiples of them."""
WAITED_S = 1.0
"""A job that starts so soon may not have waited for a round."""
_AT = [JOBS.index(name) for name in COLUMNS]
FITTED = (STARTUP, RESTORE, CHECKPOINT)
LONGEST_S = 600.0
"""No start, restore or checkpoint is looked for beyond."""
TOLERANCE_S = 0.5
RUNS = 20
"""At most so many simulations for each setting."""


class Error(Struct, frozen=True):
    """How far simulated job completion times lie from measured ones, as fractions."""

    mean: float
    """Of the means: 0.05 is 5% too long."""
    p50: float
    p99: float
    makespan: float
    by_job: float
    """The mean over jobs of the difference, whatever its sign, over the measured time."""
    correlation: float | None
    """Of the times of jobs; None where all are alike."""


class Calibration(Struct, frozen=True):
    """What was fitted, and what it is good for."""

    settings: dict[str, float]
    unseen: tuple[str, ...]
    """What these jobs cannot show, such as restores where none was stopped; left as it was."""
    jobs: int
    unmatched: int
    """Jobs of one side that the other lacks, or that did not end; they are left out."""
    runs: int
    """Simulations that the search took."""
    before: Error
    after: Error
    held_out_before: Error
    """Of every other job: those that the search did not see."""
    held_out_after: Error


class Times(Struct, frozen=True):
    """When a job was submitted, and when it ended; what else a table says of it."""

    submit_s: float
    finish_s: float
    wait_s: float | None = None
    attempts: int = 1
    model: str = ""
    first_start_s: float | None = None


def calibrate(
    options: RunOptions,
    measured: Path,
    out: Path | None = None,
    names: Sequence[str] | None = None,
    tell: Callable[[int, float], object] = lambda runs, error: None,
) -> Calibration:
    """Fit ``names`` so that simulated jobs take as long as measured ones, and write the settings.

    ``names`` None: `FITTED`, the speed of each GPU model that the table of jobs names, and rounds
    if its starts show any. Every other job by its submission is seen. Where the table says how long
    jobs had GPUs, that time alone decides (`holding`). Else a search (Powell's method) minimises
    the mean of |log(simulated / measured)|, which a few long jobs do not rule; ``tell`` gets the
    number of runs so far and the least such mean. At most some twenty simulations for each name.
    Raises InvalidInput for files that do not fit.
    """
    if names is not None:
        check_names(names)
    checked([options], measured)
    real = read_times(measured)
    if names is None:
        known = [times for times in real.values() if times.wait_s is not None]
        models = sorted({times.model for times in known if times.model})
        names = (*FITTED, *(f"{GPU_SPEED}{model}" for model in models), ROUNDS_ALONE)
    load_kernels()
    load_solvers(options.world()[0])
    rounds = _rounds(options, real) if ROUNDS_ALONE in names else {}
    names = tuple(name for name in names if name != ROUNDS_ALONE)
    world = _World(options, real, names, rounds, tell)
    before = world.simulate({})
    shared = [job for job in real if job in before]
    if len(shared) < 4:
        raise InvalidInput(
            f"only {len(shared)} of its jobs end in the simulation", where=str(measured),
            remedy="give the trace of which these jobs are; job_id is the name of a job in it",
        )  # fmt: skip
    best = world.held(shared[::2])
    if best is None:
        best = world.searched(shared[::2])
    unseen = tuple(name for name in names if name not in best)
    after = world.simulate(best)
    if rounds:
        in_rounds = world.simulate({**best, **rounds})
        apart, together = (_off(error_of(real, x, shared[::2])) for x in (after, in_rounds))
        if together < apart:
            best, after = {**best, **rounds}, in_rounds
    held_out = shared[1::2]
    result = Calibration(
        best, unseen, len(shared), len(real.keys() ^ before.keys()), world.runs,
        error_of(real, before, shared), error_of(real, after, shared),
        error_of(real, before, held_out), error_of(real, after, held_out),
    )  # fmt: skip
    if options.out is not None:
        run(with_settings(options, best))
    if out is not None:
        lines = [f"# fitted to {measured.name} with profile {options.profile}"]
        lines += [f"{name}={value:g}" for name, value in best.items()]
        lines += [f"# these jobs do not show {name}" for name in unseen]
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return result


def _off(error: Error) -> float:
    """How far a world is off: by job, and in what forecasts of all jobs are judged by.

    By job alone it is often chance which of two worlds is better, as jobs pass one another.
    """
    return error.by_job + abs(error.mean) + abs(error.makespan)


def _rounds(options: RunOptions, real: Mapping[str, Times]) -> dict[str, float]:
    """The rounds that the starts show; nothing if they show none.

    Lengths in whole minutes may look like rounds: simulations decide.
    """
    starts_s = [
        times.first_start_s
        for times in real.values()
        if times.first_start_s is not None and times.first_start_s - times.submit_s > WAITED_S
    ]
    found_s = rounds_of(starts_s)
    profile, _ = options.world()
    key = ROUNDS_ALONE if profile.shares.policy == NO_SHARES else ROUNDS_SHARED
    return {} if found_s is None or key in options.settings else {key: found_s}


def check_names(names: Sequence[str]) -> None:
    """Raises InvalidInput for a setting that `whatif` and forecasts could not go by."""
    known = (*OVERHEADS, ROUNDS_ALONE)
    speeds = [name for name in names if name.startswith(GPU_SPEED) and name != GPU_SPEED]
    if unknown := [name for name in names if name not in known and name not in speeds]:
        raise InvalidInput(
            f"{', '.join(unknown)} cannot be fitted", field="--fit",
            remedy=f"times of the world: {', '.join(known)}; or {GPU_SPEED}MODEL",
        )  # fmt: skip
    if not names:
        raise InvalidInput("nothing to fit", field="--fit", remedy=f"such as {FITTED[0]}")


def with_settings(options: RunOptions, settings: Mapping[str, float]) -> RunOptions:
    """The same run in a world with other times."""
    texts = {name: str(value) for name, value in settings.items()}
    return replace(options, settings={**options.settings, **texts})


def _nowhere(row: Sequence[object]) -> None:
    """Rows that nothing needs."""


class _World:
    """Simulations of one trace with other times, and the best so far."""

    def __init__(
        self,
        options: RunOptions,
        real: Mapping[str, Times],
        names: tuple[str, ...],
        fixed: Mapping[str, float],
        tell: Callable[[int, float], object],
    ) -> None:
        """``fixed``: what is known already, and holds in every simulation of a search."""
        self._options = options
        self._fixed = fixed
        self._setup = load(options)
        self._real = real
        self._names = names
        speeds = [name.removeprefix(GPU_SPEED) for name in names if name.startswith(GPU_SPEED)]
        check_models(Settings(gpu_speed=dict.fromkeys(speeds, 1.0)), self._setup.fleet.models())
        self._tell = tell
        self._known: dict[tuple[float, ...], float] = {}
        self._seen: Sequence[str] = ()
        self.runs = 0
        self._best: dict[str, float] = {}
        self._least = math.inf

    def held(self, seen: Sequence[str]) -> dict[str, float] | None:
        """What the times that these jobs had GPUs say; None where they or a name are not known."""
        if not all(is_known(name) for name in self._names):
            return None
        jobs = {
            job: Held(times.finish_s - times.submit_s - times.wait_s, times.attempts, times.model)
            for job in seen
            if (times := self._real[job]).wait_s is not None
        }
        jobs = {job: held for job, held in jobs.items() if held.held_s > 0}
        if len(jobs) <= len(self._names):
            return None
        _, settings = self._options.world()
        given = {name: self._given(name) for name in FITTED}
        given |= {f"{GPU_SPEED}{model}": x for model, x in settings.gpu_speed.items()}
        return fitted(jobs, self._setup.trace, self._names, given)

    def searched(self, seen: Sequence[str]) -> dict[str, float]:
        """What makes these jobs end nearest to when they really did, in simulations."""
        from scipy.optimize import minimize

        if speeds := [name for name in self._names if name.startswith(GPU_SPEED)]:
            raise InvalidInput(
                f"the table does not show {speeds[0]}", field="--measured",
                remedy=f"columns {', '.join((*HOLDING, MODEL))}, for more jobs than settings",
            )  # fmt: skip
        self._seen = seen
        names = self._names
        if not names:
            return {}
        minimize(
            self.loss, [self._given(name) for name in names], method="Powell",
            bounds=[(0.0, LONGEST_S)] * len(names),
            options={"xtol": TOLERANCE_S, "ftol": 1e-4, "maxfev": RUNS * len(names)},
        )  # fmt: skip
        return self._best

    def _given(self, name: str) -> float:
        """A time as the command sets it."""
        _, settings = self._options.world()
        return float(getattr(settings, name.removeprefix(PREFIX)) or 0.0)

    def loss(self, values: Sequence[float]) -> float:
        """The mean of |log(simulated / measured)|; values are rounded to a tenth of a second."""
        point = tuple(round(float(value), 1) for value in values)
        if point not in self._known:
            tried = dict(zip(self._names, point, strict=True))
            times = self.simulate({**self._fixed, **tried})
            found = [
                abs(math.log(_jct_s(times[job]) / _jct_s(self._real[job])))
                for job in self._seen
                if job in times
            ]
            self._known[point] = statistics.fmean(found) if found else math.inf
            if self._known[point] < self._least:
                self._least = self._known[point]
                self._best = dict(zip(self._names, point, strict=True))
            self._tell(self.runs, self._least)
        return self._known[point]

    def simulate(self, settings: Mapping[str, float]) -> dict[str, Times]:
        """The times of the jobs that end."""
        self.runs += 1
        found: dict[str, Times] = {}

        def note(row: Sequence[object]) -> None:
            job, submit_s, finish_s = (row[at] for at in _AT)
            if isinstance(submit_s, float) and isinstance(finish_s, float):
                found[str(job)] = Times(submit_s, finish_s)

        profile, given = with_settings(self._options, settings).world()
        simulation = Simulation(
            self._setup.trace, self._setup.fleet, profile, given,
            Tables(note, _nowhere, _nowhere, _nowhere), self._options.seed,
            throughputs=self._setup.throughputs,
        )  # fmt: skip
        with calm():
            simulation.run()
        simulation.finish()
        return found


def _jct_s(times: Times) -> float:
    """At least a second: a ratio of less says nothing."""
    return max(1.0, times.finish_s - times.submit_s)


def error_of(
    real: Mapping[str, Times], simulated: Mapping[str, Times], jobs: Sequence[str]
) -> Error:
    """Simulated times over measured ones, of the jobs that both have."""
    both = [job for job in jobs if job in simulated]
    wanted = np.array([_jct_s(real[job]) for job in both])
    found = np.array([_jct_s(simulated[job]) for job in both])
    alike = len(both) < 2 or np.ptp(wanted) == 0.0 or np.ptp(found) == 0.0
    return Error(
        mean=float(found.mean() / wanted.mean() - 1.0),
        p50=float(np.median(found) / np.median(wanted) - 1.0),
        p99=float(np.quantile(found, 0.99) / np.quantile(wanted, 0.99) - 1.0),
        makespan=_makespan_s(simulated, both) / _makespan_s(real, both) - 1.0,
        by_job=float(np.mean(np.abs(found / wanted - 1.0))),
        correlation=None if alike else float(np.corrcoef(wanted, found)[0, 1]),
    )


def _makespan_s(times: Mapping[str, Times], jobs: Sequence[str]) -> float:
    first = min(times[job].submit_s for job in jobs)
    return max(1.0, max(times[job].finish_s for job in jobs) - first)


def read_times(path: Path) -> dict[str, Times]:
    """The jobs of a table that have ended, by submission. Raises InvalidInput for all bad rows."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise InvalidInput(
                    f"no column {', '.join(missing)}", where=str(path),
                    remedy=f"a table of jobs has {', '.join(COLUMNS)}",
                )  # fmt: skip
            found = _rows(rows, path)
    except UnicodeDecodeError as error:
        remedy = f"a table of jobs as CSV in UTF-8, with {', '.join(COLUMNS)}"
        raise InvalidInput("is not text", where=str(path), remedy=remedy) from error
    except (OSError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot be read: {why}", where=str(path)) from error
    return dict(sorted(found.items(), key=lambda item: (item[1].submit_s, item[0])))


def _rows(rows: csv.DictReader[str], path: Path) -> dict[str, Times]:
    found: dict[str, Times] = {}
    bad: list[str] = []
    for row in rows:
        job = row["job_id"] or ""
        if not row["finish_s"]:
            continue
        try:
            times = _times(row)
            wrong = not times.submit_s <= times.finish_s < math.inf
        except (TypeError, ValueError):
            wrong = True
        if wrong or not job or job in found:
            bad.append(f"line {rows.line_num}: job {job!r} twice, or times that are none")
        else:
            found[job] = times
    if bad:
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise InvalidInput("; ".join(bad[:3]) + more, where=str(path))
    if not found:
        raise InvalidInput("no job in it has ended", where=str(path))
    return found


def _times(row: Mapping[str, str | None]) -> Times:
    """Raises ValueError or TypeError for what is no number."""
    wait_s, stops, failures = (row.get(name) for name in HOLDING)
    known = bool(wait_s and stops and failures)
    return Times(
        float(row["submit_s"] or ""), float(row["finish_s"] or ""),
        float(wait_s or "") if known else None,
        1 + int(stops or "") + int(failures or "") if known else 1,
        row.get(MODEL) or "",
        float(first) if (first := row.get(FIRST_START)) else None,
    )  # fmt: skip
