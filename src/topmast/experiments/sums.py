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
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96
    return mean, float(t * np.std(values, ddof=1) / math.sqrt(len(values)))


def add_savings(experiment: Experiment, means: Sequence[dict[str, Any]]) -> None:
    """By which part a mean is below that of the case it is against: of sums, so that runs without
    waits count too.
    """
    against = {case.name: case.against for case in experiment.cases}
    found = {(m["case"], m["load"], m["signal_s"]): m["figures"] for m in means}
    for m in means:
        base = found.get((against[m["case"]], m["load"], m["signal_s"]), {})
        for name in experiment.savings:
            own, there = m["figures"].get(name), base.get(name)
            if own is not None and there is not None and there["mean"]:
                saved = 1.0 - own["mean"] / there["mean"]
                m["figures"][f"saving.{name}"] = {"mean": saved, "ci95": None}


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
