"""Rounds on the machines: who is stopped at the end of his turn, who starts, and what becomes of early ends."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, dataset, fleet, gang, job, needs, tenant
from tests.support.world import World
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.model import messages as m
from topmast.model.job import Accelerator as A
from topmast.model.job import JobSpec, Resources
from topmast.model.states import HostState
from topmast.policies.registry import load_profile

LAB = fleet(cluster("lab-1", hosts=1, gpus=4, model="V100"), cluster("lab-2", hosts=1, gpus=4, model="K80"))  # fmt: skip
ONE = fleet(cluster("lab-1", hosts=1, gpus=4, model="V100"))


def rounds_of(world: World) -> Rounds:
    """The rounds of a queue that has them."""
    assert world.queue.rounds is not None
    return world.queue.rounds


def _world(profile: str = "gavel-max-min-fairness", where: object = LAB, **options: str) -> World:
    settings = {key.replace("__", "."): value for key, value in options.items()}
    return World(where, load_profile(profile, settings))  # type: ignore[arg-type]


def _either(name: str, slow: float, gpus: int = 4, **more: object) -> JobSpec:
    """A job that runs on both models, on the K80 at a part of the speed."""
    listed = (A("V100", gpus * 1000), A("K80", gpus * 1000, slow))
    return job(name, resources=Resources(listed), **more)  # type: ignore[arg-type]


def test_jobs_take_turns() -> None:
    """Two jobs, one place: each runs for half of the time, and is stopped with a checkpoint at its end."""
    world = _world(where=ONE, shares__lease="1")
    jobs = world.submit(job("a", gpus=4, model="V100"), job("b", gpus=4, model="V100"))
    runs = dict.fromkeys(jobs, 0)
    for _ in range(20):
        world.advance(180)
        for name in jobs:
            runs[name] += world.states()[name] == "RUNNING"
        world.advance(180)
    assert min(runs.values()) >= 9
    stopped = {order.job for order in world.orders(m.StopTasks)}
    assert stopped == set(jobs)


def test_who_gains_most_gets_the_fast_model() -> None:
    """Each runs on a model of its own, the one that does not mind on the slow one; nobody is stopped."""
    world = _world("gavel-max-throughput")
    minds, minds_not = world.submit(_either("minds", 0.1), _either("minds-not", 1.0))
    world.advance(2_000)
    assert world.jobs[minds].model == "V100"
    assert world.jobs[minds_not].model == "K80"
    assert world.jobs[minds].preemptions == 0


def test_what_knows_nothing_of_models_makes_all_take_turns_on_each() -> None:
    """Without speeds each job has half of its time on each model."""
    world = _world("gavel-max-min-fairness-agnostic", shares__lease="1")
    first, _ = world.submit(_either("a", 0.1), _either("b", 1.0))
    seen = []
    for _ in range(20):
        world.advance(360)
        seen.append(world.jobs[first].model)
    assert 6 <= seen.count("K80") <= 14


def test_an_early_end_is_used_at_once() -> None:
    """A job that waits starts when another has finished, in the middle of the round."""
    world = _world(where=ONE)
    jobs = world.submit(*(job(name, gpus=4, model="V100") for name in "ab"))
    world.advance(100)
    runs = next(name for name in jobs if world.states()[name] == "RUNNING")
    world.finish(runs)
    world.advance(1)
    assert sorted(world.states()[name] for name in jobs) == ["RUNNING", "SUCCEEDED"]


def test_or_left_idle_until_the_round_is_over() -> None:
    """`shares.reuse: false` does as the public simulator: to compare with it."""
    world = _world(where=ONE, shares__reuse="false")
    jobs = world.submit(*(job(name, gpus=4, model="V100") for name in "ab"))
    world.advance(100)
    world.finish(next(name for name in jobs if world.states()[name] == "RUNNING"))
    world.advance(200)
    assert sorted(world.states()[name] for name in jobs) == ["PENDING", "SUCCEEDED"]
    world.advance(100)
    assert sorted(world.states()[name] for name in jobs) == ["RUNNING", "SUCCEEDED"]


def test_who_may_not_be_preempted_keeps_running() -> None:
    """The other one waits, round after round."""
    world = _world(where=ONE)
    (first,) = world.submit(job("a", gpus=4, model="V100", preemptible=False))
    (second,) = world.submit(job("b", gpus=4, model="V100"))
    world.advance(2_000)
    assert (world.states()[first], world.states()[second]) == ("RUNNING", "PENDING")


def test_nobody_starts_before_those_who_had_to_stop_have() -> None:
    """GPUs that come free one job after the other are kept for the gang that was granted them."""
    world = World(
        ONE, load_profile("gavel-max-min-fairness", {"shares.lease": "1"}), obedient=False
    )
    small = world.submit(*(job(f"s{i}", gpus=1, model="V100") for i in range(4)))
    for name in small:
        world.start(name)
    (wide,) = world.submit(job("wide", gpus=4, model="V100"))
    world.advance(800)
    assert all(world.states()[name] == "PREEMPTING" for name in small)
    world.finish(small[0])
    (late,) = world.submit(job("late", gpus=1, model="V100"))
    world.advance(1)
    assert world.states()[late] == "PENDING"
    for name in small[1:]:
        world.finish(name)
    world.advance(1)
    assert world.states()[wide] == "STARTING"


def test_jobs_without_a_part_do_not_keep_others_from_theirs() -> None:
    """No model, no GPUs, several models at once: these wait for what they need, or start; others share."""
    world = _world()
    nowhere, plain, mixed, shares = world.submit(
        job("nowhere", gpus=1, model="T4"),
        gang({"reader": (1, needs(cpus=0))}, name="plain"),
        gang({"a": (1, needs(1, "V100")), "b": (1, needs(1, "K80"))}, name="mixed"),
        _either("shares", 0.5),
    )
    world.advance(10)
    assert world.reason(nowhere) == "NoMatchingHardware"
    assert world.states()[plain] == "RUNNING"
    assert world.states()[shares] == "RUNNING"
    world.finish(shares)
    world.advance(400)
    assert mixed in world.jobs


POLICIES = ["max-min-fairness", "finish-time-fairness", "makespan", "max-throughput", "hierarchical", "fifo", "sjf", "min-cost"]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_turns_are_granted_on_models_that_quota_allows(policy: str) -> None:
    """No quota of the better model: the job runs on the other one, and on that in every round."""
    lab = fleet(*LAB.regions[0].clusters, tenants=(tenant("t", borrow=0, V100=0, K80=4),))
    world = _world(f"gavel-{policy}", where=lab)
    (name,) = world.submit(_either("either", 0.5, tenant="t"))
    world.advance(1_000)
    assert (world.states()[name], world.jobs[name].model) == ("RUNNING", "K80")
    assert world.jobs[name].preemptions == 0


@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in ("fifo", "sjf")])
def test_turns_are_granted_on_models_of_which_quota_is_left(policy: str) -> None:
    """The fast model has room for both jobs, the quota for one: the other runs on the slow model."""
    lab = fleet(
        cluster("lab-1", hosts=2, gpus=4, model="V100"),
        cluster("lab-2", hosts=2, gpus=4, model="K80"),
        tenants=(tenant("t", borrow=0, V100=4, K80=4),),
    )
    world = _world(f"gavel-{policy}", where=lab)
    jobs = world.submit(*(_either(name, 0.5, tenant="t") for name in "ab"))
    world.advance(1_000)
    assert [world.states()[name] for name in jobs] == ["RUNNING", "RUNNING"]
    assert {world.jobs[name].model for name in jobs} == {"V100", "K80"}


@pytest.mark.parametrize("policy", POLICIES)
def test_turns_are_granted_on_models_where_the_data_is(policy: str) -> None:
    """The better model is in a region where the data may not be: a turn there would be of no use."""
    data = dataset("d", "slow", allowed=("slow",))
    apart = (cluster("fast-1", hosts=1, gpus=4, model="V100"), cluster("slow-1", hosts=1, gpus=4, model="K80"))  # fmt: skip
    world = _world(f"gavel-{policy}", where=fleet(*apart, datasets=(data,)))
    (name,) = world.submit(_either("either", 0.5, datasets=("d",)))
    world.advance(1_000)
    assert (world.states()[name], world.jobs[name].model) == ("RUNNING", "K80")


def test_jobs_of_a_tenant_take_turns_within_its_quota() -> None:
    """There is room for both, and quota for one: each runs for half of the time."""
    lab = fleet(cluster("lab-1", hosts=2, gpus=4, model="V100"), tenants=(tenant("t", borrow=0, V100=4),))  # fmt: skip
    world = _world(where=lab, shares__lease="1")
    jobs = world.submit(*(job(name, gpus=4, model="V100", tenant="t") for name in "ab"))
    ran: list[str] = []
    for _ in range(20):
        world.advance(360)
        ran += [name for name in jobs if world.states()[name] == "RUNNING"]
    assert len(ran) == 20
    assert min(ran.count(name) for name in jobs) >= 8


def test_a_deadline_that_cannot_be_kept_is_named_and_the_others_are_served() -> None:
    """The job runs on, without it, and its people read why."""
    world = _world("gavel-min-cost-slo")
    hopeless, other = world.submit(
        _either("hopeless", 0.5, duration_s=10_000.0, deadline_s=100.0),
        _either("other", 0.5, duration_s=1_000.0, deadline_s=90_000.0),
    )
    world.advance(10)
    assert "deadline" in rounds_of(world).named[hopeless]
    assert "RUNNING" in (world.states()[hopeless], world.states()[other])


def test_after_a_restart_another_round_begins() -> None:
    """What is known of rounds is lost with the process; jobs run on, and take turns again."""
    world = _world(where=ONE)
    jobs = world.submit(*(job(name, gpus=4, model="V100") for name in "ab"))
    world.advance(500)
    before = world.states()
    world.restart()
    assert world.states() == before
    seen = set()
    for _ in range(12):
        world.advance(360)
        seen.add(tuple(world.states()[name] for name in jobs))
    assert len(seen) > 1


def test_first_come_first_served_lets_nobody_pass() -> None:
    """`gavel-fifo`: a wide job that finds no room stops those behind it, and rounds follow every end."""
    world = _world("gavel-fifo", where=ONE)
    first, wide, small = world.submit(
        job("first", gpus=1, model="V100"),
        job("wide", gpus=4, model="V100"),
        job("small", gpus=1, model="V100"),
    )
    world.advance(10)
    states = world.states()
    assert (states[first], states[wide], states[small]) == ("RUNNING", "PENDING", "PENDING")
    world.finish(first)
    world.advance(1)
    assert (world.states()[wide], world.states()[small]) == ("RUNNING", "PENDING")


TWO = fleet(cluster("lab-1", hosts=2, gpus=4, model="V100"))


@pytest.mark.parametrize("told_by", ["an engine", "an operator"])
@pytest.mark.parametrize("again", [False, True], ids=["", "and the process began anew"])
def test_gpus_of_hosts_that_take_no_work_are_not_granted(told_by: str, again: bool) -> None:
    """A host goes in mid-round: nobody is stopped for a gang that only the whole fleet could hold; later it gets its turn."""
    world = _world(where=TWO, shares__lease="1")
    small = world.submit(*(job(f"s{n}", gpus=2, model="V100") for n in range(2)))
    world.advance(100)
    host = next(name for name in ("lab-1-0", "lab-1-1") if name not in _hosts_of(world, small[0]))
    if told_by == "an engine":
        world.lose(host)
    else:
        world.set_host(host, HostState.CORDONED)
    (wide,) = world.submit(job("wide", gpus=4, count=2, model="V100"))
    if again:
        world.restart()
    world.advance(3_600)
    assert world.states()[wide] != "RUNNING"
    assert world.jobs[small[0]].preemptions == 0
    assert rounds_of(world).out_of_service["lab"] == {"V100": 4}
    if told_by == "an engine":
        world.revive(host)
    else:
        world.set_host(host, HostState.HEALTHY)
    ran = 0
    for _ in range(20):
        world.advance(360)
        ran += world.states()[wide] == "RUNNING"
    assert rounds_of(world).out_of_service["lab"] == {}
    assert 4 <= ran <= 16


@pytest.mark.parametrize("policy", ["max-min-fairness", "finish-time-fairness", "makespan", "max-throughput", "hierarchical", "fifo", "allox", "min-cost"])  # fmt: skip
def test_when_every_host_is_lost_all_wait_and_then_go_on(policy: str) -> None:
    """No GPU to divide is no failure of the solver."""
    world = _world(f"gavel-{policy}", where=ONE)
    jobs = world.submit(*(job(name, gpus=1, model="V100") for name in "ab"))
    world.advance(100)
    world.lose("lab-1-0")
    world.advance(1_000)
    assert "RUNNING" not in world.states().values()
    world.revive("lab-1-0")
    world.advance(1_000)
    assert rounds_of(world).failures == 0
    assert [world.states()[name] for name in jobs] == ["RUNNING", "RUNNING"]


def _hosts_of(world: World, name: str) -> tuple[str, ...]:
    plan = world.jobs[name].plan
    assert plan is not None
    return plan.hosts
