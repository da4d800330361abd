"""The page of data: the plan in force with its proven gap, what it moves and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.entrance import entrance, run
from tests.unit.web.support import local
from topmast.model.plan_views import DataPlanView
from topmast.service.dataplans import MOVES_SHOWN, _moves
from topmast.slow.data.movement import Movement, ReplicaOrder, Stock

FIGURES = {
    "status": "feasible", "objective": 12.0, "bound": 11.9, "gap": 0.0042, "controllable_gap": None,
    "max_demand_supply": 1.004, "replication_overhead": 0.42, "non_collocated_share": 0.0001,
    "wall_s": 7.25,
}  # fmt: skip
FORECAST = {
    "days": 3, "by_item": {"wape": 0.31, "bias": 0.0}, "first_time": {"wape": 1.0, "bias": 0.0},
    "by_namespace": {"wape": 0.2, "bias": 0.0}, "total": {"wape": 0.11, "bias": 0.0},
    "first_time_share": 0.0,
}  # fmt: skip


def _copy(table: str, value: float = 12.5) -> ReplicaOrder:
    return ReplicaOrder("copy", table, "west", "east", 2e9, value)


def _plan() -> DataPlanView:
    """A plan of which one copy is done, one under way, one given up, and a deletion to come."""
    movement = Movement(
        [_copy("done"), _copy("flies", 0.0)], [ReplicaOrder("drop", "flies", "east", None, 1e9, 0)]
    )
    movement.orders(Stock({"done": ("east", "west"), "flies": ("east",)}, ()))
    movement.given_up.append((_copy("<b>full</b>"), "the store has no room"))
    return DataPlanView(
        86_400.0, None, False, 3, 1e9, FIGURES, FORECAST, 0, 1, 1, movement.done, (), None, None,
        moves=tuple(_moves(movement)),
    )  # fmt: skip


def test_it_says_how_good_the_plan_is_and_what_it_moves_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with entrance(tmp_path) as found:
        plan = _plan()

        async def given(caller: object) -> DataPlanView:
            return plan

        monkeypatch.setattr(found.service, "data_plan", given)
        pages: list[str] = []

        async def story() -> None:
            nonlocal plan
            async with local(found) as client:
                pages.append((await client.get("/data")).text)
                plan = replace(plan, figures={**FIGURES, "gap": None}, forecast={}, moves=())
                pages.append((await client.get("/data")).text)

        run(story)
    text, second = (re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)) for page in pages)
    for words in (
        "Proven gap 0.4 %: no plan for the same forecast could be better by more",
        "less than 0.1 % of the demand", "11.0 % of the demand in all",
        "1 done, 1 copy under way, 0 copies and 1 deletion to come",
        "done copy from east to west 2GB done jobs that read it there are expected to want 12.5 GPUs",
        "flies copy from east to west 2GB under way so many replicas there must be",
        "full&lt;/b&gt; copy from east to west 2GB given up the store has no room",
        "flies delete in east 1GB to come the plan serves the jobs that read it from other regions",
    ):  # fmt: skip
        assert words in text
    assert "Proven gap none: no bound is known" in second
    assert "Error of its forecast" not in second


def test_of_many_moves_the_newest_and_the_next_are_shown() -> None:
    movement = Movement([_copy(f"c{i}") for i in range(200)], [])
    movement.carried_out += [_copy(f"d{i}") for i in range(200)]
    shown = list(_moves(movement))
    assert len(shown) == 2 * MOVES_SHOWN
    assert (shown[0].dataset, shown[MOVES_SHOWN].dataset) == ("d199", "c0")
