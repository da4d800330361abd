"""The search beside gangs of one group on whole GPUs: shares, CPUs alone, several groups.

Gangs of one group on whole GPUs are compared with every plan in `test_search_is_exhaustive`.
"""

import random

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support.brute import best_on_free, level_of
from tests.support.build import ask, gang, job, needs, profile
from tests.support.strategies import bounded, clusters, jobs, topologies
from topmast.fast.region.invariants import check_index
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Band, JobSpec, Level, Resources, Topology
from topmast.model.plan import PlacementRequest, Plan, Seat
from topmast.model.states import HostState
from topmast.policies.options import ScoreWeights

WEIGHTS = ScoreWeights()


@st.composite
def used_columns(draw: st.DrawFn) -> Columns:
    """One or two clusters with slots in whole or part use, CPUs too, some hosts out of service."""
    built = [draw(clusters("c-1", 4))]
    if draw(st.booleans()):
        built.append(draw(clusters("c-2", 3)))
    columns = Columns(RegionSpec("east", tuple(built)))
    for host in columns.hosts:
        for slot in range(host.gpus):
            milli = draw(st.sampled_from([0, 0, 1000, 500, 500, 300]))
            if milli:
                columns.take([Seat("g", 0, host.name, (slot,), milli)], {"g": needs(cpus=0.5)})
        if draw(st.integers(0, 5)) == 0:
            columns.set_state(host.name, HostState.CORDONED)
    return columns


@st.composite
def odd_tasks(draw: st.DrawFn) -> Resources:
    """Tasks that the kernels leave to the search host by host."""
    gpus = draw(st.sampled_from([0, 0.3, 0.5, 0.7]))
    models = draw(st.sampled_from([("H100",), ("A100", "H100"), (None,)]))
    return needs(gpus, *models, cpus=draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])))


# --- what the search promises ----------------------------------------------------------------------------


def _best(columns: Columns, question: PlacementRequest) -> Plan | None:
    return PreemptiveSearch("east", columns, {}, profile(score=WEIGHTS), 0, 0.0).best(question)


@bounded(400)
@given(used_columns(), odd_tasks(), topologies)
def test_the_best_place_for_one_task_is_found(
    columns: Columns, task: Resources, topology: Topology
) -> None:
    """A share, or CPUs alone; any model, level and host: no placement scores lower."""
    question = ask(job(resources=task, topology=topology))
    want = best_on_free(columns, question, WEIGHTS)
    found = _best(columns, question)
    event("fits" if want is not None else "fits nowhere")
    assert (found.score if found else None) == (None if want is None else pytest.approx(want))


@bounded(200)
@given(used_columns(), odd_tasks(), st.integers(2, 3), topologies)
def test_the_best_place_for_a_gang_of_one_group_is_found(
    columns: Columns, task: Resources, count: int, topology: Topology
) -> None:
    """Several tasks of that kind: no plan scores lower."""
    question = ask(job(count=count, resources=task, topology=topology))
    want = best_on_free(columns, question, WEIGHTS)
    found = _best(columns, question)
    event("fits" if want is not None else "fits nowhere")
    assert (found.score if found else None) == (None if want is None else pytest.approx(want))


@bounded(300)
@given(used_columns(), jobs())
def test_a_plan_holds_what_it_may(columns: Columns, spec: JobSpec) -> None:
    """Every task has a seat on hosts in service, no slot is overfilled, and the level is kept."""
    plan = _best(columns, ask(spec))
    assume(plan is not None)
    assert plan is not None
    assert [seat.rank for seat in plan.seats] == list(range(spec.tasks))
    trial = columns.trial()
    trial.take(plan.seats, {g.name: g.resources for g in spec.groups})
    rows = [trial.index[host] for host in plan.hosts]
    assert (trial.free_milli >= 0).all()
    assert (trial.free_cpus >= 0).all()
    assert all(trial.available[row] for row in rows)
    assert {trial.cluster_of[row] for row in rows} == {plan.cluster}
    assert level_of(columns, frozenset(rows)) <= plan.level
    if spec.topology.required is not None:
        assert plan.level <= spec.topology.required
    held = sum(len(seat.slots) * seat.slot_milli for seat in plan.seats)
    assert held == plan.gpus_milli
    assert plan.score == pytest.approx(sum(plan.terms.values()))


@bounded(100)
@given(used_columns(), st.integers(0, 1 << 30))
def test_the_index_follows_every_change(columns: Columns, seed: int) -> None:
    """After any takings, givings back and changes of state, the index equals one made anew."""
    rng = random.Random(seed)
    held: list[Seat] = []
    for _ in range(30):
        host = rng.choice(columns.hosts)
        what = rng.randrange(3)
        if what == 0 and host.gpus:
            seat = Seat("g", 0, host.name, (rng.randrange(host.gpus),), rng.choice([1000, 300]))
            columns.take([seat], {"g": needs()})
            held.append(seat)
        elif what == 1 and held:
            columns.give_back([held.pop()], {"g": needs()})
        else:
            columns.set_state(host.name, rng.choice(list(HostState)))
    check_index(columns)


# --- single cases ---------------------------------------------------------------------------------------


def _columns(*free: tuple[int, ...], cpus: tuple[float, ...] = (), racks: str = "rrrr") -> Columns:
    """Hosts with so much free of each GPU (in thousandths) and so many CPUs, in racks."""
    hosts = tuple(
        HostSpec(f"h{i}", "H100", len(slots), cpus=(*cpus, *[0.0] * 9)[i], rack=racks[i])
        for i, slots in enumerate(free)
    )
    columns = Columns(RegionSpec("east", (ClusterSpec("c-1", hosts),)))
    for host, slots in zip(hosts, free, strict=True):
        for slot, milli in enumerate(slots):
            if milli < MILLI:
                columns.take([Seat("g", 0, host.name, (slot,), MILLI - milli)], {"g": needs()})
    return columns


def test_groups_are_seated_whenever_they_fit_together() -> None:
    """The trainer sits on the first host and takes the CPU that only the reader's host has."""
    columns = _columns((1000,), (1000,), cpus=(2.0, 1.0))
    question = ask(gang({"trainer": (1, needs(1, cpus=1)), "reader": (1, needs(cpus=2))}))
    assert _best(columns, question) is not None


def test_groups_are_seated_at_the_least_score() -> None:
    """Each host has CPUs for one of both; the trainer would strand less on the second."""
    columns = _columns((1000, 1000), (1000,), cpus=(1.0, 1.0))
    question = ask(gang({"trainer": (1, needs(1, cpus=1)), "reader": (1, needs(cpus=1))}))
    found = _best(columns, question)
    assert found is not None
    assert found.score == pytest.approx(best_on_free(columns, question, WEIGHTS))


def test_a_gang_of_shares_is_placed_at_the_least_score() -> None:
    """By the score, two shares on two lone GPUs strand less than both on one of them."""
    columns = _columns((1000,), (1000,))
    question = ask(job(gpus=0.5, count=2))
    found = _best(columns, question)
    assert found is not None
    assert found.score == pytest.approx(best_on_free(columns, question, WEIGHTS))


# --- known limits: where the search does not look ------------------------------------------------------


def _held(name: str, slots: range, kept_until_s: float) -> Allocation:
    """An attempt of a low band that has run from 0 s, and checkpointed once."""
    spec = job(name, gpus=len(slots), band=Band.LOW)
    seat = Seat("main", 0, "h0", tuple(slots))
    plan = Plan(name, "east", "c-1", "H100", len(slots) * MILLI, (seat,), Level.HOST, 0.0, {})
    return Allocation(
        plan, 1, spec, Band.LOW, 0.0, None, AllocationPhase.RUNNING, [],
        running_s=0.0, kept_until_s=kept_until_s,
    )  # fmt: skip


def test_the_victims_are_the_cheapest_set() -> None:
    """Two of 2 GPUs that lost 10 and 11 s each go, at 42 GPU-seconds; one of 3 at 36 would do."""
    columns = _columns((1000,) * 7)
    attempts = (
        _held("j2", range(2), 90.0), _held("j3", range(2, 4), 89.0), _held("j4", range(4, 7), 88.0),
    )  # fmt: skip
    allocations = columns.allocations = {attempt.job: attempt for attempt in attempts}
    for attempt in attempts:
        columns.hold(attempt)
    options = profile(restart_cost_s=0.0)
    search = PreemptiveSearch("east", columns, allocations, options, 0, 100.0)
    plan = search.best(ask(job(gpus=3, band=Band.HIGH), preempt=True))
    assert plan is not None
    assert [victim.job for victim in plan.victims] == ["j4"]
