"""Usage: GPU-hours held, kept, lost and idle."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from topmast.model.access import Permission
from topmast.model.selector import LABEL
from topmast.model.usage_csv import usage_csv
from topmast.routing import SECURITY_HEADERS
from topmast.service.usage import NAMELESS
from topmast.web import series
from topmast.web.page import Ask, Page, matches_nothing

HOUR_S = 3_600.0
PERIODS = {"1h": 1.0, "24h": 24.0, "7d": 168.0, "30d": 720.0, "90d": 2_160.0}
"""Hours by name."""
IN_WORDS = {**series.PERIODS, "30d": "30 days", "90d": "90 days"}
USUAL = "7d"
LONGEST = "7d"
"""Of these periods, the longest with samples."""
CSV_HEADERS = {
    **SECURITY_HEADERS, "Cache-Control": "no-store",
    "Content-Disposition": 'attachment; filename="usage.csv"',
}  # fmt: skip
LOOKED_AT = 200
"""So many jobs are looked at for labels."""
WAYS = {"tenant": "tenant", "user": "user", "gpu": "GPU model"}


async def view(ask: Ask) -> dict[str, Any] | Response:
    """The usage of a period up to now, as a page or as comma-separated values."""
    given = ask.filters("by", "period")
    by = given["by"] or "tenant"
    period = given["period"] if given["period"] in PERIODS else USUAL
    since_s = ask.service.clock.now() - PERIODS[period] * HOUR_S
    report = await ask.service.usage(ask.caller, by, since_s, None)
    rows = report["usage"]
    if ask.query.get("as") == "csv":
        text = usage_csv(by, rows, report["since_s"], report["until_s"])
        return Response(text, media_type="text/csv", headers=CSV_HEADERS)
    sampled = period if period in series.PERIODS else LONGEST
    over = ask.service.history(ask.caller, sampled)
    return {
        "by": by,
        "csv": ask.link({"by": by, "period": period}, **{"as": "csv"}),
        "period": period,
        "periods": IN_WORDS,
        "no_match": matches_nothing(given, {"period": ("period", PERIODS)}),
        "nameless": NAMELESS,
        "ways": await _ways(ask, by),
        "rows": ask.part(rows),
        "since_s": report["since_s"],
        "until_s": report["until_s"],
        "most": max((row.held_gpu_h for row in rows), default=0.0),
        "held": sum(row.held_gpu_h for row in rows),
        "over": over,
        "words": series.PERIODS[sampled],
        "chart": series.use_by_tenant(over),
        "cost": sum(row.cost_usd for row in rows),
        "priced": any(row.cost_usd or row.unpriced_gpu_h for row in rows),
        "unpriced": sum(row.unpriced_gpu_h for row in rows),
        "idle": sum(row.idle_gpu_h for row in rows),
        "lost": sum(row.lost_gpu_h for row in rows),
    }


async def _ways(ask: Ask, by: str) -> dict[str, str]:
    """What hours can be added up by: of labels, those of the newest jobs, and the chosen one."""
    keys = [by.removeprefix(LABEL)] if by.startswith(LABEL) else []
    if ask.caller.principal.may_somewhere(Permission.JOBS_VIEW):
        newest = await ask.service.jobs(ask.caller, [], "", LOOKED_AT, "", False, "")
        keys += [key for job in newest.jobs for key in job.labels or {}]
    return {**WAYS, **{f"{LABEL}{key}": f"label {key}" for key in sorted(set(keys))}}


PAGE = Page("/usage", "Usage", Permission.USAGE_VIEW, "usage.html", view, place=50)
