"""The policies at the head of a running fleet: what makes no sense is named, and the others are served."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from topmast.model.errors import InvalidInput
from topmast.policies.base import SharesView
from topmast.policies.registry import load_profile, profile_names
from topmast.policies.shares.running import Running

GAVEL = [name for name in profile_names() if name.startswith("gavel-")]


def view(**columns: Any) -> SharesView:
    """Three jobs of one GPU, four V100 and four K80, unless told otherwise."""
    speeds = np.array(columns.pop("speeds", [[1.0, 0.5]] * 3), float)
    n = len(speeds)
    plain: dict[str, Any] = {
        "ids": tuple(f"j{i}" for i in range(n)),
        "models": ("V100", "K80"),
        "gpus": np.array([4, 4]),
        "speeds": speeds,
        "width": np.ones(n),
        "weight": np.ones(n),
        "left_s": np.full(n, 1_000.0),
        "elapsed_s": np.zeros(n),
        "isolated_s": np.zeros(n),
        "deadline_s": np.full(n, math.nan),
        "submit_s": np.arange(n, dtype=float),
        "tenant": np.zeros(n, np.int64),
        "tenant_weights": np.ones(1),
    }
    return SharesView(**(plain | columns))


def running(name: str, **options: str) -> Running:
    return Running(load_profile(name, {f"shares.{key}": value for key, value in options.items()}))


@pytest.mark.parametrize("name", GAVEL)
def test_every_profile_divides_no_more_than_there_is(name: str) -> None:
    """Random fleets and jobs, wide ones and ones that run on some models only."""
    rng = np.random.default_rng(11)
    share = running(name)
    for _ in range(5):
        n = int(rng.integers(2, 20))
        speeds = rng.uniform(0.1, 1.0, (n, 2)) * (rng.random((n, 2)) < 0.8)
        seen = view(
            speeds=speeds,
            width=rng.choice([1.0, 1.0, 2.0, 4.0], n),
            left_s=rng.uniform(60, 1e5, n),
            elapsed_s=rng.uniform(0, 1e5, n),
        )
        fractions = share.parts(seen).fractions
        assert (fractions >= 0).all()
        assert (fractions.sum(axis=1) <= 1 + 1e-9).all()
        assert (seen.width @ fractions <= seen.gpus + 1e-6).all()
        assert not fractions[speeds == 0].any()


@pytest.mark.parametrize(
    ("story", "name", "columns", "want"),
    [
        ("AlloX and a wide job", "gavel-allox", {"width": np.array([1.0, 2.0, 1.0])}, {1}),
        ("wider than any model", "gavel-max-min-fairness", {"width": np.array([1.0, 1.0, 9.0])}, set()),
        ("finish-time and too wide", "gavel-finish-time-fairness", {"width": np.array([1.0, 1.0, 9.0])}, {2}),
        ("makespan and too wide", "gavel-makespan", {"width": np.array([9.0, 1.0, 1.0])}, {0}),
        ("a deadline in the past", "gavel-min-cost-slo", {"deadline_s": np.array([math.nan, -5.0, 1e6])}, {1}),
        ("a deadline out of reach", "gavel-min-cost-slo", {"deadline_s": np.array([10.0, 1e6, 1e6])}, {0}),
    ],
)  # fmt: skip
def test_who_is_named(story: str, name: str, columns: dict[str, Any], want: set[int]) -> None:
    """And the others have their part."""
    parts = running(name).parts(view(**columns))
    assert set(parts.named) == want, story
    assert all(parts.named.values())
    assert parts.fractions.any()


def test_kept_deadlines_are_kept_beside_one_that_is_not() -> None:
    """The speed that a deadline needs is given, though another one cannot be kept."""
    seen = view(deadline_s=np.array([2_000.0, 10.0, math.nan]))
    parts = running("gavel-min-cost-slo").parts(seen)
    speed = float(parts.fractions[0] @ seen.speeds[0])
    assert speed >= 0.5 * (1 - 1e-6)


def test_shares_of_a_gpu_count_as_what_they_are() -> None:
    """Eight jobs of half a GPU have all their time on four; nine have not."""
    for count, full in ((8, True), (9, False)):
        seen = view(
            speeds=[[1.0]] * count, models=("V100",), gpus=np.array([4]), width=np.full(count, 0.5)
        )
        fractions = running("gavel-max-min-fairness").parts(seen).fractions
        assert (float(fractions.sum()) == pytest.approx(count, abs=1e-4)) is full


def test_weights_of_bands() -> None:
    """Who weighs twice as much gets twice as much."""
    seen = view(
        speeds=[[1.0]] * 2, models=("V100",), gpus=np.array([1]), weight=np.array([2.0, 1.0])
    )
    fractions = running("gavel-max-min-fairness").parts(seen).fractions[:, 0]
    assert fractions == pytest.approx([2 / 3, 1 / 3], rel=1e-4)


@pytest.mark.parametrize(
    ("within", "want"), [("fairness", [0.25, 0.25, 0.5]), ("fifo", [0.5, 0, 0.5])]
)
def test_tenants_come_before_their_jobs(within: str, want: list[float]) -> None:
    """Two tenants of equal weight, one with two jobs: these share one half, or the first has it."""
    seen = view(
        speeds=[[1.0]] * 3, models=("V100",), gpus=np.array([1]),
        tenant=np.array([0, 0, 1]), tenant_weights=np.ones(2),
    )  # fmt: skip
    fractions = running("gavel-hierarchical", within=within).parts(seen).fractions[:, 0]
    assert fractions == pytest.approx(want, abs=1e-4)


def test_a_model_without_a_price() -> None:
    """Nothing is guessed: the error names the model."""
    seen = view(models=("V100", "H900"))
    with pytest.raises(InvalidInput, match=r"costs\.H900"):
        running("gavel-min-cost").parts(seen)


@pytest.mark.parametrize(
    ("option", "value", "want"),
    [
        ("shares.policy", "fairest", "unknown policy"),
        ("shares.weights.high", "0", "more than 0"),
        ("shares.round_s", "0", "more than 0"),
        ("shares.prices", "{V100: 0}", "more than 0"),
        ("shares.lease", "0.5", "1 or more"),
        ("order", "credit", "turn"),
        ("preemption", "band", "none"),
        ("bind.policy", "home", "late"),
        ("rounds_s", "60", "shares.round_s"),
        ("shares.turns", "1", "no such option"),
    ],
)
def test_options_that_make_no_sense(option: str, value: str, want: str) -> None:
    """Each is refused with its name and the remedy."""
    with pytest.raises(InvalidInput, match=want) as refused:
        load_profile("gavel-max-min-fairness", {option: value})
    assert option.split(".")[-1] in refused.value.field


@pytest.mark.parametrize(
    "name", ["gavel-fifo", "gavel-sjf", "gavel-allox", "gavel-makespan-agnostic"]
)
def test_who_knows_nothing_of_pairs_cannot_share_in_pairs(name: str) -> None:
    """Refused, rather than without effect."""
    with pytest.raises(InvalidInput, match="models or pairs") as refused:
        load_profile(name, {"shares.pairs": "true"})
    assert refused.value.field == "profile.shares.pairs"


def test_pairs_get_their_part() -> None:
    """Two who are nearly as fast together as alone have all of their time together; a third that nobody measured has its own."""
    speeds = np.array([[[0.9], [0.9]], [[0.0], [0.0]]]).transpose(0, 2, 1)
    seen = view(
        ids=("a", "b", "c"), models=("V100",), gpus=np.array([1]), speeds=np.ones((3, 1)),
        width=np.ones(3), weight=np.ones(3), left_s=np.full(3, 1e4), elapsed_s=np.zeros(3),
        isolated_s=np.zeros(3), deadline_s=np.full(3, np.nan), submit_s=np.zeros(3),
        tenant=np.zeros(3, np.int64), pair_rows=np.array([[0, 1], [1, 2]]), pair_speeds=speeds,
    )  # fmt: skip
    found = running("gavel-max-min-fairness-packed").parts(seen)
    assert found.pair_fractions is not None
    # 0.9 x = y and x + y = 1: all three go equally fast.
    assert found.pair_fractions[:, 0] == pytest.approx([1 / 1.9, 0.0], abs=1e-3)
    assert found.fractions[:, 0] == pytest.approx([0.0, 0.0, 0.9 / 1.9], abs=1e-3)
