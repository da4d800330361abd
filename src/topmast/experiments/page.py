"""The page of an experiment: what was asked, what was published, what we found, with tables and
plots.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from topmast.experiments.checks import figure
from topmast.experiments.config import Case, Experiment, all_figures
from topmast.experiments.pictures import draw, jobs_of
from topmast.experiments.points import FLEET
from topmast.experiments.report import STYLE, is_gpu_time, is_time
from topmast.model.units import format_duration

Means = Sequence[Mapping[str, Any]]
MINUTE_S, HOUR_S = 60.0, 3_600.0
VERDICTS = {True: "reached", False: "NOT reached", None: "not comparable"}


def write_page(folder: Path, experiment: Experiment, document: Mapping[str, Any]) -> None:
    """Write `runs.csv`, `means.csv`, `plots.png`, `plots.svg` and `report.html` into a folder."""
    _write_runs(folder / "runs.csv", document["runs"])
    _write_means(folder / "means.csv", document["means"])
    svg = draw(folder, experiment, document)
    title = escape(f"{experiment.name}: {experiment.title}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<style>{STYLE}</style><h1>{title}</h1>",
        f"<p>{escape(experiment.question)}</p>",
        f"<pre>{escape(command_of(document))}</pre>",
        f"<p>{escape(_setting(document))}</p>",
        _checks(document["checks"]),
        "<ul>"
        + "".join(f"<li>{escape(line)}" for line in not_compared(document["checks"]))
        + "</ul>",
        svg,
        _figures(experiment, document["means"]),
        _cases(experiment.cases, document["runs"]),
        "<ul>" + "".join(f"<li>{escape(note)}" for note in experiment.notes) + "</ul>",
    ]
    (folder / "report.html").write_text("\n".join(parts) + "\n</html>\n", encoding="utf-8")


def command_of(document: Mapping[str, Any]) -> str:
    """The command that gives these results again."""
    seeds = len(document["seeds"])
    return f"topmast reproduce {document['experiment']} --scale {document['scale']} --seeds {seeds}"


def _setting(document: Mapping[str, Any]) -> str:
    seeds = ", ".join(str(seed) for seed in document["seeds"])
    loads = dict.fromkeys(row["load"] for row in document["runs"] if row["load"] is not None)
    at = f", loads {', '.join(f'{load:g}' for load in loads)}" if loads else ""
    return (
        f"{size_of(document)}{at}, seeds {seeds}, "
        f"{made_by(document)}. Intervals are 95% confidence intervals over seeds; "
        "those of two seeds are in the tables only."
    )


def made_by(document: Mapping[str, Any]) -> str:
    """The version of the code that found these results, and its revision where it is known."""
    revision = document["revision"]
    return f"version {document['version']}" + (f" (revision {revision})" if revision else "")


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
                    (
                        m["case"], m["load"], m["signal_s"], m["seeds"], name, value["mean"],
                        value["ci95"],
                    )
                )  # fmt: skip


# ------------------------------------------------------------------------------------------ tables


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    if not checks:
        return "<p>No figures were published to compare with.</p>"
    rows = [
        (c["case"], c["figure"], c["published"], figure(c["public"]), c["wanted"],
         _spoken(figure(c["ours"], c["at_least"], c["at_most"]), c["figure"], c["ours"]),
         VERDICTS[c["reached"]], c["why"])
        for c in checks
    ]  # fmt: skip
    head = ("case", "figure", "published", "public code", "ours must be", "ours", "verdict", "why")
    return table(head, rows)


def not_compared(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why figures are not comparable, a line for each reason."""
    counts: dict[str, int] = {}
    for check in checks:
        if check["reached"] is None and check.get("why"):
            counts[check["why"]] = counts.get(check["why"], 0) + 1
    return [f"not comparable, {count} of {len(checks)}: {why}" for why, count in counts.items()]


def _figures(experiment: Experiment, means: Means) -> str:
    rows = [
        (
            m["label"],
            *(_with_interval(m["figures"].get(name), name) for name in all_figures(experiment)),
        )
        for m in means
    ]
    return table(("case", *all_figures(experiment)), rows)


def _cases(cases: Sequence[Case], runs: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            c.name,
            c.profile or c.measure.value,
            jobs_of(c) or "-",
            _fleet([row for row in runs if row["case"] == c.name]),
            ", ".join(_options(c)) or "as it is",
        )
        for c in cases
    ]
    return table(("case", "profile", "files", "fleet", "options"), rows)


def _fleet(runs: Sequence[Mapping[str, Any]]) -> str:
    """How large the fleet of these runs is; seeds may draw several."""
    parts = []
    for name, what in zip(FLEET, ("GPUs", "hosts"), strict=True):
        sizes = sorted({int(row[name]) for row in runs if row.get(name) is not None})
        if sizes:
            most = f" to {sizes[-1]:,}" if len(sizes) > 1 else ""
            parts.append(f"{sizes[0]:,}{most} {what}")
    return " on ".join(parts) or "-"


def _options(case: Case) -> list[str]:
    options = [f"{name}={value}" for name, value in case.set.items()]
    options += [] if case.overheads else ["--overheads none"]
    return [*options, "oracle"] if case.oracle else options


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in HTML."""
    first = "".join(f"<th>{escape(name)}" for name in head)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(x)}" for x in row) for row in rows)
    return f"<table><tr>{first}\n{body}\n</table>"


def _with_interval(value: Mapping[str, float | None] | None, name: str) -> str:
    """The mean, and the interval if there is one."""
    mean = None if value is None else value["mean"]
    if value is None or mean is None:
        return "-"
    text = figure(mean)
    text = text if value["ci95"] is None else f"{text} ± {figure(value['ci95'])}"
    return _spoken(text, name, mean)


def _spoken(text: str, name: str, value: float | None) -> str:
    """A figure, and a long time as people say it, too; GPU-seconds as GPU-hours."""
    if value is None or value < MINUTE_S:
        return text
    if is_gpu_time(name):
        return f"{text} ({figure(value / HOUR_S)} GPU-hours)"
    is_spoken = is_time(name.partition(".")[0]) or is_time(name.rpartition(".")[0])
    return f"{text} ({format_duration(value)})" if is_spoken else text
