"""The closed loop: real jobs under several profiles, each run foretold by the simulator before.

The jobs are processes that sleep, of the local engine or of a Slurm cluster: hours become seconds,
all else is as live.
What starts, checkpoints and restores take, and how fast each GPU model is, the simulator learns
from one run of other jobs (`topmast calibrate`).
"""

from __future__ import annotations

import copy
import csv
import json
import random
import shlex
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from topmast.bench.options import ClosedLoopOptions
from topmast.bench.setup import folder, machine, write
from topmast.client import Client
from topmast.demo.lab.slurm import cluster_for
from topmast.demo.machines import check_length, check_slurm
from topmast.demo.server import Server
from topmast.experiments.calibrate import (
    COLUMNS,
    HOLDING,
    MODEL,
    Calibration,
    Error,
    Times,
    calibrate,
    error_of,
    read_times,
    with_settings,
)
from topmast.experiments.run import RunOptions, simulate
from topmast.model.errors import Unavailable
from topmast.model.views import JobView
from topmast.traces.trace import Trace, trace_of
from topmast.traces.writing import write as write_trace

CLUSTERS = {"h100": "H100", "a100": "A100"}
GPUS_PER_HOST = 8
HOSTS_PER_CLUSTER = 2
FLEET: dict[str, Any] = {
    "regions": {
        "here": {
            "clusters": {
                name: {"hosts": [{"count": HOSTS_PER_CLUSTER, "gpu": gpu, "gpus": GPUS_PER_HOST}]}
                for name, gpu in CLUSTERS.items()
            }
        }
    }
}
SAID = {"H100": 1.0, "A100": 0.8}
"""The speeds that jobs state."""
REAL = {"h100": 1.0, "a100": 0.7}
"""How fast jobs really go there."""
INTERVAL_S, START_S, SAVE_S, RESTORE_S = 5.0, 0.6, 0.2, 0.4
"""What a job spends of its own will; the engine's part comes on top."""
SHAPES = ((1, 1), (2, 1), (4, 1), (4, 2))
"""GPUs of a task, and tasks."""
ODDS = (50, 20, 20, 10)
MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 5.0, 0.9, 1.5, 40.0
"""Durations are lognormal, within these bounds."""
PATIENCE = {"min_runtime_s": "3"}
"""A job that has just started is left alone, as it is in hours."""
LOAD = 1.0
"""Work over what the fleet can do while jobs arrive: some queue."""
CALIBRATES = "srtf"
"""The profile of the run that the simulator learns from: it stops jobs and takes them up again."""
OTHER_JOBS = 1_000
"""Is added to the seed for that run."""
WITHIN = 0.05
WAIT_S = 1_200.0


class Run(Struct, frozen=True):
    """One profile: how far the simulator was off before it was calibrated, and after."""

    jobs: int
    preemptions: int
    mean_jct_s: float
    makespan_s: float
    before: Error
    after: Error
    within_5_pct: bool
    """Mean time of jobs and makespan, after."""


def measure_closed_loop(options: ClosedLoopOptions, state: Path | None = None) -> dict[str, Any]:
    """Calibrate on one run; then simulate, and run, other jobs under each profile."""
    with folder(state) as made, _hosts(options.engine, made) as fleet:
        first = _Runs(made / "calibration", fleet, options.jobs, options.seed + OTHER_JOBS)
        measured, _ = first.really(CALIBRATES)
        found = calibrate(first.options(CALIBRATES), measured)
        runs = _Runs(made / "runs", fleet, options.jobs, options.seed)
        profiles = {name: _compared(runs, name, found) for name in options.profiles}
    document = {
        "seed": options.seed,
        "engine": options.engine,
        "settings": found.settings,
        "calibration": {"profile": CALIBRATES, **msgspec.to_builtins(found)},
        "profiles": msgspec.to_builtins(profiles),
        "within_5_pct": all(run.within_5_pct for run in profiles.values()),
        "machine": machine(),
    }
    if options.out is not None:
        write(options.out, "closed-loop", document)
    return document


@contextmanager
def _hosts(engine: str, folder: Path) -> Iterator[Path]:
    """The fleet file; where the engine is Slurm, of a cluster that runs meanwhile."""
    fleet = copy.deepcopy(FLEET)
    clusters: dict[str, Any] = fleet["regions"]["here"]["clusters"]
    with ExitStack() as stack:
        if engine == "slurm":
            check_slurm("--engine")
            check_length(folder / "slurm" / "munge.sock")
            site = cluster_for(folder / "slurm", "loop", clusters)
            for cluster in clusters.values():
                cluster["options"]["work"] = str(folder / "work")
            stack.callback(site.stop)
            site.start()
        file = folder / "fleet.yaml"
        file.write_text(json.dumps(fleet), encoding="utf-8")
        yield file


def _compared(runs: _Runs, profile: str, found: Calibration) -> Run:
    before = runs.foretold(profile, {})
    after = runs.foretold(profile, found.settings)
    table, preemptions = runs.really(profile)
    real = read_times(table)
    error = error_of(real, after, list(real))
    return Run(
        len(real), preemptions, statistics.fmean(x.finish_s - x.submit_s for x in real.values()),
        max(x.finish_s for x in real.values()) - min(x.submit_s for x in real.values()),
        error_of(real, before, list(real)), error,
        abs(error.mean) <= WITHIN and abs(error.makespan) <= WITHIN,
    )  # fmt: skip


class _Runs:
    """The same jobs under one profile and another, simulated and real."""

    def __init__(self, folder: Path, fleet: Path, jobs: int, seed: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._fleet = fleet
        self._trace = jobs_of(jobs, seed)
        write_trace(self._trace, folder / "trace.csv")

    def options(self, profile: str) -> RunOptions:
        """The simulation of these jobs, where nothing but work takes time."""
        return RunOptions(
            trace=self._folder / "trace.csv", format="topmast", fleet=self._fleet,
            profile=profile, overheads=False, settings=PATIENCE,
        )  # fmt: skip

    def foretold(self, profile: str, settings: Mapping[str, float]) -> dict[str, Times]:
        """When the jobs begin and end in a simulation."""
        out = self._folder / f"{profile}-{len(settings)}"
        options = with_settings(self.options(profile), settings)
        simulate(msgspec.structs.replace(options, out=out))
        return read_times(out / "jobs.csv")

    def really(self, profile: str) -> tuple[Path, int]:
        """Run them: a table of when they came and ended and where, and how many were stopped."""
        state = self._folder / f"{profile}-state"
        state.mkdir(mode=0o700)
        server = Server(state, self._fleet, PATIENCE, profile)
        try:
            with Client(server.start()) as client:
                _warm_up(client)
                ids = _submit(client, self._trace)
                views = client.wait(ids, timeout_s=WAIT_S)
                models = {view.id: _model_of(client, view) for view in views}
        finally:
            server.stop()
        if bad := [view for view in views if view.state != "SUCCEEDED"]:
            raise Unavailable(f"job {bad[0].name} ended as {bad[0].state}: {bad[0].cause}")
        table = self._folder / f"{profile}.csv"
        first_s = min(view.submit_s for view in views) - float(self._trace.submit_s[0])
        with table.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*COLUMNS, *HOLDING, MODEL])
            for view in views:
                assert view.finish_s is not None  # all have ended
                times = (view.submit_s - first_s, view.finish_s - first_s)
                held = (view.wait_s, view.preemptions, view.restarts)
                rows.writerow([view.name, *times, *held, models[view.id]])
        return table, sum(view.preemptions for view in views)


def jobs_of(jobs: int, seed: int) -> Trace:
    """Jobs that keep the fleet busy while they arrive."""
    rng = random.Random(seed)
    shapes = rng.choices(SHAPES, ODDS, k=jobs)
    durations_s = [
        round(min(LONGEST_S, max(SHORTEST_S, rng.lognormvariate(0.0, SIGMA) * MEDIAN_S)), 2)
        for _ in range(jobs)
    ]
    work_gpu_s = sum(g * n * s for (g, n), s in zip(shapes, durations_s, strict=True))
    speed = statistics.fmean(REAL.values())
    gpus = len(CLUSTERS) * HOSTS_PER_CLUSTER * GPUS_PER_HOST
    window_s = work_gpu_s / (gpus * speed * LOAD)
    return trace_of(
        "closed-loop",
        job_id=[f"job-{number}" for number in range(jobs)],
        submit_s=sorted(round(rng.uniform(0.0, window_s), 3) for _ in range(jobs)),
        duration_s=durations_s,
        gpus=[float(g) for g, _ in shapes],
        tasks=[n for _, n in shapes],
        gpu_models="|".join(SAID),
        speeds="|".join(f"{speed:g}" for speed in SAID.values()),
        checkpoint_interval_s=INTERVAL_S,
    )


def _document(name: str, gpus: int, tasks: int, duration_s: float) -> dict[str, Any]:
    """The job file of one."""
    program = Path(__file__).with_name("sleeper.py")
    words = [str(x) for x in (duration_s, INTERVAL_S, START_S, SAVE_S, RESTORE_S)]
    words += [f"{cluster}={speed:g}" for cluster, speed in REAL.items()]
    arguments = " ".join(words)
    return {
        "name": name,
        "num_nodes": tasks,
        "resources": {
            "accelerators": {model: {"count": gpus, "speed": x} for model, x in SAID.items()}
        },
        "checkpoint": {"interval": f"{INTERVAL_S:g}s", "grace": "30s"},
        "expected_duration": f"{duration_s:g}s",
        "run": f'exec "$TOPMAST_PYTHON" -I -S {shlex.quote(str(program))} {arguments}\n',
    }


def _warm_up(client: Client) -> None:
    """Fill the fleet once: hosts have agents then, and the server has decided."""
    jobs = [_document(f"warm-{number}", GPUS_PER_HOST, 1, 0.1) for number in range(4)]
    client.wait([client.submit(job).id for job in jobs], timeout_s=WAIT_S)


def _submit(client: Client, trace: Trace) -> list[str]:
    """Each job at its time."""
    begun_s = time.monotonic()
    ids = []
    for row in range(len(trace)):
        job = _document(
            trace.job_id[row], int(trace.gpus[row]), int(trace.tasks[row]),
            float(trace.duration_s[row]),
        )  # fmt: skip
        time.sleep(max(0.0, begun_s + float(trace.submit_s[row]) - time.monotonic()))
        ids.append(client.submit(job).id)
    return ids


def _model_of(client: Client, job: JobView) -> str:
    """Of the last attempt."""
    attempts: Sequence[Any] = client.story(job.id).attempts
    return str(attempts[-1].gpu_model)
