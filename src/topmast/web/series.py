"""Lines over time: what ``<time-series>`` is given, and a table for readers without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from topmast.model.history_views import CurveView, FleetHistory

PERIODS = {"1h": "hour", "24h": "day", "7d": "week"}
"""In words, by name."""
USUAL = "1h"
MOST_CHARTS = 12
MOST_LINES = 8
"""Of a chart; the largest ones, and the others as one more."""
TABLE_ROWS = 8
MOST_ZOOM = 12.0
"""A chart with few samples shows this part of its period at least."""

Line = tuple[str, Sequence[float | None]]
"""A label and its values."""


class Chart(Struct, frozen=True):
    """Lines over one axis."""

    title: str
    data: dict[str, Any]
    """What the element is given."""
    table: tuple[tuple[float, tuple[float | None, ...]], ...]
    """The lines at some places of the axis, the last one included."""


def chart(title: str, x: Sequence[float], lines: Sequence[Line], **more: Any) -> Chart:
    """A chart; ``more`` goes to the element: its unit, or that x are numbers of steps."""
    data = {
        "x": x, "label": title,
        "series": [{"label": label, "values": values} for label, values in lines], **more,
    }  # fmt: skip
    known = [at for at in range(len(x)) if any(values[at] is not None for _, values in lines)]
    apart = max(1, -(-len(known) // TABLE_ROWS))
    shown = sorted(known[::-apart][:TABLE_ROWS])
    table = tuple((x[at], tuple(values[at] for _, values in lines)) for at in shown)
    return Chart(title, data, table)


def supply_and_demand(over: FleetHistory, region: str) -> list[Chart]:
    """GPUs by model, in one region or in all, and the demand over the supply by region."""
    there = {series.key: series.values for series in over.series}
    models = sorted({key[2] for key in there if key[0] == "present"})
    charts = []
    for model in models[:MOST_CHARTS]:

        def gpus(kind: str, model: str = model) -> list[float | None]:
            return added([
                values for key, values in there.items()
                if key[0] == kind and key[2] == model and region in ("", key[1])
            ])  # fmt: skip

        lines: list[Line] = [("present", gpus("present")), ("held", gpus("held"))]
        waiting = there.get(("waiting", model))
        if not region and waiting is not None:
            lines.append(("held or waited for", added([gpus("held"), waiting])))
        if any(value is not None for _, values in lines for value in values):
            where = f" in {region}" if region else ""
            charts.append(chart(f"{model}{where}", over.times, lines, unit="GPUs", **_axes(over)))
    loads = [(key[1], values) for key, values in there.items() if key[0] == "load"]
    if loads:
        title = "Demand over supply by region"
        charts.append(chart(title, over.times, sorted(loads)[:MOST_LINES], unit="", **_axes(over)))
    return charts


def use_by_tenant(over: FleetHistory) -> Chart | None:
    """GPUs held by each tenant without a parent; None if no sample has any."""
    lines = [(series.key[1], series.values) for series in over.series if series.key[0] == "tenant"]
    if not any(value for _, values in lines for value in values):
        return None
    lines.sort(key=lambda line: (-sum(value or 0.0 for value in line[1]), line[0]))
    if len(lines) > MOST_LINES:
        rest = added([values for _, values in lines[MOST_LINES - 1 :]])
        lines = [*lines[: MOST_LINES - 1], ("all others", tuple(rest))]
    return chart("GPUs held by tenant", over.times, lines, unit="GPUs", **_axes(over))


def _axes(over: FleetHistory) -> dict[str, Any]:
    """From nothing, over the period; as long as it has few samples, over a part of it."""
    shortest_s = (over.until_s - over.from_s) / MOST_ZOOM
    begin_s = max(over.from_s, min(over.times[0], over.until_s - shortest_s))
    return {"zero": True, "span": (begin_s, over.until_s)}


def curves(of_job: Sequence[CurveView]) -> list[Chart]:
    """A chart for each metric of a job, over its steps."""
    return [
        chart(curve.name, curve.steps, [(curve.name, curve.values)], unit="", elapsed=True)
        for curve in of_job
    ]


def added(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The sum at each place; None where no row has a value."""
    return [
        None if all(value is None for value in values) else sum(value or 0.0 for value in values)
        for values in zip(*rows, strict=True)
    ]
