"""How long jobs with whole GPUs wait on hosts: no longer than if each task went to the host with fewest free GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.best_fit import Waiting, waits_s
from tests.support.build import fleet
from tests.support.simulated import run
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.traces.trace import trace_of

HOSTS, GPUS, JOBS = 12, 8, 200


def _load(seed: int, load: float) -> list[Waiting]:
    """Jobs of one task, and gangs whose tasks take most of a host, as in the public traces; ``load``: of the GPUs."""
    rng = np.random.default_rng((seed, 0xBE57))
    gpus = rng.choice([1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8], JOBS)
    gangs = rng.random(JOBS) < 0.15
    tasks = np.where(gangs, rng.choice([2, 3], JOBS), 1)
    gpus = np.where(gangs, rng.choice([8, 8, 6], JOBS), gpus)
    duration_s = rng.lognormal(6.0, 1.2, JOBS).round(3)
    apart_s = (gpus * tasks * duration_s).mean() / (load * HOSTS * GPUS)
    submit_s = rng.exponential(apart_s, JOBS).cumsum().round(3)
    columns = zip(
        submit_s.tolist(), duration_s.tolist(), tasks.tolist(), gpus.tolist(), strict=True
    )
    return [Waiting(*row) for row in columns]


def _waits_s(jobs: list[Waiting], profile: Profile, cpus_per_gpu: float = 0.0) -> list[float]:
    """How long each job waits on our hosts, with 8 CPUs for each GPU, in the order of submission."""
    trace = trace_of(
        "hosts",
        submit_s=[job.submit_s for job in jobs],
        duration_s=[job.duration_s for job in jobs],
        gpus=[float(job.gpus) for job in jobs],
        tasks=[job.tasks for job in jobs],
        cpus=[cpus_per_gpu * job.gpus for job in jobs],
    )
    hosts = tuple(HostSpec(f"c-{i}", "H100", GPUS, cpus=8.0 * GPUS) for i in range(HOSTS))
    found = run(trace, fleet(ClusterSpec("c", hosts)), profile)
    return [float(row["wait_s"]) for row in sorted(found.jobs, key=lambda row: row["submit_s"])]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("order", "load"), [("fifo", 0.9), ("fifo-skip", 1.1)])
def test_whole_gpus_wait_as_with_best_fit(order: str, load: float, seed: int) -> None:
    """Each job starts when it does in a plain program that places every task by best fit."""
    jobs = _load(seed, load)
    wanted = waits_s(jobs, [GPUS] * HOSTS, skip=order == "fifo-skip")
    assert sum(wait > 0 for wait in wanted) >= JOBS // 10
    assert _waits_s(jobs, load_profile(order)) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "load"), [("fifo", 0.9), ("fifo-skip", 1.1)])
def test_whole_gpus_with_enough_cpus_wait_no_longer_in_the_mean_than_with_best_fit(
    order: str, load: float
) -> None:
    """Scored by the shapes of recent tasks, which count as soon as jobs ask for CPUs: by 5% at most over eight draws."""
    shaped = load_profile(order, {"score.shapes": "true"})
    ours_s = best_fit_s = 0.0
    for seed in range(8):
        jobs = _load(seed, load)
        ours_s += sum(_waits_s(jobs, shaped, cpus_per_gpu=6.0))
        best_fit_s += sum(waits_s(jobs, [GPUS] * HOSTS, skip=order == "fifo-skip"))
    assert ours_s <= 1.05 * best_fit_s
