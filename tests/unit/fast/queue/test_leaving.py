"""Hosts that leave the fleet while jobs are there, and come back before these have ended."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, needs
from tests.support.world import World
from topmast.fast.queue import hosts_in_use
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.model.fleet import Fleet, HostSpec
from topmast.model.fleet_changes import fleet_version

FIRST, SECOND = cluster("east-1", cpus=16.0).hosts


def _fleet(east: tuple[HostSpec, ...], other: tuple[HostSpec, ...] = (), west: Any = ()) -> Fleet:
    spec = cluster("east-1", hosts=0), cluster("east-2", hosts=0), cluster("west-1", hosts=1)
    return fleet(
        replace(spec[0], hosts=east), replace(spec[1], hosts=other),
        replace(spec[2], hosts=(*spec[2].hosts, *west)),
    )  # fmt: skip


def _apply(world: World, to: Fleet) -> Any:
    answer = world.tell(ids.QUEUE, m.ConfigureFleet(to, base=fleet_version(world.queue.fleet)))
    if answer is None:
        world.equip(to)
    return answer


def _left_with_a_job() -> World:
    """A job is on a host that has left; it stays there as it may not be stopped."""
    world = World(_fleet((FIRST, SECOND)))
    world.submit(job(resources=needs(8, "H100", cpus=12), preemptible=False))
    assert world.jobs["j1"].hosts == ("east-1-0",)
    assert _apply(world, _fleet((SECOND,))) is None
    return world


OTHERS = {
    "another region": _fleet((SECOND,), west=(FIRST,)),
    "another cluster": _fleet((SECOND,), (FIRST,)),
    "another model": _fleet((replace(FIRST, model="A100"), SECOND)),
    "fewer GPUs": _fleet((replace(FIRST, gpus=4), SECOND)),
    "no GPUs": _fleet((replace(FIRST, model="", gpus=0), SECOND)),
    "fewer CPUs": _fleet((replace(FIRST, cpus=8.0), SECOND)),
}


@pytest.mark.parametrize("how", OTHERS)
def test_a_host_does_not_come_back_as_another_while_its_job_is_there(how: str) -> None:
    """Its GPUs would be given twice; when the job has ended it may."""
    world = _left_with_a_job()
    refused = _apply(world, OTHERS[how])
    assert isinstance(refused, Conflict)
    assert "jobs are on host east-1-0 of cluster east-1 yet (j1)" in str(refused)
    world.finish("j1")
    assert _apply(world, OTHERS[how]) is None


def test_a_host_comes_back_as_it_was_or_larger() -> None:
    """The change is taken back; the job never noticed."""
    world = _left_with_a_job()
    assert _apply(world, _fleet((replace(FIRST, gpus=16), SECOND))) is None
    world.submit(job(gpus=8), job(gpus=8))
    places = [seat for r in world.jobs.values() if r.plan for seat in r.plan.seats]
    slots = [(seat.host, slot) for seat in places for slot in seat.slots]
    assert len(slots) == len(set(slots)) == 24


def test_a_start_does_not_give_a_host_in_use_to_another_region() -> None:
    """Nor to itself with less, if it had left; to another cluster of its region it goes later."""
    world = World(_fleet((FIRST, SECOND)))
    world.submit(job(gpus=8, preemptible=False))
    assert list(hosts_in_use(world.queue, OTHERS["another region"]))
    assert not list(hosts_in_use(world.queue, OTHERS["another cluster"]))
    assert not list(hosts_in_use(world.queue, _fleet((SECOND,))))
    world.finish("j1")
    assert not list(hosts_in_use(world.queue, OTHERS["another region"]))
