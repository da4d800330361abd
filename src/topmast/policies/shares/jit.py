"""How the kernels are compiled: at first use on a machine, and kept in files beside the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


def kernel(function: Compiled) -> Compiled:
    """Compile a function that Python calls.

    Division by 0 is no error: a loop that may raise cannot be vectorised.
    """
    return cast(Compiled, njit(**_OPTIONS)(function))


def inner(function: Compiled) -> Compiled:
    """Compile a function that only other kernels call, and never Python: that would crash.

    Without the code that unpacks arguments from Python it is compiled in about half the time.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Compiled, njit(**_OPTIONS, **options)(function))
