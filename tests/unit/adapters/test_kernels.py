"""Which process compiles the kernels, where several processes start at the same time."""

from pathlib import Path

from tests.support.live import eventually
from topmast.adapters import kernels


def waits_for_a_lock(pid: int) -> bool:
    """What the system knows of a process: `->` is before each that waits."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(line[1] == "->" and str(pid) in line for line in lines)


def test_a_part_that_another_process_compiles_is_waited_for() -> None:
    """Three servers on a fresh machine compile once, not three times beside one another."""
    with kernels.alone("one-group"):
        process = kernels._start("one-group", 0)
        assert process is not None
        try:
            eventually(lambda: waits_for_a_lock(process.pid), "it waits")
        except AssertionError:
            process.kill()
            raise
    try:
        eventually(lambda: not waits_for_a_lock(process.pid), "it goes on")
        assert process.poll() in (None, 0)
    finally:
        process.kill()
        process.wait()
