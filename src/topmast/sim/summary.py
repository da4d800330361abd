"""The summary of a run: the document of `--json`, from sums and from columns over finished jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topmast.model.job import Band
from topmast.sim.recorder import Recorder

Floats = NDArray[np.float64]
PERCENTILES = (50, 90, 99)
STEADY = (0.7, 0.9)
"""Between these parts of the window jobs are submitted that tell of a run without its beginning
and its end.
"""


def distribution(values: Floats) -> dict[str, float | None]:
    """Mean and percentiles (linear between neighbours); null of nothing."""
    if not len(values):
        return {"mean": None, **{f"p{p}": None for p in PERCENTILES}}
    found = np.percentile(values, PERCENTILES)
    return {
        "mean": float(values.mean()),
        **{f"p{p}": float(x) for p, x in zip(PERCENTILES, found, strict=True)},
    }


def summary_of(recorder: Recorder, window: tuple[float, float]) -> dict[str, Any]:
    """All metrics of a run. O(jobs log jobs)."""
    totals, done = recorder.totals, recorder.finished
    jct_s, wait_s = np.array(done.jct_s), np.array(done.wait_s)
    jobs = sum(totals.states.values())
    ratios = recorder.timeline.ratios()
    finished = totals.states.get("SUCCEEDED", 0)
    return {
        "jobs": jobs,
        "finished": finished,
        "failed": totals.states.get("FAILED", 0),
        "jct_s": distribution(jct_s),
        "jct_steady_s": distribution(jct_s[_steady(recorder, window)]),
        "wait_s": distribution(wait_s),
        "first_wait_s": distribution(np.array(done.first_wait_s)),
        "makespan_s": max(0.0, totals.last_finish_s - window[0]) if totals.attempts else 0.0,
        "allocation_rate": _rate(totals.held_in_window_gpu_s, totals.present_in_window_gpu_s),
        "allocation_rate_waiting": _rate(totals.held_waiting_gpu_s, totals.present_waiting_gpu_s),
        "allocation_rate_waiting_in_window": _rate(
            totals.held_waiting_in_window_gpu_s, totals.present_waiting_in_window_gpu_s
        ),
        "goodput_rate": _rate(totals.kept_in_window_gpu_s, totals.present_in_window_gpu_s),
        "stranded_gpu_rate": _rate(totals.stranded_waiting_gpu_s, totals.present_waiting_gpu_s),
        "demand_supply_ratio": {"max": max(ratios.values(), default=0.0), "by_region": ratios},
        "non_collocation_rate": _rate(totals.started_elsewhere, jobs),
        "replication_overhead": _replication(recorder, window),
        "attempts": totals.attempts,
        "preemptions": totals.preemptions,
        "migrations": totals.migrations,
        "resizes": totals.resizes,
        "restarts": totals.restarts,
        "lost_gpu_s": totals.lost_gpu_s,
        "ftf_rho": distribution(np.array(done.fairness)),
        "deadlines": totals.deadlines,
        "deadlines_met": totals.deadlines_met,
        "by": _groups(recorder, jct_s, wait_s),
    }


def _steady(recorder: Recorder, window: tuple[float, float]) -> NDArray[np.bool_]:
    """Which of the jobs that succeeded came when the fleet was as full as it gets, and others
    came behind them.
    """
    submit_s, (first_s, last_s) = np.array(recorder.finished.submit_s), window
    low_s, high_s = (first_s + part * (last_s - first_s) for part in STEADY)
    steady: NDArray[np.bool_] = (submit_s >= low_s) & (submit_s < high_s)
    return steady


def _replication(recorder: Recorder, window: tuple[float, float]) -> dict[str, float]:
    """Bytes beyond one copy of each dataset, over those of one copy: in the end, and the mean."""
    one, span_s = recorder.one_copy_bytes, window[1] - window[0]
    if not one:
        return {"end": 0.0, "mean": 0.0}
    end = recorder.replica_bytes / one - 1.0
    mean = recorder.totals.replica_byte_s / span_s / one - 1.0 if span_s > 0 else end
    return {"end": end, "mean": mean}


def _rate(part: float, whole: float) -> float | None:
    """None where there is nothing to have a part of, as in a window without length."""
    return part / whole if whole else None


def _groups(recorder: Recorder, jct_s: Floats, wait_s: Floats) -> dict[str, Any]:
    """JCT and wait by band, tenant, GPU model and size of the gang."""
    done = recorder.finished
    bands = {int(band): band.name.lower() for band in sorted(Band, reverse=True)}
    tenants = {code: name for name, code in recorder.tenants.items()}
    models = {code: name for name, code in recorder.models.items()}
    sizes = {x: f"{x:g}" for x in sorted(set(done.gpus))}
    return {
        "band": _grouped(done.band, bands, jct_s, wait_s),
        "tenant": _grouped(done.tenant, tenants, jct_s, wait_s),
        "gpu_model": _grouped(done.model, models, jct_s, wait_s),
        "size": _grouped(done.gpus, sizes, jct_s, wait_s),
    }


def _grouped(
    column: Sequence[float], names: dict[Any, str], jct_s: Floats, wait_s: Floats
) -> dict[str, Any]:
    values = np.array(column)
    found = {}
    for code, name in names.items():
        rows = values == code
        count = int(rows.sum())
        if count:
            found[name] = {
                "jobs": count,
                "jct_s": distribution(jct_s[rows]),
                "wait_s": distribution(wait_s[rows]),
            }
    return found
