"""GPU-hours held, kept and lost over a period, by tenant, user or GPU model."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.queue import JobRecord
from topmast.model.job import MILLI
from topmast.model.views import UsageRow
from topmast.ports import AttemptRow, UsageDay

DAY_S = 86_400.0
KEYS = ("tenant", "user", "gpu")


def running_rows(records: Iterable[JobRecord], now: float) -> list[AttemptRow]:
    """Running attempts, as if they ended now with all their work kept."""
    return [
        AttemptRow(
            r.id, r.epoch, r.spec.tenant, r.spec.user, r.region or "", r.cluster or "",
            r.model or "", r.gpus_milli or 0, r.start_s, now, now - r.start_s, "running",
        )
        for r in records
        if r.plan is not None and r.start_s is not None
    ]  # fmt: skip


def usage(
    attempts: Iterable[AttemptRow],
    by: str,
    since_s: float,
    until_s: float,
    days: Iterable[UsageDay] = (),
) -> tuple[UsageRow, ...]:
    """Sum attempts over a period, by ``tenant``, ``user`` or ``gpu``; largest first.

    If an attempt overlaps the period in part, the same part of its kept work counts. Of a day of
    forgotten jobs that overlaps it in part, the same part. O(attempts + days).
    """
    sums: dict[str, list[float]] = {}
    for row in attempts:
        held_s = min(row.end_s, until_s) - max(row.start_s, since_s)
        whole_s = row.end_s - row.start_s
        if held_s <= 0 or whole_s <= 0:
            continue
        key = {"tenant": row.tenant, "user": row.user, "gpu": row.model}[by] or "-"
        gpu_h = held_s * row.gpus_milli / MILLI / 3600.0
        total = sums.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += 1
        total[1] += gpu_h
        total[2] += gpu_h * row.kept_s / whole_s
    for day in days:
        part = (min(day.day_s + DAY_S, until_s) - max(day.day_s, since_s)) / DAY_S
        if part <= 0:
            continue
        key = {"tenant": day.tenant, "user": day.user, "gpu": day.model}[by] or "-"
        total = sums.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += day.attempts
        total[1] += part * day.held_gpu_s / 3600.0
        total[2] += part * day.kept_gpu_s / 3600.0
    rows = [
        UsageRow(key, int(count), held, kept, held - kept)
        for key, (count, held, kept) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.held_gpu_h, row.key)))
