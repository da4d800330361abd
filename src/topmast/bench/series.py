"""Many benchmarks in turns, in one file; and what differs between two such files."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from topmast.bench.setup import machine
from topmast.model.errors import InvalidInput, Unavailable

BENCHES: dict[str, tuple[str, ...]] = {
    "search": ("--jobs", "1000", "--no-first-use"),
    "ranking": ("--jobs", "200000"),
    "queue": ("--jobs", "20000", "--duration", "10s"),
    "recover": ("--jobs", "20000"),
    "submit": ("--duration", "5s"),
    "burst": ("--jobs", "2000", "--hosts", "4000", "--regions", "4"),
    "simulate": ("--jobs", "5000"),
    "eta": (),
    "policies": ("--no-peer",),
}
"""Each with sizes at which a turn of all takes some minutes."""

MORE = "_per_s"
"""The end of names of which more is better."""
LESS = ("_s", "_ms", "_us", "_bytes", "_mib", "_pct")
GIVEN = ("seed", "machine", "options", "duration_s", "delay_s")
"""What a benchmark was told; it is no figure."""
LEAST_CHANGE = 0.05
"""A smaller one is none, however quiet the machine was."""


class Figure(Struct, frozen=True):
    """One number of one benchmark, turn by turn."""

    values: list[float]
    more_is_better: bool


class SeriesFile(Struct, frozen=True):
    """What `bench all` writes."""

    format: int
    machine: dict[str, Any]
    turns: int
    figures: dict[str, Figure]
    """By ``BENCHMARK.path.of.the.key``."""


class Change(Struct, frozen=True):
    """A figure in two files."""

    figure: str
    before: float
    """The best of all turns: what disturbs a run makes it slower, never faster."""
    after: float
    ratio: float
    """The time of after over that of before, or the inverse for rates: above 1 is slower."""
    noise: float
    """How far the middle turn lies from the best one, in the noisier file, as a fraction."""
    verdict: str
    """faster, slower or same: a change counts beyond the noise and beyond 5%."""


def measure_all(
    names: Sequence[str], turns: int, out: Path, say: Callable[[str], object]
) -> SeriesFile:
    """Run benchmarks in turns, one after the other, each in a process of its own.

    Raises InvalidInput for a benchmark that is not known, Unavailable when one fails.
    """
    if unknown := [name for name in names if name not in BENCHES]:
        raise InvalidInput(
            f"no benchmark {', '.join(unknown)} among those of all",
            remedy=f"known: {', '.join(BENCHES)}",
        )
    figures: dict[str, Figure] = {}
    wanted = list(names) or list(BENCHES)
    for turn in range(turns):
        for name in wanted:
            say(f"turn {turn + 1} of {turns}: bench {name} {' '.join(BENCHES[name])}")
            for key, value in _numbers(_run(name), name):
                figure = figures.setdefault(key, Figure([], key.endswith(MORE)))
                figure.values.append(value)
    found = SeriesFile(1, machine(), turns, figures)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return found


def _run(name: str) -> Any:
    command = [sys.executable, "-m", "topmast.app", "bench", name, *BENCHES[name], "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Unavailable(f"bench {name} failed with status {done.returncode}")
    return json.loads(done.stdout)


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """The figures of a document: numbers with a unit in the name; rows by their places."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in GIVEN:
                yield from _numbers(part, f"{path}.{key}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            if isinstance(part, dict):
                yield from _numbers(part, f"{path}.{place}")
    elif isinstance(value, float | int) and not isinstance(value, bool) and path.endswith(LESS):
        yield path, float(value)


def compare(before: Path, after: Path) -> dict[str, Any]:
    """Each figure that both files have: ratio, noise, verdict. Raises InvalidInput."""
    old, new = _read(before), _read(after)
    changes = [
        _change(name, figure, new.figures[name])
        for name, figure in old.figures.items()
        if name in new.figures and min(*figure.values, *new.figures[name].values) > 0
    ]
    only = sorted(old.figures.keys() ^ new.figures.keys())
    count = dict.fromkeys(("faster", "same", "slower"), 0)
    for change in changes:
        count[change.verdict] += 1
    return {
        "same_machine": old.machine == new.machine, **count, "in_one_file_only": only,
        "changes": sorted(changes, key=lambda change: (-change.ratio, change.figure)),
    }  # fmt: skip


def _read(path: Path) -> SeriesFile:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=SeriesFile)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(
            f"{path} is no file of benchmarks: {error}",
            remedy="make one with topmast bench all --out FILE",
        ) from error
    if empty := [name for name, figure in found.figures.items() if not figure.values]:
        raise InvalidInput(f"{path}: no value of {empty[0]}", remedy="make the file anew")
    return found


def _change(name: str, before: Figure, after: Figure) -> Change:
    best = max if before.more_is_better else min
    old, new = best(before.values), best(after.values)
    ratio = old / new if before.more_is_better else new / old
    noise = max(_noise(before), _noise(after))
    if abs(ratio - 1.0) <= max(LEAST_CHANGE, noise):
        verdict = "same"
    else:
        verdict = "slower" if ratio > 1.0 else "faster"
    return Change(name, old, new, ratio, noise, verdict)


def _noise(figure: Figure) -> float:
    """How far the middle value lies from the best. With one turn it is not known, and 0."""
    middle = statistics.median(figure.values)
    if figure.more_is_better:
        return max(figure.values) / middle - 1.0
    return middle / min(figure.values) - 1.0
