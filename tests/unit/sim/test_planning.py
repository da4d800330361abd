"""Data planned on a cadence under the virtual clock: the story of a fleet whose data is all in one region."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.build import cluster, dataset, fleet
from tests.support.simulated import FREE, Run, run_timed
from topmast.model.errors import TopmastError
from topmast.model.fleet import Fleet
from topmast.policies.registry import load_profile
from topmast.slow.data.access_log import DAY_S, Entry
from topmast.slow.data.demand import Kind
from topmast.slow.data.planner import Planner
from topmast.traces.trace import Trace, trace_of

HOUR_S = 3_600.0
TABLES = [f"ns.t{i}" for i in range(8)]
OLD = [f"old.t{i}" for i in range(8)]
"""Tables that no job of the run reads."""


def _skewed() -> Fleet:
    """Tables of 10 GB, all in the east; the west has as many GPUs and no data."""
    return fleet(
        cluster("east-1", hosts=2, gpus=8),
        cluster("west-1", hosts=2, gpus=8),
        datasets=tuple(dataset(name, "east", size_bytes=10**10) for name in TABLES + OLD),
    )


def _busy(count: int = 240) -> Trace:
    """Jobs of 4 GPUs and an hour, every 8 minutes for each of 1 1/2 of what the east can do."""
    return trace_of(
        "busy",
        submit_s=[i * 600.0 for i in range(count)],
        duration_s=[HOUR_S] * count,
        gpus=[4] * count,
        band=[300] * count,
        datasets=[TABLES[i % 8] for i in range(count)],
    )


def _run(every_s: float | None, read: Sequence[Entry] = (), count: int = 240) -> Run:
    options = {"on_demand_copies": "false"}
    if every_s is not None:
        options["slow.plan_data_every_s"] = repr(every_s)
    profile = load_profile("mast", options)
    return run_timed(_busy(count), _skewed(), profile, None, FREE, read=read)


def test_a_plan_brings_data_to_idle_gpus() -> None:
    """Jobs queue in the east until the first plan is carried out; then both regions work."""
    never, planned = _run(None), _run(6 * HOUR_S)
    assert {row["region"] for row in never.jobs} == {"east"}
    wests = [row["first_start_s"] for row in planned.jobs if row["region"] == "west"]
    assert min(wests, default=0.0) > 6 * HOUR_S
    assert planned.result.summary["data_plans"]["applied"] >= 4
    waits = [sum(r["wait_s"] for r in each.jobs) for each in (never, planned)]
    assert waits[1] < waits[0] / 3


def test_no_plan_is_made_after_the_last_job_came() -> None:
    """Jobs still wait when a plan would be due: it would be one for days without a job."""
    never, late = _run(None), _run(41 * HOUR_S)
    assert max(row["finish_s"] for row in never.jobs) > 41 * HOUR_S
    assert late.result.summary["data_plans"] == {"applied": 0, "discarded": 0}
    assert late.jobs == never.jobs


def test_what_was_read_before_the_run_counts_in_its_plans() -> None:
    """The first plan is due when a few jobs have come: what else will be read, the days before alone say."""
    days = [
        Entry(-DAY_S * day + 600.0 * i, (OLD[i % 8],), Kind("H100", True), 4 * HOUR_S)
        for day in range(1, 8)
        for i in range(144)
    ]
    runs = (_run(HOUR_S / 2, read, 6) for read in ((), days))
    first = [next(r for r in run.copies if r["cause"] == "the data plan") for run in runs]
    assert first[0]["dataset"] in TABLES
    assert first[1]["dataset"] in OLD


def test_copies_say_that_they_are_the_plans() -> None:
    """The first comes from where all data is."""
    copies = [row for row in _run(6 * HOUR_S).copies if row["cause"] not in ("initial", "dropped")]
    assert {row["cause"] for row in copies} == {"the data plan"}
    assert all(row["from"] == "east" for row in copies[:1])


def test_every_table_keeps_a_replica_at_every_moment() -> None:
    """Copies come before drops, whatever plans follow one another."""
    held: dict[str, int] = {}
    for row in sorted(_run(3 * HOUR_S).copies, key=lambda r: r["end_s"]):
        if row["cause"] == "dropped":
            held[row["dataset"]] -= 1
        else:
            held[row["dataset"]] = held.get(row["dataset"], 0) + 1
        assert held[row["dataset"]] >= 1


def test_the_same_run_twice_is_the_same() -> None:
    """Plans are limited by work, not by a clock."""
    one, other = _run(6 * HOUR_S), _run(6 * HOUR_S)
    assert one.jobs == other.jobs
    assert one.copies == other.copies


def test_a_planner_that_fails_leaves_the_last_plan_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second plan finds nothing: data stays where the first one put it, and jobs go on."""
    plan, asked = Planner.plan, []

    def fails_later(self: Planner, *args: object) -> object:
        asked.append(1)
        if len(asked) > 1:
            raise TopmastError("no placement was found in the time")
        return plan(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Planner, "plan", fails_later)
    found = _run(6 * HOUR_S)
    assert found.result.summary["data_plans"] == {"applied": 1, "discarded": len(asked) - 1}
    assert any(row["region"] == "west" for row in found.jobs)
    assert found.result.summary["finished"] == 240
