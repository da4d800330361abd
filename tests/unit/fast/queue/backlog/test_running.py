"""Running jobs in the order of the waiting ones."""

from __future__ import annotations

import random

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.fast.queue.backlog.running import RunningOrder
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import JobChanges
from topmast.model.states import JobState
from topmast.policies.options import Preemption


def world(order: str = "remaining-time", hosts: int = 4) -> World:
    """Jobs rank by what is left of their runs, and may stop those behind them after 60 s."""
    options = profile(order=order, preemption=Preemption.RANK, min_runtime_s=60.0)
    made = World(fleet(cluster("east-1", hosts=hosts), cluster("west-1", hosts=hosts)), options)
    for gpus, lasts_s in ((8, 100.0), (4, 400.0), (2, 300.0), (8, 300.0)):
        made.tell(ids.QUEUE, m.SubmitJobs((job("one", gpus, duration_s=lasts_s),)))
    return made


def order_of(made: World) -> RunningOrder:
    """The order as the queue sees it now."""
    return made.queue.running_order()


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ((0.0, 0.0, 0.0), ("j2", "j4", "j3", "j1")),
        ((100.0, 0.0, 1.0), ("j2", "j4", "j3")),
        ((300.0, 0.0, 3.0), ("j2", "j4")),
        ((300.0, 0.0, 4.0), ("j2",)),
        ((400.0, 0.0, 2.0), ()),
    ],
)
def test_those_behind_a_key(key: tuple[float, ...], want: tuple[str, ...]) -> None:
    """The last comes first; one of the same rank is not behind."""
    assert order_of(world()).behind(key) == want


def test_time_brings_running_jobs_nearer_to_their_end() -> None:
    """All by as much, so that they keep their order among themselves."""
    made = world()
    made.now = made.queue.now = 50.0
    assert order_of(made).behind((250.0, 0.0, 3.0)) == ("j2", "j4")
    assert order_of(made).behind((251.0, 0.0, 0.0)) == ("j2",)


def test_gains_by_region_of_those_that_ran_long_enough() -> None:
    """Before 60 s none may be stopped, and it is told when the first may be."""
    made = world()
    young, running = order_of(made), made.queue.backlog.running
    assert [running.gain_milli(young, 0, region) for region in ("east", "west")] == [0, 0]
    assert young.next_old_enough_s(0, made.queue.now) == 60.0
    made.queue.now = 60.0
    order = order_of(made)
    gains = [running.gain_milli(order, 0, region) for region in ("east", "west", "north")]
    assert sum(gains) == 22_000
    assert gains[2] == 0
    assert sum(running.gain_milli(order, 3, region) for region in ("east", "west")) == 4_000
    assert order.next_old_enough_s(0, 60.0) is None


def test_a_job_with_a_plan_counts_before_it_starts() -> None:
    """It is not among those that may be stopped yet, but what it would give is counted."""
    made = world()
    made.queue.now = 60.0
    record = next(r for r in made.queue.jobs.records.values() if r.id == "j2")
    record.state = JobState.PENDING
    made.queue.backlog.running.note("j2")
    order = order_of(made)
    assert order.jobs[-1] == "j2"
    assert "j2" not in order.behind((0.0, 0.0, 0.0))


@pytest.mark.parametrize("order", ["remaining-time", "remaining-service", "attained-service"])
def test_equals_the_view_of_each_job(order: str) -> None:
    """The keys from columns are those of the jobs one by one, after many changes."""
    rng, made = random.Random(7), world(order, hosts=20)
    for _ in range(60):
        made.now += rng.choice((0.0, 10.0, 100.0))
        spec = job("one", rng.choice((1, 2, 8)), duration_s=rng.choice((50.0, 500.0, 900.0, None)))
        made.tell(ids.QUEUE, m.SubmitJobs((spec,)))
        running = [name for name, r in made.jobs.items() if r.state is JobState.RUNNING]
        if len(running) > 8:
            made.finish(rng.choice(running))
        queue = made.queue
        found = order_of(made)
        backlog, keys = queue.backlog, {}
        for record in queue.jobs.placed.values():
            view = backlog.view_of(record, queue.now)
            key = backlog.ranking.order.keys(view)[0].tolist()
            keys[record.id] = (*key, record.submit_s, record.number)
        assert list(found.jobs) == sorted(keys, key=keys.__getitem__)
        assert [tuple(key) for key in found.keys.tolist()] == [keys[name] for name in found.jobs]


def test_jobs_that_are_over_leave_nothing() -> None:
    """Also where no order was asked for while they ran."""
    made = world()
    for name in list(made.jobs):
        made.finish(name)
    running = made.queue.backlog.running
    assert not running._changed
    assert order_of(made).jobs == ()


def test_a_job_that_is_expected_to_run_longer_ranks_later_at_once() -> None:
    """It runs, and the order was known before."""
    made = world()
    assert order_of(made).jobs == ("j1", "j3", "j4", "j2")
    longer = JobChanges(duration_s=350.0)
    made.tell(ids.QUEUE, m.EditJobs(("j1",), longer))
    assert order_of(made).jobs == ("j3", "j4", "j1", "j2")
