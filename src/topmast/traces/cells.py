"""Cells of the `topmast` format that hold several numbers: they are read here and nowhere else."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from topmast.traces.values import LONGEST_S, Number

MAX_GPUS_PER_TASK = 65_536
MAX_TASKS = 100_000
MOST_CPUS, MOST_MEMORY_GB = 1e6, 1e9


class Expected(Struct, frozen=True):
    """How long a job says that it will run in all, on the first GPU model that it lists."""

    first_s: float
    """At submission."""
    later: tuple[tuple[float, float], ...] = ()
    """From which part of its work on it says something else, and what; ascending, within (0, 1)."""


class MoreTasks(Struct, frozen=True):
    """Tasks of another size in the same gang."""

    tasks: int
    gpus: float
    """Per task, as the next two."""
    cpus: float = 0.0
    memory_gb: float = 0.0


@lru_cache(maxsize=1024)
def expected_of(text: str) -> Expected:
    """``9000|0.3:5200``: 9,000 s; when 0.3 of the work is done, 5,200 s in all.

    Raises ValueError, with what is wrong.
    """
    first, *rest = text.split("|")
    later: list[tuple[float, float]] = []
    for part in rest:
        share, colon, length = part.partition(":")
        at = _number(share, 1.0) if colon else -1.0
        if not (later[-1][0] if later else 0.0) < at < 1.0:
            raise ValueError("names parts of the work that do not ascend between 0 and 1")
        later.append((at, _number(length, LONGEST_S)))
    found = Expected(_number(first, LONGEST_S), tuple(later))
    if not all(length > 0 for length in (found.first_s, *(length for _, length in later))):
        raise ValueError("has a time that is no number of seconds above 0")
    return found


@lru_cache(maxsize=1024)
def more_tasks_of(text: str) -> tuple[MoreTasks, ...]:
    """``4x0/8/32|1x4``: four tasks of 8 CPUs and 32 GB, and one of 4 GPUs; none of empty text.

    Raises ValueError, with what is wrong.
    """
    if not text:
        return ()
    return tuple(_more_tasks(part) for part in text.split("|"))


def _more_tasks(text: str) -> MoreTasks:
    count, _, size = text.partition("x")
    gpus, *rest = size.split("/")
    limits = (MAX_GPUS_PER_TASK, MOST_CPUS, MOST_MEMORY_GB)
    numbers = [_number(part, most) for part, most in zip((gpus, *rest), limits, strict=False)]
    tasks = int(count) if count.isascii() and count.isdecimal() and len(count) < 9 else 0
    if not 1 <= tasks <= MAX_TASKS or len(rest) > 2 or min(numbers) < 0:
        raise ValueError("is not TASKSxGPUS, TASKSxGPUS/CPUS or TASKSxGPUS/CPUS/GB")
    if numbers[0] > 1 and numbers[0] != int(numbers[0]):
        raise ValueError("has GPUs of a task that are more than one and not whole")
    return MoreTasks(tasks, *numbers)


def _number(text: str, most: float) -> float:
    """-1 for what is none, or out of range."""
    values, wrong = Number(high=most).read("", [text])
    return -1.0 if wrong else float(values[0])
