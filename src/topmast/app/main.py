"""The program: what the command line needs beyond a client, imported when it is asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from msgspec import Struct

    from topmast.cli import rootoptions

T = TypeVar("T", bound="Struct")

GARBAGE_LOOKED_FOR = 50_000
"""Python looks for circular garbage after so many new objects.

After 700, as by default, it looks again and again at what imports make, which stays: a sixth of the
time of a start.
"""


def serve(options: rootoptions.ServeOptions) -> int:
    """`topmast up`."""
    from topmast.app import roles
    from topmast.model.decoding import learn_structs

    learn_structs()
    gc.freeze()  # what is imported stays
    return roles.serve(options)


def break_glass(state: Path, life_s: float) -> tuple[str, bool]:
    """`topmast accounts break-glass`."""
    from topmast.adapters.breakglass import break_glass, is_one_good
    from topmast.adapters.clock import wall_s

    now = wall_s()
    replaces = is_one_good(state, now)
    return break_glass(state, now, life_s), replaces


def demo(options: rootoptions.DemoOptions) -> int:
    """`topmast demo`."""
    from topmast.demo import run_demo

    return run_demo(
        state=options.state, keep=options.keep, as_json=options.json, engines=options.engines
    )


def replay(options: rootoptions.ReplayOptions) -> object:
    """`topmast replay`: the queue as it was at a time, rebuilt from the journal."""
    from topmast.adapters.store import existing_store

    existing_store(options.state)  # refused before anything that takes long to import
    if options.serve:
        from topmast.app.past import serve_past

        return serve_past(options)
    from topmast.app.replay import replay_state

    return replay_state(options.state, options.until_s)


def database(verb: str, options: rootoptions.StoreOptions) -> dict[str, Any]:
    """`topmast db`, `backup` and `restore`."""
    from topmast.app.database import run

    return run(verb, options)


def doctor(options: rootoptions.DoctorOptions) -> dict[str, Any]:
    """`topmast doctor`."""
    from topmast.app.doctor import examine

    return examine(options)


def whatif(
    options: rootoptions.WhatIfOptions, tell: Callable[[int, int, float], None]
) -> dict[str, Any]:
    """`topmast whatif`: two futures of a system, side by side."""
    from topmast.app.whatif import compare_futures

    return compare_futures(options, tell)


def bench(name: str, options: rootoptions.BenchOptions) -> object:
    """`topmast bench NAME`."""
    if name in ("all", "compare"):
        return _figures(options)
    from topmast.bench import (
        ClosedLoopOptions,
        EnginesOptions,
        FillingOptions,
        FleetOptions,
        PlanDataOptions,
        SlowPathOptions,
        run_bench,
    )

    given = {name: value for name, value in vars(options).items() if value is not None}
    limited = {**given, "limit_s": options.duration_s}
    return run_bench(
        name,
        jobs=options.jobs,
        clients=options.clients,
        duration_s=options.duration_s,
        seed=options.seed,
        state=options.state,
        throughputs=options.throughputs,
        peer=options.peer,
        fleet=_part(FleetOptions, given),
        plans=_part(PlanDataOptions, limited),
        slow=_part(SlowPathOptions, limited),
        filling=_part(FillingOptions, given) if {"trace", "fleet"} <= given.keys() else None,
        loop=_part(ClosedLoopOptions, given),
        store=options.store,
        engines=_part(EnginesOptions, given) if "fleet" in given else None,
    )


def _figures(options: rootoptions.BenchOptions) -> object:
    """`topmast bench all` and `compare`."""
    from topmast.bench import series

    if options.before is not None and options.after is not None:
        return series.compare(options.before, options.after)
    assert options.out is not None  # the command line demands it
    return series.measure_all(options.names, options.turns, options.out, _to_stderr)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _part(kind: type[T], given: Mapping[str, Any]) -> T:
    """The options of some benchmarks, which have the same names among those of all."""
    fields = kind.__struct_fields__
    return kind(**{name: given[name] for name in fields if name in given})


def main() -> None:
    """The console script."""
    gc.set_threshold(GARBAGE_LOOKED_FOR)
    from topmast.cli import Root
    from topmast.cli import main as cli_main

    root = Root(
        serve=serve, demo=demo, replay=replay, database=database, bench=bench, whatif=whatif,
        break_glass=break_glass, doctor=doctor,
    )  # fmt: skip
    sys.exit(cli_main(root))
