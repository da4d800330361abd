"""The program: what the command line needs beyond a client, imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from topmast.cli import BenchOptions, DemoOptions, ReplayOptions, Root, ServeOptions, WhatIfOptions
from topmast.cli import main as cli_main


def serve(options: ServeOptions) -> int:
    """`topmast up`."""
    from topmast.app import roles

    return roles.serve(options)


def demo(options: DemoOptions) -> int:
    """`topmast demo`."""
    from topmast.demo import run_demo

    return run_demo(state=options.state, keep=options.keep, as_json=options.json)


def replay(options: ReplayOptions) -> object:
    """`topmast replay`: the queue as it was at a time, rebuilt from the journal."""
    from topmast.app.replay import replay_state

    return replay_state(options.state, options.until_s)


def whatif(options: WhatIfOptions, tell: Callable[[int, int, float], None]) -> dict[str, Any]:
    """`topmast whatif`: two futures of a system, side by side."""
    from topmast.app.whatif import compare_futures

    return compare_futures(options, tell)


def bench(name: str, options: BenchOptions) -> object:
    """`topmast bench NAME`."""
    from topmast.bench import (
        FillingOptions,
        FleetOptions,
        PlanDataOptions,
        SlowPathOptions,
        run_bench,
    )

    filling = None
    if options.trace is not None and options.fleet is not None:
        filling = FillingOptions(
            trace=options.trace,
            fleet=options.fleet,
            format=options.format,
            profile=options.profile or "mast",
            settings=options.settings,
            asked=options.asked or 1.3,
            seeds=options.seeds or 3,
            seed=options.seed,
        )
    return run_bench(
        name,
        jobs=options.jobs,
        clients=options.clients,
        duration_s=options.duration_s,
        seed=options.seed,
        state=options.state,
        throughputs=options.throughputs,
        peer=options.peer,
        fleet=FleetOptions(
            regions=options.regions,
            clusters=options.clusters,
            hosts=options.hosts,
            gpus_per_host=options.gpus_per_host,
            fill=options.fill,
            sizes_gpus=options.sizes_gpus,
            rate=options.rate,
            load=options.load,
            profile=options.profile,
            delay_s=options.delay_s,
            scaling=options.scaling,
            first_use=options.first_use,
            out=options.out,
        ),
        plans=PlanDataOptions(
            cases=options.cases,
            seed=options.seed,
            peer=options.peer,
            limit_s=options.duration_s,
            out=options.out,
        ),
        slow=SlowPathOptions(
            size_bytes=options.size_bytes,
            files=options.files,
            domains=options.domains,
            limit_s=options.duration_s,
        ),
        filling=filling,
    )


def main() -> None:
    """The console script."""
    sys.exit(cli_main(Root(serve=serve, demo=demo, replay=replay, bench=bench, whatif=whatif)))
