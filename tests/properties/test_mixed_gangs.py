"""Gangs of several groups, of shares, of CPUs: the plan found is the best of all, by brute force."""

from __future__ import annotations

import random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.brute import best_on_free, best_with_victims, choices, level_of
from tests.support.build import needs, profile
from tests.support.strategies import bounded
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.room import choose_slots
from topmast.fast.region.preemption.price import cost_gpu_s, eligible_victims
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search import mixed
from topmast.fast.region.search.scoring import choice_cost, score_terms, total
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import (
    MILLI,
    Accelerator,
    Band,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.plan import (
    FREE,
    GroupRequest,
    PlacementRequest,
    Plan,
    Preempt,
    RegionTerms,
    Seat,
    TaskShape,
)
from topmast.model.states import HostState
from topmast.policies.options import ScoreWeights

MODELS = ("H100", "A100")
WEIGHTS = ScoreWeights(speed=2.0, locality=0.7, fragmentation=0.3)
BALANCING = ScoreWeights(
    speed=2.0, locality=0.7, fragmentation=0.3, allocated_gpus=1.0, allocated_cpus=0.7, allocated_memory=2.0,
    models=(("A100", 0.9), ("T4", 3.0)),
)  # fmt: skip
"""Hosts cost by how much of them is allocated, and one of the models more than the other."""
MIXES = (((1, 0.25), (2, 0.25), (4, 0.5)), ((1, 0.5), (3, 0.5)), ((2, 1.0),))
SHARES = (100, 250, 300, 400, 500, 600, 700)
SPARING = ScoreWeights(
    locality=0.7, fragmentation=0.3, allocated_cpus=0.7, allocated_memory=2.0, gpu_hosts=1.5
)

SHAPED = ScoreWeights(
    speed=2.0, locality=0.7, fragmentation=0.3, shapes=True, gpu_hosts=1.5, models=(("A100", 0.9),)
)


# --- random regions and gangs ------------------------------------------------------------------------------


def _region(rng: random.Random, most_hosts: int, most_gpus: int) -> RegionSpec:
    """One or two clusters of a few hosts, scattered over datacenters, pods and racks."""
    clusters = []
    for c in rng.sample(range(3), rng.choice((1, 1, 2))):
        hosts = tuple(
            HostSpec(
                f"c{c}-{i}",
                rng.choice(MODELS),
                rng.choice((0, 1, 2, most_gpus, most_gpus)),
                cpus=rng.choice((0.0, 1.0, 2.0, 4.0)),
                memory_bytes=rng.choice((0, 0, 48)),
                datacenter=f"d{rng.choice((0, 0, 1))}",
                pod=f"p{rng.choice((0, 0, 1))}",
                rack=f"r{rng.randint(0, 1)}",
            )
            for i in range(rng.randint(1, most_hosts))
        )
        clusters.append(ClusterSpec(f"c{c}", hosts))
    return RegionSpec("here", tuple(clusters))


def _columns(rng: random.Random, region: RegionSpec) -> Columns:
    """GPUs taken in whole or part, CPUs too, some hosts out of service."""
    columns = Columns(region)
    for host in columns.hosts:
        for slot in range(host.gpus):
            milli = rng.choice((0, 0, 0, 1000, 500, rng.choice(SHARES), 2000))
            if milli:
                needed = needs(cpus=rng.choice((0.0, 0.0, 0.1, 0.5)))
                columns.take([Seat("g", 0, host.name, (slot,), milli)], {"g": needed})
        if rng.random() < 0.1:
            columns.set_state(host.name, HostState.CORDONED)
    return columns


def _resources(rng: random.Random, kind: str) -> Resources:
    """Of a task that takes whole GPUs, a share, or none."""
    sizes = {"whole": (1000, 1000, 2000, 3000), "share": SHARES, "none": (0,)}[kind]
    names = rng.sample((*MODELS, None), rng.choice((1, 1, 2)))
    same = rng.choice(sizes)
    listed = tuple(
        Accelerator(name, rng.choice((same, rng.choice(sizes))), rng.choice((1.0, 0.5)))
        for name in names
    )
    return Resources(
        listed if kind != "none" else (),
        cpus=rng.choice((0.0, 0.1, 0.5, 1.0)) if kind != "none" else rng.choice((0.0, 0.5, 1.0)),
        memory_bytes=rng.choice((0, 0, 16)),
    )


def _ask(rng: random.Random, columns: Columns, most_tasks: int, **more: object) -> PlacementRequest:
    kinds = rng.choice(
        (
            ("share",), ("none",), ("whole", "none"), ("whole", "none"), ("whole", "share"),
            ("share", "share"), ("whole", "whole"), ("none", "none"), ("whole", "share", "none"),
            ("none", "share", "none"),
        )
    )  # fmt: skip
    left = most_tasks - len(kinds)
    groups = []
    for number, kind in enumerate(kinds):
        extra = rng.randint(0, max(0, left))
        left -= extra
        groups.append(GroupRequest(f"g{number}", 1 + extra, _resources(rng, kind)))
    rng.shuffle(groups)
    options = {
        "models": rng.choice((None, None, (0,), (1,))),
        "avoid_hosts": tuple(h.name for h in columns.hosts if rng.random() < 0.08),
        "terms": RegionTerms(data_s=rng.choice((0.0, 60.0)), balance=rng.random()),
        "mix": rng.choice(MIXES),
        "scarcity": rng.choice((UNSET, UNSET, (("A100", 0.7),), (("T4", 0.2), ("H100", 0.9)))),
        **more,
    }
    topology = Topology(rng.choice((None, None, *Level)), rng.choice((None, *Level)))
    mode = Preempt() if options.pop("preempt", False) else FREE
    return PlacementRequest("j1", tuple(groups), topology, Band.NORMAL, mode, **options)  # type: ignore[arg-type]


def _check_seats(
    columns: Columns, ask: PlacementRequest, plan: Plan, *, tightest: bool = True
) -> None:
    """The plan holds what it may: all tasks, in order, on hosts in service, nothing overfilled."""
    groups = {group.name: group for group in ask.groups}
    wanted = [group.name for group in ask.groups for _ in range(group.count)]
    assert [seat.group for seat in plan.seats] == wanted
    assert [seat.rank for seat in plan.seats] == list(range(len(wanted)))
    needed = {name: group.resources for name, group in groups.items()}
    trial = columns.trial()
    trial.take(plan.seats, needed)
    for seat in plan.seats:
        assert not trial.overdrawn(seat, needed[seat.group])
        assert trial.available[trial.index[seat.host]]
        assert seat.host not in ask.avoid_hosts
    rows = frozenset(columns.index[host] for host in plan.hosts)
    assert {columns.cluster_of[row] for row in rows} == {plan.cluster}
    level = level_of(columns, rows)
    assert plan.level == level if tightest else plan.level >= level


def _equal_tasks(rng: random.Random) -> GroupRequest:
    """Tasks with whole GPUs of named models; where any will do, all tasks get the same one."""
    task = _resources(rng, "whole")
    named = replace(task, accelerators=tuple(a for a in task.accelerators if a.model is not None))
    if not named.accelerators:
        named = replace(named, accelerators=(Accelerator("H100", MILLI),))
    return GroupRequest("g", rng.randint(1, 4), named)


def _with_shapes(rng: random.Random, ask: PlacementRequest) -> PlacementRequest:
    """The request with shapes of recent tasks, which some hosts could take and some not.

    Of a gang with shares of two sizes one group is left: two may share a GPU in ways that are not all tried.
    """
    shares = [g for g in ask.groups if any(a.gpus_milli < MILLI for a in g.resources.accelerators)]
    groups = ask.groups if len(shares) < 2 else (shares[0],)
    count = rng.randint(1, 5)
    shapes = tuple(
        TaskShape(
            rng.choice((*SHARES, 1000, 1000, 2000, 3000)),
            rng.choice((0.0, 0.1, 0.5, 1.0, 2.0)),
            rng.choice((0, 0, 16, 32)),
            rng.choice(((), (), ("H100",), MODELS, ("T4",))),
            1 / count,
        )
        for _ in range(count)
    )
    return replace(ask, groups=groups, shapes=shapes)


# --- what the search promises ----------------------------------------------------------------------------------


@bounded(2500)
@given(st.integers(0, 2**32 - 1), st.sampled_from([WEIGHTS, BALANCING, SPARING]))
def test_no_plan_on_free_hosts_scores_lower_than_the_one_found(
    seed: int, weights: ScoreWeights
) -> None:
    """Several groups, shares, CPUs, memory, models, topology, hosts to avoid and out of service."""
    rng = random.Random(seed)
    columns = _columns(rng, _region(rng, most_hosts=4, most_gpus=3))
    ask = _ask(rng, columns, most_tasks=4)
    found = PreemptiveSearch("here", columns, {}, profile(score=weights), 0, 0.0).best(ask)
    best = best_on_free(columns, ask, weights)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.score == pytest.approx(best, abs=1e-7)
        _check_seats(columns, ask, found)
        choice = _choice_of(ask, weights, found)
        priced = score_terms(ask, weights, columns, found.seats, found.level, choice, 0.0)
        assert found.score == pytest.approx(total(priced))


@bounded(400)
@given(st.integers(0, 2**32 - 1), st.sampled_from([SHAPED, replace(BALANCING, shapes=True)]))
def test_no_plan_strands_less_by_the_shapes_of_recent_tasks(
    seed: int, weights: ScoreWeights
) -> None:
    """Gangs of every form, where free GPUs are judged by CPUs, memory, models and shares as well."""
    rng = random.Random(seed)
    columns = _columns(rng, _region(rng, most_hosts=4, most_gpus=3))
    ask = _with_shapes(rng, _ask(rng, columns, most_tasks=4))
    if rng.random() < 0.4:
        ask = replace(ask, groups=(_equal_tasks(rng),), models=None)
    search = PreemptiveSearch("here", columns, {}, profile(score=weights), 0, 0.0)
    for _ in range(2):  # the second time by what was kept of the first, and what has changed since
        found = search.best(ask)
        best = best_on_free(columns, ask, weights)
        assert (found.score if found else None) == (
            None if best is None else pytest.approx(best, abs=1e-7)
        )
        if found is None:
            return
        _check_seats(columns, ask, found)
        columns.take(found.seats, {group.name: group.resources for group in ask.groups})


@bounded(800)
@given(st.integers(0, 2**32 - 1))
def test_equal_tasks_on_whole_gpus_are_balanced_at_the_least_score(seed: int) -> None:
    """Gangs that other kernels answer where hosts do not cost by their GPUs."""
    rng = random.Random(seed)
    columns = _columns(rng, _region(rng, most_hosts=4, most_gpus=3))
    group = _equal_tasks(rng)
    ask = replace(_ask(rng, columns, most_tasks=4), groups=(group,), models=None)
    found = PreemptiveSearch("here", columns, {}, profile(score=BALANCING), 0, 0.0).best(ask)
    best = best_on_free(columns, ask, BALANCING)
    assert (found.score if found else None) == (None if best is None else pytest.approx(best))
    if found is not None:
        _check_seats(columns, ask, found)


def _choice_of(ask: PlacementRequest, weights: ScoreWeights, plan: Plan) -> int:
    """The choice whose speed and model the plan is priced by."""
    costs = {choice: choice_cost(ask, weights, choice) for choice in choices(ask)}
    paid = plan.terms["speed"] + plan.terms.get("model", 0.0)
    return min(costs, key=lambda choice: abs(costs[choice] - paid))


# --- with victims ------------------------------------------------------------------------------------------------


def _running(rng: random.Random, columns: Columns, name: str) -> Allocation | None:
    """An attempt on one to three hosts of a cluster, on what is free there."""
    cluster = rng.choice(sorted(columns.clusters))
    rows = columns.clusters[cluster].tolist()
    milli = rng.choice((1000, 1000, 500, 300, 0))
    resources = needs(milli / MILLI, None, cpus=rng.choice((0.0, 0.5, 1.0)))
    seats: list[Seat] = []
    for row in rng.sample(rows, min(len(rows), rng.choice((1, 1, 2, 3)))):
        for _ in range(rng.choice((1, 1, 2))):
            slots = choose_slots(columns, row, milli)
            if slots is None or columns.free_cpus[row] < resources.cpus:
                continue
            seat = Seat("g", len(seats), columns.hosts[row].name, slots, milli or MILLI)
            columns.take([seat], {"g": resources})
            seats.append(seat)
    if not seats:
        return None
    band = rng.choice((Band.OPPORTUNISTIC, Band.LOW, Band.LOW, Band.NORMAL))
    group = TaskGroup("g", len(seats), resources, "true")
    spec = JobSpec(name, (group,), band=band, preemptible=rng.random() < 0.9)
    plan = Plan(name, "here", cluster, "", milli * len(seats), tuple(seats), Level.HOST, 0.0, {})
    kept_until_s = rng.choice((100.0, 90.0, 80.0, rng.uniform(0.0, 100.0)))
    return Allocation(
        plan, 1, spec, band, rng.choice((0.0, 0.0, 99.0)), None, AllocationPhase.RUNNING, [],
        running_s=0.0, kept_until_s=kept_until_s,
    )  # fmt: skip


def _displaced(rng: random.Random) -> tuple[Columns, dict[str, Allocation], PlacementRequest]:
    columns = Columns(_region(rng, most_hosts=3, most_gpus=2))
    attempts = [_running(rng, columns, f"v{i}") for i in range(rng.randint(2, 6))]
    allocations = {attempt.job: attempt for attempt in attempts if attempt is not None}
    for host in columns.hosts:
        for slot, milli in enumerate(columns.slots(columns.index[host.name]).tolist()):
            if milli > 0 and rng.random() < 0.9:
                columns.take([Seat("g", 0, host.name, (slot,), milli)], {"g": needs()})
        if rng.random() < 0.1:
            columns.set_state(host.name, HostState.CORDONED)
    return columns, allocations, _ask(rng, columns, most_tasks=3, preempt=True)


@bounded(1600)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 5.0]), st.booleans())
def test_no_set_of_victims_makes_a_plan_of_lower_score(
    seed: int, fragmentation: float, balances: bool
) -> None:
    """Attempts of several bands, on one host or on several, young ones and such as must not be stopped.

    Nobody goes without need. Where attempts are on several hosts, that rule may cost what their going
    without need would have spared in fragmentation.
    """
    rng = random.Random(seed)
    prices = BALANCING if balances else WEIGHTS
    weights = replace(prices, preemption=36.0, fragmentation=fragmentation)
    columns, allocations, ask = _displaced(rng)
    options = profile(score=weights, min_runtime_s=10.0, restart_cost_s=rng.choice((0.0, 20.0)))
    search = PreemptiveSearch("here", columns, allocations, options, 0, 100.0)
    found = search.best(ask)
    eligible = eligible_victims(allocations, ask, options, 100.0)
    priced = [(a, weights.preemption * cost_gpu_s(a, options, 100.0) / 3600.0) for a in eligible]
    if not eligible:
        assert found is None
        return
    least = best_with_victims(columns, ask, weights, priced, needed=False)
    assert (found is None) == (least is None)
    if found is None or least is None:
        return
    gone = [allocations[victim.job] for victim in found.victims]
    event(f"{len(gone)} victims")
    trial = columns.trial()
    for attempt in gone:
        trial.give_back(attempt.plan.seats, attempt.needs())
    _check_seats(trial, ask, found)
    assert {a.job for a in gone} <= {a.job for a in eligible}
    on_one_host = all(len(attempt.plan.hosts) == 1 for attempt in eligible)
    if on_one_host or fragmentation == 0.0:
        exact = best_with_victims(columns, ask, weights, priced, needed=True)
        assert found.score == pytest.approx(exact, abs=1e-7)
    else:
        spared = weights.fragmentation * 3 * len(columns.hosts)
        assert least - 1e-7 <= found.score <= least + spared


# --- gangs too large for an exact search ---------------------------------------------------------------------


@bounded(300)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_what_is_not_searched_exactly_is_seated_soundly(seed: int, preempt: bool) -> None:
    """No plan is better than the best, nothing is overfilled, and nobody goes for room left unused."""
    rng = random.Random(seed)
    columns, allocations, ask = _displaced(rng)
    ask = replace(ask, mode=Preempt() if preempt else FREE)
    options = profile(score=WEIGHTS, restart_cost_s=1.0)
    search = PreemptiveSearch("here", columns, allocations, options, 0, 100.0)
    exact = search.best(ask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "EXACT_STATES", 0)
        found = search.best(ask)
    event("found" if found is not None else "nothing found")
    if found is None:
        return
    assert exact is not None
    assert exact.score <= found.score + 1e-7
    trial = columns.trial()
    gone = [allocations[victim.job] for victim in found.victims]
    for attempt in gone:
        trial.give_back(attempt.plan.seats, attempt.needs())
    _check_seats(trial, ask, found, tightest=False)
    trial.take(found.seats, {group.name: group.resources for group in ask.groups})
    for attempt in gone:
        trial.take(attempt.plan.seats, attempt.needs())
        assert any(trial.overdrawn(seat, attempt.needs()["g"]) for seat in attempt.plan.seats)
        trial.give_back(attempt.plan.seats, attempt.needs())
