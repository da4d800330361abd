"""Guests: a gang on another's GPUs, in the books of the region, from the round that says so to the end of either."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, needs
from tests.support.world import World
from topmast.fast.queue.facts import PackedWith
from topmast.fast.region.inventory.allocation import to_external, to_internal
from topmast.model.job import JobSpec
from topmast.model.states import JobState
from topmast.policies.registry import load_profile

SLOTS = 4


class PackingSpeedups:
    """Any two gain by being together."""

    def beside(
        self, one: tuple[str, int], other: tuple[str, int], model: str
    ) -> tuple[float, float] | None:
        return 0.9, 0.9

    def steps_per_s(self, work: tuple[str, int], model: str) -> float | None:
        return None


def work(name: str, **more: Any) -> JobSpec:
    """A job of all GPUs of a host, that a table knows."""
    resources = needs(SLOTS, "V100", **more)
    return replace(job(name, resources=resources), work=name)


def world_of(hosts: int = 1, **more: Any) -> World:
    """One cluster under a profile with pairs."""
    where = fleet(cluster("lab-1", hosts=hosts, gpus=SLOTS, model="V100", **more))
    return World(
        where, load_profile("gavel-max-min-fairness-packed"), pair_speeds=PackingSpeedups()
    )


def check_rebuilt(world: World) -> None:
    """A process that dies now is followed by one that knows the same."""
    rebuilt = world.rebuilt()
    assert {a: x.snapshot() for a, x in rebuilt.addressed()} == world.blobs()


def free(world: World) -> list[int]:
    """Thousandths of each GPU that nobody has."""
    found: list[int] = world.placer("lab").columns.free_milli.tolist()
    return found


def test_two_run_on_the_same_gpus_and_the_books_count_them_once() -> None:
    """Both start at once; the plan that people see has whole GPUs, the books have none for the guest."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    assert set(world.states().values()) == {"RUNNING"}
    host, guest = (world.jobs[name] for name in (first, second))
    assert host.plan is not None
    assert guest.plan is not None
    assert (guest.plan.colocated_with, guest.colocated_with, host.colocated_with) == (
        first,
        first,
        second,
    )
    assert [s.slots for s in guest.plan.seats] == [s.slots for s in host.plan.seats]
    assert {s.slot_milli for s in guest.plan.seats} == {1000}
    assert free(world) == [0] * SLOTS
    assert world.placer("lab").held_gpus() == SLOTS
    check_rebuilt(world)


def test_who_is_left_has_the_gpus_for_itself() -> None:
    """When the host ends the guest has its GPUs, and nobody else gets them in this round."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    world.finish(first)
    world.advance(1)
    assert world.state(second) is JobState.RUNNING
    assert not world.jobs[second].colocated_with
    assert free(world) == [0] * SLOTS
    assert world.placer("lab").held_gpus() == SLOTS
    check_rebuilt(world)
    world.finish(second)
    world.advance(1)
    assert free(world) == [1000] * SLOTS
    check_rebuilt(world)


def test_the_guest_ends_first() -> None:
    """Its host goes on as if nobody had been there."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    world.finish(second)
    world.advance(1)
    assert world.state(first) is JobState.RUNNING
    assert not world.jobs[first].colocated_with
    assert free(world) == [0] * SLOTS
    check_rebuilt(world)


def test_cpus_are_not_shared() -> None:
    """A guest takes CPUs of its own; where there are too few it waits."""
    world = world_of(cpus=8.0)
    world.submit(work("a", cpus=6.0), work("b", cpus=6.0))
    world.advance(1)
    assert sorted(world.states().values()) == ["PENDING", "RUNNING"]
    check_rebuilt(world)


def test_a_host_that_is_lost_takes_both_with_it() -> None:
    """When it is back so are they, together."""
    world = world_of()
    world.submit(work("a"), work("b"))
    world.advance(1)
    world.lose("lab-1-0")
    world.advance(1)
    assert not any(record.plan or record.colocated_with for record in world.jobs.values())
    assert free(world) == [1000] * SLOTS
    check_rebuilt(world)
    world.revive("lab-1-0")
    world.advance(800)
    running = [r for r in world.jobs.values() if r.state is JobState.RUNNING]
    assert {r.colocated_with for r in running} == {r.id for r in running} == world.jobs.keys()
    check_rebuilt(world)


def test_a_crash_at_any_time_loses_nobody() -> None:
    """A process that takes over knows who is beside whom, and parts nobody."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    world.restart()
    world.advance(1)
    assert set(world.states().values()) == {"RUNNING"}
    world.finish(first)
    world.advance(1)
    assert not world.jobs[second].colocated_with
    assert free(world) == [0] * SLOTS
    check_rebuilt(world)


def test_a_guest_whose_host_is_gone_is_refused() -> None:
    """A plan that was made before the host ended, or got another guest, does not fit any more."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    placer, plan = world.placer("lab"), world.jobs[second].plan
    assert plan is not None
    other = replace(plan, job="j9")
    assert "with another" in placer.sharing.why_not(other)
    assert "the secondary of a pair itself" in placer.sharing.why_not(
        replace(other, colocated_with=second)
    )
    assert "does not run" in placer.sharing.why_not(replace(other, colocated_with="j8"))
    world.finish(second)
    world.advance(1)
    assert placer.sharing.why_not(other) == ""
    moved = tuple(replace(seat, slots=(0,)) for seat in plan.seats)
    assert "other GPUs" in placer.sharing.why_not(replace(other, seats=moved))
    assert first in placer.state.allocations


def test_seats_in_the_books_and_outside() -> None:
    """There and back it is the same plan; one without a host is left alone."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    alone, guest = world.jobs[first].plan, world.jobs[second].plan
    assert alone is not None
    assert guest is not None
    assert {seat.slot_milli for seat in to_internal(guest).seats} == {0}
    assert to_external(to_internal(guest)) == guest
    assert to_internal(alone) is alone


def test_people_are_told() -> None:
    """Both hear beside whom they are, and who is left that it is alone."""
    world = world_of()
    first, second = world.submit(work("a"), work("b"))
    world.advance(1)
    world.finish(first)
    world.advance(1)
    told = [(fact.job, fact.colocated_with) for fact in world.facts(PackedWith)]
    assert told == [(second, first), (first, second), (second, "")]
