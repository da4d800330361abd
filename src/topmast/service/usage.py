"""GPU-hours held, kept and lost over a period, by tenant, user, GPU model or label."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from topmast.fast.queue import JobRecord
from topmast.model.errors import InvalidInput
from topmast.model.job import MILLI
from topmast.model.job_extras import label_in, labels_text
from topmast.model.selector import LABEL
from topmast.model.views import UsageRow
from topmast.ports import AttemptRow, UsageDay

DAY_S = 86_400.0
KEYS = ("tenant", "user", "gpu")
ANY_KEY = rf"^({'|'.join(KEYS)}|{re.escape(LABEL)}.+)$"
"""What GPU-hours are added up by: one of the keys, or the key of a label."""
NAMELESS = "-"
"""What counts for none of them."""


def check_key(by: str) -> None:
    """Refuse what GPU-hours are not added up by. Raises InvalidInput."""
    if not re.match(ANY_KEY, by):
        known = ", ".join((*KEYS, f"{LABEL}KEY"))
        raise InvalidInput(f"'{by}' is not one of {known}", field="by")


def running_rows(records: Iterable[JobRecord], now: float) -> list[AttemptRow]:
    """Running attempts, as if they ended now with all their work kept."""
    return [
        AttemptRow(
            r.id, r.epoch, r.spec.tenant, r.spec.user, r.region or "", r.cluster or "",
            r.model or "", r.gpus_milli or 0, r.start_s, now, now - r.start_s, "running",
            labels_text(r.spec.labels),
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
    """Sum attempts over a period, by ``tenant``, ``user``, ``gpu`` or a label; largest first.

    If an attempt overlaps the period in part, the same part of its kept work counts. Of a day of
    forgotten jobs that overlaps it in part, the same part; it knows no labels. O(attempts + days).
    """
    name = _namer(by)
    sums: dict[str, list[float]] = {}
    for row in attempts:
        held_s = min(row.end_s, until_s) - max(row.start_s, since_s)
        whole_s = row.end_s - row.start_s
        if held_s <= 0 or whole_s <= 0:
            continue
        key = name(row)
        gpu_h = held_s * row.gpus_milli / MILLI / 3600.0
        total = sums.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += 1
        total[1] += gpu_h
        total[2] += gpu_h * row.kept_s / whole_s
    for day in days:
        part = (min(day.day_s + DAY_S, until_s) - max(day.day_s, since_s)) / DAY_S
        if part <= 0:
            continue
        key = name(day)
        total = sums.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += day.attempts
        total[1] += part * day.held_gpu_s / 3600.0
        total[2] += part * day.kept_gpu_s / 3600.0
    rows = [
        UsageRow(key, int(count), held, kept, held - kept)
        for key, (count, held, kept) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.held_gpu_h, row.key)))


def _namer(by: str) -> Callable[[AttemptRow | UsageDay], str]:
    """The name under which a row counts."""
    field = "model" if by == "gpu" else by
    if not by.startswith(LABEL):
        return lambda row: getattr(row, field) or NAMELESS
    key = by.removeprefix(LABEL)
    value = cache(lambda text: label_in(text, key))  # many rows have the same labels
    return lambda row: value(getattr(row, "labels", "")) or NAMELESS
