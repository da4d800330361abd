"""`topmast.progress`: a training script says how far it is. Standard library only."""

from __future__ import annotations

import json
import math
import os
import time


def progress(
    step: int | None = None,
    *,
    checkpoint: bool = False,
    resumed_from: int | None = None,
    **metrics: float,
) -> None:
    """Report a step and metrics; outside a Topmast task this does nothing.

    ``checkpoint`` says that the job can now go on from this step if it is stopped;
    ``resumed_from`` says that it went on from that step. A metric that is no finite number is
    left out. Never raises because of what it could not write: training goes on.

        topmast.progress(step=200, loss=0.31)
        topmast.progress(step=200, checkpoint=True)
    """
    file = os.environ.get("TOPMAST_PROGRESS_FILE")
    if not file:
        return
    line: dict[str, object] = {"at_s": time.time()}
    try:
        if step is not None:
            line["step"] = int(step)
        if checkpoint:
            line["checkpoint"] = True
        if resumed_from is not None:
            line["resumed_from"] = int(resumed_from)
        finite = {name: value for name, value in _floats(metrics).items() if math.isfinite(value)}
        if finite:
            line["metrics"] = finite
        fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write: lines of several processes of a task do not mix.
            os.write(fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError, OverflowError):
        return


def _floats(metrics: dict[str, float]) -> dict[str, float]:
    """Numbers as floats, also those of numpy and one-element tensors; what is none is left out."""
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            continue
    return found
