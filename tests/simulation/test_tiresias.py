"""2D-LAS beside a plain simulator of one pool: the same starts and stops, and the public figures."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from statistics import median

import pytest

from tests.support.build import cluster, fleet
from tests.support.one_pool import Job, Key, Pool, as_listed, first_start, ours
from tests.support.simulated import jobs, run
from topmast.policies.registry import load_profile
from topmast.traces.reading import read

ENDS = (3_250.0, 7_200.0)


def _drawn(seed: int, *sizes: int, count: int = 120) -> list[Job]:
    rng = random.Random(seed)
    arrivals = sorted(float(rng.randrange(40_000)) for _ in range(count))
    return [
        Job(n, s, float(rng.choice((60, 900, 4_000, 20_000))), rng.choice(sizes))
        for n, s in enumerate(arrivals)
    ]


def _attempts(rows: list[dict[str, object]]) -> list[tuple[int, float, float]]:
    return sorted(
        (int(str(row["job_id"])), float(str(row["start_s"])), float(str(row["end_s"])))
        for row in rows
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("within", "key"), [("running", ours), ("first-start", first_start)])
def test_every_attempt_is_that_of_a_plain_pool(within: str, key: Key, seed: int) -> None:
    """Without overheads, on one host: who starts and stops when, where one who stops makes room for one."""
    drawn = _drawn(seed, 4)
    trace = jobs(*((j.submit_s, j.duration_s, j.gpus) for j in drawn))
    pool = Pool(16, ENDS, key)
    pool.run(drawn)
    options = {"queues.within": within, "rerank_interval_s": "0.000001"}
    world = fleet(cluster("pool-1", hosts=1, gpus=16))
    found = run(trace, world, load_profile("tiresias-las", options))
    ours_s, theirs_s = _attempts(found.allocations), sorted(pool.attempts)
    assert [a[0] for a in ours_s] == [a[0] for a in theirs_s]
    for one, other in zip(ours_s, theirs_s, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-3)
    assert found.result.summary["preemptions"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_as_published_every_attempt_is_that_of_the_public_list(seed: int) -> None:
    """The plain pool keeps a place for each job; the profile finds the same order without."""
    drawn = _drawn(seed, 4)
    trace = jobs(*((j.submit_s, j.duration_s, j.gpus) for j in drawn))
    pool = Pool(16, ENDS, as_listed)
    pool.run(drawn)
    world = fleet(cluster("pool-1", hosts=1, gpus=16))
    found = run(trace, world, "tiresias-las-as-published")
    ours_s, theirs_s = _attempts(found.allocations), sorted(pool.attempts)
    assert [a[0] for a in ours_s] == [a[0] for a in theirs_s]
    for one, other in zip(ours_s, theirs_s, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-3)


@pytest.mark.parametrize("rounds_s", [360.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_in_rounds_every_attempt_is_that_of_a_plain_pool_in_rounds(
    seed: int, rounds_s: float
) -> None:
    """What ends within a round is idle until the next; what ends at its very moment makes room in it."""
    drawn = _drawn(seed, 4)
    first_s = drawn[0].submit_s  # from when on a run counts
    for job in drawn:
        job.submit_s -= first_s
    trace = jobs(*((j.submit_s, j.duration_s, j.gpus) for j in drawn))
    pool = Pool(16, ENDS, ours, rounds_s=rounds_s)
    pool.run(drawn)
    options = {"rounds_s": str(rounds_s), "rerank_interval_s": "0.000001"}
    world = fleet(cluster("pool-1", hosts=1, gpus=16))
    found = run(trace, world, load_profile("tiresias-las", options))
    ours_s, theirs_s = _attempts(found.allocations), sorted(pool.attempts)
    assert len(ours_s) > len(drawn), "some were stopped"
    assert [a[0] for a in ours_s] == [a[0] for a in theirs_s]
    for one, other in zip(ours_s, theirs_s, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-3)
        assert one[1] % rounds_s == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_gangs_of_all_sizes_take_as_long_as_in_a_plain_pool(seed: int) -> None:
    """What a large one leaves may go to who was asked about when it came free, and not to the first: 3%."""
    drawn = _drawn(seed, 1, 2, 4, 8, 16)
    trace = jobs(*((j.submit_s, j.duration_s, j.gpus) for j in drawn))
    mean_s = Pool(16, ENDS).run(drawn)
    found = run(trace, fleet(cluster("pool-1", hosts=1, gpus=16)), "tiresias-las")
    assert found.result.summary["jct_s"]["mean"] == pytest.approx(mean_s, rel=0.03)


def _muri(path: Path) -> list[Job]:
    """In whole seconds, as the public code counts."""
    with path.open() as file:
        return [
            Job(n, int(r["submit_time"]) // 1000, int(r["duration"]) // 1000, int(r["num_gpu"]))
            for n, r in enumerate(csv.DictReader(file))
        ]


@pytest.mark.parametrize(
    ("key", "in_seconds", "printed_s"),
    [(as_listed, True, 315_223.0), (as_listed, False, 327_259.0), (ours, False, 327_259.0)],
    ids=["the public code", "its units repaired", "ours"],
)
def test_a_plain_pool_prints_what_the_public_code_prints(
    key: Key, in_seconds: bool, printed_s: float, data_dir: Path
) -> None:
    """To within 2% on 992 jobs: what is left are its roundings and the places of those who are stopped."""
    mean_s = Pool(64, ENDS, key, in_seconds).run(_muri(data_dir / "muri" / "trace3.csv"))
    assert mean_s == pytest.approx(printed_s, rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("profile", "mean_s", "median_s", "within"),
    [
        ("fifo", 991_167.0, 1_143_149.0, 1e-4),
        ("fifo-skip", 480_105.0, 376_568.0, 1e-4),
        ("srtf", 180_116.0, 3_586.0, 1e-4),
        ("srsf", 172_684.0, 3_586.0, 1e-4),
        ("tiresias-las", 315_223.0, None, 0.05),
        ("tiresias-las-as-published", 327_260.0, None, 1e-3),
    ],
)
def test_the_public_table_is_met(
    profile: str, mean_s: float, median_s: float | None, within: float, data_dir: Path
) -> None:
    """`muri/trace3.csv`, one host of 64 GPUs, no overheads: by name, mean and median of the public code.

    Those of 2D-LAS are 327,260 s with exact units, and 315,223 s with its mistake of units, of which its median is.
    """
    trace = read(data_dir / "muri" / "trace3.csv", "muri", host_gpus=64)
    pool = fleet(cluster("pool-1", hosts=1, gpus=64))
    summary = run(trace, pool, profile).result.summary
    assert summary["finished"] == 992
    assert summary["jct_s"]["mean"] == pytest.approx(mean_s, rel=within)
    if median_s is not None:
        assert summary["jct_s"]["p50"] == pytest.approx(median_s, rel=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_median_as_published_is_that_of_the_public_list(data_dir: Path) -> None:
    """On the public trace with exact units, within 3%; that of our own order is half of it, and its mean about the same."""
    path = data_dir / "muri" / "trace3.csv"
    listed, mended = Pool(64, ENDS, as_listed, True), Pool(64, ENDS, as_listed)
    listed.run(_muri(path))
    assert median(listed.jct_s.values()) == pytest.approx(9_816.0, rel=0.03)
    mended.run(_muri(path))
    world = fleet(cluster("pool-1", hosts=1, gpus=64))
    trace = read(path, "muri", host_gpus=64)
    published_s, own_s = (
        run(trace, world, profile).result.summary["jct_s"]["p50"]
        for profile in ("tiresias-las-as-published", "tiresias-las")
    )
    assert published_s == pytest.approx(median(mended.jct_s.values()), rel=0.03)
    assert own_s < 0.6 * published_s


@pytest.mark.parametrize(
    ("profile", "mean_s"),
    [
        ("fifo", 201.0), ("srtf", 192.0), ("srsf", 196.0),
        ("tiresias-las", 191.0), ("tiresias-las-as-published", 191.0),
    ],
)  # fmt: skip
def test_sixty_public_jobs_take_as_long_as_under_the_public_code(
    profile: str, mean_s: float, data_dir: Path
) -> None:
    """`tiresias/60_job.csv` on one host of 16 GPUs: within 1%, to which its figures are known."""
    trace = read(data_dir / "tiresias" / "60_job.csv", "tiresias", host_gpus=16)
    summary = run(trace, fleet(cluster("pool-1", hosts=1, gpus=16)), profile).result.summary
    assert summary["finished"] == 60
    assert summary["jct_s"]["mean"] == pytest.approx(mean_s, rel=0.01)
