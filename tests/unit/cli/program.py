"""The command line with a root of the tests: ``python -m tests.unit.cli.program ARGUMENTS``."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from topmast.cli import Root, main
from topmast.cli.commands import COMMANDS
from topmast.cli.main import build, declared
from topmast.cli.rootoptions import (
    BenchOptions,
    DemoOptions,
    DoctorOptions,
    ReplayOptions,
    ServeOptions,
    StoreOptions,
    WhatIfOptions,
)


def serve(options: ServeOptions) -> int:
    """Serve nothing."""
    print(f"serve {options.port} {options.host} {options.settings}")
    return 0


def demo(options: DemoOptions) -> int:
    """Show nothing, and fail if told to keep it."""
    print(f"demo {options.state} {options.json}")
    return 1 if options.keep else 0


def replay(options: ReplayOptions) -> object:
    """The options, and a table."""
    rows = [{"id": "j1", "state": "[red]RUNNING"}, {"id": "j2", "cause": None}]
    return {"until_s": options.until_s, "jobs": rows, "same": True}


def bench(name: str, options: BenchOptions) -> object:
    """The options."""
    if options.seed == 13:
        raise RuntimeError("an unlucky\nnumber")
    if options.seed == 14:
        raise KeyboardInterrupt
    return {"name": name, **asdict(options)}


def database(verb: str, options: StoreOptions) -> dict[str, Any]:
    """The options."""
    faults = ["record 3 is damaged"] if options.store == "postgresql://damaged" else []
    rows = {"finished_jobs": 12} if options.store == "postgresql://old" else {"finished_jobs": 2}
    document = {
        "verb": verb, "database": "d", "current": True, "faults": faults, "rows": rows,
        "jobs": {"RUNNING": 3, "FAILED": 2}, "made_at_s": 12.5,
    }  # fmt: skip
    return {**document, **{name: str(value) for name, value in asdict(options).items()}}


def doctor(options: DoctorOptions) -> dict[str, Any]:
    """The options, and a fault if there is a fleet."""
    found = {"where": "here", "what": "w", "detail": str(options.store)}
    found["remedy"] = "mend it" if options.fleet is None else f"mend it: {options.store}"
    faults = int(options.fleet is not None)
    return {"findings": [{**found, "level": "fault" if faults else "ok"}], "faults": faults}


def whatif(options: WhatIfOptions, tell: Callable[[int, int, float], None]) -> dict[str, Any]:
    """The options."""
    tell(1, 2, 3.0)
    return {"options": asdict(options) | {"state": str(options.state)}}


ROOT = Root(
    serve=serve,
    demo=demo,
    replay=replay,
    database=database,
    bench=bench,
    whatif=whatif,
    doctor=doctor,
    break_glass=lambda state, life_s: ("tm_pat_made", False),
)


def command_line() -> Any:
    """The command line with every command as its module declares it."""
    top = build()
    top.commands = {name: declared(name) for name in COMMANDS}
    return top


if __name__ == "__main__":
    sys.exit(main(ROOT))
