"""Rounds: fractions of time become turns, and those who received least of what is due to them come first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.build import job
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.candidates import RoundCandidate, RoundCapacity
from topmast.fast.queue.rounds.kinds import Kind
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.model.errors import TopmastError
from topmast.policies.base import Floats, Parts, SharesView
from topmast.policies.options import ShareOptions

MODELS = ("V100", "K80")


class Fixed:
    """A policy that answers what the test says; it fails while ``fails``."""

    def __init__(self, fractions: list[list[float]], *, fills: bool = True) -> None:
        self.fractions = fractions
        self.moves, self.fills, self.fails = True, fills, False
        self.every_pair = False
        self.asked = 0

    def parts(self, view: SharesView) -> Parts:
        self.asked += 1
        if self.fails:
            raise TopmastError("no basis")
        fractions: Floats = np.array(self.fractions)
        return Parts(fractions, np.ones(len(view.ids)), {})


class Table:
    """Rounds over jobs of so many GPUs each, on two models."""

    def __init__(
        self, share: Fixed, widths: list[int], gpus: tuple[int, int] = (1, 1), **options: Any
    ) -> None:
        self.rounds = Rounds(ShareOptions(policy="fixed", **{"lease": 1.0, **options}), share)
        self.gpus = np.array(gpus, np.int64)
        self.now = 0.0
        self.contenders = [
            RoundCandidate(
                JobRecord(f"j{number}", number, job(gpus=width), 0.0),
                Kind(np.array([1.0, 0.5]), np.array([width * 1000] * 2), np.array([0, 1])),
                left_s=1e6,
                weight=1.0,
                tenant=0,
            )
            for number, width in enumerate(widths)
        ]

    def round(self) -> list[int]:
        """Let a round begin, and last; returns the model that each job is granted, -1 for none."""
        for contender in self.contenders:
            self.rounds.ran(contender.record, contender.at, self.now)
        stage = RoundCapacity(MODELS, self.gpus, self.gpus * 1000, np.ones(1))
        granted = self.rounds.begin(self.contenders, (), stage, self.now)
        chosen = []
        for contender in self.contenders:
            at = granted.get(contender.record.id, -1)
            if at != contender.at:
                contender.at, contender.record.start_s = at, self.now if at >= 0 else None
            chosen.append(at)
        self.now += self.rounds.options.round_s
        return chosen


@pytest.mark.parametrize(
    ("story", "fractions", "widths", "gpus", "want"),
    [
        ("the larger part first", [[0.2, 0.8], [0.8, 0.2]], [1, 1], (1, 1), [1, 0]),
        ("a gang that does not fit is passed over", [[0.9, 0], [0.1, 0]], [2, 1], (1, 0), [-1, 0]),
        ("what is left over goes to those without a part", [[1, 0], [0, 0]], [1, 1], (1, 1), [0, 1]),
        ("of equals, who came first", [[0.5, 0], [0.5, 0]], [1, 1], (1, 0), [0, -1]),
    ],
)  # fmt: skip
def test_who_is_granted_what(
    story: str, fractions: list[list[float]], widths: list[int], gpus: tuple[int, int], want: list[int]
) -> None:  # fmt: skip
    """Model by model, the fastest first, by what is due over what was received."""
    assert Table(Fixed(fractions), widths, gpus).round() == want, story


def test_a_policy_that_does_not_fill_leaves_gpus_to_nobody_without_a_part() -> None:
    """Strict order: who has no part waits, whatever is free."""
    table = Table(Fixed([[1.0, 0.0], [0.0, 0.0]], fills=False), [1, 1])
    assert table.round() == [0, -1]
    assert not table.rounds.may_start("j1")


@pytest.mark.parametrize(
    ("story", "parts", "lease"),
    [
        ("halves", (0.5, 0.5), 1.0),
        ("three quarters", (0.75, 0.25), 1.0),
        ("a lease delays, and takes nothing away", (0.5, 0.5), 2.0),
        ("unequal parts with a lease", (0.75, 0.25), 2.0),
    ],
)
def test_time_is_divided_as_computed(story: str, parts: tuple[float, float], lease: float) -> None:
    """Over many rounds each job runs for its part of them."""
    table = Table(Fixed([[part, 0.0] for part in parts]), [1, 1], (1, 0), lease=lease)
    chosen = [table.round() for _ in range(200)]
    for row, part in enumerate(parts):
        ran = sum(at[row] == 0 for at in chosen) / len(chosen)
        assert ran == pytest.approx(part, abs=0.06), story


def test_a_lease_spares_changes() -> None:
    """The higher it counts that a job runs already, the fewer are stopped."""

    def changes(lease: float) -> int:
        table = Table(Fixed([[0.5, 0.0], [0.5, 0.0]]), [1, 1], (1, 0), lease=lease)
        chosen = [table.round() for _ in range(100)]
        return sum(one != other for one, other in pairwise(chosen))

    assert changes(1.0) > 1.5 * changes(2.0)


def test_who_may_not_be_stopped_keeps_what_he_has() -> None:
    """Whatever the parts say, and nobody else is granted the same GPUs."""
    table = Table(Fixed([[0.0, 0.0], [1.0, 0.0]]), [1, 1], (1, 0))
    table.contenders[0].at, table.contenders[0].stays = 0, True
    assert table.round() == [0, -1]


def test_a_solver_that_fails_leaves_the_last_parts_in_force() -> None:
    """It is counted and told, and asked again in the next round."""
    share = Fixed([[0.1, 0.9], [0.9, 0.1]])
    table = Table(share, [1, 1])
    before = table.round()
    share.fails, table.rounds.changed = True, True
    assert table.round() == before
    assert (table.rounds.failures, table.rounds.failure) == (1, "no basis")
    assert "no basis" in table.rounds.news("j0")
    share.fails = False
    table.round()
    assert table.rounds.failure == ""
    assert share.asked == 3


def test_a_solver_that_fails_at_first_leaves_equal_parts() -> None:
    """Without any parts to fall back on, all count alike, and GPUs are used."""
    share = Fixed([[0.0, 0.0]] * 2)
    share.fails = True
    table = Table(share, [1, 1])
    assert sorted(table.round()) == [0, 1]


def test_parts_are_computed_when_something_changed_and_not_too_often() -> None:
    """Every round would be allowed to, every third is, and none without a change."""
    share = Fixed([[0.5, 0.5], [0.5, 0.5]])
    table = Table(share, [1, 1], recompute_s=1_000.0)
    for _ in range(6):
        table.rounds.changed = True
        table.round()
    assert share.asked == 2
    for _ in range(6):
        table.round()
    assert share.asked == 3, "the change of before, and no other"


@pytest.mark.parametrize(
    ("story", "widths"), [("no job wants GPUs", []), ("the solver fails", [1])]
)
def test_the_next_round_comes_after_this_one(story: str, widths: list[int]) -> None:
    """Where a policy leaves gaps, a round follows each change; one that nothing can be made of is waited out.

    Else the next round would begin at the same instant, for ever.
    """
    share = Fixed([[1.0, 0.0]] * len(widths), fills=False)
    share.fails = True
    table = Table(share, widths)
    table.round()
    assert table.rounds.next_s(0.0) == 360.0
    share.fails = False
    table.round()
    table.rounds.forget("gone")
    assert table.rounds.next_s(400.0) == 400.0


def test_nobody_is_granted_more_than_there_is() -> None:
    """Random jobs and parts: no model is given away twice, and no gang in part."""
    rng = np.random.default_rng(5)
    waited = 0
    for _ in range(100):
        count = int(rng.integers(1, 12))
        widths = rng.choice([1, 2, 4, 8], count).tolist()
        gpus = (int(rng.integers(1, 12)), int(rng.integers(1, 12)))
        table = Table(Fixed(rng.random((count, 2)).tolist()), widths, gpus)
        for _ in range(3):
            chosen = table.round()
            for model in (0, 1):
                held = sum(w for w, at in zip(widths, chosen, strict=True) if at == model)
                assert held <= gpus[model]
                left = gpus[model] - held
                waiting = [w for w, at in zip(widths, chosen, strict=True) if at < 0]
                waited += len(waiting)
                assert all(width > left for width in waiting), "room for one who waits"
    assert waited


def test_what_was_received_is_forgotten_when_shares_are_computed() -> None:
    """Until then it counts in full, however long ago; and a job that came since has no share, and runs on what is left over."""
    table = Table(Fixed([[0.5, 0.0], [0.5, 0.0]]), [1, 1], (1, 0), recompute_s=3_600.0, forget=True)
    assert [table.round() for _ in range(4)] == [[0, -1], [-1, 0], [0, -1], [-1, 0]]
    assert [account.received_s[0] for account in table.rounds._accounts.values()] == [720.0, 360.0]
    newcomer = Table(Fixed([]), [1, 1, 1]).contenders[2]
    table.contenders.append(newcomer)
    table.rounds.changed = True
    third = [table.round()[2] for _ in range(6)]
    assert third == [-1] * 6, "it came after shares had been computed"
    table.rounds.share = Fixed([[0.1, 0.0], [0.1, 0.0], [0.8, 0.0]])
    assert table.round()[2] == 0
    received_s = [account.received_s[0] for account in table.rounds._accounts.values()]
    assert received_s == [0.0, 0.0, 0.0]
    usual = Table(Fixed([[0.5, 0.0], [0.5, 0.0]]), [1, 1], (1, 0), recompute_s=3_600.0)
    usual.round()
    usual.contenders.append(newcomer)
    assert any(usual.round()[2] == 0 for _ in range(3)), "else it has its part at once"


def test_shares_are_computed_at_the_time_for_which_the_round_was_called() -> None:
    """Even where that time less the last one is rounded below the pause between two: no round is called again at once."""
    solved_s, pause_s = 6517.135067, 1_800.0
    assert (solved_s + pause_s) - solved_s < pause_s
    table = Table(Fixed([[1.0, 0.0]], fills=False), [1], recompute_s=pause_s, round_s=1e6)
    table.now = solved_s
    table.round()
    table.rounds.changed = True
    called_s = table.rounds.next_s(solved_s)
    assert called_s == solved_s + pause_s
    table.now = called_s
    table.round()
    assert table.rounds.solves == 2
    assert table.rounds.next_s(called_s) > called_s
