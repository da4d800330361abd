"""Usage: GPU-hours held, kept, lost and idle."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.web import series
from topmast.web.page import Ask, Page

HOUR_S = 3_600.0
PERIODS = {"1h": 1.0, "24h": 24.0, "7d": 168.0, "30d": 720.0, "90d": 2_160.0}
"""Hours by name."""
USUAL = "7d"
LONGEST = "7d"
"""Of these periods, the longest with samples."""
WAYS = {"tenant": "tenant", "user": "user", "gpu": "GPU model"}


async def view(ask: Ask) -> dict[str, Any]:
    """The usage of a period up to now."""
    given = ask.filters("by", "period")
    by = given["by"] or "tenant"
    period = given["period"] if given["period"] in PERIODS else USUAL
    since_s = ask.service.clock.now() - PERIODS[period] * HOUR_S
    report = await ask.service.usage(ask.caller, by, since_s, None)
    rows = report["usage"]
    sampled = period if period in series.PERIODS else LONGEST
    over = ask.service.history(ask.caller, sampled)
    return {
        "by": by,
        "period": period,
        "periods": PERIODS,
        "ways": WAYS,
        "rows": rows,
        "since_s": report["since_s"],
        "until_s": report["until_s"],
        "most": max((row.held_gpu_h for row in rows), default=0.0),
        "held": sum(row.held_gpu_h for row in rows),
        "over": over,
        "words": series.PERIODS[sampled],
        "chart": series.use_by_tenant(over),
        "idle": sum(row.idle_gpu_h for row in rows),
        "lost": sum(row.lost_gpu_h for row in rows),
    }


PAGE = Page("/usage", "Usage", Permission.USAGE_VIEW, "usage.html", view, place=50)
