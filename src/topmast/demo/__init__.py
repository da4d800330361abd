"""`topmast demo`: a client that injects causes and shows what the system makes of them."""

from __future__ import annotations

from pathlib import Path


def run_demo(*, state: Path | None, keep: bool, as_json: bool, engines: bool = False) -> int:
    """Run the demo in ``state`` (None: a folder made for it); the exit code.

    ``engines``: on a Slurm cluster and SSH hosts, which it starts, besides local processes.
    """
    # Imported when it is called: training scripts import this package, and must be quick to start.
    from topmast.demo import run

    return run.run_demo(state=state, keep=keep, as_json=as_json, engines=engines)


__all__ = ["run_demo"]
