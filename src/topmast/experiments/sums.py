"""What the runs of an experiment amount to: means over seeds, savings, and published figures
beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topmast.experiments.checks import checked
from topmast.experiments.config import Check, Experiment, Scale
from topmast.experiments.files import files_of, is_there, is_whole
from topmast.experiments.points import Point

T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145,
    2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""Student's t at 97.5% for 1, 2, ... degrees of freedom; beyond them, 1.96."""


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95% confidence interval (Student's t); None of one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    return mean, float(student(len(values)) * np.std(values, ddof=1) / math.sqrt(len(values)))


def student(count: int) -> float:
    """The t of an interval over so many values, 2 or more."""
    return T95[count - 2] if count - 2 < len(T95) else 1.96


def add_savings(
    experiment: Experiment, means: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]
) -> None:
    """By which part a mean is below that of the case it is against: of sums, so that runs without
    waits count too. ``rows`` are the runs, of which the interval is.
    """
    against = {case.name: case.against for case in experiment.cases}
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        of_seed = found.setdefault((row["case"], row["load"], row["signal_s"]), {})
        of_seed[row["seed"]] = row
    for m in means:
        where = (m["load"], m["signal_s"])
        own, base = (found.get((x, *where), {}) for x in (m["case"], against[m["case"]]))
        both = [(own[seed], base[seed]) for seed in own if seed in base]
        for name in experiment.savings:
            pairs = [(a[name], b[name]) for a, b in both if None not in (a[name], b[name])]
            if sum(there for _, there in pairs):
                saved, half = saving(pairs)
                m["figures"][f"saving.{name}"] = {"mean": saved, "ci95": half}


def saving(pairs: Sequence[tuple[float, float]]) -> tuple[float, float | None]:
    """1 - sum / sum of pairs (own, other's), and half the width of its 95% confidence interval.

    The interval is that of the jackknife, which leaves out one pair at a time: of a ratio of sums
    in which a few seeds weigh most, it is wide. None of less than three pairs.
    """
    own, other = np.array(pairs, np.float64).T
    saved = 1.0 - float(own.sum() / other.sum())
    count, without = len(pairs), other.sum() - other
    if count < 3 or not without.all():
        return saved, None
    left_out = 1.0 - (own.sum() - own) / without
    spread = math.sqrt((count - 1) / count * float(((left_out - left_out.mean()) ** 2).sum()))
    return saved, student(count) * spread


def means_of(
    experiment: Experiment, points: Sequence[Point], rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The figures of each run, but for its seed, as means over seeds."""
    together: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        together.setdefault(point.label, []).append(number)
    means = []
    for numbers in together.values():
        point = points[numbers[0]]
        entry: dict[str, Any] = {
            "case": point.case.name, "label": point.label, "load": point.load,
            "signal_s": point.signal_s, "seeds": len(numbers), "figures": {},
        }  # fmt: skip
        for name in experiment.figures:
            values = [rows[i][name] for i in numbers if rows[i][name] is not None]
            if values:
                mean, half = interval(values)
                entry["figures"][name] = {"mean": mean, "ci95": half}
        means.append(entry)
    return means


def checks_of(
    experiment: Experiment, scale: Scale, means: Sequence[dict[str, Any]], data: Path | None
) -> list[dict[str, Any]]:
    """Every published figure; those of published traces count only for all of their jobs."""
    cases = {case.name: case for case in experiment.cases}

    def why_not(check: Check) -> str:
        files = files_of(experiment, cases[check.case])
        if files is None:
            return ""
        if files.trace is not None and not is_there(files, data):
            return f"{files.trace} is not there, and generated jobs stand in for it (--data)"
        return "" if is_whole(files, scale, data) else cut

    cut = f"only the first {scale.limit} jobs of each trace ran (--scale full takes all)"
    return [checked(check, means, why_not(check)) for check in experiment.checks]
