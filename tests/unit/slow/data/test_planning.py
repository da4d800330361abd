"""From a fleet and a access_log to a problem, and from an answer to a plan in force."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.build import cluster, dataset, fleet
from topmast.model.errors import Faults
from topmast.slow.arrays import Floats
from topmast.slow.data.access_log import DAY_S, AccessLog, Entry, namespace_of
from topmast.slow.data.demand import Kind, Terms, problem_of
from topmast.slow.data.gangs import Gang, Rooms
from topmast.slow.data.movement import Stock
from topmast.slow.data.planner import Options, Planner
from topmast.slow.data.planning import DataPlanning, DataPlanOptions, DataSnapshot
from topmast.slow.data.problem import Problem
from topmast.slow.data.reading import check
from topmast.slow.planning import PlanFailure

PRESSING, PATIENT = Kind("H100", True), Kind("H100", False)
FLEET = fleet(cluster("east-1", hosts=1, gpus=8), cluster("west-1", hosts=1, gpus=8))
TABLES = tuple(dataset(f"ns.{x}", "east", size_bytes=10**9) for x in "abcd")


def _check(problem: Problem) -> None:
    faults = Faults()
    check(faults, problem)
    faults.refuse()


def _snapshot(**more: object) -> DataSnapshot:
    stock = Stock({d.name: ("east",) for d in TABLES}, ())
    return replace(DataSnapshot(FLEET, TABLES, stock), **more)


def _answered(planning: DataPlanning, snapshot: DataSnapshot, now_s: float = 2 * DAY_S) -> bool:
    request = planning.request(_snapshot(), now_s)
    assert request is not None
    answer = Planner(Options(), lambda: 0.0).plan(request.problem)
    return planning.apply(request, answer, snapshot, now_s)


def _busy(scenarios: int = 2) -> DataPlanning:
    """Two days on which each table was read for 3 of the east's 8 GPUs."""
    planning = DataPlanning(DataPlanOptions(scenarios=scenarios, terms=Terms(growth=None)))
    for hour in range(48):
        for table in TABLES:
            planning.access_log.note(Entry(hour * 3_600.0, (table.name,), PRESSING, 3 * 3_600.0))
    return planning


# --- the access_log ------------------------------------------------------------------------------------


def test_an_access_log_by_days() -> None:
    """Whole days before now; what came before them is not looked at."""
    access_log = AccessLog()
    for day, gpu_s in ((0, 100.0), (1, 200.0), (1, 50.0), (2, 400.0)):
        access_log.note(Entry((day + 0.5) * DAY_S, ("t",), PRESSING, gpu_s))
    looked = access_log.look(("t",), 3 * DAY_S, 2)
    assert [looked.history.demand_on(d).sum() for d in range(2)] == [250.0, 400.0]


def test_a_young_access_log_is_one_period_as_long_as_it_is_old() -> None:
    """Six hours of demand are not taken for a day's."""
    access_log = AccessLog()
    access_log.note(Entry(0.0, ("t",), PRESSING, 60.0))
    access_log.note(Entry(3_600.0, ("t",), PRESSING, 40.0))
    looked = access_log.look(("t",), 21_600.0, 28)
    assert looked.period_s == 21_600.0
    assert looked.history.demand_on(0).sum() == 100.0


def test_jobs_that_wait_count_and_are_not_written_down() -> None:
    """A full region would else be asked for no more than it serves."""
    access_log = AccessLog()
    access_log.note(Entry(0.0, ("t",), PRESSING, 60.0))
    waits = (Entry(50.0, ("t",), PATIENT, 30.0),)
    looked = access_log.look(("t",), 100.0, 28, waits)
    assert looked.history.demand_on(0).sum() == 90.0
    assert looked.kinds == (PRESSING, PATIENT)
    assert len(access_log) == 1


def test_what_is_old_is_struck_out() -> None:
    """So that a access_log does not grow for ever."""
    access_log = AccessLog()
    for day in range(5):
        access_log.note(Entry((day + 0.5) * DAY_S, (f"t{day}",), PRESSING, 1.0))
    access_log.forget(2 * DAY_S)
    assert len(access_log) == 3
    looked = access_log.look(("t3", "t4"), 5 * DAY_S, 2)
    assert [looked.history.demand_on(day).sum() for day in range(2)] == [1.0, 1.0]


def test_tables_that_are_no_more_are_left_out_and_unread_ones_are_items() -> None:
    """`gone` was read with `t`: that reading can never come again."""
    access_log = AccessLog()
    access_log.note(Entry(0.0, ("t", "gone"), PRESSING, 60.0))
    access_log.note(Entry(0.0, ("t",), PRESSING, 5.0))
    looked = access_log.look(("t", "new"), 100.0, 28)
    assert looked.readings == (("t",), ("new",))
    assert looked.history.demand_on(0).sum() == 5.0


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("ads-12.p3", "ads-12"),
        ("vision/imagenet", "vision"),
        ("a-b", "a"),
        ("plain", ""),
        (".x", ""),
    ],
)
def test_the_namespace_of_a_table(name: str, want: str) -> None:
    """The name up to its last mark."""
    assert namespace_of(name) == want


# --- the problem ----------------------------------------------------------------------------------


def test_a_problem_has_every_scenario_apart_on_the_same_tables() -> None:
    """Pressing work counts against GPUs, all work against its share of them; bad numbers are refused."""
    days = np.array([[[8.0, 16.0]], [[0.0, 0.0]]]) * DAY_S
    world, replicas = replace(FLEET, datasets=TABLES), {d.name: ("east",) for d in TABLES}
    problem = problem_of(
        world, replicas, [("ns.a",)], [PRESSING, PATIENT], days, DAY_S, Terms()
    )  # fmt: skip
    _check(problem)
    (workload,) = problem.workloads
    assert workload.gpus == {"H100 pressing 0": 8.0, "H100 all 0": 24.0}
    east = problem.regions[0].gpus
    assert east["H100 pressing 0"] == 8.0
    assert east["H100 all 0"] == 12.0  # 8 of 16 GPUs, for 24 that are wanted


def test_work_for_a_model_that_the_fleet_lacks_counts_against_all_gpus() -> None:
    """So does work that takes any."""
    days = np.full((1, 1, 2), DAY_S)
    kinds = [Kind("B999", True), Kind("", True)]
    problem = problem_of(FLEET, {}, [("ns.a",)], kinds, days, DAY_S, Terms())
    assert problem.workloads[0].gpus == {" pressing 0": 2.0, " all 0": 2.0}
    assert problem.regions[0].gpus[" pressing 0"] == 8.0


# --- the plan in force ----------------------------------------------------------------------------


@pytest.mark.parametrize("scenarios", [0, 3])
def test_a_plan_levels_what_one_region_cannot_serve(scenarios: int) -> None:
    """Twelve GPUs are wanted where eight are: some tables go to the other region."""
    planning = _busy(scenarios)
    assert _answered(planning, _snapshot())
    assert planning.movement is not None
    assert planning.active is not None
    assert planning.active.figures["max_demand_supply"] <= 1.01
    orders = planning.movement.orders(_snapshot().stock)
    assert [order.region for order in orders] == ["west"]
    table = orders[0].table
    assert planning.why(table, "west").startswith("planned: serves demand of")
    assert planning.why(table, "north") == "not in the plan: to be dropped when nothing needs it"


CHANGES: dict[str, dict[str, object]] = {
    "a region is gone": {"fleet": fleet(cluster("east-1", hosts=1, gpus=8))},
    "a dataset is new": {"datasets": (*TABLES, dataset("ns.e", "east"))},
    "a dataset grew": {"datasets": (replace(TABLES[0], size_bytes=1), *TABLES[1:])},
    "residency changed": {"datasets": (replace(TABLES[0], allowed=("east",)), *TABLES[1:])},
}


@pytest.mark.parametrize("story", CHANGES)
def test_an_answer_to_another_question_is_not_applied(story: str) -> None:
    """The plan before it stays in force."""
    planning = _busy()
    assert _answered(planning, _snapshot())
    before = planning.active
    assert not _answered(planning, _snapshot(**CHANGES[story]))
    assert planning.active is before
    assert planning.failure is not None
    assert "changed" in planning.failure.why


def test_a_plan_that_succeeds_ends_the_trouble() -> None:
    """People see the latest word only."""
    planning = _busy()
    planning.failed("the planner died", 5.0)
    assert planning.failure == PlanFailure(5.0, "the planner died")
    assert _answered(planning, _snapshot())
    assert planning.failure is None


def test_what_cannot_be_placed_says_why() -> None:
    """A table may lie nowhere: the plan fails, and the words name the conflict."""
    barred = (replace(TABLES[0], allowed=()), *TABLES[1:])
    planning = _busy()
    request = planning.request(_snapshot(datasets=barred), DAY_S)
    assert request is not None
    answer = Planner(Options(), lambda: 0.0).plan(request.problem)
    assert not planning.apply(request, answer, _snapshot(datasets=barred), DAY_S)
    assert planning.failure is not None
    assert "there is no placement" in planning.failure.why


def test_without_data_there_is_nothing_to_ask() -> None:
    """Nor without GPUs."""
    assert DataPlanning(DataPlanOptions()).request(_snapshot(datasets=()), 0.0) is None


# --- gangs that a region cannot hold ----------------------------------------------------------------

SMALL_AND_LARGE = fleet(
    cluster("east-1", hosts=1, gpus=8),
    cluster("east-2", hosts=1, gpus=8),
    cluster("west-1", hosts=4, gpus=8),
    cluster("north-1", hosts=4, gpus=8, model="A100"),
)


@pytest.mark.parametrize(
    ("model", "gang", "want"),
    [
        pytest.param("H100", Gang(1, 8_000), (), id="one host is enough"),
        pytest.param("H100", Gang(2, 8_000), ("east",), id="two clusters of a region are not one"),
        pytest.param("H100", Gang(16, 500), (), id="shares sit two to a GPU"),
        pytest.param("H100", Gang(17, 500), ("east",), id="one share too many"),
        pytest.param("H100", Gang(5, 8_000), (), id="no region could: no plan can help"),
        pytest.param("", Gang(2, 8_000), ("east",), id="any model, but one of them"),
        pytest.param("H100", Gang(4, 0), (), id="no GPUs"),
        pytest.param("B999", Gang(4, 8_000), ("east",), id="an unknown model is any"),
    ],
)
def test_which_regions_cannot_hold_a_gang(model: str, gang: Gang, want: tuple[str, ...]) -> None:
    """Those that have the model, and no cluster with room for all tasks when it is empty."""
    assert Rooms(SMALL_AND_LARGE).barred(model, gang) == want


@pytest.mark.parametrize(
    ("gang", "want"),
    [
        pytest.param(Gang(1, 8_000), ("east",), id="a job of one host stays where its table is"),
        pytest.param(Gang(4, 8_000), ("west",), id="a gang of four hosts takes its table along"),
    ],
)
def test_a_plan_sees_how_large_gangs_are(gang: Gang, want: tuple[str, ...]) -> None:
    """The same demand for a table in the east, which has room for it, but not for the gang whole."""
    table = dataset("ns.a", "east", size_bytes=10**9)
    planning = DataPlanning(
        DataPlanOptions(scenarios=2, terms=Terms(growth=None, replica_part=0.2))
    )
    for hour in range(48):
        at_s = hour * 3_600.0
        planning.access_log.note(Entry(at_s, (table.name,), PRESSING, 4 * 3_600.0, gang))
    snapshot = DataSnapshot(SMALL_AND_LARGE, (table,), Stock({table.name: ("east",)}, ()))
    request = planning.request(snapshot, 2 * DAY_S)
    assert request is not None
    _check(request.problem)
    answer = Planner(Options(), lambda: 0.0).plan(request.problem)
    assert tuple(answer["placement"][table.name]) == want
    assert answer["non_collocated_share"] == pytest.approx(0.0, abs=1e-6)
    assert answer["max_demand_supply"] < 1.0


def test_a_plan_foresees_rare_gangs_where_none_was_drawn() -> None:
    """Every table may have a gang that the east cannot hold: one in a hundred accesses is such.

    In two scenarios few tables have one. All are wanted in the west, once it is expected of all.
    """
    tables = tuple(dataset(f"ns.{n:02}", "east", size_bytes=10**9) for n in range(20))
    kinds = [PRESSING, replace(PRESSING, barred=("east",))]
    drawn = np.zeros((2, len(tables), 2))
    drawn[:, :, 0] = 0.1 * DAY_S
    drawn[0, 0, 1] = drawn[1, 1, 1] = 4.0 * DAY_S
    expected = np.stack([drawn[0, :, 0], np.full(len(tables), 0.2 * DAY_S)], axis=1)
    readings = [(table.name,) for table in tables]
    replicas = {table.name: ("east",) for table in tables}
    terms = Terms(growth=None, replica_part=0.01)
    world = replace(SMALL_AND_LARGE, datasets=tables)

    def reached(of_the_mean: Floats | None) -> int:
        problem = problem_of(world, replicas, readings, kinds, drawn, DAY_S, terms, of_the_mean)
        _check(problem)
        answer = Planner(Options(), lambda: 0.0).plan(problem)
        assert answer["max_demand_supply"] <= 1.0 + 1e-9
        return sum("west" in regions for regions in answer["placement"].values())

    assert reached(None) < len(tables)
    assert reached(expected) == len(tables)


def test_rare_gangs_want_replicas_only_where_their_model_is() -> None:
    """The north lacks the model: that it bars no gang does not make it hold one."""
    kinds = [replace(PRESSING, barred=("east",))]
    expected = np.full((1, 1), 2.0 * DAY_S)
    problem = problem_of(
        SMALL_AND_LARGE, {}, [("ns.a",)], kinds, expected[None], DAY_S, Terms(), expected
    )
    rare = problem.workloads[-1]
    serves = [r.name for r in problem.regions if all(r.gpus.get(g, 0.0) > 0 for g in rare.gpus)]
    assert serves == ["west"]
    assert sum(rare.gpus.values()) == 2.0
