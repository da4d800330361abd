"""The figures of a description, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from topmast import plot
from topmast.model.errors import InvalidInput
from topmast.traces.describe import group_sizes
from topmast.traces.source import place
from topmast.traces.trace import Floats, Ints, Trace

MODELS = 5
"""So many GPU models get a line of their own."""


def draw(trace: Trace, folder: Path) -> list[Path]:
    """Draw run times, waits, requests, gangs, recurrence and arrivals; what is not known is left
    out.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "the path is not valid"
        raise InvalidInput(f"cannot be made: {reason}", where=place(folder)) from None
    paths = _runtimes(trace, folder) + _requests(trace, folder) + _gangs(trace, folder)
    waited = trace.waited_s[~np.isnan(trace.waited_s)]
    if len(waited):
        paths += _distribution(waited, folder, "waits", "Waiting before the start", "seconds")
    sizes = group_sizes(trace.group)
    if len(sizes):
        paths += _recurrence(sizes, len(trace), folder)
    return paths + _arrivals(trace.submit_s, folder)


def _distribution(values: Floats, folder: Path, name: str, title: str, unit: str) -> list[Path]:
    made = plot.figure()
    plot.steps(made, values)
    plot.wide_range(made)
    plot.label(made, title, unit, "share of jobs")
    return plot.save(made, folder, name)


def _runtimes(trace: Trace, folder: Path) -> list[Path]:
    """One line for all jobs, one for each of the most frequent GPU models."""
    made = plot.figure()
    plot.steps(made, trace.duration_s, "all")
    models = [name for name in trace.gpu_models.counts() if name][:MODELS]
    for name in models:
        rows = trace.gpu_models.codes == trace.gpu_models.names.index(name)
        plot.steps(made, trace.duration_s[rows], name)
    plot.wide_range(made)
    if models:
        plot.legend(made)
    plot.label(made, "Run times", "seconds", "share of jobs")
    return plot.save(made, folder, "runtimes")


def _requests(trace: Trace, folder: Path) -> list[Path]:
    """GPUs, CPUs and memory per task, side by side."""
    asked = {
        "GPUs per task": trace.gpus[trace.gpus > 0],
        "CPUs per task": trace.cpus[trace.cpus > 0],
        "memory per task, GB": trace.memory_gb[trace.memory_gb > 0],
    }
    known = {name: values for name, values in asked.items() if len(values)}
    if not known:
        return []
    made = plot.figure(1, len(known), inches=(4.2, 3.4))
    for axis, (name, values) in enumerate(known.items()):
        plot.steps(made, values, axis=axis)
        made.axes[axis].set_xscale("log")
        plot.label(made, "" if axis else "Requests", name, "share of jobs", axis=axis)
    return plot.save(made, folder, "requests")


def _gangs(trace: Trace, folder: Path) -> list[Path]:
    """Jobs and GPU time by the GPUs of the whole job."""
    asked = trace.total_gpus()
    ends = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, np.inf])
    names = ["0", "≤½", "≤1", "2", "≤4", "≤8", "≤16", "≤32", "≤64", "≤128", ">128"]
    at = np.searchsorted(ends, asked, side="left")
    jobs = np.bincount(at, minlength=len(names))
    held = np.bincount(at, asked * trace.duration_s, minlength=len(names))
    made = plot.figure()
    places = np.arange(len(names))
    made.axes[0].bar(places - 0.2, jobs / max(jobs.sum(), 1), 0.4, label="jobs")
    made.axes[0].bar(places + 0.2, held / max(held.sum(), 1e-300), 0.4, label="GPU time")
    made.axes[0].set_xticks(places, names)
    plot.legend(made)
    plot.label(made, "Jobs by their GPUs", "GPUs of the whole job", "share")
    return plot.save(made, folder, "gangs")


def _recurrence(sizes: Ints, jobs: int, folder: Path) -> list[Path]:
    """The share of jobs in groups with at least so many jobs."""
    made = plot.figure()
    share = np.cumsum(sizes) / jobs
    made.axes[0].plot(sizes, share, drawstyle="steps-pre")
    made.axes[0].set_xscale("log")
    made.axes[0].set_ylim(0.0, 1.0)
    plot.label(made, "Recurrence", "jobs of the group, at least", "share of jobs")
    return plot.save(made, folder, "recurrence")


def _arrivals(submit_s: Floats, folder: Path) -> list[Path]:
    """Jobs per hour over the trace, and by hour of a day that begins with it."""
    made = plot.figure(1, 2, inches=(4.8, 3.4))
    hours = (submit_s // 3600).astype(np.int64)
    first = int(hours.min(initial=0))
    count = np.bincount(hours - first)
    slots = max(1, len(count) // 500)
    padded = np.append(count, np.zeros(-len(count) % slots))
    mean = padded.reshape(-1, slots).mean(axis=1)
    made.axes[0].plot((first + np.arange(len(mean)) * slots) / 24, mean, linewidth=1.0)
    plot.label(made, "Arrivals", "days", "jobs per hour")
    made.axes[1].bar(np.arange(24), np.bincount(hours % 24, minlength=24) / max(len(submit_s), 1))
    plot.label(made, "", "hour of a day that begins with the trace", "share of jobs", axis=1)
    return plot.save(made, folder, "arrivals")
