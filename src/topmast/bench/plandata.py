"""The quality and speed of data plans: gaps over time, and those of HiGHS on the same problem."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.bench.options import PlanDataOptions
from topmast.bench.setup import machine, write
from topmast.slow.data.answer import quality_of
from topmast.slow.data.columns import Columns, columns_of
from topmast.slow.data.formulation import formulate
from topmast.slow.data.generate import Kind, Shape, make
from topmast.slow.data.objective import constant_of, loads
from topmast.slow.data.planner import Options, Planner
from topmast.slow.data.reading import convert_problem
from topmast.slow.data.warmup import compile_kernels
from topmast.slow.highs import curve_of

CHANGED = 0.01
"""The part of the workloads with another demand before the plan is made again."""


class PlanCase(Struct, frozen=True, kw_only=True):
    """A problem to plan, and its time limit."""

    kind: Kind
    tables: int
    regions: int
    workloads: int
    limit_s: float
    goal: float
    """The largest gap allowed."""
    aim: float
    """The gap that is aimed at."""


CASES = (
    PlanCase(kind="sparse", tables=2_000, regions=10, workloads=2_000,
             limit_s=30, goal=0.005, aim=0.0015),
    PlanCase(kind="dense", tables=2_000, regions=10, workloads=6_000,
             limit_s=120, goal=0.1, aim=0.05),
    PlanCase(kind="sparse", tables=20_000, regions=12, workloads=10_000,
             limit_s=180, goal=0.01, aim=0.005),
)  # fmt: skip


def measure_plan_data(options: PlanDataOptions) -> dict[str, Any]:
    """Plan each case cold and again after a change; the figures of all, and curves if wanted."""
    compile_kernels()
    chosen = range(len(CASES)) if options.cases is None else options.cases
    rows = [_case(CASES[index], options) for index in chosen]
    document = {"rows": rows, "seed": options.seed, "machine": machine()}
    if options.out is not None:
        write(options.out, "plan-data", document)
        _draw(rows, options.out)
    return document


def _case(case: PlanCase, options: PlanDataOptions) -> dict[str, Any]:
    limit_s = options.limit_s or case.limit_s
    shape = Shape(
        kind=case.kind, tables=case.tables, regions=case.regions, workloads=case.workloads,
        seed=options.seed,
    )  # fmt: skip
    document = make(shape)
    problem = convert_problem(document)
    columns = columns_of(problem)
    constant = constant_of(columns)
    curve: list[dict[str, Any]] = []
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()

    def told(stage: str, objective: float, bound: float) -> None:
        point = {
            "stage": stage,
            "wall_s": time.monotonic() - begun_s,
            "cpu_s": time.process_time() - begun_cpu_s,
            "bound": bound,
        }
        if objective < np.inf:
            quality = quality_of(columns, objective, bound)
            point |= {"gap": quality.gap, "controllable_gap": quality.controllable_gap}
        curve.append(point)

    planner = Planner(Options(solver="large", time_limit_s=limit_s), time.monotonic, told)
    answer = planner.plan(problem)
    cpu_s = time.process_time() - begun_cpu_s
    told("end", answer["objective"], answer["bound"])
    points = list(curve)
    row = {
        "kind": case.kind, "tables": case.tables, "regions": case.regions,
        "workloads": case.workloads, "limit_s": limit_s, "goal": case.goal, "aim": case.aim,
        **_figures(answer), "cpu_s": cpu_s, "constant_share": constant / answer["objective"],
        "start_demand_supply": start_demand_supply(columns), "curve": points,
    }  # fmt: skip
    row["replan"] = _again(planner, document, answer, options.seed)
    row["rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row["peer"] = _peer(columns, limit_s, answer["bound"]) if options.peer else None
    return row


def _figures(answer: dict[str, Any]) -> dict[str, Any]:
    names = (
        "objective", "bound", "gap", "controllable_gap", "max_demand_supply",
        "replication_overhead", "non_collocated_share", "wall_s",
    )  # fmt: skip
    return {name: answer[name] for name in names}


def start_demand_supply(columns: Columns) -> float:
    """The worst load by supply if every workload were where most of its bytes are at the start."""
    there = np.zeros(columns.may_serve.shape)
    bytes_held = (columns.held * columns.size_bytes[:, None])[columns.reads.items]
    np.add.at(there, columns.reads.owners(), bytes_held)
    serve = np.zeros(there.shape)
    serve[np.arange(len(there)), there.argmax(axis=1)] = 1.0
    supplied = columns.supply > 0
    return float((loads(columns, serve)[supplied] / columns.supply[supplied]).max(initial=0.0))


def _again(
    planner: Planner, document: dict[str, Any], answer: dict[str, Any], seed: int
) -> dict[str, Any]:
    """The next day: the plan was carried out, and a hundredth of the demand has changed."""
    rng = np.random.default_rng(seed + 1)
    tables = [
        {**table, "replicas": answer["placement"][table["name"]]} for table in document["tables"]
    ]
    workloads = list(document["workloads"])
    for w in rng.choice(len(workloads), max(1, round(CHANGED * len(workloads))), replace=False):
        factor = float(rng.uniform(0.25, 3.0))
        gpus = {model: max(1.0, round(n * factor)) for model, n in workloads[w]["gpus"].items()}
        workloads[w] = {**workloads[w], "gpus": gpus}
    problem = convert_problem({**document, "tables": tables, "workloads": workloads})
    cold = Planner(planner.options, time.monotonic)
    begun_s = time.process_time()
    warm = planner.plan(problem)
    warm_cpu_s = time.process_time() - begun_s
    begun_s = time.process_time()
    afresh = cold.plan(problem)
    cold_cpu_s = time.process_time() - begun_s
    total = sum(table["bytes"] for table in tables)
    return {
        "wall_s": warm["wall_s"], "cpu_s": warm_cpu_s, "gap": warm["gap"],
        "objective": warm["objective"], "bound": warm["bound"],
        "copied_share": _copied(warm) / total, "cold_wall_s": afresh["wall_s"],
        "cold_cpu_s": cold_cpu_s, "cold_gap": afresh["gap"], "cold_objective": afresh["objective"],
        "cold_bound": afresh["bound"], "cold_copied_share": _copied(afresh) / total,
    }  # fmt: skip


def _copied(answer: dict[str, Any]) -> float:
    return float(sum(move["bytes"] for move in answer["moves"] if move["op"] == "copy"))


def _peer(columns: Columns, limit_s: float, bound: float) -> dict[str, Any]:
    """HiGHS alone on the whole program for the same time, one thread."""
    program = formulate(columns, np.zeros_like(columns.can), columns.can)
    begun_s = time.process_time()
    curve = curve_of(program.model, limit_s)
    last = (
        curve[-1] if curve else {"wall_s": limit_s, "objective": None, "bound": None, "gap": None}
    )
    objective = last["objective"]
    return {
        **last,
        "gap_to_our_bound": None if objective is None else (objective - bound) / abs(objective),
        "cpu_s": time.process_time() - begun_s,
        "curve": curve,
    }


def _draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Gaps against time, a panel for each problem."""
    from topmast.plot import figure, save

    drawn = figure(1, len(rows), inches=(4.6, 3.4))
    for axes, row in zip(drawn.axes, rows, strict=True):
        for name, part in (("topmast", row), ("HiGHS alone", row["peer"])):
            points = [p for p in (part or {"curve": []})["curve"] if p.get("gap") is not None]
            seconds = [point["wall_s"] for point in points]
            axes.plot(seconds, [100 * p["gap"] for p in points], marker="o", ms=3, label=name)
        axes.axhline(100 * row["goal"], ls="--", lw=1, color="grey", label="goal")
        axes.set(title=f"{row['kind']}, {row['tables']:,} tables", xlabel="seconds", yscale="log")
        axes.set_xlim(0, row["limit_s"] * 1.05)
    drawn.axes[0].set_ylabel("gap, %")
    drawn.axes[0].legend()
    save(drawn, out, "plan-data")
