"""The placement of an experiment: a past that tells what a past can tell, and a plan made from it."""

from __future__ import annotations

import numpy as np
import pytest

from topmast.experiments.past import past_of
from topmast.experiments.placement import overhead_of
from topmast.experiments.planned import PlanOptions, planned
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.sim.demand import split
from topmast.slow.data.access_log import DAY_S, namespace_of
from topmast.slow.data.demand import Terms
from topmast.traces.generate import generate
from topmast.traces.trace import Trace

DAYS = 14


@pytest.fixture(scope="module")
def day() -> tuple[Trace, Fleet]:
    """One generated day, and its fleet."""
    trace, document = generate("mast-like", 2_000, 5, 1.0)
    return trace, parse_fleet(document)


def test_the_days_before_are_like_the_day(day: tuple[Trace, Fleet]) -> None:
    """As many jobs and as much work, day by day; more than half of the tables are gone by now."""
    trace, fleet = day
    past = past_of(trace, fleet, "mast-like", DAYS, 1).history
    jobs = np.bincount(past.day, minlength=DAYS)
    assert jobs == pytest.approx(len(trace), rel=0.35)
    work = float((trace.gpus * trace.tasks * trace.duration_s).sum())
    assert past.gpu_s.sum() / DAYS == pytest.approx(work, rel=0.25)
    assert (past.gone_day <= DAYS).sum() > len(fleet.datasets)


def test_some_tables_have_no_past(day: tuple[Trace, Fleet]) -> None:
    """About a tenth appears on the day itself."""
    trace, fleet = day
    past = past_of(trace, fleet, "mast-like", DAYS, 1).history
    count = len(fleet.datasets)
    new = past.first_day[:count] == DAYS
    assert new.mean() == pytest.approx(0.1, abs=0.06)
    assert not set(np.flatnonzero(new)) & set(past.item)


def test_an_access_log_of_these_days_has_the_same_jobs(day: tuple[Trace, Fleet]) -> None:
    """Day by day as many as the history that read one table that is still there, and as much work."""
    trace, fleet = day
    past = past_of(trace, fleet, "mast-like", DAYS, 1)
    here = np.flatnonzero(past.history.item < len(fleet.datasets))
    alone = [e for e in past.entries if len(e.tables) == 1]
    of_day = [DAYS + np.floor((e.at_s - trace.submit_s[0]) / DAY_S) for e in alone]
    jobs = np.bincount(np.array(of_day, np.int64), minlength=DAYS)
    assert jobs.tolist() == np.bincount(past.history.day[here], minlength=DAYS).tolist()
    assert sum(e.gpu_s for e in alone) == pytest.approx(past.history.gpu_s[here].sum())
    pairs = [e.tables for e in past.entries if len(e.tables) > 1]
    assert 0.05 < len(pairs) / len(past.entries) < 0.25
    assert all(a != b and namespace_of(a) == namespace_of(b) for a, b in pairs)
    assert {name for e in past.entries for name in e.tables} <= {d.name for d in fleet.datasets}


def test_the_past_does_not_know_the_jobs_of_the_day(day: tuple[Trace, Fleet]) -> None:
    """The popularity of a table is told only roughly: its readers of the day and its past agree so far."""
    trace, fleet = day
    past = past_of(trace, fleet, "mast-like", DAYS, 1).history
    number = {d.name: i for i, d in enumerate(fleet.datasets)}
    first = [number[text.split("|")[0]] for text in trace.datasets.names]
    readers = np.bincount(np.array(first)[trace.datasets.codes], minlength=len(number))
    old = past.first_day[: len(number)] == 0
    before = np.bincount(past.item, minlength=past.items)[: len(number)] / DAYS
    assert 0.5 < np.corrcoef(readers[old], before[old])[0, 1] < 0.99


def test_a_plan_from_the_past_keeps_its_budget_and_levels_the_regions(
    day: tuple[Trace, Fleet],
) -> None:
    """The day itself, which the plan did not know, can be served more evenly; every table is somewhere."""
    trace, fleet = day
    options = PlanOptions(
        history_days=DAYS, scenarios=2, time_limit_s=8.0,
        terms=Terms(growth=0.4, replica_part=0.002, move_part=0.001),
    )  # fmt: skip
    made = planned(trace, fleet, "mast-like", options, 1)
    before, after = (_worst(trace, each) for each in (fleet, made.fleet))
    assert after < 1.0 + (before - 1.0) / 3 < before
    assert all(d.replicas for d in made.fleet.datasets)
    assert 0.0 < overhead_of(made.fleet.datasets) <= 0.4
    assert made.errors.total.wape < made.errors.by_item.wape


def _worst(trace: Trace, fleet: Fleet) -> float:
    """Demand over supply in the worst region, over that of the fleet, if the queue splits it as well as it can."""
    regions = sorted(fleet.regions, key=lambda r: r.name)
    supply = [float(sum(Fleet((r,)).gpus().values())) for r in regions]
    replicas = {d.name: set(d.replicas) for d in fleet.datasets}
    wanted: dict[tuple[int, ...], float] = {}
    work = trace.gpus * trace.tasks * trace.duration_s
    for code, gpu_s in zip(trace.datasets.codes.tolist(), work.tolist(), strict=True):
        names = trace.datasets.names[code].split("|")
        where = tuple(i for i, r in enumerate(regions) if all(r.name in replicas[n] for n in names))
        wanted[where] = wanted.get(where, 0.0) + gpu_s
    wanted.pop((), None)
    load = np.zeros(len(regions))
    for where, parts in split(wanted, [0.0] * len(regions), supply).items():
        load[list(where)] += parts
    level = load.sum() / sum(supply)
    return float((load / np.array(supply)).max() / level)
