"""The order of all waiting jobs: whatever is done to it, it is what a sort from scratch would give."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.build import profile
from topmast.fast.queue.backlog import ordered_index as lane
from topmast.fast.queue.backlog import ranking
from topmast.fast.queue.backlog.ordered_index import JOB_CLASS, PLACEMENT
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.queue.backlog.waiting import Waiting
from topmast.model.job import Band
from topmast.policies.base import OrderPolicy, QueueView
from topmast.policies.registry import ORDERS, policies_of

BANDS = list(Band)
JOB_CLASSES = 7


def class_of(job_class: int, over_quota: bool) -> int:
    """Over quota more job classes are of one placement class."""
    return job_class % (2 if over_quota else 3)


@dataclass
class Model:
    """The same in plain Python: a list, sorted each time; keys frozen as the ranking says."""

    order: OrderPolicy
    fairness: Callable[[str], float]
    ranked_at_s: float = 0.0
    standing: dict[str, float] = field(default_factory=dict)
    jobs: dict[str, Waiting] = field(default_factory=dict)
    from_s_of: dict[tuple[int, bool], float] = field(default_factory=dict)
    class_from_s: dict[tuple[int, bool], float] = field(default_factory=dict)
    exempt: str | None = None

    def key(self, w: Waiting, over_quota: bool) -> tuple[float, ...]:
        standing = self.standing.setdefault(w.tenant, self.fairness(w.tenant))
        view = QueueView(
            self.ranked_at_s, np.array([w.band]), np.array([w.submit_s]), np.array([w.gpus]),
            np.array([w.tasks]), np.array([0]), np.array([standing]), np.array([w.duration_s]),
            np.array([w.remaining_s]), np.array([w.attained_gpu_s]), np.array([w.executed_s]),
            np.array([w.first_start_s]), np.array([w.since_s]), np.array([False]), np.array([w.turn]),
        )  # fmt: skip
        band = (0.0 if over_quota else -float(w.band),) if self.order.by_band else ()
        return (*band, *self.order.keys(view)[0].tolist(), w.submit_s, w.number)

    def in_order(self, over_quota: bool) -> list[str]:
        return sorted(self.jobs, key=lambda job: self.key(self.jobs[job], over_quota))

    def first_unblocked(self, over_quota: bool) -> str | None:
        for job in self.in_order(over_quota):
            if not self.is_passed_over(job, over_quota):
                return job
        return None

    def is_passed_over(self, job: str, over_quota: bool) -> bool:
        w, never = self.jobs[job], float("inf")
        from_s = self.from_s_of.get((w.job_class, over_quota), never)
        if job != self.exempt:
            placement = class_of(w.job_class, over_quota)
            from_s = min(from_s, self.class_from_s.get((placement, over_quota), never))
        return w.remaining_s >= from_s


def names(ranking: Ranking, over_quota: bool = False) -> list[str]:
    """All jobs in order."""
    return [job for _, job in ranking.in_order(over_quota)]


class Both:
    """A ranking and its model, told the same, and compared."""

    def __init__(self, order: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.used = {f"t{i}": self.rng.random() for i in range(4)}
        policy = policies_of(profile(order=order)).order
        self.real = Ranking(policy, lambda tenant: self.used[tenant])
        self.model = Model(policy, lambda tenant: self.used[tenant])
        for job_class in range(JOB_CLASSES):
            self.real.add_job_class(
                job_class, class_of(job_class, False), class_of(job_class, True)
            )
        self.number = 0
        self.now = 0.0

    def waiting(self) -> Waiting:
        """Few values each, so that ties are common."""
        rng = self.rng
        self.number += 1
        duration_s = float(rng.randrange(1, 5))
        return Waiting(
            job=f"j{self.number}", number=self.number, job_class=rng.randrange(JOB_CLASSES),
            tenant=rng.choice(list(self.used)), band=rng.choice(BANDS),
            submit_s=float(max(0, self.now - rng.randrange(3))), gpus=float(rng.choice((1, 2, 8))),
            tasks=1, duration_s=duration_s, remaining_s=duration_s * rng.choice((0.5, 1.0)),
            attained_gpu_s=float(rng.choice((0, 3_250, 7_200, 90_000))),
            first_start_s=float(rng.randrange(3)), since_s=float(rng.randrange(3)),
        )  # fmt: skip

    def add(self) -> None:
        waiting = self.waiting()
        self.real.add(waiting)
        self.model.jobs[waiting.job] = waiting

    def any(self) -> str | None:
        return self.rng.choice(sorted(self.model.jobs)) if self.model.jobs else None

    def remove(self) -> None:
        job = self.any()
        assert len(self.real) == len(self.model.jobs)
        if job is not None:
            self.real.remove([job])
            del self.model.jobs[job]

    def change_band(self) -> None:
        job = self.any()
        if job is not None:
            band = self.rng.choice(BANDS)
            changed = replace(self.model.jobs[job], band=band)
            self.real.remove([job])
            self.real.add(changed)
            self.model.jobs[job] = changed

    def rerank(self) -> None:
        self.used = {tenant: self.rng.random() for tenant in self.used}
        self.real.rerank(self.now)
        self.model.ranked_at_s = self.now
        self.model.standing = {}

    def block(self) -> None:
        """Pass over a job class, or the longer jobs of it."""
        job_class, over_quota = self.rng.randrange(JOB_CLASSES), self.rng.random() < 0.5
        from_s = self.rng.choice((-np.inf, 2.0))
        self.real.block(JOB_CLASS, job_class, over_quota, from_s)
        blocked = self.model.from_s_of
        blocked[job_class, over_quota] = min(from_s, blocked.get((job_class, over_quota), np.inf))

    def unblock(self) -> None:
        job_class, over_quota = self.rng.randrange(JOB_CLASSES), self.rng.random() < 0.5
        self.real.unblock(JOB_CLASS, job_class, over_quota)
        self.model.from_s_of.pop((job_class, over_quota), None)

    def block_class(self) -> None:
        """Pass over a placement class, or the longer jobs of it; perhaps for all but one job."""
        over_quota = self.rng.random() < 0.5
        placement, from_s = self.rng.randrange(2), self.rng.choice((-np.inf, 2.0))
        self.real.block(PLACEMENT, placement, over_quota, from_s)
        blocked = self.model.class_from_s
        blocked[placement, over_quota] = min(from_s, blocked.get((placement, over_quota), np.inf))
        self.real.exempt = self.model.exempt = self.rng.choice((None, self.any()))

    def unblock_class(self) -> None:
        placement, over_quota = self.rng.randrange(2), self.rng.random() < 0.5
        self.real.unblock(PLACEMENT, placement, over_quota)
        self.model.class_from_s.pop((placement, over_quota), None)

    def unblock_all(self) -> None:
        self.real.unblock_all()
        self.model.from_s_of.clear()
        self.model.class_from_s.clear()

    def pass_time(self) -> None:
        self.now += self.rng.randrange(40_000)

    def compare_all(self) -> None:
        for over_quota in (False, True):
            assert names(self.real, over_quota) == self.model.in_order(over_quota)

    def compare_passed_over(self) -> None:
        exempt, self.model.exempt = self.model.exempt, None
        for job in self.model.jobs:
            want = all(self.model.is_passed_over(job, over) for over in (False, True))
            assert self.real.is_passed_over(job) is want
        self.model.exempt = exempt

    def compare_first(self) -> None:
        for over_quota in (False, True):
            found = self.real.first_unblocked(over_quota)
            want = self.model.first_unblocked(over_quota)
            assert (found and found[1]) == want
            if found is not None and want is not None:
                assert found[0][:-1] == self.model.key(self.model.jobs[want], over_quota)


STEPS = [
    (10, Both.add), (4, Both.remove), (4, Both.change_band), (1, Both.rerank), (4, Both.block),
    (1, Both.unblock), (1, Both.unblock_all), (2, Both.pass_time), (2, Both.compare_all),
    (10, Both.compare_first), (2, Both.block_class), (2, Both.unblock_class), (1, Both.compare_passed_over),
]  # fmt: skip


@pytest.mark.parametrize("many", [0, 10**9], ids=["sorts", "inserts"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_any_changes_leave_what_a_sort_from_scratch_gives(
    order: str, seed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts, removals, changes of band, re-ranks, blocks: in any sequence."""
    monkeypatch.setattr(ranking, "MANY", many)
    monkeypatch.setattr(ranking, "FIRST_CAPACITY", 4)
    monkeypatch.setattr(lane, "FIRST_CAPACITY", 4)
    monkeypatch.setattr(ranking, "SCAN_FIRST", 2)
    if many:
        monkeypatch.setattr(ranking, "LATE_LIMIT", 40)
    both = Both(order, seed)
    weights = [weight for weight, _ in STEPS]
    for _ in range(600):
        ((_, step),) = both.rng.choices(STEPS, weights)
        step(both)
    both.compare_all()
    assert len(both.real) == len(both.model.jobs)


@pytest.mark.parametrize("order", ORDERS)
def test_a_queue_taken_from_its_head_comes_out_in_order(order: str) -> None:
    """Rows sorted and rows inserted later are one order."""
    both = Both(order, 7)
    for _ in range(300):
        both.add()
    both.rerank()
    for _ in range(20):
        both.add()
    want = both.model.in_order(over_quota=False)
    taken = []
    while (found := both.real.first_unblocked(over_quota=False)) is not None:
        taken.append(found[1])
        both.real.remove([found[1]])
    assert taken == want


def test_credit_stays_as_computed_until_it_is_computed_anew() -> None:
    """Use between two rankings moves nobody; at the next one it does."""
    both = Both("credit", 1)
    both.used = {"t0": 1.0, "t1": 0.5}
    for tenant in ("t0", "t1"):
        both.number += 1
        both.real.add(
            Waiting(f"j{both.number}", both.number, 0, tenant, Band.LOW, 0.0, 1.0, 1, 1.0, 1.0)
        )
    assert names(both.real) == ["j1", "j2"]
    both.used = {"t0": 0.0, "t1": 1.0}
    assert names(both.real) == ["j1", "j2"]
    both.real.rerank(0.0)
    assert names(both.real) == ["j2", "j1"]


def test_rows_of_those_who_left_are_used_again() -> None:
    """A queue through which many pass stays as large as it ever was at once."""
    both = Both("submission", 3)
    for _ in range(2_000):
        both.add()
        both.remove()
        both.rerank()
    assert len(both.real._jobs) == lane.FIRST_CAPACITY


@pytest.mark.parametrize("order", ORDERS)
def test_jobs_that_come_alone_are_first_at_once_and_leave_no_row(order: str) -> None:
    """More of them than there are rows, one after the other, and then several at a time."""
    both = Both(order, 5)
    for _ in range(lane.FIRST_CAPACITY + 50):
        both.add()
        (job,) = both.model.jobs
        found = both.real.first_unblocked(over_quota=False)
        assert found is not None
        assert (found[0][:-1], found[1]) == (both.model.key(both.model.jobs[job], False), job)
        both.remove()
    assert len(both.real._jobs) == lane.FIRST_CAPACITY
    for _ in range(20):
        both.add()
    assert names(both.real) == both.model.in_order(over_quota=False)
