"""A server has all of its compiled code before it serves: it opens no file of a kernel in the middle of its work."""

import json
import subprocess
import sys
from typing import Any

import pytest

LOOK = """
import gc, importlib, json, pkgutil, topmast.fast
from numba.core.dispatcher import Dispatcher
from topmast.adapters.kernels import load_kernels
for found in pkgutil.walk_packages(topmast.fast.__path__, "topmast.fast."):
    importlib.import_module(found.name)
load_kernels(lambda line: None)
kernels = {
    f"{one.py_func.__module__}.{one.py_func.__name__}": one
    for one in gc.get_objects()
    if isinstance(one, Dispatcher) and one.py_func.__module__.startswith("topmast.fast.")
    if not one.targetoptions.get("no_cpython_wrapper")
}
loaded = {name: len(kernel.overloads) for name, kernel in kernels.items()}
from tests.simulation.storm import Storm
for seed in (0, 1, 2, 3):
    Storm(seed).run(400)
after = {name: len(kernel.overloads) for name, kernel in kernels.items()}
print(json.dumps({"loaded": loaded, "after": after}))
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, int]]:
    """By kernel that Python may call, how many forms of it a fresh process has: loaded, and after some storms."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(300)
def test_every_kernel_is_loaded_at_the_start(kernels: dict[str, dict[str, int]]) -> None:
    """One that is not would be read from its file, or compiled, while a decision waits."""
    loaded = kernels["loaded"]
    assert len(loaded) > 20
    assert {name for name, forms in loaded.items() if not forms} == set()


def test_no_other_form_of_one_is_needed_later(kernels: dict[str, dict[str, int]]) -> None:
    """Arguments of other types would be another form, and another file."""
    assert kernels["after"] == kernels["loaded"]
