"""Loads the compiled kernels before the first decision; the first start on a machine compiles."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topmast import jit
from topmast.fast.region import warm
from topmast.policies.options import Profile
from topmast.policies.registry import NO_SHARES

FIRST_TIME = (
    "compiling the search kernels for the first time: up to a minute, longer on a busy machine"
)

PARTS = {"one-group": warm.load_one_group, "mixed": warm.load_mixed}
"""Halves of the kernels."""
NICENESS = 5
BESIDE = "; until then decisions are the same, and slower"


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def load_solvers(profile: Profile) -> None:
    """Load the solver of a profile that shares time; the first use on a machine compiles it."""
    if profile.shares.policy != NO_SHARES:
        from topmast.policies.shares import interior

        interior.load()


def begin_with_kernels(say: Callable[[str], object] = _to_stderr) -> None:
    """Load what was compiled before; or decide in Python until other processes have compiled it.

    The decisions are the same, and slower: some ten ms for a small fleet.
    """
    if jit.is_interpreting():
        return
    if warm.is_compiled():
        warm.warm_up()
        return
    jit.interpret("fast")
    threading.Thread(target=_compile_beside, args=(say,), name="kernels", daemon=True).start()


def _compile_beside(say: Callable[[str], object]) -> None:
    compile_kernels(say, beside=True)
    jit.run_compiled()
    warm.warm_up()
    say("the search kernels are compiled")


def load_kernels(say: Callable[[str], object] = _to_stderr) -> None:
    """Load what was compiled before, or compile it and ``say`` so."""
    compile_kernels(say)
    warm.warm_up()


def compile_kernels(say: Callable[[str], object] = _to_stderr, *, beside: bool = False) -> bool:
    """Compile what was not compiled before, and ``say`` so; whether there was anything to compile.

    Two processes compile a half of the kernels each, and leave them in the files of the cache;
    behind all other work when this one decides ``beside`` them.
    """
    if warm.is_compiled():
        return False
    say(FIRST_TIME + BESIDE if beside else FIRST_TIME)
    nice = NICENESS if beside else 0
    processes = [found for part in PARTS if (found := _start(part, nice)) is not None]
    try:
        for process in processes:
            process.wait()
    finally:
        for process in processes:  # still there only if this one is being stopped
            process.kill()
            process.wait()
    return True


def _start(part: str, nice: int) -> subprocess.Popen[bytes] | None:
    """A process that compiles a part; None if it cannot start, and this one has to do it.

    Optimisation level 1 takes a quarter less time than level 3, and the kernels are about as fast.
    """
    command = [sys.executable, "-m", "topmast.adapters.kernels", part, str(nice)]
    environment = {"NUMBA_OPT": "1", **os.environ}
    no = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=no, stderr=no
        )
    except OSError:
        return None


def _compile_part(part: str, nice: int) -> None:
    """Compile no longer than the process that asked for it lives."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(nice)
    gc.disable()  # a tenth of the time to compile would go into looking for rubbish
    with alone(part):
        PARTS[part]()


@contextmanager
def alone(part: str) -> Iterator[None]:
    """One process compiles a part: others that began meanwhile wait, and find it in the cache."""
    try:
        file = (jit.kept_in("fast") / f"{part}.lock").open("w")
    except OSError:  # then nothing can be kept there either
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # ends when no process can write any more
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _compile_part(sys.argv[1], int(sys.argv[2]))
    else:
        load_kernels()
