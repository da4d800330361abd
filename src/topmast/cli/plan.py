"""`plan`: its group, `plan data` (one data placement on its own), and examples of problems."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import plan_capacity
from topmast.cli.command import NOTHING, Session, command, group
from topmast.cli.output import Column, note, say, say_fields, say_json, say_table
from topmast.cli.plan_files import ProblemArgument, TimeOption, bytes_of, compiling_told, limit_s
from topmast.cli.text import number

INFEASIBLE = 1
TELL_S = 5.0
"""How often progress is told."""
SHOWN_MOVES = 10
SHOWN_TABLES = 5

SolverOption = Annotated[
    str | None,
    typer.Option(
        "--solver", metavar="exact|large",
        help="exact: HiGHS only; large: prices and local search; "
        "by default the size of the problem decides.",
    ),
]  # fmt: skip
DualsOption = Annotated[
    bool, typer.Option(help="Add a starting point for the next plan to the answer.")
]
WarmOption = Annotated[
    Path | None,
    typer.Option("--warm-start", metavar="ANSWER.json", help="An earlier answer to begin with."),
]
AblationOption = Annotated[
    str,
    typer.Option(
        "--ablation", metavar="NAME",
        help="soft-gpu: the problem as it is; hard-gpu: no overload; storage-only: no GPUs.",
    ),
]  # fmt: skip


def add(app: typer.Typer) -> None:
    """Add the group and its commands."""
    plan = group(
        app, "plan",
        example="topmast plan data problem.json",
    )  # fmt: skip
    command(
        plan, "data", asks=NOTHING,
        example="topmast plan data problem.json\n"
        "topmast plan data --solver exact --time-limit 300 --json problem.json > answer.json\n"
        "topmast plan data --warm-start answer.json --json tomorrow.json",
    )(data)  # fmt: skip
    command(
        plan, "example", asks=NOTHING,
        example="topmast plan example --tables 2000 --workloads 2000 --out problem.json\n"
        "topmast plan example --kind dense --workloads 6000 --seed 7 --out dense.json",
    )(example)  # fmt: skip
    plan_capacity.add_to(plan)


def data(
    session: Session,
    problem: ProblemArgument,
    solver: SolverOption = None,
    time_limit: TimeOption = "60",
    warm_start: WarmOption = None,
    ablation: AblationOption = "soft-gpu",
    duals: DualsOption = True,
) -> int:
    """Decide which regions hold which tables, with a proven gap.

    The answer says what it costs, a lower bound of what any answer costs, which region serves which
    workload, and the copies and drops that lead there. A problem without an answer ends with 1 and
    names what conflicts.
    """
    from topmast.slow.data.planner import Options, Planner
    from topmast.slow.data.reading import parse_problem
    from topmast.slow.data.warmup import compile_kernels

    options = Options(
        solver=_choice(solver, "--solver", ("exact", "large")),
        time_limit_s=limit_s(time_limit),
        ablation=_choice(ablation, "--ablation", ("soft-gpu", "hard-gpu", "storage-only")),
    )
    read = parse_problem(bytes_of(problem), str(problem))
    warm = None if warm_start is None else _answer(warm_start)
    with compiling_told():
        compile_kernels()
    document = Planner(options, time.monotonic, _Progress()).plan(read, warm)
    if not duals:
        document.pop("duals", None)
    session.show(document, lambda: _say(document))
    if document["status"] == "infeasible":
        note(f"topmast: no placement: {_conflict(document['conflict'])}")
        return INFEASIBLE
    return 0


class _Progress:
    """A line on stderr now and then: the stage, the cost so far, the gap."""

    def __init__(self) -> None:
        self._begun_s = self._told_s = time.monotonic()

    def __call__(self, stage: str, objective: float, bound: float) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < TELL_S and not sys.stderr.isatty():
            return
        self._told_s = now_s
        known = objective < float("inf")
        gap = f", gap {100 * (objective - bound) / max(abs(objective), 1e-9):.3f}%" if known else ""
        cost = f"cost {objective:,.2f}, " if known else ""
        note(f"{now_s - self._begun_s:6.1f} s  {stage}: {cost}bound {bound:,.2f}{gap}")


def _choice(text: str | None, option: str, known: tuple[str, ...]) -> Any:
    if text is not None and text not in known:
        message = f"{text!r} is not one of: {', '.join(known)}"
        raise typer.BadParameter(message, param_hint=f"'{option}'")
    return text


def _answer(path: Path) -> Mapping[str, Any]:
    """An earlier answer, checked as far as it is used."""
    import msgspec

    from topmast.model.decoding import decode
    from topmast.model.errors import InvalidInput
    from topmast.slow.data.reading import Earlier

    try:
        earlier = decode(bytes_of(path), Earlier)
    except msgspec.DecodeError as error:
        remedy = "the JSON that `topmast plan data --json` has printed"
        raise InvalidInput(f"not an answer: {error}", where=str(path), remedy=remedy) from None
    return msgspec.structs.asdict(earlier)


def _conflict(conflict: Mapping[str, Any]) -> str:
    """The smallest conflict found, in words."""
    from topmast.model.units import format_bytes

    tables, regions = conflict["tables"], conflict["regions"]
    listed = ", ".join(tables[:SHOWN_TABLES]) + (" ..." if len(tables) > SHOWN_TABLES else "")
    where = ", ".join(regions)
    size = conflict["bytes"]
    excess = f", {format_bytes(size)} ({size:,.0f} bytes) too much" if size else ""
    noun = "table" if len(tables) == 1 else f"{len(tables)} tables"
    return f"{noun} {listed} and region {where}{excess}: {conflict['why']}"


def _say(document: Mapping[str, Any]) -> None:
    """The answer for people: what it costs and how good it is, then the first of the moves."""
    if document["status"] == "infeasible":
        say_fields([("status", "infeasible")])
        return
    names = ("objective", "bound", "max_demand_supply", "wall_s")
    shares = ("gap", "controllable_gap", "replication_overhead", "non_collocated_share")
    say_fields(
        [
            ("status", document["status"]),
            *((name, number(document[name])) for name in names if document[name] is not None),
            *((name, f"{document[name]:.3%}") for name in shares if document[name] is not None),
            *((f"cost of {name}", number(cost)) for name, cost in document["terms"].items()),
        ]
    )
    _say_moves(document["moves"])


def _say_moves(moves: list[Mapping[str, Any]]) -> None:
    from topmast.model.units import format_bytes

    say()
    largest = sorted(moves, key=lambda move: (-move["bytes"], move["table"], move["op"]))
    rows = [
        [
            move["op"], move["table"], move.get("from") or move.get("region") or "-",
            move.get("to") or "-", format_bytes(move["bytes"]),
        ]
        for move in largest[:SHOWN_MOVES]
    ]  # fmt: skip
    titles = [Column(title) for title in ("MOVE", "TABLE", "FROM", "TO")]
    say_table([*titles, Column("SIZE", right=True)], rows, title=f"{len(moves)} moves")


def example(
    session: Session,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="sparse|dense",
            help="How many workloads read each table: few or many.",
        ),
    ] = "sparse",
    tables: Annotated[int, typer.Option("--tables", min=1, help="Tables.")] = 2_000,
    regions: Annotated[int, typer.Option("--regions", min=1, max=64, help="Regions.")] = 10,
    workloads: Annotated[int, typer.Option("--workloads", min=1, help="Workloads.")] = 2_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of all random numbers.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there, not to stdout.")
    ] = None,
) -> None:
    """Make up a problem for `plan data`, of a given size and kind."""
    import msgspec

    from topmast.slow.data.generate import Shape, make

    shape = Shape(
        kind=_choice(kind, "--kind", ("sparse", "dense")),
        tables=tables, regions=regions, workloads=workloads, seed=seed,
    )  # fmt: skip
    document = make(shape)
    if out is None:
        say_json(document)
        return
    out.write_bytes(msgspec.json.encode(document))
    written = {"out": str(out), "kind": kind, "tables": tables, "regions": regions,
               "workloads": workloads, "seed": seed}  # fmt: skip
    session.show(written, lambda: say(str(out)))
