"""The picture of a run everywhere: whose gangs had the GPUs of each cluster, and what befell them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tests.everywhere.figures import Figures
from topmast import plot
from topmast.model.views import AttemptView, JobStory

TENANTS = ("vision", "speech", "language")
MARKS = {
    "preempted": ("v", "#111827", "preempted"),
    "host_lost": ("X", "#b23a48", "its host was lost"),
}
"""How an attempt ended: the mark at its end, its colour and its name."""


def draw(
    stories: Iterable[JobStory], clusters: dict[str, int], figures: Figures, folder: Path
) -> Path:
    """The SVG in a folder. ``clusters`` has the GPUs of each, by name."""
    had = [(story.job.tenant, attempt) for story in stories for attempt in story.attempts]
    began_s = min(attempt.start_s for _, attempt in had)
    made = plot.figure(len(clusters), 1, inches=(9.0, 1.35))
    for axis, (name, gpus) in zip(made.axes, clusters.items(), strict=True):
        here = [(tenant, attempt) for tenant, attempt in had if attempt.cluster == name]
        times, used = in_use(here)
        axis.stackplot(times - began_s, used, labels=TENANTS, step="post", linewidth=0)
        for outcome, (mark, colour, said) in MARKS.items():
            ends_s = [a.end_s - began_s for _, a in here if a.outcome == outcome]
            axis.scatter(
                ends_s, [gpus] * len(ends_s), marker=mark, color=colour, label=said, s=18, zorder=3
            )
        axis.set(xlim=(0, figures.wall_s), ylim=(0, gpus * 1.08), title=name, ylabel="GPUs")
    made.axes[-1].set_xlabel("seconds")
    plot.legend_below(made)
    made.suptitle(
        f"{figures.jobs} jobs of {figures.tenants} tenants in one queue: "
        f"{sum(figures.attempts.values())} attempts, {figures.moved_between_engines} jobs moved "
        f"between engines, {figures.bodies_twice} tasks ran twice at a time",
        fontsize=10, x=0.01, ha="left",
    )  # fmt: skip
    return plot.save(made, folder, "everywhere")[1]


def in_use(had: Sequence[tuple[str, AttemptView]]) -> tuple[np.ndarray, np.ndarray]:
    """When the GPUs in use change, and how many each of `TENANTS` has from then on."""
    changes = [
        (at_s, TENANTS.index(tenant), sign * attempt.gpus)
        for tenant, attempt in had
        for at_s, sign in ((attempt.start_s, 1), (attempt.end_s, -1))
    ]
    changes.sort()
    used = np.zeros((len(TENANTS), len(changes)))
    for column, (_, tenant, gpus) in enumerate(changes):
        used[tenant, column:] += gpus
    return np.array([at_s for at_s, _, _ in changes]), used
