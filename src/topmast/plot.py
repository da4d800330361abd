"""The style of figures: one for all, and PNG and SVG files that are the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (
    "#2563a8", "#d9691e", "#2f8f5b", "#b23a48", "#7a5aa6", "#8a6d3b", "#4aa3b5", "#6b7280",
)  # fmt: skip
"""Apart from one another for most eyes, on paper too."""
_STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.dpi": 110,
    "font.size": 10,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",
    "svg.hashsalt": "topmast",
}


def figure(
    rows: int = 1, columns: int = 1, *, inches: tuple[float, float | Sequence[float]] = (6.0, 3.6)
) -> Figure:
    """A figure of ``rows`` x ``columns`` axes (``figure.axes``).

    ``inches``: width and height of each, or a width and a height for each row.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE | {"axes.prop_cycle": cycler(color=list(COLOURS))}):
        wide, high = inches
        heights = [high] * rows if isinstance(high, float) else list(high)
        made = Figure(figsize=(wide * columns, sum(heights)), layout="constrained")
        made.subplots(rows, columns, height_ratios=heights)
    return made


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name``.png and ``name``.svg into ``folder``; the same figure gives the same bytes."""
    from matplotlib import rc_context

    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with rc_context(_STYLE):
        drawn.savefig(paths[0], metadata={"Software": None})
        drawn.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def label(drawn: Figure, title: str, across: str, up: str, *, axis: int = 0) -> None:
    """Title and labels of one of the axes."""
    axes = drawn.axes[axis]
    axes.set_title(title, loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(up)


def legend(drawn: Figure, *, axis: int = 0) -> None:
    """Name the lines or bars of one of the axes, if it has any."""
    if drawn.axes[axis].get_legend_handles_labels()[0]:
        drawn.axes[axis].legend(frameon=False)


def legend_below(drawn: Figure, *, axis: int = 0, columns: int = 5) -> None:
    """Name the lines of one of the axes below all of them."""
    handles, names = drawn.axes[axis].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)


def wide_range(drawn: Figure, *, axis: int = 0) -> None:
    """A scale for amounts from nothing to millions: logarithmic, but linear below one."""
    drawn.axes[axis].set_xscale("symlog", linthresh=1.0)
    drawn.axes[axis].set_xlim(left=0.0)


def steps(drawn: Figure, values: Any, name: str = "", *, axis: int = 0) -> None:
    """The part of ``values`` up to each one (an empirical distribution), as a line. O(n log n)."""
    import numpy as np

    # A line of a million points is a large file and no clearer than one of a thousand.
    shares = np.linspace(0.0, 1.0, min(len(values), 1000) + 1)
    drawn.axes[axis].plot(np.quantile(values, shares), shares, label=name or None)
    drawn.axes[axis].set_ylim(0.0, 1.0)
