"""What the runtime counts: a story of facts, and the figures that follow."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.model.job import Band
from topmast.runtime.meter import Histogram, histogram


@given(st.lists(st.floats(0, 100)), st.lists(st.floats(0.1, 90), min_size=1, unique=True))
def test_a_histogram_counts_what_is_not_above_each_bound(
    values: list[float], bounds: list[float]
) -> None:
    """Prometheus reads the bound as included."""
    found: Histogram = histogram(tuple(sorted(bounds)))
    for value in values:
        found.observe(value)
    want = [sum(v <= bound for v in values) for bound in (*sorted(bounds), math.inf)]
    assert found.cumulative() == want
    assert math.isclose(found.sum, math.fsum(values), abs_tol=1e-9)


def test_a_preemption_and_a_success() -> None:
    """Each is counted once, with the work that was kept and lost."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.advance(100.0)
    world.submit(job("urgent", gpus=8, band=Band.HIGH))
    meter = world.meter
    assert meter.evicted.sums == {("default", "preempted"): 1}
    assert meter.running["default", "low"] == 0
    assert meter.running["default", "high"] == 1
    world.advance(50.0)
    world.finish("j2")
    assert meter.submitted.sums == {("default", "low"): 1, ("default", "high"): 1}
    assert meter.admitted.sums == {("default", "low", "east"): 2, ("default", "high", "east"): 1}
    assert meter.finished.sums == {("default", "SUCCEEDED"): 1}
    assert meter.attempts.sums == {("east-1", "preempted"): 1, ("east-1", "succeeded"): 1}
    assert meter.gpu_s.sums["default", "H100", "lost"] == 800
    assert meter.gpu_s.sums["default", "H100", "kept"] == 400
    assert meter.waits_s.members["default", "low"].cumulative()[-1] == 1


def test_a_wait_is_counted_at_the_first_start_alone() -> None:
    """A job that starts again was admitted long ago."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("first", gpus=8))
    world.submit(job("second", gpus=8))
    world.advance(30.0)
    world.finish("j1")
    world.advance(10.0)
    world.lose("east-1-0")
    world.revive("east-1-0")
    world.advance(120.0)
    found = world.meter.waits_s.members["default", "normal"]
    assert (found.cumulative()[-1], found.sum) == (2, 30.0)


def test_after_a_restart_what_runs_is_known() -> None:
    """Counters begin anew; what runs does not."""
    world = World(fleet(cluster("east-1", hosts=2)))
    world.submit(job("one", gpus=8))
    world.restart()
    assert world.meter.running == {("default", "normal"): 1}
    assert not world.meter.submitted.sums


def test_hosts_are_counted_by_what_happened_and_not_by_name() -> None:
    """A label for each host would be one for each of thousands."""
    world = World(fleet(cluster("east-1", hosts=2)))
    world.lose("east-1-0")
    world.revive("east-1-0")
    world.close_host("east-1-1", "maintenance")
    assert world.meter.hosts.sums == {("down",): 1, ("up",): 1, ("closed",): 1}
