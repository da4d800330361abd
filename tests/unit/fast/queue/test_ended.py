"""Jobs that are over leave memory where it has too many: what has most loses first."""

import random

import pytest

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue.jobs import jobs
from topmast.fast.queue.jobs.ended import Ended
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dependency import After
from topmast.model.fleet import TenantSpec
from topmast.model.states import JobState

TENANTS = (TenantSpec("vision"), TenantSpec("speech"), TenantSpec("default"))


def _world() -> World:
    return World(fleet(cluster("east-1", gpus=1), tenants=TENANTS))


def _cancelled(world: World, tenant: str, user: str, count: int) -> list[str]:
    """Jobs that waited and were cancelled in one step."""
    specs = [job(gpus=8, tenant=tenant, user=user) for _ in range(count)]
    named = list(world.submit(*specs))
    world.cancel(*named)
    world.advance(1.0)
    return named


def test_a_mass_cancel_takes_nothing_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of the one that ended most leave, also after a restart; others' can be requeued."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 10)
    world = _world()
    theirs = _cancelled(world, "speech", "bob", 3)
    mine = _cancelled(world, "vision", "ann", 40)
    assert list(world.jobs) == theirs + mine[-7:]
    world.restart()
    more = _cancelled(world, "vision", "cid", 3)
    assert list(world.jobs) == theirs + mine[-4:] + more
    world.restart()
    assert list(world.jobs) == theirs + mine[-4:] + more
    world.tell(ids.QUEUE, m.RequeueJobs(tuple(theirs), "bob"))
    assert [world.state(one) for one in theirs] == [JobState.PENDING] * 3
    assert all(world.journal.finished_job(one) is not None for one in mine)


def test_many_users_of_a_tenant_have_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that manage a tenant can make as many accounts as they like."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 10)
    world = _world()
    theirs = _cancelled(world, "speech", "bob", 5)
    for number in range(30):
        _cancelled(world, "vision", f"copy{number}", 1)
    assert list(world.jobs)[:5] == theirs
    left = [record.spec.user for record in world.jobs.values()][5:]
    assert left == [f"copy{number}" for number in range(30 - len(left), 30)], "the oldest leave"
    assert 5 <= len(left) <= 6


def test_a_job_that_waits_for_one_of_very_many_hears_of_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if that leaves memory as soon as it ended."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 10)
    world = _world()
    named = list(world.submit(*[job(gpus=8) for _ in range(30)]))
    (waits,) = world.submit(job(depends_on={named[0]: After.ANY}))
    world.cancel(*named)
    world.settle()
    assert named[0] not in world.jobs
    assert world.state(waits) is JobState.RUNNING


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_changes_nothing_that_leaves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was started anew, from any snapshot, forgets as one that went on."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 20)
    rng, one, other = random.Random(seed), _world(), _world()
    for _ in range(25):
        who = (rng.choice(("vision", "speech")), rng.choice("abc"), rng.randint(1, 9))
        for world in (one, other):
            _cancelled(world, *who)
        if rng.random() < 0.3:
            other.snapshot()
        if rng.random() < 0.5:
            other.restart()
        assert list(one.jobs) == list(other.jobs)
        assert one.queue.jobs.ended.names == other.queue.jobs.ended.names
    assert 20 <= len(one.jobs) <= 22


@pytest.mark.parametrize("seed", range(20))
def test_one_after_the_other_leaves_from_where_there_is_most(seed: int) -> None:
    """As by looking at all of them for each."""
    rng, ended = random.Random(seed), Ended()
    for number in range(rng.randint(0, 80)):
        tenant, user = rng.choice("ab"), rng.choice("uvwx")
        ended.add(f"j{number}", tenant, user, rng.choice((1, 1, 1, 5, 30)))
    left, most_bytes = dict(ended.names), rng.randint(0, ended.total_bytes)
    want = []
    while sum(size for *_, size in left.values()) > most_bytes:
        want.append(_next(left))
        del left[want[-1]]
    assert ended.excess(most_bytes) == want
    for name in want:
        ended.remove(name)
    assert (ended.names, ended.total_bytes) == (left, sum(size for *_, size in left.values()))


def _next(left: dict[str, tuple[str, str, int]]) -> str:
    """The oldest of the largest user of the largest tenant; of several, the one with the oldest."""

    def largest(names: list[str], kind: int) -> list[str]:
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(str(left[name][kind]), []).append(name)
        most = max(sum(left[name][2] for name in group) for group in groups.values())
        tied = [g for g in groups.values() if sum(left[name][2] for name in g) == most]
        if kind == 1 or len(tied) == 1:
            return tied[0]
        firsts = [largest(group, 1)[0] for group in tied]
        return tied[min(range(len(tied)), key=lambda i: int(firsts[i][1:]))]

    return largest(largest(list(left), 0), 1)[0]
