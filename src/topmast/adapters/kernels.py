"""Loads the compiled kernels before the first decision; the first start on a machine compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from topmast.fast.region import warm
from topmast.policies.options import Profile
from topmast.policies.registry import NO_SHARES

FIRST_TIME = (
    "compiling the search kernels for the first time: up to a minute, longer on a busy machine"
)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def load_solvers(profile: Profile) -> None:
    """Load the solver of a profile that shares time; the first use on a machine compiles it."""
    if profile.shares.policy != NO_SHARES:
        from topmast.policies.shares import interior

        interior.load()


def load_kernels(say: Callable[[str], object] = _to_stderr) -> None:
    """Load what was compiled before, or compile it and ``say`` so."""
    compile_kernels(say)
    warm.warm_up()


def compile_kernels(say: Callable[[str], object] = _to_stderr) -> bool:
    """Compile what was not compiled before, and ``say`` so; whether there was anything to compile.

    Two processes compile a half of the kernels each, and leave them in the files of the cache.
    """
    if warm.is_compiled():
        return False
    say(FIRST_TIME)
    processes = [found for part in ("one-group", "mixed") if (found := _start(part)) is not None]
    try:
        for process in processes:
            process.wait()
    finally:
        for process in processes:  # still there only if this one is being stopped
            process.kill()
            process.wait()
    return True


def _start(part: str) -> subprocess.Popen[bytes] | None:
    """A process that compiles a part; None if it cannot start, and this one has to do it.

    Optimisation level 1 takes a quarter less time than level 3, and the kernels are about as fast.
    """
    command = [sys.executable, "-m", warm.__name__, part]
    environment = {"NUMBA_OPT": "1", **os.environ}
    no = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, env=environment, stdin=no, stdout=no, stderr=no)
    except OSError:
        return None


if __name__ == "__main__":
    load_kernels()
