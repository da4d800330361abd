"""What one look at a cluster costs while its scheduler knows many parts, which never run."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.launcher import Launcher, Unreachable
from topmast.adapters.engines.registry import ENGINES
from topmast.bench.engines.bare import Bare, part_named
from topmast.bench.engines.gangs import options_of
from topmast.model.errors import Unavailable
from topmast.model.fleet import ClusterSpec

LOOKS = 5
AT_ONCE = 8
NOWHERE = "https://127.0.0.1:9"
TOO_MANY_CPUS = 100_000.0
"""So many has no host: for schedulers that cannot hold a part back."""
SETTLE_S = 60.0


def measure_listing(cluster: ClusterSpec, bare: Bare, jobs: int) -> dict[str, float | int | None]:
    """Seconds for one listing of parts and hosts, ours and the tool's, in turns."""
    kind = ENGINES[cluster.engine]
    if not issubclass(kind, FarEngine) or not jobs:
        return {"listing_s": None, "bare_listing_s": None, "listing_jobs": 0}
    launcher = kind.launcher_type(cluster, secrets.token_hex(4), options_of(cluster))
    launcher.open(NOWHERE)
    try:
        return _measured(cluster, launcher, bare, jobs)
    finally:
        launcher.close()


def _measured(
    cluster: ClusterSpec, launcher: Launcher, bare: Bare, jobs: int
) -> dict[str, float | int | None]:
    fleet, hosts = launcher.__dict__["_fleet"], [host.name for host in cluster.hosts]
    cpus = TOO_MANY_CPUS if cluster.engine == "kubernetes" else 0.0
    parts = [
        part_named(f"tm-{fleet}-bench{n}-1-0", [hosts[n % len(hosts)]], cluster.image or "", cpus)
        for n in range(jobs)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            list(pool.map(launcher.submit, parts))
            ours, theirs = [], []
            for _ in range(LOOKS):
                ours.append(_timed(lambda: (launcher.list(), launcher.hosts())))
                theirs.append(_timed(bare.list))
            found = len(launcher.list())
        finally:
            _clear(launcher, pool)
    if found < jobs:
        raise Unavailable(f"cluster {cluster.name} lists {found} of {jobs} parts")
    return {
        "listing_s": statistics.median(ours),
        "bare_listing_s": statistics.median(theirs),
        "listing_jobs": found,
    }


def _timed(ask: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    ask()
    return time.perf_counter() - began_s


def _clear(launcher: Launcher, pool: ThreadPoolExecutor) -> None:
    """Cancel and forget them all."""
    until_s = time.monotonic() + SETTLE_S
    with suppress(Unreachable):
        found = launcher.list()
        list(pool.map(lambda one: launcher.cancel(one, 0.0), found))
        while found and time.monotonic() < until_s:
            list(pool.map(launcher.forget, found))
            left = [one for one in launcher.list() if one.state != "ended"]
            if not left:
                return
            time.sleep(1.0)
