"""The jobs of the demo: the user, the request and the part of each.

All of them train on the digits images. Steps are slowed to a tenth of a second each, so that a job
lasts as long as its number of steps divided by ten, and there is something to see.
"""

from __future__ import annotations

import shlex
import sys
from typing import Any

STEP_S = 0.1
SAVE_EVERY = 10
GRACE = "5s"
DATASET = "digits"
HOME = "east"
"""The region in which the dataset is staged."""

BORROWER = "vit-wide"
"""Runs on idle quota of another tenant, until that tenant wants it back."""
LENDER = "asr-large"
"""Comes late, within its tenant's quota."""
LENT = ("speech", "H100", 8)
"""Tenant, model and number of the GPUs that are lent and reclaimed."""
MODEST = "asr-pretrain"
"""Of a low band: it makes way for..."""
URGENT = "recall-fix"
"""...which comes late, and is critical."""
AWAY = "segmenter"
"""Finds GPUs only where the dataset is not."""
STRUCK = "policy-pair"
"""A gang that loses a host."""
IMPOSSIBLE = "moonshot"
"""Wants more GPUs in one rack than any rack has."""
GANGS = ("grasp-pair", "policy-pair", "distil-pair")


def opening() -> list[dict[str, Any]]:
    """The jobs that are submitted at the start, in order."""
    return [
        _job("grasp-pair", "robotics", "A100:8", 200, nodes=2, hidden=64),
        _job("vit-base", "vision", "H100:8", 200, hidden=48),
        _job(BORROWER, "vision", "H100:8", 120, hidden=128),
        _job(AWAY, "vision", "A100:8", 180, hidden=24),
        _job(MODEST, "speech", "A100:8", 120, band="low", hidden=96),
        _job(STRUCK, "robotics", "H200:4", 130, nodes=2, hidden=64),
        _job(IMPOSSIBLE, "robotics", "A100:8", 100, nodes=4, rack="required"),
        _job("sweep-rate-1", "vision", "L4:0.5", 100, band="low", hidden=0, rate=0.1),
        _job("sweep-rate-2", "vision", "L4:0.5", 100, band="low", hidden=0, rate=0.3),
        _job("sweep-rate-3", "vision", "L4:0.5", 100, band="low", hidden=0, rate=0.9),
        _job("distil-pair", "speech", "L4:1", 110, nodes=2, hidden=8),
        _job("sim-to-real", "robotics", "L4:2", 130, hidden=16),
    ]


def lender() -> dict[str, Any]:
    """The job that takes back what its tenant had lent."""
    return _job(LENDER, "speech", "H100:8", 70, hidden=80)


def urgent() -> dict[str, Any]:
    """The late job of a higher band."""
    return _job(URGENT, "vision", "A100:8", 60, band="critical", hidden=32)


def _job(
    name: str,
    tenant: str,
    gpus: str,
    steps: int,
    *,
    nodes: int = 1,
    band: str = "normal",
    rack: str = "preferred",
    hidden: int = 32,
    rate: float = 0.3,
) -> dict[str, Any]:
    """A job file as a document."""
    command = [
        sys.executable, "-m", "topmast.demo.train", "--steps", str(steps),
        "--hidden", str(hidden), "--rate", str(rate),
        "--save-every", str(SAVE_EVERY), "--step-s", str(STEP_S),
    ]  # fmt: skip
    return {
        "name": name,
        "tenant": tenant,
        "num_nodes": nodes,
        "resources": {"accelerators": gpus},
        "priority": band,
        "envs": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        "datasets": [DATASET],
        "topology": {rack: "rack"},
        "checkpoint": {"interval": f"{SAVE_EVERY * STEP_S:g}s", "grace": GRACE},
        "run": shlex.join(command),
    }
