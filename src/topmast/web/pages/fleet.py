"""The fleet: a map of all GPUs, regions and clusters, hosts, and what one host is up to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.map_views import FleetMap, HostCells
from topmast.model.states import TERMINAL, WAITING
from topmast.model.views import DrainView, JobView
from topmast.web.candidates import MEANING, Candidate, candidates
from topmast.web.explanations import explanation_of, rejections_of
from topmast.web.page import Ask, Page
from topmast.web.words import plural

ROWS = 200
HOUR_S = 3_600.0
WAYS = {
    "tenant": "the tenant", "band": "the band", "use": "idle but held",
    "health": "the health of hosts",
}  # fmt: skip
SENTENCES = {
    "healthy": "takes work",
    "suspect": "has not been heard of for a moment, and takes no new work until it answers",
    "draining": "takes no new work; its jobs move elsewhere",
    "cordoned": "takes no new work; what runs there goes on",
    "closed": "is given no new work by its own cluster",
    "down": "does not answer, and what ran there is lost",
    "stopped": "is halted",
}
"""What a state of a host means."""


class HostRow(Struct, frozen=True):
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


async def view(ask: Ask) -> dict[str, Any]:
    """The fleet, with what the URL asks for."""
    given = ask.filters("region", "cluster", "model", "state", "host", "by", "from", "job")
    service, caller = ask.service, ask.caller
    whole = await service.fleet_map(caller)
    found = [row for row in _rows(whole) if _is_wanted(row, given)]
    first = int(given["from"]) if given["from"].isdecimal() else 0
    story = drain = None
    if given["host"]:
        story = await service.host_story(caller, given["host"])
        if story.host.jobs and story.host.reachable:
            drain = await service.drain_plan(caller, given["host"])
    job = (await service.story(caller, given["job"])).job if given["job"] else None
    places, trouble = await _places(ask, job)
    every = list(_rows(whole))
    rejected = await rejections_of(ask, job) if places and job is not None else {}
    return {
        "given": given,
        "ways": WAYS,
        "sentences": SENTENCES,
        "regions": await service.list(caller, "regions"),
        "clusters": await service.list(caller, "clusters"),
        "gpus": await service.list(caller, "gpus"),
        "models": sorted({row.host.model for row in every if row.host.model}),
        "states": sorted({row.host.state for row in every}),
        "jobs": whole.jobs,
        "rows": found[first : first + ROWS],
        "first": first,
        "total": len(found),
        "after": first + ROWS if first + ROWS < len(found) else None,
        "sick": [row for row in every if row.host.state != "healthy"][:ROWS],
        "story": story,
        "drain": drain,
        "hit": _hit(drain),
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


def _hit(drain: DrainView | None) -> dict[str, float]:
    """What a drain costs in all."""
    moves = () if drain is None else drain.moves
    return {
        "moves": sum(move.moves for move in moves),
        "stays": sum(not move.moves for move in moves),
        "lost_gpu_h": sum(move.cost_gpu_s for move in moves if move.moves) / HOUR_S,
    }


def _rows(whole: FleetMap) -> Iterator[HostRow]:
    for region in whole.regions:
        for cluster in region.clusters:
            for host in cluster.hosts:
                yield HostRow(region.name, cluster.name, host)


def _is_wanted(row: HostRow, given: dict[str, str]) -> bool:
    has = {
        "region": row.region, "cluster": row.cluster, "model": row.host.model,
        "state": row.host.state,
    }  # fmt: skip
    return all(given[name] in ("", value) for name, value in has.items())


PAGE = Page("/fleet", "Fleet", Permission.FLEET_VIEW, "fleet.html", view, place=20, follows="all")
