"""The large fleets of the benchmarks: laid out as told, filled by the machines, and given back."""

import msgspec
import pytest

from topmast.bench.fleet import Filled, FleetSize, gang_of, regions_of, sizes_that_fit
from topmast.model.errors import InvalidInput
from topmast.model.job import MILLI, Band, Level

SMALL = FleetSize(regions=2, clusters=3, hosts=40, gpus_per_host=8)


@pytest.fixture
def filled() -> Filled:
    """A small fleet, 80 % of it held."""
    fleet = Filled(SMALL, seed=1)
    fleet.fill_up(0.8)
    return fleet


def test_the_layout() -> None:
    """Regions, clusters and hosts as told, spread evenly, with names of their own."""
    regions = regions_of(SMALL)
    clusters = [cluster for region in regions for cluster in region.clusters]
    hosts = [host for cluster in clusters for host in cluster.hosts]
    assert [len(region.clusters) for region in regions] == [2, 1]
    assert [len(cluster.hosts) for cluster in clusters] == [14, 13, 13]
    assert len({host.name for host in hosts}) == SMALL.hosts
    assert {host.gpus for host in hosts} == {8}


@pytest.mark.parametrize(
    ("size", "field"),
    [(FleetSize(3, 2, 10), "clusters"), (FleetSize(1, 20, 10), "hosts")],
)
def test_no_layout(size: FleetSize, field: str) -> None:
    """A region needs a cluster, and a cluster a host."""
    with pytest.raises(InvalidInput) as caught:
        size.checked()
    assert caught.value.field == field


def test_sizes() -> None:
    """A size that is neither a part of a host nor whole hosts is left out."""
    assert list(sizes_that_fit(SMALL, (1, 8, 12, 16))) == [1, 8, 16]


def test_what_is_held_is_in_the_books(filled: Filled) -> None:
    """The fill is what the placers say it is; jobs run, of three bands, and have kept their work."""
    placers = filled.machines.placers.values()
    held = [a for placer in placers for a in placer.state.allocations.values()]
    assert sum(a.plan.gpus_milli for a in held) == filled.held_gpus * MILLI
    assert 0.8 <= filled.fill < 1.0
    assert len(held) == filled.running
    assert len({a.band for a in held}) > 1
    assert all(a.running_s is not None and a.kept_until_s is not None for a in held)
    assert all(a.start_s <= (a.kept_until_s or 0.0) <= filled.now_s for a in held)


def test_gangs_keep_to_a_pod(filled: Filled) -> None:
    """A gang of whole hosts is in one pod, as it asks."""
    placers = filled.machines.placers.values()
    plans = [a.plan for placer in placers for a in placer.state.allocations.values()]
    assert any(len(plan.hosts) > 1 for plan in plans)
    assert all(plan.level <= Level.POD for plan in plans)


def test_the_same_seed_makes_the_same_fleet(filled: Filled) -> None:
    """Snapshots of all placers are equal."""
    again = Filled(SMALL, seed=1)
    again.fill_up(0.8)
    for name, placer in filled.machines.placers.items():
        assert again.machines.placers[name].snapshot() == placer.snapshot()


def test_victims_let_go(filled: Filled) -> None:
    """A preemptor that is carried out runs, and whom it stopped is gone."""
    filled.fill_up(1.0, (8, 1))
    filled.now_s += 10_000.0  # old enough to be stopped
    spec = gang_of(1, 8, Band.HIGH)
    plan = filled.decide(filled.question(spec, preempt=True))
    assert plan is not None
    assert plan.victims
    before = filled.held_gpus
    filled.carry_out(filled.commit(plan, spec))
    held = filled.machines.placers[plan.region].state.allocations
    assert held[plan.job].hold == "starting"
    assert not any(victim.job in held for victim in plan.victims)
    assert filled.held_gpus <= before
    filled.end(plan.region, plan.job)
    assert plan.job not in held


def test_demand_over_supply(filled: Filled) -> None:
    """The regions' terms are what the queue would say."""
    terms = filled.terms()
    assert list(terms) == sorted(filled.machines.placers)
    gpus = {r.name: sum(h.gpus for c in r.clusters for h in c.hosts) for r in regions_of(SMALL)}
    total = sum(terms[name].balance * gpus[name] for name in terms)
    assert total == pytest.approx(filled.held_gpus)


def test_a_fleet_that_is_full(filled: Filled) -> None:
    """Filling ends when nothing finds a place any more."""
    filled.fill_up(1.0)
    assert 0.9 < filled.fill <= 1.0
    assert msgspec.json.encode(filled.terms())
