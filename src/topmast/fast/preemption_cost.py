"""What stopping a running attempt costs: the only place where this is written.

Python and the compiled kernels call the same function (`region.preemption.price` compiles it). It must not fall when
a weight, a time or a number of GPUs grows: the floors of the search for victims rest on that.
"""

from __future__ import annotations

# `region.preemption.price` compiles a function of this file with `from topmast.jit import kernel`; by these words
# the file counts among those with kernels, and what was compiled of the old formula is not used.
from topmast.model.job import MILLI


def weight_of(band: int) -> float:
    """What lost work of a band counts, against that of the lowest."""
    return 1.0 + band / 100.0


def gpu_seconds(time_s: float, gpus_milli: float) -> float:
    """GPU-seconds of so many thousandths of GPUs in a time."""
    return time_s * gpus_milli / MILLI


def stop_cost_gpu_s(weight: float, lost_s: float, restart_s: float, gpus: float) -> float:
    """The work since the last checkpoint and the restart, on all GPUs of the gang, times the weight of its band."""
    return weight * (lost_s + restart_s) * gpus


def points(cost_gpu_s: float, per_gpu_hour: float) -> float:
    """What a cost counts in the score of a plan; ``per_gpu_hour`` is `ScoreWeights.preemption`."""
    return per_gpu_hour * cost_gpu_s / 3600.0
