"""The kernels compiled beforehand, on a problem of nearly no size, so that no plan's time pays
for it.
"""

from __future__ import annotations

import math

from topmast.slow.data.columns import columns_of
from topmast.slow.data.generate import Shape, make
from topmast.slow.data.large import solve_large
from topmast.slow.data.reading import convert_problem


def compile_kernels() -> None:
    """Compile what is not yet compiled on this machine: tens of seconds once, later nothing."""
    problem = convert_problem(make(Shape(tables=12, regions=3, workloads=12)))
    solve_large(columns_of(problem), lambda: math.inf, lambda stage, objective, bound: None)
