"""How kernels are compiled: at first use on a machine, and kept in files beside the code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
"""Division by 0 is no error: a loop that may raise cannot be vectorised."""


def kernel(function: Compiled) -> Compiled:
    """Compile a function that Python calls."""
    return _compiled(function, {})


def inner(function: Compiled) -> Compiled:
    """Compile a function that only other kernels call, and never Python: that would crash.

    Without the code that unpacks arguments from Python it is compiled in about half the time
    (tests/architecture holds which code calls it).
    """
    return _compiled(function, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: Compiled, options: dict[str, Any]) -> Compiled:
    dispatcher: Any = njit(**_OPTIONS, **options)(function)
    # numba looks at the file of a kernel alone, and unpickles what it kept before it looks: it
    # would run the old code of an `inner` of another file, and fail on a class renamed since.
    kept = dispatcher._cache._cache_file
    kept._version = f"{numba.__version__} {sources_digest(_part_of(function.__module__))}"
    return cast(Compiled, dispatcher)


def _part_of(module: str) -> Path:
    """The part of the package (fast, policies, slow); only kernels of one part call one another."""
    return Path(__file__).parent / module.split(".")[1]


@lru_cache
def sources_digest(folder: Path) -> str:
    """A digest of all files with kernels below a folder. O(its files), once in a process."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"topmast.jit import" in source:
            digest.update(source)
    return digest.hexdigest()[:16]
