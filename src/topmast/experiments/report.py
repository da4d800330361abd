"""The page of a run, or of several beside one another: figures in a table, and plots."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from topmast import plot
from topmast.model.units import format_duration

POINTS = 1_000
"""So many points draw a distribution; more are a larger file and no clearer."""
DAY_S = 86_400.0
FIGURES = {
    "jobs": "jobs of the trace",
    "finished": "succeeded",
    "failed": "failed for good",
    "never_startable": "do not fit even an empty fleet",
    "waiting": "still waited at the end",
    "makespan_s": "last finish less first submission",
    "allocation_rate": "GPU time held over GPU time present",
    "allocation_rate_waiting": "the same while jobs waited",
    "goodput_rate": "GPU time of work that survived over GPU time present",
    "stranded_gpu_rate": "GPUs free on hosts partly in use, over those present, while jobs waited",
    "preemptions": "attempts that were preempted",
    "migrations": "attempts that continued on other hosts after a preemption",
    "restarts": "attempts that followed a failure",
    "lost_gpu_s": "GPU time of work that did not survive, in GPU-seconds",
    "non_collocation_rate": "jobs that started away from some of their data",
}
SPREADS = {
    "jct_s": "time from submission to finish",
    "wait_s": "the time in which the job did not run",
    "first_wait_s": "time from submission to the first start",
    "ftf_rho": "finish-time fairness: JCT over that on a fair share of the fleet; above 1: slower",
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color:#1f2937}table{border-collapse:collapse}th,td{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #e5e7eb}th:first-child,td:first-child{text-align:left}"
    ".what{text-align:left;color:#6b7280}svg{max-width:100%;height:auto}h1{font-size:1.5rem}"
)


class Curves(Struct):
    """What plots need of one run: quantiles, and the fleet over time."""

    jct_s: list[float] = []
    wait_s: list[float] = []
    timeline: list[tuple[float, float, float, float]] = []
    """End of an interval, and its GPUs present, allocated and queued."""


def quantiles(values: array[float]) -> list[float]:
    """Enough of a distribution to draw it. O(n log n)."""
    if not values:
        return []
    shares = np.linspace(0.0, 1.0, min(len(values), POINTS) + 1)
    return [float(x) for x in np.quantile(np.array(values), shares)]


class Overview:
    """Adds up the rows of a timeline over regions and bands, as they are written."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float]] = []
        self._seen: dict[str, bool] = {}

    def note(self, row: Sequence[Any]) -> None:
        """One row of `timeline.csv`."""
        _, end_s, region, _, present, _, allocated, queued = row
        if not self.rows or self.rows[-1][0] != end_s:
            self.rows.append((end_s, 0.0, 0.0, 0.0))
            self._seen = {}
        if region in self._seen:
            present = 0.0  # it was counted with another band
        self._seen[region] = True
        last = self.rows[-1]
        self.rows[-1] = (end_s, last[1] + present, last[2] + allocated, last[3] + queued)


def write_report(
    folder: Path,
    name: str,
    title: str,
    documents: Mapping[str, Mapping[str, Any]],
    curves: Mapping[str, Curves],
) -> None:
    """Write ``name``.html, .svg and .png into ``folder``; a column and a line for every run."""
    drawn = plot.figure(1, 3, inches=(4.6, 3.6))
    for run, curve in curves.items():
        for axis, values in enumerate((curve.jct_s, curve.wait_s)):
            if values:
                plot.steps(drawn, values, run, axis=axis)
    _over_time(drawn, curves)
    for axis, what in enumerate(("Completion time", "Time waited")):
        plot.wide_range(drawn, axis=axis)
        plot.label(drawn, what, "seconds", "share of jobs", axis=axis)
    plot.label(drawn, "GPUs over time", "days", "GPUs", axis=2)
    plot.legend(drawn, axis=2)
    _, picture = plot.save(drawn, folder, name)
    svg = picture.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>\n<p>{escape(_setting(documents))}</p>\n"
        f"{svg}\n{_table(documents)}\n</html>\n"
    )
    (folder / f"{name}.html").write_text(page, encoding="utf-8")


def _setting(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """On what all of these ran."""
    first = next(iter(documents.values()))
    return (
        f"{first['jobs']:,} jobs of {first['trace']} at {first['load']:g} times their load, on "
        f"{first['fleet']} ({first['gpus']:,} GPUs);"
        f" seed {first['seed']}, Topmast {first['version']}."
    )


def _over_time(drawn: Any, curves: Mapping[str, Curves]) -> None:
    axes = drawn.axes[2]
    alone = len(curves) == 1
    whole = max((c.timeline for c in curves.values() if c.timeline), key=len, default=[])
    if whole:
        end_s, present, _, queued = zip(*whole, strict=True)
        days = [x / DAY_S for x in end_s]
        axes.plot(days, present, label="present", color="#6b7280", linestyle="--")
        if alone:
            axes.plot(days, queued, label="queued")
    for run, curve in curves.items():
        if curve.timeline:
            end_s, _, allocated, _ = zip(*curve.timeline, strict=True)
            days = [x / DAY_S for x in end_s]
            axes.plot(days, allocated, label="allocated" if alone else run)


def _table(documents: Mapping[str, Mapping[str, Any]]) -> str:
    every = documents.values()
    rows = [
        [name, *(_text(d.get(name), is_time(name)) for d in every), what]
        for name, what in FIGURES.items()
    ]
    for name, what in SPREADS.items():
        rows += [
            [f"{name} {part}", *(_text(d[name][part], is_time(name)) for d in every), what]
            for part in ("mean", "p50", "p90", "p99")
        ]
    ratios = [_text(d["demand_supply_ratio"]["max"]) for d in every]
    what = "GPUs that bands from high ask for over those present, in the worst region"
    rows.append(["demand_supply_ratio max", *ratios, what])
    head = "".join(f"<th>{escape(name)}" for name in ("", *documents, "what it is"))
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(x)}" for x in row[:-1]) + f"<td class=what>{escape(row[-1])}"
        for row in rows
    )
    return f"<table><tr>{head}\n{body}\n</table>"


def is_time(name: str) -> bool:
    """Whether a figure is a time in seconds."""
    return name.endswith("_s") and not is_gpu_time(name)


def is_gpu_time(name: str) -> bool:
    """Whether a figure is a time on GPUs, in GPU-seconds."""
    return name.endswith("gpu_s")


def _text(value: float | None, is_time: bool = False) -> str:
    if value is None:
        return "-"
    plain = f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{format_duration(value)} ({plain} s)" if is_time and value >= 60 else plain
