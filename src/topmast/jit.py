"""How kernels are compiled: at first use on a machine, and kept in files beside the code.

A kernel is a function of Python. Until it is compiled Python itself may run it (`interpret`), some
hundred times slower and with the same results: see docs/adr/python-runs-kernels-first.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
"""Division by 0 is no error: a loop that may raise cannot be vectorised."""


_kernels: list[Any] = []
"""Those that Python calls, of all modules loaded."""
_interpreted: dict[int, Any] = {}
"""By the id of what Python runs instead: the kernel."""


def kernel(function: Compiled) -> Compiled:
    """Compile a function that Python calls."""
    dispatcher = _compiled(function, {})
    _kernels.append(dispatcher)
    return dispatcher


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


# --- without a compiler -------------------------------------------------------------------------


def interpret(part: str) -> None:
    """Let Python run the kernels of a part, all loaded before, until `run_compiled`."""
    functions: dict[int, Any] = {}
    for kernel in _kernels_of(part):
        instead = _by_python(_function_of(kernel, functions))
        _interpreted[id(instead)] = kernel
        _rename({id(kernel): instead})


def run_compiled() -> None:
    """Load what another process has compiled, and let it run from now on; at any time, anywhere.

    A kernel that Python is running meanwhile goes on in Python: it knows only others like it.
    """
    for kernel in _interpreted.values():
        for signature in _kept(kernel):
            kernel.compile(signature)
    _rename(_interpreted)
    _interpreted.clear()


def is_interpreting() -> bool:
    """Whether Python runs kernels that are not compiled yet."""
    return bool(_interpreted)


def are_kept(part: str) -> bool:
    """Whether the kernels of a part, all loaded before, were compiled and kept by some process."""
    return all(_kept(kernel) for kernel in _kernels_of(part))


def kept_in(part: str) -> Path:
    """The folder that has what was compiled of a part, all loaded before. It is made."""
    cache = _kernels_of(part)[0]._cache
    cache._impl.locator.ensure_cache_path()
    return Path(cache.cache_path)


def _kernels_of(part: str) -> list[Any]:
    """Those that Python calls."""
    return [kernel for kernel in _kernels if kernel.__module__.startswith(f"topmast.{part}.")]


def _kept(kernel: Any) -> list[Any]:
    """The kinds of arguments for which a kernel was compiled, as its source and machine are now."""
    return [signature for signature, *_ in kernel._cache._cache_file._load_index()]


def _rename(instead: Mapping[int, Any]) -> None:
    """Replace kernels, by their ids, wherever a module has a name for one."""
    known = sys.modules.copy()  # another thread may import meanwhile
    for module in [found for name, found in known.items() if name.startswith("topmast.")]:
        for name, value in list(vars(module).items()):
            if id(value) in instead:
                setattr(module, name, instead[id(value)])


def _function_of(dispatcher: Any, known: dict[int, Any]) -> Any:
    """The function of a kernel, in which each name of a kernel stands for that one's function."""
    if id(dispatcher) not in known:
        plain = dispatcher.py_func
        names: dict[str, Any] = {}
        known[id(dispatcher)] = FunctionType(
            plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__
        )
        for name, value in plain.__globals__.items():
            is_kernel = isinstance(value, type(dispatcher))
            names[name] = _function_of(value, known) if is_kernel else value
    return known[id(dispatcher)]


def _by_python(function: Any) -> Any:
    """The function, with numbers as compiled code has them: they wrap round, and 1 / 0 is inf."""

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            return _of_python(function(*map(_of_numpy, values)))

    return run


def _of_numpy(value: Any) -> Any:
    """An argument as compiled code has it; the records of a table have fields."""
    if isinstance(value, np.ndarray):
        return value.view(np.recarray) if value.dtype.names else value
    if isinstance(value, tuple):
        parts = map(_of_numpy, value)
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, float):
        return np.float64(value)
    return np.int64(value) if type(value) is int else value


def _of_python(value: Any) -> Any:
    """A result as compiled code returns it."""
    if isinstance(value, tuple):
        parts = map(_of_python, value)
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value.item() if isinstance(value, np.generic) else value
