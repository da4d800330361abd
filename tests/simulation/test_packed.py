"""The profiles `gavel-NAME-packed` in the simulator: pairs run as fast as the table says, and GPUs are booked once."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from tests.simulation.test_gavel import _one_host_each
from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, Run, jobs, run_timed
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.traces.reading import read
from topmast.traces.throughputs import Throughputs, Work, read_throughputs
from topmast.traces.trace import Trace

ONE_GPU = fleet(cluster("lab-1", hosts=1, gpus=1, model="V100"))
TWO_MODELS = fleet(
    cluster("lab-1", hosts=3, gpus=4, model="V100"), cluster("lab-2", hosts=2, gpus=4, model="K80")
)
PLAIN, PACKED = "gavel-max-min-fairness", "gavel-max-min-fairness-packed"
A, B, C = Work("a", 1), Work("b", 1), Work("c", 1)
SPEEDS = Throughputs(
    "here",
    {work: {"V100": 10.0} for work in (A, B, C)},
    {},
    {
        (A, B): {"V100": (9.0, 8.0)},
        (B, A): {"V100": (8.0, 9.0)},
        (A, A): {"V100": (4.0, 5.0)},
    },
)


def two(first: str, second: str, profile: str = PACKED, speeds: Throughputs | None = SPEEDS) -> Run:
    """Two jobs of an hour on one GPU."""
    trace = jobs((0, 3_600, 1), (0, 3_600, 1), model=[first, second])
    return run_timed(trace, ONE_GPU, load_profile(profile), speeds)


def test_two_run_together_as_fast_as_the_table_says() -> None:
    """At 0.9 and 0.8 of their speeds: the first after 4,000 s; the other has 400 s left then, alone."""
    found = two("a", "b")
    assert [row["finish_s"] for row in found.jobs] == [4_000, 4_400]
    rows = [
        (r["job_id"], r["gpus"], r["start_s"], r["end_s"], r["end_reason"])
        for r in found.allocations
    ]
    assert sorted(rows) == [
        ("0", 0.5, 0, 4_000, "succeeded"),
        ("1", 0.5, 0, 4_000, "unpacked"),
        ("1", 1.0, 4_000, 4_400, "succeeded"),
    ]
    assert found.result.summary["preemptions"] == 0


@pytest.mark.parametrize(
    ("story", "second", "speeds"),
    [
        ("together they would do 0.9 of what one does", "a", SPEEDS),
        ("nobody measured them", "c", SPEEDS),
        ("there is no table", "b", None),
    ],
)
def test_who_would_not_gain_takes_turns(
    story: str, second: str, speeds: Throughputs | None
) -> None:
    """All is as under the profile without pairs."""
    packed, plain = two("a", second, PACKED, speeds), two("a", second, PLAIN, speeds)
    assert packed.allocations == plain.allocations, story
    assert max(row["finish_s"] for row in packed.jobs) == 7_200


def _mixed(seed: int) -> tuple[Trace, Throughputs]:
    """Sixty jobs of four kinds, most pairs of which are measured."""
    rng = random.Random(seed)
    names, sizes, models = "abcd", (1, 2, 4), ("V100", "K80")
    alone = {Work(n, g): {"V100": 10.0, "K80": 4.0} for n in names for g in sizes}
    together: dict[tuple[Work, Work], dict[str, tuple[float, float]]] = {}
    for one, other in [(x, y) for x in alone for y in alone if x.gpus == y.gpus]:
        for model in models if rng.random() < 0.7 else ():
            both = [alone[w][model] * rng.uniform(0.4, 1.0) for w in (one, other)]
            together.setdefault((one, other), {})[model] = (both[0], both[1])
            together.setdefault((other, one), {})[model] = (both[1], both[0])
    rows = [
        (rng.uniform(0, 20_000), rng.uniform(100, 9_000), rng.choice((1, 1, 2, 4)))
        for _ in range(60)
    ]
    trace = jobs(
        *sorted(rows),
        model=[rng.choice(names) for _ in rows],
        tasks=[rng.choice((1, 1, 2)) for _ in rows],
    )
    return trace, Throughputs("here", alone, {}, together)


def _most_held(found: Run) -> float:
    """The most GPUs that were held on any host at any time."""
    changes: defaultdict[str, list[tuple[float, int, float]]] = defaultdict(list)
    for row in found.allocations:
        changes[row["host"]] += [(row["end_s"], 0, -row["gpus"]), (row["start_s"], 1, row["gpus"])]
    most = 0.0
    for of_host in changes.values():
        held = 0.0
        for _, _, gpus in sorted(of_host):
            held += gpus
            most = max(most, held)
    return most


@pytest.mark.parametrize(
    "settings",
    [
        FREE,
        Settings(),
        Settings(task_mtbf_s=40_000.0, host_mtbf_s=60_000.0),
        Settings(latency_s=0.05),
    ],
    ids=["free", "charged", "with failures", "over a network"],
)
def test_no_gpu_is_held_by_more_than_two_halves(settings: Settings) -> None:
    """Gangs of several sizes and tasks, on two models: all end, and no host ever has more than its GPUs taken."""
    trace, speeds = _mixed(1)
    found = run_timed(trace, TWO_MODELS, load_profile(PACKED), speeds, settings, seed=1)
    ended = found.result.summary
    assert ended["finished"] + ended["failed"] == 60
    assert ended["failed"] <= (
        2 if settings.task_mtbf_s else 0
    )  # as drawn: four failures end a job
    assert _most_held(found) <= 4.0 + 1e-9
    assert sum(row["end_reason"] == "unpacked" for row in found.allocations) > 50
    again = run_timed(trace, TWO_MODELS, load_profile(PACKED), speeds, settings, seed=1)
    assert again.allocations == found.allocations


def test_pairs_bring_jobs_to_their_end_sooner() -> None:
    """Where pairs gain a lot, by more than a tenth in the mean."""
    trace, speeds = _mixed(1)
    mean_s = {
        name: run_timed(trace, TWO_MODELS, load_profile(name), speeds).result.summary["jct_s"][
            "mean"
        ]
        for name in (PLAIN, PACKED)
    }
    assert mean_s[PACKED] < 0.9 * mean_s[PLAIN]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("profile", [PACKED, f"{PACKED}-as-published"])
def test_mean_jct_and_makespan_are_those_of_the_public_code(profile: str, data_dir: Path) -> None:
    """`max_min_fairness_packed` on the public trace: 14,129 s, which ours is up to 10% shorter than, and 63,818 s."""
    trace = read(data_dir / "gavel" / "max_min_fairness.trace", "gavel", host_gpus=24)
    speeds = read_throughputs(data_dir / "gavel" / "simulation_throughputs.json")
    summary = run_timed(trace, _one_host_each(), load_profile(profile), speeds).result.summary
    assert summary["finished"] == 96
    assert summary["rounds"]["failures"] == 0
    assert 0.9 * 14_129 < summary["jct_s"]["mean"] < 14_129
    assert summary["makespan_s"] == pytest.approx(63_818, rel=0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_levels_are_found_in_every_round(data_dir: Path) -> None:
    """`hierarchical` with pairs on the public trace: no solve fails, and all jobs finish."""
    trace = read(data_dir / "gavel" / "max_min_fairness.trace", "gavel", host_gpus=24)
    speeds = read_throughputs(data_dir / "gavel" / "simulation_throughputs.json")
    profile = load_profile("gavel-hierarchical-packed")
    summary = run_timed(trace, _one_host_each(), profile, speeds).result.summary
    assert summary["finished"] == 96
    assert summary["rounds"]["solves"] > 100
    assert summary["rounds"]["failures"] == 0
