"""What a gang loses by where it sits, and by who sits beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, jobs, run
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec
from topmast.model.job import Band
from topmast.sim.progress import Progress
from topmast.sim.settings import Settings, read_settings

ONE_GPU = fleet(cluster("r-1", hosts=1, gpus=1))


def _racks(*hosts_in_racks: str) -> Fleet:
    """Hosts of 8 GPUs and 16 CPUs, each in `pod/rack`."""
    hosts = tuple(
        HostSpec(f"h{i}", "H100", 8, cpus=16.0, pod=at.split("/")[0], rack=at)
        for i, at in enumerate(hosts_in_racks)
    )
    return Fleet((RegionSpec("r", (ClusterSpec("r-1", hosts),)),))


def _world(**options: float) -> Settings:
    return structs.replace(FREE, **options)


def test_two_shares_of_a_gpu_slow_each_other_while_both_are_there() -> None:
    """100 s of work each at half the speed: the first is over at 190 s, and the other then catches up."""
    trace = jobs((0.0, 100.0, 0.5), (10.0, 100.0, 0.5))
    found = run(trace, ONE_GPU, settings=_world(shared_gpu=0.5))
    assert found.job("0")["finish_s"] == pytest.approx(10.0 + 90.0 / 0.5)
    # In 180 s at half speed the second did 90 s of its work; 10 s are left, alone.
    assert found.job("1")["finish_s"] == pytest.approx(190.0 + 10.0)


def test_whole_gpus_of_one_host_do_not_share() -> None:
    """Each task has GPUs of its own."""
    found = run(
        jobs((0.0, 100.0, 1), (0.0, 100.0, 1)),
        fleet(cluster("r-1", hosts=1, gpus=2)),
        settings=_world(shared_gpu=0.5),
    )
    assert [job["finish_s"] for job in found.jobs] == [100.0, 100.0]


@pytest.mark.parametrize(
    ("places", "want_s"),
    [(("p/a", "p/a"), 125.0), (("p/a", "p/b"), 200.0), (("p/a", "q/b"), 400.0)],
)
def test_a_gang_goes_slower_the_farther_it_is_spread(
    places: tuple[str, ...], want_s: float
) -> None:
    """Over two hosts of a rack, two racks of a pod, two pods."""
    settings = _world(across_hosts=0.8, across_racks=0.5, across_pods=0.25)
    found = run(jobs((0.0, 100.0, 8), tasks=[2]), _racks(*places), settings=settings)
    assert found.job("0")["finish_s"] == pytest.approx(want_s)
    alone = run(jobs((0.0, 100.0, 8)), _racks(*places), settings=settings)
    assert alone.job("0")["finish_s"] == 100.0


def test_farther_is_never_faster() -> None:
    """A speed across racks above the one across hosts is cut to that."""
    found = run(
        jobs((0.0, 100.0, 8), tasks=[2]), _racks("p/a", "p/b"), settings=_world(across_hosts=0.5)
    )
    assert found.job("0")["finish_s"] == 200.0


def test_full_hosts_are_slow() -> None:
    """12 of 16 CPUs held: halfway from half full to full, so halfway to the speed of a full host."""
    settings = _world(busy_cpus=0.5)
    light = run(jobs((0.0, 75.0, 1), cpus=[8.0]), _racks("p/a"), settings=settings)
    assert light.job("0")["finish_s"] == 75.0
    heavy = run(jobs((0.0, 75.0, 1), cpus=[12.0]), _racks("p/a"), settings=settings)
    assert heavy.job("0")["finish_s"] == pytest.approx(100.0)


def test_a_victim_keeps_what_it_did_at_each_speed() -> None:
    """Work saved at a stop is what was done, slow and fast; nothing is done twice."""
    trace = jobs(
        (0.0, 1_000.0, 0.5), (100.0, 50.0, 0.5), (400.0, 100.0, 1),
        band=[Band.LOW, Band.LOW, Band.CRITICAL],
    )  # fmt: skip
    settings = _world(shared_gpu=0.5)
    found = run(trace, ONE_GPU, "mast", settings, min_runtime_s="0")
    # 100 s alone, 100 s at half speed, 200 s alone: 350 s of work are done when it has to go.
    first = found.job("0")
    assert first["preemptions"] == 1
    held_s = sum(a["end_s"] - a["start_s"] for a in found.allocations if a["job_id"] == "0")
    assert held_s == pytest.approx(1_000.0 + 50.0)


def test_speeds_above_one_are_refused() -> None:
    """And zero, which would stand still for ever."""
    for text in ("1.5", "0", "-1", "nan"):
        with pytest.raises(InvalidInput, match="shared_gpu"):
            read_settings({"sim.shared_gpu": text})


@given(
    st.lists(st.tuples(st.floats(1, 3e3), st.floats(0.1, 2)), max_size=5),
    st.sampled_from((0.0, 5.0)),
)
def test_changes_of_speed_agree_with_a_walk(
    changes: list[tuple[float, float]], checkpoint_s: float
) -> None:
    """Work done is the sum over stretches of work of their length times the speed at the time."""
    progress = Progress(50.0, 1e6, 1.0, 600.0, checkpoint_s)
    now, rate, done = 0.0, 1.0, 0.0
    for passed_s, then in changes:
        before = progress._worked_s(now)
        now += passed_s
        done += (progress._worked_s(now) - before) * rate
        assert progress.done_s(now) == pytest.approx(done)
        progress.go(now, then)
        rate = then
    end_s = progress.end_s()
    assert progress.done_s(end_s) == pytest.approx(progress.work_s)
    kept = progress.kept(now)
    assert kept is None or (kept[0] <= done + 1e-6 and kept[1] <= now)
