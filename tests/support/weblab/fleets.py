"""Fleets that are made up, as the map of GPUs is told of them."""

from __future__ import annotations

from typing import Any

TENANTS = "vision", "speech", "robots", "search", "guests"
BANDS = "critical", "high", "normal", "low", "opportunistic"


def fleet_map(hosts: int, gpus: int, hostile: str = "job") -> dict[str, Any]:
    """Two regions with two clusters each; of five hosts one is free, and one in 24 is down."""
    jobs: dict[str, dict[str, str]] = {}
    places: list[dict[str, Any]] = []
    for at in range(hosts):
        held = {}
        if at % 5 != 4:
            job = f"j{at // 2}"
            jobs[job] = {
                "tenant": TENANTS[at // 7 % len(TENANTS)], "band": BANDS[at // 3 % len(BANDS)],
                "state": "STARTING" if at % 11 == 1 else "RUNNING", "name": hostile,
            }  # fmt: skip
            held[job] = float(gpus if at % 3 else gpus // 2)
        state = "down" if at % 24 == 23 else "healthy"
        places.append(
            {
                "name": f"h{at}", "rack": f"r{at // 4}", "model": "H100", "gpus": gpus,
                "state": state, "closed": "", "held": held,
            }
        )  # fmt: skip
    quarter = hosts // 4
    clusters = [
        {"name": f"c{i}", "hosts": places[i * quarter : (i + 1) * quarter if i < 3 else hosts]}
        for i in range(4)
    ]
    regions = [
        {"name": name, "reachable": True, "clusters": clusters[i : i + 2]}
        for i, name in ((0, "east"), (2, "west"))
    ]
    return {"at_s": 0.0, "jobs": jobs, "regions": regions}
