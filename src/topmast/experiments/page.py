"""The page of an experiment: what was asked, what was published, what we found, with tables and plots."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from topmast import plot
from topmast.experiments.config import Case, Experiment, all_figures
from topmast.experiments.report import STYLE

Means = Sequence[Mapping[str, Any]]
LEAST_SEEDS = 3
STROKES = ("-", "--", ":")
VERDICTS = {True: "reached", False: "NOT reached", None: "not comparable"}


def write_page(folder: Path, experiment: Experiment, document: Mapping[str, Any]) -> None:
    """Write `runs.csv`, `means.csv`, `plots.png`, `plots.svg` and `report.html` into a folder."""
    _write_runs(folder / "runs.csv", document["runs"])
    _write_means(folder / "means.csv", document["means"])
    svg = _draw(folder, experiment, document["means"])
    title = escape(f"{experiment.name}: {experiment.title}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<style>{STYLE}</style><h1>{title}</h1>",
        f"<p>{escape(experiment.question)}</p>",
        f"<pre>{escape(command_of(document))}</pre>",
        f"<p>{escape(_setting(document))}</p>",
        _checks(document["checks"]),
        svg,
        _figures(experiment, document["means"]),
        _cases(experiment.cases),
        "<ul>" + "".join(f"<li>{escape(note)}" for note in experiment.notes) + "</ul>",
    ]
    (folder / "report.html").write_text("\n".join(parts) + "\n</html>\n", encoding="utf-8")


def command_of(document: Mapping[str, Any]) -> str:
    """The command that gives these results again."""
    seeds = len(document["seeds"])
    return f"topmast reproduce {document['experiment']} --scale {document['scale']} --seeds {seeds}"


def _setting(document: Mapping[str, Any]) -> str:
    seeds = ", ".join(str(seed) for seed in document["seeds"])
    return (
        f"{size_of(document)}, seeds {seeds}, "
        f"version {document['version']}. Intervals are 95% confidence intervals over seeds; "
        "those of two seeds are in the tables only."
    )


def size_of(document: Mapping[str, Any]) -> str:
    """What an experiment ran on, in words."""
    if not document["files"]:
        days = "" if document["days"] is None else f" over {document['days']:g} days"
        return f"{document['jobs']:,} jobs{days}"
    files = "; ".join(f"{name}: {source}" for name, source in document["files"].items())
    return f"{files} ({document['jobs']:,} jobs where they are generated)"


def _write_runs(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_means(path: Path, means: Means) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "load", "signal_s", "seeds", "figure", "mean", "ci95"))
        for m in means:
            for name, value in m["figures"].items():
                writer.writerow(
                    (m["case"], m["load"], m["signal_s"], m["seeds"], name, value["mean"], value["ci95"])
                )  # fmt: skip


# ----------------------------------------------------------------------------------------------- plots


def _draw(folder: Path, experiment: Experiment, means: Means) -> str:
    names = experiment.plots
    drawn = plot.figure(1, len(names), inches=(4.2, 3.6))
    swept = len({m["load"] for m in means}) > 1
    for axis, name in enumerate(names):
        if swept:
            _lines(drawn.axes[axis], name, means)
        else:
            _bars(drawn.axes[axis], name, means)
        plot.label(drawn, name, "load" if swept else "", "", axis=axis)
    if swept:
        plot.legend_below(drawn)
    _, picture = plot.save(drawn, folder, "plots")
    svg = picture.read_text(encoding="utf-8")
    return svg[svg.index("<svg") :]


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


def _interval(mean: Mapping[str, Any], value: Mapping[str, Any]) -> float:
    """Only from three seeds on: those of two are wider than the picture."""
    return (value["ci95"] or 0.0) if mean["seeds"] >= LEAST_SEEDS else 0.0


def _bars(axes: Any, name: str, means: Means) -> None:
    there = [m for m in means if name in m["figures"]]
    values = [m["figures"][name] for m in there]
    axes.barh(
        [m["label"] for m in there],
        [v["mean"] for v in values],
        xerr=[_interval(m, v) for m, v in zip(there, values, strict=True)],
    )
    axes.invert_yaxis()


# ---------------------------------------------------------------------------------------------- tables


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    if not checks:
        return "<p>No figures were published to compare with.</p>"
    rows = [
        (c["case"], c["figure"], c["published"], number(c["public"]), c["wanted"],
         number(c["ours"]), VERDICTS[c["reached"]])
        for c in checks
    ]  # fmt: skip
    return table(("case", "figure", "published", "public code", "ours must be", "ours", ""), rows)


def _figures(experiment: Experiment, means: Means) -> str:
    rows = [
        (m["label"], *(_with_interval(m["figures"].get(name)) for name in all_figures(experiment)))
        for m in means
    ]
    return table(("case", *all_figures(experiment)), rows)


def _cases(cases: Sequence[Case]) -> str:
    rows = [
        (c.name, c.profile or c.measure.value, _jobs_of(c), ", ".join(_options(c)) or "as it is")
        for c in cases
    ]
    return table(("case", "profile", "files", "options"), rows)


def _jobs_of(case: Case) -> str:
    return case.files or "-" if case.workload is None else case.workload.label


def _options(case: Case) -> list[str]:
    options = [f"{name}={value}" for name, value in case.set.items()]
    options += [] if case.overheads else ["--overheads none"]
    return [*options, "oracle"] if case.oracle else options


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in HTML."""
    first = "".join(f"<th>{escape(name)}" for name in head)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(x)}" for x in row) for row in rows)
    return f"<table><tr>{first}\n{body}\n</table>"


def number(value: float | None) -> str:
    """A figure for people: four digits that count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _with_interval(value: Mapping[str, float | None] | None) -> str:
    if value is None:
        return "-"
    text = number(value["mean"])
    return text if value["ci95"] is None else f"{text} ± {number(value['ci95'])}"
