"""Samples of the fleet over time, and metrics of jobs over their steps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.entrance import ROOT, entrance, run
from topmast.model.access import Caller, Grant, Principal, Role
from topmast.model.errors import InvalidInput
from topmast.model.history_views import FleetHistory, SeriesView
from topmast.service.curves import MOST_JOBS, MOST_METRICS, MOST_POINTS, Curves
from topmast.service.history import (
    MOST_SERIES,
    OPTION,
    RINGS,
    History,
    Ring,
    Rings,
    history_seen_by,
    sample,
)

USED = ("tenant", "a")


def shown(ring: Ring, until_s: float = 1e12) -> list[tuple[float, list[float | None]]]:
    """Its moments with the values of all series."""
    view = ring.since(0.0, until_s)
    return [
        (at_s, [series.values[at] for series in view.series]) for at, at_s in enumerate(view.times)
    ]


@pytest.mark.parametrize(
    ("samples", "want"),
    [
        ([(0, 2), (9, 4), (10, 8)], [(0, [3]), (10, [8])]),
        ([(0, 1), (10, 1), (20, 1), (30, 5)], [(10, [1]), (20, [1]), (30, [5])]),
        ([(0, 1), (50, 2)], [(0, [1]), (10, [None]), (50, [2])]),
        ([(0, 1), (50, 2), (15, 3), (12, 5)], [(0, [1]), (10, [4])]),
    ],
    ids=["means", "the oldest goes", "a gap is no line", "the clock was set back"],
)
def test_a_ring_keeps_means_of_equal_spans(
    samples: list[tuple[float, float]], want: list[tuple[float, list[float | None]]]
) -> None:
    ring = Ring(10.0, 3)
    for at_s, value in samples:
        ring.add(at_s, {USED: value})
    assert shown(ring) == want


def test_series_come_and_go_and_are_not_too_many() -> None:
    ring = Ring(10.0, 2)
    ring.add(0.0, {USED: 1.0})
    ring.add(10.0, {("tenant", "b"): 2.0})
    assert shown(ring) == [(0.0, [1.0, None]), (10.0, [None, 2.0])]
    ring.add(20.0, {("tenant", "b"): 3.0})
    assert shown(ring) == [(10.0, [2.0]), (20.0, [3.0])]
    ring.add(30.0, {("tenant", str(at)): 1.0 for at in range(MOST_SERIES + 5)})
    assert len(ring.series) == MOST_SERIES


class Option:
    """A journal that keeps one thing."""

    def __init__(self, text: str | None = None, leads: bool = True) -> None:
        self.text, self._leads = text, leads

    def option(self, name: str) -> str | None:
        return self.text if name == OPTION else None

    def set_option(self, name: str, value: str) -> None:
        assert name == OPTION
        self.text = value

    def leads(self) -> bool:
        return self._leads


class Clock:
    """A clock that a test sets."""

    now_s = 1_000_000.0

    def now(self) -> float:
        return self.now_s


def test_samples_outlive_the_server_and_begin_anew_at_another_resolution() -> None:
    rings = Rings()
    for at_s in (0.0, 40.0, 1_000_000.0):
        rings.add(at_s, {USED: at_s})
    kept = rings.text()
    clock = Clock()
    assert History(Option(kept), clock).view("7d") == rings.view("7d", clock.now_s)
    assert Rings(kept.replace('"most":336', '"most":7')).view("7d", 1e6).first_s is None
    for period, (step_s, most) in RINGS.items():
        assert rings.view(period, 1e6).times[0] >= 1e6 - step_s * (most + 1)


def test_a_server_samples_at_its_start_and_keeps_it_at_its_end(tmp_path: Path) -> None:
    """What it keeps is what the next server of the folder begins with."""
    with entrance(tmp_path) as door:

        async def submit() -> None:
            job = {"run": "true", "tenant": "nlp", "resources": {"accelerators": "H100:2"}}
            for _ in range(4):
                await door.service.submit(ROOT, job, "ann", "", "")

        run(submit)
        found = sample(door.service.machines.queue, door.service.regions.placers)
        assert found == {
            ("present", "east", "H100"): 4.0, ("held", "east", "H100"): 4.0,
            ("waiting", "H100"): 4.0, ("load", "east"): 1.0, ("tenant", "speech"): 0.0,
            ("tenant", "vision"): 4.0, ("tenant", "visio"): 0.0, ("tenant", "vision2"): 0.0,
        }  # fmt: skip
        samples = door.system.samples
        samples._sample()
        assert samples.view("1h").first_s is not None
        with pytest.raises(InvalidInput, match="7d"):
            door.service.history(ROOT, "1y")
        viewer = Caller(Principal("user:ann", (Grant(Role.VIEWER, "vision"),)))
        keys = [one.key for one in door.service.history(viewer, "1h").series]
        assert ("tenant", "vision") in keys
        assert ("tenant", "speech") not in keys
    with entrance(tmp_path) as door:
        assert door.system.samples.view("1h").first_s is not None


def test_other_tenants_are_one_series() -> None:
    whole = FleetHistory(
        0.0, 2.0, 1.0, 0.0, (0.0, 1.0),
        (
            SeriesView(("load", "east"), (1.0, None)), SeriesView(("tenant", "a"), (1.0, None)),
            SeriesView(("tenant", "b"), (2.0, None)), SeriesView(("tenant", "c"), (3.0, None)),
        ),
    )  # fmt: skip
    seen = history_seen_by(whole, frozenset({"a"}))
    assert seen.series[:2] == whole.series[:2]
    assert [one.values for one in seen.series[2:]] == [(5.0, None)]


def points(curves: Curves, job: str = "j1") -> dict[str, list[tuple[int, float | None]]]:
    return {one.name: list(zip(one.steps, one.values, strict=True)) for one in curves.of(job)}


def test_a_curve_follows_the_steps_that_count() -> None:
    """Steps that were lost are replaced; a metric need not be in each report."""
    curves = Curves()
    for step, metrics in (
        (1, {"loss": 4.0}), (2, {"loss": 3.0, "lr": 0.5}), (3, {"loss": 9.0}),
        (2, {"loss": 2.5}), (3, {"loss": 2.0}),
    ):  # fmt: skip
        curves.add("j1", step, metrics)
    assert points(curves) == {
        "loss": [(1, 4.0), (2, 2.5), (3, 2.0)], "lr": [(1, None), (2, None), (3, None)],
    }  # fmt: skip
    assert curves.of("j2") == ()


def test_a_long_curve_is_thinned_out_and_keeps_both_ends() -> None:
    curves = Curves()
    for step in range(1, 100_001):
        curves.add("j1", step, {"loss": float(step)})
    found = points(curves)["loss"]
    assert MOST_POINTS / 2 <= len(found) <= MOST_POINTS
    assert (found[0], found[-1]) == ((1, 1.0), (100_000, 100_000.0))
    gaps = [b - a for (a, _), (b, _) in pairwise(found)]
    assert max(gaps) <= 2 * 100_000 / (MOST_POINTS / 2)


def test_curves_are_bounded() -> None:
    """In jobs, of which the one that reported longest ago goes, and in metrics of a job."""
    curves = Curves()
    for at in range(MOST_JOBS):
        curves.add(f"j{at}", 1, {f"m{i}": 1.0 for i in range(MOST_METRICS + 2)})
    curves.add("j0", 2, {"m0": 2.0})
    curves.add("new", 1, {"m0": 1.0})
    assert curves.of("j1") == ()
    assert len(curves.of("j0")) == MOST_METRICS
