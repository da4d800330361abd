"""The fleet: a map of all GPUs, regions and clusters, hosts, and what one host is up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.map_views import FleetMap, HostCells
from topmast.model.states import TERMINAL, WAITING
from topmast.model.views import ClusterView, GpuView, JobView
from topmast.web.candidates import MEANING, Candidate, candidates
from topmast.web.explanations import explanation_of, rejections_of
from topmast.web.page import Ask, Page, matches_nothing
from topmast.web.words import plural

ROWS = 100
WAYS = {
    "tenant": "the tenant", "band": "the priority", "use": "idle but held",
    "health": "the health of hosts",
}  # fmt: skip
SENTENCES = {
    "healthy": "takes work",
    "suspect": "is not trusted for a moment",
    "draining": "takes no new work; what can move elsewhere moves",
    "cordoned": "takes no new work; what runs there goes on",
    "closed": "is given no new work by its own cluster",
    "down": "does not answer, and what ran there is lost",
    "stopped": "starts nothing until it goes on",
}
"""What a state of a host means."""


class HostRow(Struct, frozen=True, gc=False):
    """A host of the table."""

    region: str
    cluster: str
    host: HostCells

    @property
    def free(self) -> float:
        """GPUs that a job could have now."""
        if self.host.state != "healthy":
            return 0.0
        return max(0.0, self.host.gpus - sum(self.host.held.values()))


class Glance(Struct, frozen=True):
    """The whole fleet, added up."""

    gpus: float
    free: float
    away: float
    """On hosts that take no work, and held by no job."""
    hosts: int
    healthy: int
    open: int
    """Clusters that take work."""
    out_of_reach: tuple[str, ...]
    """Regions."""

    @property
    def held(self) -> float:
        """GPUs that jobs have."""
        return max(0.0, self.gpus - self.free - self.away)


async def view(ask: Ask) -> dict[str, Any]:
    """The fleet, with what the URL asks for."""
    given = ask.filters("region", "cluster", "model", "state", "host", "by", "job")
    whole = await ask.service.fleet_map(ask.caller)
    every = list(_rows(whole))
    found = _wanted(every, given)
    clusters = await ask.service.list(ask.caller, "clusters")
    reservations = await ask.service.reservations(ask.caller)
    return {
        "given": given,
        "no_match": _no_match(given, every, clusters, whole),
        "ways": WAYS,
        "sentences": SENTENCES,
        "glance": _glance(whole, every, clusters, await ask.service.list(ask.caller, "gpus")),
        "regions": await ask.service.list(ask.caller, "regions"),
        "clusters": clusters,
        "cluster_rows": ask.part(clusters, "clusters"),
        "cluster": next((one for one in clusters if one.name == given["cluster"]), None),
        "reservations": ask.part(reservations, "reservations"),
        "reserved": [one for one in reservations if given["host"] in one.hosts],
        "models": sorted({row.host.model for row in every if row.host.model}),
        "states": sorted({row.host.state for row in every}),
        "jobs": whole.jobs,
        "hosts": ask.part(found, most=ROWS),
        "host_selector": _selector(given),
        "sick": [row for row in every if row.host.state != "healthy"][:ROWS],
        **await _host(ask, given["host"]),
        **await _job(ask, given["job"]),
    }


def _glance(
    whole: FleetMap,
    every: Sequence[HostRow],
    clusters: Sequence[ClusterView],
    gpus: Sequence[GpuView],
) -> Glance:
    return Glance(
        sum(one.total for one in gpus), sum(one.free for one in gpus),
        sum(one.unavailable for one in gpus), len(every),
        sum(row.host.state == "healthy" for row in every),
        sum(one.state in ("open", "partly") for one in clusters),
        tuple(region.name for region in whole.regions if not region.reachable),
    )  # fmt: skip


async def _host(ask: Ask, host: str) -> dict[str, Any]:
    """What one host is up to, and what a drain would do."""
    if not host:
        return {"story": None, "drain": None}
    story = await ask.service.host_story(ask.caller, host)
    has_jobs = story.host.jobs and story.host.reachable
    drain = await ask.service.drain_plan(ask.caller, host) if has_jobs else None
    return {"story": story, "drain": drain}


async def _job(ask: Ask, name: str) -> dict[str, Any]:
    """Every host as a place for a job, or why not."""
    job = (await ask.service.story(ask.caller, name)).job if name else None
    places, trouble = await _places(ask, job)
    rejected = await rejections_of(ask, job) if places and job is not None else {}
    return {
        "job": job,
        "places": places,
        "rejected": {host: MEANING[why] for host, why in rejected.items()},
        "of_job": {
            "notes": {f"{one.region}/{one.cluster}": _note(one) for one in places},
            "name": job.id if job else "",
            "reasons": {why: MEANING[why] for why in sorted(set(rejected.values()))},
            "hosts": rejected,
        },
        "trouble": trouble,
    }


async def _places(ask: Ask, job: JobView | None) -> tuple[tuple[Candidate, ...], str]:
    """Every cluster as a place for a job; or why that is not told."""
    if job is None:
        return (), ""
    if job.state in TERMINAL:
        return (), f"{job.id} is over: it needs no place"
    if job.state not in WAITING:
        return (), f"{job.id} has its place in {job.region}/{job.cluster}"
    explanation, trouble = await explanation_of(ask, job)
    return candidates(explanation) if explanation else (), trouble


def _note(one: Candidate) -> list[str]:
    """What the map says of a cluster: the verdict, and its hosts by reason."""
    turned = [f"{plural(row.count, 'host')}: {row.why}" for row in one.turned]
    return [f"{'✓' if one.fits else '✗'} {one.verdict}", *turned]


def _rows(whole: FleetMap) -> Iterator[HostRow]:
    for region in whole.regions:
        for cluster in region.clusters:
            for host in cluster.hosts:
                yield HostRow(region.name, cluster.name, host)


def _no_match(
    given: dict[str, str],
    every: Sequence[HostRow],
    clusters: Sequence[ClusterView],
    whole: FleetMap,
) -> list[str]:
    """What is said of filters that no host can match."""
    return matches_nothing(given, {
        "region": ("region", [region.name for region in whole.regions]),
        "cluster": ("cluster", [one.name for one in clusters]),
        "model": ("GPU model", {row.host.model for row in every}),
        "state": ("host state", SENTENCES),
    })  # fmt: skip


def _selector(given: dict[str, str]) -> str:
    """The filters as a selector of hosts; a comma in a word stands for any characters."""
    words = {"region": "region", "cluster": "cluster", "model": "gpu", "state": "state"}
    return ",".join(
        f"{key}={given[name].replace(',', '*')}" for name, key in words.items() if given[name]
    )


def _wanted(every: Sequence[HostRow], given: dict[str, str]) -> Sequence[HostRow]:
    """Those that the filters let pass. O(hosts) for each filter that is set."""
    has: dict[str, Callable[[HostRow], str]] = {
        "region": lambda row: row.region, "cluster": lambda row: row.cluster,
        "model": lambda row: row.host.model, "state": lambda row: row.host.state,
    }  # fmt: skip
    for name, value_of in has.items():
        if given[name]:
            every = [row for row in every if value_of(row) == given[name]]
    return every


PAGE = Page("/fleet", "Fleet", Permission.FLEET_VIEW, "fleet.html", view, place=20, follows="all")
