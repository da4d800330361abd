"""Bulk questions: what each region is asked for, and which of the places jobs get."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.support.build import job, needs
from topmast.fast.queue.cycle.bulk import LEAST_APART, MOST_PAUSE, Bulk, fits, shared_out, spare_of
from topmast.fast.queue.cycle.bulk_choice import choose
from topmast.fast.queue.cycle.foreseen import MOST, PAUSE
from topmast.model.columns import PlanColumns
from topmast.model.job import JobSpec, Level
from topmast.model.messages import RegionPlans
from topmast.model.plan import GroupRequest, PlacementRequest, Plan, Seat

GPUS = {"east": 1_000, "north": 1_000, "west": 1_000}


def place(region: str, number: int, score: float) -> Plan:
    """A place for one GPU."""
    seats = (Seat("main", 0, f"{region}-{number}", (0,)),)
    terms = {"balance": 0.0, "fragmentation": score}
    return Plan("", region, f"{region}-1", "H100", 1_000, seats, Level.HOST, score, terms)


def answered(asked: int = 0, **offers: list[tuple[int, float]]) -> Bulk:
    """What regions answered: kinds and scores. Each was asked for so many places of each kind."""
    bulk = Bulk()
    for region, places in offers.items():
        plans = [place(region, n, score) for n, (_, score) in enumerate(places)]
        kinds = tuple(kind for kind, _ in places)
        columns = PlanColumns.of(plans) if plans else UNSET
        bulk.answers[region] = RegionPlans(1, region, kinds, columns)
        bulk.asked[region] = (asked,) * 4
    return bulk


def regions_of(bulk: Bulk, order: list[int], price: float = 0.0) -> list[str]:
    """Where jobs of these kinds get their places."""
    choice = choose(bulk, order, {}, GPUS, price)
    return [plan.region for plan in choice.plans(["j"] * len(choice.rows)).plans]


def test_each_job_gets_the_best_place_that_is_left_for_its_kind() -> None:
    """Ties by region; a place that is not taken bars no other."""
    bulk = answered(9, west=[(0, 0.1), (1, 0.1), (0, 0.3)], east=[(0, 0.2), (1, 0.4), (0, 0.3)])
    assert regions_of(bulk, [0, 0, 1, 0, 0, 1]) == ["west", "east", "west", "east", "west", "east"]


def on_hosts(region: str, *places: tuple[int, str, int]) -> RegionPlans:
    """Places of one task: kind, host of eight free GPUs, GPUs. An eighth of a host costs more the more
    of it was free.
    """
    taken: dict[str, int] = {}
    plans = []
    for _, host, gpus in places:
        first = taken.get(host, 0)
        taken[host] = first + gpus
        slots = tuple(range(first, first + gpus))
        change = STRANDED[8 - first - gpus] - STRANDED[8 - first]
        plans.append(
            Plan("", region, f"{region}-1", "H100", gpus * 1_000, (Seat("main", 0, host, slots),),
                 Level.HOST, change, {"balance": 0.0, "fragmentation": change})
        )  # fmt: skip
    kinds = tuple(kind for kind, *_ in places)
    return RegionPlans(
        1, region, kinds, PlanColumns.of(plans), free=(8,) * len(plans), stranded=STRANDED
    )


STRANDED = (0.0, 0.7, 1.2, 1.5, 1.6, 1.5, 1.2, 0.7, 0.0)


def test_a_place_costs_what_it_strands_beside_those_that_were_taken() -> None:
    """The second kind's place in the east fills up a host that nobody has begun: it is no bargain.

    Once the first kind's is taken, it is.
    """
    bulk = Bulk()
    bulk.answers = {
        "east": on_hosts("east", (0, "e", 7), (1, "e", 1)),
        "west": on_hosts("west", (1, "w", 1)),
    }
    bulk.asked = {"east": (1, 9), "west": (9, 9)}
    told = bulk.answers["east"].plans
    assert told
    assert told.fragmentation == pytest.approx((0.7, -0.7))
    alone = choose(bulk, [1, 1], {}, GPUS, 0.0)
    assert alone.fragmentation == pytest.approx([0.7, 0.7])
    beside = choose(bulk, [0, 1, 1], {}, GPUS, 0.0)
    assert [region for region, _ in beside.rows] == [0, 0, 1]
    assert beside.fragmentation == pytest.approx([0.7, -0.7, 0.7])
    assert [plan.terms["fragmentation"] for plan in beside.plans(["a", "b", "c"]).plans] == (
        pytest.approx([0.7, -0.7, 0.7])
    )


def test_what_is_next_on_a_host_is_counted_anew_when_another_is_taken_there() -> None:
    """The east's place is dearer at first, and cheaper once its host is begun."""
    bulk = Bulk()
    bulk.answers = {
        "east": on_hosts("east", (0, "e", 4), (1, "e", 2)),
        "west": on_hosts("west", (1, "w", 1), (1, "w", 1)),
    }
    bulk.asked = {"east": (9, 9), "west": (9, 9)}
    first = [bulk.answers["east"].region, bulk.answers["west"].region]
    chosen = choose(bulk, [1, 0, 1], {}, GPUS, 0.0)
    assert [first[region] for region, _ in chosen.rows] == ["west", "east", "east"]


def test_an_older_region_is_taken_at_its_word() -> None:
    """It does not say what is free of its hosts: its scores are those of its offers."""
    bulk = Bulk()
    told = on_hosts("east", (0, "e", 7), (1, "e", 1))
    bulk.answers = {"east": RegionPlans(1, "east", told.kinds, told.plans)}
    bulk.asked = {"east": (9, 9)}
    assert choose(bulk, [1], {}, GPUS, 0.0).fragmentation == pytest.approx([-0.7])


def test_a_region_costs_more_as_it_fills_up() -> None:
    """At 50 for a full one each GPU of a thousand costs 0.05."""
    offers = [(0, 0.0)] * 4
    bulk = answered(9, west=offers, east=[(0, 0.12)] * 4)
    assert regions_of(bulk, [0] * 6, price=50.0) == ["west"] * 3 + ["east", "west", "east"]
    choice = choose(bulk, [0] * 4, {"west": 500_000}, GPUS, 50.0)
    assert choice.balance == pytest.approx([0.0, 0.05, 0.1, 0.15])


def test_it_ends_before_a_job_that_would_do_better_in_a_region_to_be_asked_again() -> None:
    """Not if that is little, nor if the region has no room for more."""
    bulk = answered(2, west=[(0, 0.1), (0, 0.3)], east=[(0, 0.2), (0, 0.305), (0, 0.32)])
    assert regions_of(bulk, [0] * 5) == ["west", "east", "west", "east"]
    bulk = answered(9, west=[(0, 0.1), (0, 0.3)], east=[(0, 0.2), (0, 0.305), (0, 0.32)])
    assert regions_of(bulk, [0] * 5) == ["west", "east", "west", "east", "east"]


def test_it_ends_before_a_job_for_which_no_place_is_left() -> None:
    """That is said to be full only if no region could be asked for more."""
    for asked, is_full in ((1, False), (9, True)):
        choice = choose(
            answered(asked, west=[(0, 0.1)], east=[(1, 0.1)]), [0, 1, 0, 1], {}, GPUS, 0.0
        )
        assert (len(choice.rows), choice.is_full) == (2, is_full)
    choice = choose(answered(9, west=[(0, 0.1)], east=[]), [0, 2, 0], {}, GPUS, 0.0)
    assert (len(choice.rows), choice.is_full) == (1, True)
    assert choose(answered(9, east=[]), [0], {}, GPUS, 0.0).rows == []


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=80),
    st.floats(0.01, 1.0),
    st.lists(st.integers(1, 8), min_size=5, max_size=5),
)
def test_a_share_has_its_part_of_each_kind_in_order(
    order: list[int], share: float, spare: list[int]
) -> None:
    """The first of each kind is in it, and some more than the share; of one all is asked."""
    part = list(shared_out(order, share, spare))
    left = iter(order)
    assert all(kind in left for kind in part), "it is not in the order of the jobs"
    jobs, places = Counter(order), Counter(part)
    for kind, count in jobs.items():
        more = spare[kind]
        assert min(count, share * count + more) <= places[kind]
        assert places[kind] <= min(count, 1.25 * share * count + more + 1)
    assert part[0] == order[0]
    assert list(shared_out(order, 1.0, spare)) == order


def test_so_many_places_more_are_asked_for_as_fill_a_host() -> None:
    """Of tasks that share the room of the largest; of one that has it, and of gangs, one."""
    mix = ((1, 0.7), (8, 0.3))

    def spare(gpus: int, count: int = 1, sizes: tuple[tuple[int, float], ...] = mix) -> int:
        spec = job(gpus=gpus, count=count)
        group = spec.groups[0]
        groups = (GroupRequest(group.name, group.count, group.resources),)
        return spare_of(PlacementRequest("", groups, spec.topology, spec.band, mix=sizes))

    assert (spare(1), spare(3), spare(8), spare(16), spare(1, count=2)) == (8, 3, 1, 1, 1)
    assert spare(1, sizes=()) == 1


def test_shares_follow_what_regions_have_and_what_they_won() -> None:
    """One that alone has what jobs ask for is asked for all of them the next time."""
    bulk, regions = Bulk(), sorted(GPUS)
    assert bulk.shares(regions, GPUS) == pytest.approx(dict.fromkeys(regions, 1 / 3))
    bulk.won(["east"] * 9)
    assert bulk.shares(regions, GPUS) == pytest.approx({"east": 1.0, "north": 1 / 3, "west": 1 / 3})
    bulk.won([])
    bulk.won(["west"] * 9)
    assert bulk.shares(regions, {**GPUS, "north": 0})["west"] == pytest.approx(0.8)


def test_after_answers_in_vain_more_jobs_are_asked_about_alone() -> None:
    """Twice as many each time, up to a thousand; the next that is not in vain begins anew."""
    bulk, pauses = Bulk(), []
    for _ in range(8):
        bulk.heard(0, 9, is_full=True)
        pauses.append(bulk.pause)
    assert pauses == [PAUSE << n for n in range(2, 6)] + [MOST_PAUSE] * 4
    bulk.heard(7, 9, is_full=False)
    assert bulk.pause == 0
    bulk.heard(7, 9, is_full=True)
    assert bulk.pause == 1


def test_as_many_jobs_are_asked_about_as_plans_are_of_use() -> None:
    """Twice as many as the last time, of all as long as each has its place."""
    bulk = Bulk()
    assert bulk.most == MOST
    bulk.heard(100, 2_000, is_full=False)
    assert bulk.most == 200
    bulk.heard(200, 200, is_full=False)
    assert bulk.most == 400
    bulk.used(3)
    assert bulk.most == LEAST_APART


@pytest.mark.parametrize(
    ("spec", "fit"),
    [
        (job(gpus=2, count=3), True),
        (job(gpus=0.5), False),
        (job(resources=needs(2, "H100", cpus=4)), False),
        (job(resources=needs(2, "H100", memory=1)), False),
        (job(resources=needs(0, cpus=4)), False),
        (job(resources=needs(2, "H100", "A100")), True),
        (job(image="site/train:1"), False),
        (job(secrets={"TOKEN": "env:TOKEN"}), False),
        (job(secrets={"TOKEN": "file:/token"}), True),
    ],
)
def test_only_whole_gpus_are_asked_for_in_bulk(spec: JobSpec, fit: bool) -> None:
    """All else is searched for one by one."""
    assert fits(spec) is fit
