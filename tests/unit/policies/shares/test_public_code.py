"""Policies as public code has them: AlloX that keeps what runs, Gavel's random pairs, and steps that count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.policies.shares.test_running import running, view
from topmast.policies.registry import load_profile
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.objectives import allox, allox_oldest
from topmast.policies.shares.objectives.random_pairs import RandomPairs
from topmast.policies.shares.problem import Job, Pair, Problem
from topmast.policies.shares.running import Running

ONE_TYPE = {"models": ("V100",), "gpus": np.array([2])}


def _columns(*jobs: Job, workers: int = 2, pairs: tuple[Pair, ...] = ()) -> Columns:
    return Columns(Problem({"V100": workers}, list(jobs), list(pairs)))


def _job(name: str, steps: float, **more: Any) -> Job:
    return Job(name, {"V100": 1.0}, steps_left=steps, **more)


# --- AlloX ----------------------------------------------------------------------------------------


def test_few_jobs_queue_as_under_allox() -> None:
    """With as many free workers as jobs nobody is left out, whatever its age."""
    columns = _columns(_job("a", 50.0), _job("b", 10.0))
    kept, plain = allox_oldest.solve(columns), allox.solve(columns)
    assert kept.single.tolist() == plain.single.tolist()
    assert kept.objective == plain.objective


def test_a_job_keeps_its_worker_from_shorter_ones() -> None:
    """AlloX itself would let the two shortest run; here the older of the two gets what is free."""
    columns = _columns(_job("long", 900.0, before={"V100": 1.0}), _job("a", 10.0), _job("b", 5.0))
    assert allox_oldest.solve(columns).single[:, 0].tolist() == [1.0, 1.0, 0.0]
    assert allox.solve(columns).single[:, 0].tolist() == [0.0, 1.0, 1.0]


def test_only_the_oldest_fifth_queues() -> None:
    """Of eleven that wait for two workers the two oldest are looked at, though others are shorter."""
    jobs = [_job(f"j{n}", 100.0 - n, arrival_s=float(n)) for n in range(11)]
    single = allox_oldest.solve(_columns(*jobs)).single[:, 0]
    assert np.flatnonzero(single).tolist() == [0, 1]
    many = allox_oldest.solve(_columns(*jobs, workers=1)).single[:, 0]
    assert np.flatnonzero(many).tolist() == [1], (
        "two of eleven, and the shorter of these goes first"
    )


def test_a_gang_has_one_workers_worth_of_time() -> None:
    """It queues like a job of one worker; what it had is no claim."""
    gang = _job("gang", 10.0, scale_factor=2, before={"V100": 0.5})
    single = allox_oldest.solve(_columns(gang, _job("a", 50.0, arrival_s=1.0))).single[:, 0]
    assert single.tolist() == [0.5, 1.0]


def test_rounds_tell_the_policy_what_jobs_had() -> None:
    """Of three jobs for two GPUs the longest runs on, for it had all of its time before."""
    share = Running(load_profile("gavel-allox-as-published"))
    seen = view(
        speeds=[[1.0]] * 3, left_s=np.array([900.0, 10.0, 5.0]),
        before=np.array([[1.0], [0.0], [0.0]]), **ONE_TYPE,
    )  # fmt: skip
    assert share.parts(seen).fractions[:, 0].tolist() == [1.0, 1.0, 0.0]


# --- random pairs ---------------------------------------------------------------------------------


def _pairs(*names: tuple[str, str], speed: float = 0.8) -> tuple[Pair, ...]:
    return tuple(Pair(both, {"V100": (speed, speed)}) for both in names)


def _drawn(jobs: str, workers: int, policy: RandomPairs, speed: float = 0.8) -> dict[str, float]:
    """The fractions of jobs, and of pairs by both names."""
    every = tuple((a, b) for at, a in enumerate(jobs) for b in jobs[at + 1 :])
    columns = _columns(
        *(_job(name, 100.0) for name in jobs), workers=workers, pairs=_pairs(*every, speed=speed)
    )
    shares = policy(columns)
    found = {name: float(part) for name, part in zip(jobs, shares.single[:, 0], strict=True)}
    for row, part in zip(columns.pair_jobs.tolist(), shares.pair[:, 0], strict=True):
        found["".join(columns.ids[job] for job in row)] = float(part)
    return {name: part for name, part in found.items() if part}


def test_jobs_that_fit_have_equal_time_alone() -> None:
    """Nothing is paired as long as there is a GPU for each."""
    assert _drawn("abc", 4, RandomPairs()) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_jobs_that_do_not_fit_are_paired_and_stay_so() -> None:
    """Until one of the two ends; then the other may get another partner."""
    policy = RandomPairs()
    first = _drawn("abcd", 2, policy)
    assert sorted("".join(first)) == list("abcd")
    assert set(first.values()) == {1.0}
    assert _drawn("abcd", 2, policy) == first
    gone = min(first)[0]
    left = "".join(name for name in "abcd" if name != gone) + "e"
    second = _drawn(left, 2, policy)
    other = next(pair for pair in first if gone not in pair)
    assert other in second
    assert sorted("".join(second)) == sorted(left)


def test_a_pair_that_does_less_than_one_alone_is_parted() -> None:
    """It was tried once: each at 0.4 of its speed; the two draw again, each other or nobody else."""
    policy = RandomPairs()
    together = _drawn("abc", 1, policy, speed=0.4)
    assert any(len(name) == 2 for name in together)
    pairs = [tuple(sorted(_drawn("abc", 1, policy, speed=0.4))) for _ in range(12)]
    assert len(dict.fromkeys(pairs)) > 1, "drawn anew each time"


def test_the_same_problems_give_the_same_pairs() -> None:
    """The generator begins anew with each policy."""
    one, other = RandomPairs(), RandomPairs()
    for jobs in ("abcdef", "bcdefg", "cdefgh"):
        assert _drawn(jobs, 2, one) == _drawn(jobs, 2, other)


def test_pairs_in_rounds_need_no_gain() -> None:
    """The profile of that name asks for every pair that was measured, and other policies do not."""
    assert Running(load_profile("gandiva-as-published")).every_pair
    assert not running("gavel-max-min-fairness-packed").every_pair


# --- steps ----------------------------------------------------------------------------------------


def test_short_steps_count_more_where_steps_count() -> None:
    """Two jobs for one GPU: the one with ten times the steps a second has it."""
    share = running("gavel-max-throughput")
    seen = {"speeds": [[1.0], [1.0]], "models": ("V100",), "gpus": np.array([1])}
    steps = np.array([2.0, 20.0])
    parts = share.parts(view(**seen, steps_per_s=steps))
    assert parts.fractions[:, 0] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert parts.isolated_speeds == pytest.approx([0.5, 0.5]), "as rounds count them: relative"


def test_what_is_left_counts_in_steps_as_well() -> None:
    """So a policy that divides by speeds finds the same with steps and without."""
    share = running("gavel-makespan")
    seen = {"speeds": [[1.0, 0.5]] * 3, "left_s": np.array([5_000.0, 3_000.0, 900.0])}
    few = {"gpus": np.array([1, 1])}
    relative = share.parts(view(**seen, **few)).fractions
    raw = share.parts(view(**seen, **few, steps_per_s=np.array([3.0, 70.0, 0.2]))).fractions
    speeds = np.array(seen["speeds"])
    assert (relative * speeds).sum(axis=1) == pytest.approx((raw * speeds).sum(axis=1), rel=1e-3)
