"""Hooks `pack` and `rebalance`: who is tried, who moves, and whether that was good, by what is known."""

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.build import job
from topmast.fast.packing_speedups import MEASURED, PackingSpeedups, kind_of
from topmast.policies.base import JoinView, MovedView, PackView, SizesView
from topmast.policies.introspection import Introspective
from topmast.policies.options import ElasticOptions, Profile, RebalanceOptions
from topmast.policies.packing_greedy import Greedy

PROFILE = Profile(
    name="test",
    pack="greedy",
    rebalancing=RebalanceOptions(gain=1.05, expected_gain=0.1, horizon_s=3_600.0),
)
UNKNOWN = float("nan")


@pytest.mark.parametrize(
    ("story", "expected", "age_s", "joins"),
    [
        ("known to gain half of a GPU: sixty seconds are soon worth it", 1.5, 300.0, True),
        ("known to gain little: not for a young pair", 1.06, 600.0, False),
        ("known to gain little: for an old one", 1.06, 3_600.0, True),
        ("unknown: a tenth is expected", UNKNOWN, 700.0, True),
        ("unknown, and young", UNKNOWN, 500.0, False),
    ],
)
def test_a_gang_joins_another_if_that_gains_more_than_it_costs(
    story: str, expected: float, age_s: float, joins: bool
) -> None:
    """The gain counts for as long as both ran, at most the horizon; a restart takes a minute."""
    view = JoinView(
        gpus=np.array([4.0]),
        age_s=np.array([age_s]),
        cost_s=np.array([60.0]),
        expected=np.array([expected]),
    )
    assert bool(len(Introspective(PROFILE).joins(view))) is joins, story


def test_the_best_join_goes_first() -> None:
    """By GPU-seconds gained, so large and old gangs before small and young ones."""
    view = JoinView(
        gpus=np.array([1.0, 4.0, 1.0]),
        age_s=np.array([3_000.0, 3_000.0, 3_000.0]),
        cost_s=np.full(3, 60.0),
        expected=np.array([1.2, 1.2, 1.6]),
    )
    assert Introspective(PROFILE).joins(view).tolist() == [1, 2, 0]


def test_nobody_joins_another_where_nobody_is_packed() -> None:
    """The move would cost a restart and gain nothing."""
    view = JoinView(np.ones(1), np.full(1, 3_600.0), np.full(1, 60.0), np.full(1, 1.5))
    assert not len(Introspective(replace(PROFILE, pack="none")).joins(view))


@pytest.mark.parametrize(
    ("story", "gained", "grows", "age_s", "resizes"),
    [
        ("twice the GPUs: half of the time left is saved", 2.0, True, 300.0, True),
        ("which has to be twice the restart", 2.0, True, 239.0, False),
        ("a ninth more GPUs: not for a young gang", 0.4, True, 1_100.0, False),
        ("for an old one", 0.4, True, 1_300.0, True),
        ("what is left is guessed as far as the horizon", 0.13, True, 100_000.0, False),
        ("to give way has to gain the restart once", 2.0, False, 121.0, True),
        ("for as long as the newcomer is expected to stay", 2.0, False, 119.0, False),
        ("others gain, it loses as much", 0.0, False, 3_600.0, False),
    ],
)
def test_a_gang_changes_its_size_if_that_gains_more_than_it_costs(
    story: str, gained: float, grows: bool, age_s: float, resizes: bool
) -> None:
    """GPUs gained over the time left, against a restart of a minute of its four GPUs, to grow `elastic.gain` of them."""
    view = SizesView(
        np.array([4.0]), np.array([gained]), np.array([grows]), np.array([age_s]), np.array([60.0])
    )
    judge = Introspective(replace(PROFILE, elastic=ElasticOptions(gain=2.0)))
    assert bool(len(judge.sizes(view))) is resizes, story


def test_the_size_that_gains_most_goes_first() -> None:
    """In GPU-seconds, less the restart."""
    view = SizesView(
        gpus=np.array([2.0, 8.0, 2.0]), gained=np.array([1.0, 2.0, 2.0]),
        grows=np.array([True, False, True]), age_s=np.full(3, 3_000.0), cost_s=np.full(3, 60.0),
    )  # fmt: skip
    assert Introspective(PROFILE).sizes(view).tolist() == [2, 1, 0]


def test_a_move_is_good_if_the_gang_does_as_much_as_before() -> None:
    """But for what a measurement may be wrong by."""
    view = MovedView(before=np.array([10.0, 10.0, 10.0]), after=np.array([12.0, 9.6, 9.4]))
    assert Introspective(PROFILE).good(view).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("story", "known", "pairs"),
    [
        ("nothing is known: in order", {}, [(0, 1)]),
        ("the third goes best with the first", {(0, 2): 1.6, (1, 2): 1.3}, [(0, 1)]),
        ("the first two go badly: the third is beside the better one", {(0, 1): 0.9, (1, 2): 1.4}, [(1, 2)]),
        ("all go badly", {(0, 1): 0.9, (0, 2): 0.9, (1, 2): 0.9}, []),
    ],
)  # fmt: skip
def test_pairs_are_tried_by_what_is_known_of_them(
    story: str, known: dict[tuple[int, int], float], pairs: list[tuple[int, int]]
) -> None:
    """Three on the same GPU, alike otherwise."""
    expected = np.full((3, 3), np.nan)
    for (one, two), gain in known.items():
        expected[one, two] = expected[two, one] = gain
    view = PackView(
        place=np.zeros(3, np.int64), gpus=np.ones(3), memory=np.zeros(3), rate=np.ones(3),
        failures=np.zeros(3, np.int64), may_join=~np.eye(3, dtype=np.bool_), expected=expected,
    )  # fmt: skip
    assert list(Greedy(PROFILE).pairs(view)) == pairs, story


def test_what_is_expected_of_a_pair_is_what_such_pairs_did() -> None:
    """By kinds, of which the number of GPUs is a part; another GPU model is another story."""
    gains = PackingSpeedups()
    a, b, wide = ("a", 1), ("b", 1), ("a", 4)
    assert gains.expected(a, b, "V100") is None
    gains.note(a, b, "V100", 1.5)
    assert gains.expected(b, a, "V100") == 1.5
    assert gains.expected(a, b, "P100") is None
    assert gains.expected(wide, b, "V100") is None
    gains.note(b, a, "V100", 1.1)
    assert gains.expected(a, b, "V100") == pytest.approx(1.3), (
        "what was measured lately counts half"
    )


def test_kinds_never_seen_together_are_judged_by_what_they_did_beside_others() -> None:
    """Once each was measured a few times: one bad pair may be the other's fault."""
    gains = PackingSpeedups()
    for number in range(MEASURED):
        assert gains.expected(("busy", 1), ("idle", 1), "V100") is None
        gains.note(("busy", 1), (f"x{number}", 1), "V100", 0.8)
        gains.note(("idle", 1), (f"y{number}", 1), "V100", 1.8)
    assert gains.expected(("busy", 1), ("idle", 1), "V100") == pytest.approx(1.3)


def test_of_jobs_that_do_not_say_what_they_do_nothing_is_learned() -> None:
    """Two that say nothing need not be alike."""
    gains = PackingSpeedups()
    assert kind_of(job(), 1) is None
    assert kind_of(job(work="bert"), 2) == ("bert", 2)
    gains.note(None, ("b", 1), "V100", 0.5)
    assert gains.expected(None, ("b", 1), "V100") is None
