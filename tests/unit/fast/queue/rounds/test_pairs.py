"""Pairs in rounds: who may share, who goes to whose GPUs, and what two have received together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.build import job
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.candidates import Pairs, RoundCandidate, RoundCapacity
from topmast.fast.queue.rounds.kinds import Kind
from topmast.fast.queue.rounds.pairs import PairBooks, pairs_of, settle
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.policies.base import Parts, SharesView
from topmast.policies.options import ShareOptions

MODELS = ("V100", "K80")
V100, K80 = 0, 1


class Table:
    """Both at so much of their speeds on a V100; on a K80 nothing is known."""

    def __init__(self, first: float, second: float) -> None:
        self.factors = (first, second)

    def beside(
        self, one: tuple[str, int], other: tuple[str, int], model: str
    ) -> tuple[float, float] | None:
        return self.factors if model == "V100" and "unknown" not in (one[0], other[0]) else None

    def steps_per_s(self, work: tuple[str, int], model: str) -> float | None:
        return None


def contender(
    number: int, gpus: int = 1, work: str = "a", at: int = -1, partner: str = "", **more: Any
) -> RoundCandidate:
    """A job that waits, or runs at a model."""
    spec = replace(job(gpus=gpus, **more), **({"work": work} if work else {}))
    count = spec.tasks
    milli = np.array([gpus * 1000 * count] * 2)
    kind = Kind(np.array([1.0, 0.5]), milli, np.array([0, 1]))
    record = JobRecord(f"j{number}", number, spec, 0.0)
    return RoundCandidate(record, kind, 1e6, 1.0, 0, at, partner=partner)


@pytest.mark.parametrize(
    ("story", "second", "factors", "may"),
    [
        ("alike, and worth it", {}, (0.6, 0.6), True),
        ("no more than turns make", {}, (0.5, 0.5), False),
        ("one gets nowhere", {}, (1.2, 0.0), False),
        ("of another size", {"gpus": 2}, (0.9, 0.9), False),
        ("as many GPUs in more tasks", {"gpus": 1, "count": 2}, (0.9, 0.9), False),
        ("nobody says what it is", {"work": ""}, (0.9, 0.9), False),
        ("nobody measured it", {"work": "unknown"}, (0.9, 0.9), False),
    ],
)
def test_who_may_share(
    story: str, second: dict[str, Any], factors: tuple[float, float], may: bool
) -> None:
    """Two of one form that were measured, on the models where that is so."""
    found = pairs_of([contender(0), contender(1, **second)], MODELS, Table(*factors))
    assert found.rows.tolist() == ([[0, 1]] if may else []), story
    if may:
        assert found.speeds.tolist() == [[[0.6, 0.6], [0.0, 0.0]]]


@pytest.mark.parametrize(
    ("story", "runs", "granted", "mates", "hosts", "moving"),
    [
        ("both wait", [(-1, ""), (-1, "")], [V100, V100], [1, 0], {"j1": "j0"}, []),
        ("one runs there", [(-1, ""), (V100, "")], [V100, V100], [1, 0], {"j0": "j1"}, []),
        ("both run, apart", [(V100, ""), (V100, "")], [V100, V100], [1, 0], {"j1": "j0"}, ["j1"]),
        ("both, together", [(V100, "j1"), (V100, "j0")], [V100, V100], [1, 0], {"j1": "j0"}, []),
        ("they part", [(V100, "j1"), (V100, "j0")], [V100, V100], [-1, -1], {}, ["j1"]),
        ("one goes elsewhere", [(V100, "j1"), (V100, "j0")], [V100, K80], [-1, -1], {}, []),
        ("one has to stop", [(V100, "j1"), (V100, "j0")], [-1, V100], [-1, -1], {}, []),
    ],
)
def test_who_goes_to_whose_gpus(
    story: str,
    runs: list[tuple[int, str]],
    granted: list[int],
    mates: list[int],
    hosts: dict[str, str],
    moving: list[str],
) -> None:
    """As few as can be are stopped; who is granted another model, or none, is stopped anyway."""
    contenders = [contender(n, at=at, partner=other) for n, (at, other) in enumerate(runs)]
    found = settle(contenders, granted, mates)
    assert (found.hosts, list(found.moving)) == (hosts, moving), story


def test_partners_change() -> None:
    """Two pairs swap: of each old pair one stays, and its new partner comes."""
    together = [("j1", 0), ("j0", 1), ("j3", 2), ("j2", 3)]
    contenders = [contender(n, at=V100, partner=other) for other, n in together]
    found = settle(contenders, [V100] * 4, [2, 3, 0, 1])
    assert sorted(found.moving) == ["j1", "j2", "j3"]
    assert found.hosts == {"j2": "j0", "j3": "j1"}


def test_who_may_not_be_stopped_stays_when_two_part() -> None:
    """The other one goes."""
    contenders = [contender(0, at=V100, partner="j1"), contender(1, at=V100, partner="j0")]
    contenders[1].stays = True
    assert list(settle(contenders, [V100, V100], [-1, -1]).moving) == ["j0"]


class Together:
    """A policy that gives all of the time to the first pair, while there is one."""

    moves = fills = True
    every_pair = False

    def parts(self, view: SharesView) -> Parts:
        alone = np.ones(view.speeds.shape)
        if view.pair_rows is None or not len(view.pair_rows):
            return Parts(alone, np.ones(len(view.ids)), {})
        pairs = np.zeros((len(view.pair_rows), len(view.models)))
        pairs[0, V100] = 1.0
        return Parts(alone * 0.0, np.ones(len(view.ids)), {}, pairs)


def test_a_pair_takes_the_gpus_of_one() -> None:
    """Three jobs, two GPUs: two have one of them together, and the third the other."""
    rounds = Rounds(ShareOptions(policy="x", pairs=True), Together())
    contenders = [contender(number) for number in range(3)]
    pairs = Pairs(np.array([[0, 2]]), np.array([[[0.9, 0.9], [0.0, 0.0]]]))
    gpus = np.array([2, 0])
    stage = RoundCapacity(MODELS, gpus, gpus * 1000, np.ones(1), lambda: pairs)
    granted = rounds.begin(contenders, (), stage, 0.0)
    assert granted == dict.fromkeys(("j0", "j1", "j2"), V100)
    assert [grant and grant.colocated_with for grant in map(rounds.grant, ("j0", "j1", "j2"))] == [
        "",
        "",
        "j0",
    ]
    assert rounds.guest_of("j0") == "j2"
    order = sorted(("j0", "j1", "j2"), key=rounds.turn)
    assert order == ["j0", "j2", "j1"], "who comes second in a pair needs no room"


def test_what_two_had_together_is_theirs_together() -> None:
    """A minute alone and three with the other: it counts once, though both tell of it."""
    rounds = Rounds(ShareOptions(policy="x", pairs=True), Together())
    one, two = contender(0), contender(1)
    gpus = np.array([1, 0])
    rounds.begin([one, two], (), RoundCapacity(MODELS, gpus, gpus * 1000, np.ones(1)), 0.0)
    one.record.start_s, two.record.start_s = 0.0, 60.0
    for _ in range(2):  # what was told already does not count again
        rounds.ran(one.record, V100, 240.0, two.record)
        rounds.ran(two.record, V100, 240.0, one.record)
    assert rounds._accounts["j0"].received_s.tolist() == [60.0, 0.0]
    assert rounds._accounts["j1"].received_s.tolist() == [0.0, 0.0]
    assert rounds._together.of("j0", "j1", 2).tolist() == [180.0, 0.0]


def test_books_keep_what_is_of_use() -> None:
    """A pair without a part is kept while it received something, and forgotten with either job."""
    books = PairBooks()
    books.of("j0", "j1", 2)[V100] = 10.0
    contenders = [contender(n) for n in range(3)]
    pairs = Pairs(np.array([[0, 1], [0, 2], [1, 2]]), np.ones((3, 2, 2)))
    books.note(contenders, pairs, np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.0]]))
    assert [pair.rows for pair in books.among(contenders)] == [(0, 2)]
    assert books.of("j1", "j0", 2)[V100] == 10.0
    books.forget("j0")
    assert books.among(contenders) == []
    assert books.of("j0", "j1", 2)[V100] == 0.0
