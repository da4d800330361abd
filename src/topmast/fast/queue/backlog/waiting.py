"""What the order of waiting jobs knows of each."""

from __future__ import annotations

import math

from msgspec import Struct

from topmast.model.job import Band


class Waiting(Struct, frozen=True, gc=False):
    """A job as it is ranked."""

    job: str
    number: int
    job_class: int
    """The number of its job class."""
    tenant: str
    band: Band
    submit_s: float
    gpus: float
    tasks: int
    duration_s: float
    remaining_s: float
    attained_gpu_s: float = 0.0
    turn: float = 0.0
    executed_s: float = 0.0
    first_start_s: float = math.inf
    since_s: float = 0.0
    """Since when it waits, or runs."""
