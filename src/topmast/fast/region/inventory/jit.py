"""How the kernels are compiled: at first use on a machine, and kept in files beside the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def kernel(function: Compiled) -> Compiled:
    """Compile a function that Python calls."""
    return cast(Compiled, njit(cache=True, nogil=True)(function))


def inner(function: Compiled) -> Compiled:
    """Compile a function that only other kernels call, and never Python: that would crash.

    Without the code that unpacks arguments from Python it is compiled in about half the time
    (tests/architecture holds who calls it).
    """
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Compiled, njit(cache=True, nogil=True, **options)(function))
