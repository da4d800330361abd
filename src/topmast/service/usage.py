"""GPU-hours held, kept, lost and idle over a period, by tenant, user, GPU model or label."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from topmast.fast.queue import JobRecord
from topmast.model.errors import InvalidInput
from topmast.model.files.labels import LABEL_KEY
from topmast.model.job import MILLI
from topmast.model.job_extras import label_in, labels_text
from topmast.model.prices import PriceOf
from topmast.model.selector import LABEL, check_label
from topmast.model.units import show
from topmast.model.views import UsageRow
from topmast.ports import AttemptRow, UsageDay

DAY_S = 86_400.0
KEYS = ("tenant", "user", "gpu")
ANY_KEY = rf"^({'|'.join(KEYS)}|{re.escape(LABEL)}{LABEL_KEY})$"
"""What GPU-hours are added up by: one of the keys, or the key of a label."""
NAMELESS = "-"
"""What counts for none of them."""


class _Sum:
    """What counts under one name."""

    def __init__(self) -> None:
        self.attempts = 0
        self.held_gpu_h = self.kept_gpu_h = self.idle_gpu_h = self.cost_usd = (
            self.unpriced_gpu_h
        ) = 0.0

    def add(self, attempts: int, held_gpu_h: float, kept_gpu_h: float, idle_gpu_h: float) -> None:
        """Add what attempts held and kept, and how much of it was idle."""
        self.attempts += attempts
        self.held_gpu_h += held_gpu_h
        self.kept_gpu_h += kept_gpu_h
        self.idle_gpu_h += idle_gpu_h

    def charge(self, price: PriceOf | None, of: AttemptRow | UsageDay, held_gpu_h: float) -> None:
        """Add what that costs, as far as there is a price."""
        usd = None if price is None else price(of.region, of.model)
        if usd is not None:
            self.cost_usd += held_gpu_h * usd
        elif price is not None:
            self.unpriced_gpu_h += held_gpu_h

    def row(self, key: str) -> UsageRow:
        """The sums, as people are shown them."""
        held, kept = self.held_gpu_h, self.kept_gpu_h
        more = (self.cost_usd, self.unpriced_gpu_h, self.idle_gpu_h)
        lost = max(0.0, held - kept)  # a hair less than nothing, where the parts were rounded
        return UsageRow(key, self.attempts, held, kept, lost, *more)


def check_key(by: str) -> None:
    """Refuse what GPU-hours are not added up by. Raises InvalidInput."""
    check_label(by, "by")
    if by not in KEYS and not by.startswith(LABEL):
        known = ", ".join((*KEYS, f"{LABEL}KEY"))
        raise InvalidInput(f"{show(by)} is not one of {known}", field="by")


def running_rows(records: Iterable[JobRecord], now: float) -> list[AttemptRow]:
    """Running attempts, as if they ended now with all their work kept."""
    return [
        AttemptRow(
            r.id, r.epoch, r.spec.tenant, r.spec.user, r.region or "", r.cluster or "",
            r.model or "", r.gpus_milli or 0, r.start_s, now, now - r.start_s, "running",
            labels_text(r.spec.labels), r.idle_s(now),
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
    price: PriceOf | None = None,
) -> tuple[UsageRow, ...]:
    """Sum attempts over a period, by ``tenant``, ``user``, ``gpu`` or a label; largest first.

    If an attempt overlaps the period in part, the same part of its kept work and of its idle time
    counts. Of a day of
    forgotten jobs that overlaps it in part, the same part; it knows no labels. ``price`` None:
    nothing is known of prices. O(attempts + days).
    """
    name = _namer(by)
    sums: dict[str, _Sum] = {}
    for row in attempts:
        held_s = min(row.end_s, until_s) - max(row.start_s, since_s)
        whole_s = row.end_s - row.start_s
        if held_s <= 0 or whole_s <= 0:
            continue
        gpu_h = held_s * row.gpus_milli / MILLI / 3600.0
        total = sums.setdefault(name(row), _Sum())
        total.add(1, gpu_h, gpu_h * row.kept_s / whole_s, gpu_h * row.idle_s / whole_s)
        total.charge(price, row, gpu_h)
    for day in days:
        part = (min(day.day_s + DAY_S, until_s) - max(day.day_s, since_s)) / DAY_S
        if part <= 0:
            continue
        gpu_s = (day.held_gpu_s, day.kept_gpu_s, day.idle_gpu_s)
        held_h, kept_h, idle_h = (part * x / 3600.0 for x in gpu_s)
        total = sums.setdefault(name(day), _Sum())
        total.add(day.attempts, held_h, kept_h, idle_h)
        total.charge(price, day, held_h)
    rows = [sums[key].row(key) for key in sums]
    return tuple(sorted(rows, key=lambda row: (-row.held_gpu_h, row.key)))


def _namer(by: str) -> Callable[[AttemptRow | UsageDay], str]:
    """The name under which a row counts."""
    field = "model" if by == "gpu" else by
    if not by.startswith(LABEL):
        return lambda row: getattr(row, field) or NAMELESS
    key = by.removeprefix(LABEL)
    value = cache(lambda text: label_in(text, key))  # many rows have the same labels
    return lambda row: value(getattr(row, "labels", "")) or NAMELESS
