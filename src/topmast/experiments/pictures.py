"""The plots of an experiment: lines over loads, or a bar for each case, in a row for the jobs
that it ran on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topmast import plot
from topmast.experiments.config import Case, Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Means = Sequence[Mapping[str, Any]]
Public = Mapping[tuple[str, str], float]
"""What the public code prints, by case and figure."""
LEAST_SEEDS = 3
STROKES = ("-", "--", ":")
WIDE, HIGH = 4.2, 3.6
BAR_HIGH, ROW_HIGH = 0.24, 1.0
LETTER_WIDE = 0.08
"""Inches: of a bar, of what is around those of a row, and of a letter."""


def draw(folder: Path, experiment: Experiment, document: Mapping[str, Any]) -> str:
    """Write `plots.png` and `plots.svg` into a folder; the picture as SVG for a page."""
    means = document["means"]
    if len({m["load"] for m in means}) > 1:
        drawn = _over_loads(experiment.plots, means)
    else:
        public = {
            (c["case"], c["figure"]): c["public"]
            for c in document["checks"]
            if c["public"] is not None
        }
        drawn = _by_case(experiment, means, public)
    _, picture = plot.save(drawn, folder, "plots")
    svg = picture.read_text(encoding="utf-8")
    return svg[svg.index("<svg") :]


def jobs_of(case: Case) -> str:
    """The jobs that a case runs on, in words; empty where there is one workload."""
    return case.files if case.workload is None else case.workload.label


# ------------------------------------------------------------------------------------------- lines


def _over_loads(names: Sequence[str], means: Means) -> Figure:
    drawn = plot.figure(1, len(names), inches=(WIDE, HIGH))
    for axis, name in enumerate(names):
        _lines(drawn.axes[axis], name, means)
        plot.label(drawn, name, "load", "", axis=axis)
        if _least(means, name) >= 0:
            drawn.axes[axis].set_ylim(bottom=0)
    plot.legend_below(drawn)
    return drawn


def _lines(axes: Any, name: str, means: Means) -> None:
    """A line over loads for each case, thin ones for further ages of its signal."""
    lines: dict[str, dict[float | None, list[tuple[float, float, float]]]] = {}
    for m in means:
        value = m["figures"].get(name)
        if value is not None:
            error = _interval(m, value)
            ages = lines.setdefault(m["case"], {})
            ages.setdefault(m["signal_s"], []).append((m["load"], value["mean"], error))
    for number, (case, ages) in enumerate(lines.items()):
        colour = plot.COLOURS[number % len(plot.COLOURS)]
        style = STROKES[number // len(plot.COLOURS) % len(STROKES)]
        for further, points in enumerate(ages.values()):
            loads, values, errors = zip(*points, strict=True)
            axes.errorbar(
                loads, values, yerr=errors if any(errors) else None, capsize=2, color=colour,
                linestyle=style, label=None if further else case,
                linewidth=0.6 if further else 1.4, alpha=0.6 if further else 1.0,
            )  # fmt: skip


# -------------------------------------------------------------------------------------------- bars


def _by_case(experiment: Experiment, means: Means, public: Public) -> Figure:
    """A row of panels for the jobs that cases ran on, as cases on other jobs are not to be
    compared.
    """
    names = experiment.plots
    jobs = {case.name: jobs_of(case) for case in experiment.cases}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for m in means:
        rows.setdefault(jobs[m["case"]], []).append(m)
    heights = [ROW_HIGH + BAR_HIGH * len(row) for row in rows.values()]
    labels = LETTER_WIDE * max(len(m["label"]) for m in means)
    drawn = plot.figure(len(rows), len(names), inches=(WIDE - 1 + labels / len(names), heights))
    for at, (files, row) in enumerate(rows.items()):
        for column, name in enumerate(names):
            axis = at * len(names) + column
            _bars(drawn.axes[axis], name, row, public)
            title = f"{'' if column else files}\n{name}" if len(rows) > 1 else name
            plot.label(drawn, title, "", "", axis=axis)
            if column:
                drawn.axes[axis].tick_params(labelleft=False)
    if public:
        drawn.supxlabel("bars: ours; black marks: the public code", fontsize="medium")
    return drawn


def _bars(axes: Any, name: str, means: Means, public: Public) -> None:
    values = [m["figures"].get(name) for m in means]
    at = range(len(means))
    axes.barh(
        at,
        [0.0 if v is None else v["mean"] for v in values],
        xerr=[0.0 if v is None else _interval(m, v) for m, v in zip(means, values, strict=True)],
    )
    axes.set_yticks(at, [m["label"] for m in means])
    marks = {i: public[m["case"], name] for i, m in enumerate(means) if (m["case"], name) in public}
    axes.plot(list(marks.values()), list(marks), "|", color="black", markersize=13, zorder=3)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(means) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if abs(x) >= 10 else f"{x:g}")
    axes.locator_params(axis="x", nbins=4)
    if _least(means, name) >= 0:
        axes.set_xlim(left=0)


def _interval(mean: Mapping[str, Any], value: Mapping[str, Any]) -> float:
    """Only from three seeds on: those of two are wider than the picture."""
    return (value["ci95"] or 0.0) if mean["seeds"] >= LEAST_SEEDS else 0.0


def _least(means: Means, name: str) -> float:
    values = [m["figures"].get(name) for m in means]
    return min([v["mean"] for v in values if v is not None], default=0.0)
