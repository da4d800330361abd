"""What stopping a running attempt costs: the only place where this is written.

Python and the compiled kernels call the same function (`region.preemption.price` compiles it). It
must not fall when a weight, a time or a number of GPUs grows: the floors of the preemption search
rest on that.
"""

from __future__ import annotations

# `region.preemption.price` compiles a function of this file with `from topmast.jit import kernel`;
# these words make the file count as one with kernels, so that a changed formula is compiled anew.
from topmast.model.job import MILLI


def weight_of(band: int) -> float:
    """What lost work of a band counts, against that of the lowest."""
    return 1.0 + band / 100.0


def gpu_seconds(time_s: float, gpus_milli: float) -> float:
    """GPU-seconds of so many thousandths of GPUs in a time."""
    return time_s * gpus_milli / MILLI


def stop_cost_gpu_s(weight: float, lost_s: float, restart_s: float, gpus: float) -> float:
    """Work since the last checkpoint plus the restart, on all GPUs, times the band's weight."""
    return weight * (lost_s + restart_s) * gpus


def points(cost_gpu_s: float, per_gpu_hour: float) -> float:
    """What a cost counts in the score of a plan; ``per_gpu_hour`` is `ScoreWeights.preemption`."""
    return per_gpu_hour * cost_gpu_s / 3600.0
