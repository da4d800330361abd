"""The problem with its term of GPUs left out, or made hard: what the term is worth."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np

from topmast.slow.data.columns import Columns

Ablation = Literal["soft-gpu", "hard-gpu", "storage-only"]
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)


def ablated(columns: Columns, ablation: Ablation) -> Columns:
    """``storage-only``: overload is free; ``hard-gpu``: there is none; ``soft-gpu``: as it is."""
    if ablation == "soft-gpu":
        return columns
    if ablation == "storage-only":
        price = np.zeros(1)
    else:
        # An unserved workload frees a GPU for at most this much: dearer overload is never worth it.
        wanted = columns.demand > 0
        per_gpu = columns.loss[:, None] / np.where(wanted, columns.demand, np.inf)
        price = np.full(1, 2.0 * float(per_gpu.max(initial=0.0)) + 1.0)
    return msgspec.structs.replace(columns, price=price, room=columns.room[:, :, :1])
