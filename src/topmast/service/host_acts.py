"""Acts on hosts and clusters: which are meant, what runs there, and then do it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, Struct

from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.act_views import ClusterActed, HostEffect, HostsActed
from topmast.model.errors import Faults, InvalidInput, Unavailable
from topmast.model.files.fields import no_such
from topmast.model.fleet_selector import meant
from topmast.model.states import HostState
from topmast.service import fleet
from topmast.service.access import act, json_text
from topmast.service.following import Following
from topmast.service.limits import JOBS_PER_TAKE

LOOKS, LOOK_S = 10, 0.25
"""How long an answer waits for the process of a region apart to follow."""
VERBS = {
    "cordon": HostState.CORDONED,
    "uncordon": HostState.HEALTHY,
    "drain": HostState.DRAINING,
}
"""What each verb wants a host to be."""
_NAMES = {state: verb for verb, state in VERBS.items()}


class HostsAct(Struct, frozen=True):
    """An act on hosts, as a request says it."""

    state: HostState
    """What the hosts shall be."""
    hosts: tuple[str, ...] = ()
    selector: str = ""
    """Instead of naming hosts."""
    by: str = ""
    reason: str = ""
    at_once: bool = False
    """A drain stops also the jobs without another place."""
    until_s: float | None = None
    """When the hosts take work again by themselves."""
    dry_run: bool = False

    @property
    def verb(self) -> str:
        """What people call it."""
        return _NAMES[self.state]


class HostActs(Following):
    """What operators do to hosts and clusters."""

    async def act_on_hosts(self, caller: Caller, wanted: HostsAct) -> HostsActed:
        """Cordon, drain or return hosts, or say what that would do."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        views, faults = await self._list("hosts"), Faults()
        faults.of(partial(self._to_come, wanted.until_s))
        found = faults.of(partial(meant, "host", wanted.hosts, wanted.selector, views))
        faults.refuse()
        changed = [one for one in found if not _is_so(one, wanted)]
        by_region: dict[str, list[str]] = {}
        for one in found:
            by_region.setdefault(one.region, []).append(one.name)
        for region in by_region:
            self._reachable(region)
        drains = await self._drains(by_region) if wanted.state is HostState.DRAINING else ()
        if not wanted.dry_run:
            for region, names in by_region.items():
                await self._set_hosts(caller, region, names, wanted)
            found = await self._as_set(found, wanted.state)
        touched = {one.name for one in changed}
        effects = (
            HostEffect(one.name, "done" if one.name in touched else "unchanged") for one in found
        )
        acted = HostsActed(
            wanted.verb, wanted.dry_run, tuple(found), tuple(effects),
            sum(one.gpus for one in changed),
            tuple(dict.fromkeys(job for one in changed for job in one.jobs)), drains,
        )  # fmt: skip
        return self._shown(caller, acted)

    async def set_host(
        self, caller: Caller, host: str, wanted: HostsAct, also: Sequence[str] = ()
    ) -> v.HostView:
        """Cordon, drain or return a host, and with it others of its region."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        views: tuple[v.HostView, ...] = await self._list("hosts")
        faults = Faults()
        faults.of(partial(self._to_come, wanted.until_s))
        region, others = faults.rest_of(partial(fleet.together, views, host, also)) or ("", ())
        faults.refuse()
        self._reachable(region)
        before = [one for one in views if one.name == host]
        if wanted.dry_run:
            return self._shown(caller, before[0])
        await self._set_hosts(caller, region, (host, *others), wanted)
        return (await self._as_set(before, wanted.state))[0]

    async def act_on_clusters(
        self, caller: Caller, verb: str, clusters: Sequence[str], selector: str, *, by: str = "",
        reason: str = "", until_s: float | None = None, dry_run: bool = False,
    ) -> tuple[ClusterActed, ...]:  # fmt: skip
        """Close clusters or open them, as `act_on_cluster`; none if one is out of reach."""
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        views, faults = await self._list("clusters"), Faults()
        faults.of(partial(self._to_come, until_s))
        found = faults.of(partial(meant, "cluster", clusters, selector, views))
        faults.refuse()
        self.limits.take(caller, "submit", 1.0 + len(found) / JOBS_PER_TAKE)
        for one in found:
            self._reachable(one.region)
        return tuple(
            [
                await self._act_on_cluster(caller, verb, one.name, by, reason, until_s, dry_run)
                for one in found
            ]
        )

    async def act_on_cluster(
        self, caller: Caller, verb: str, cluster: str, *, by: str = "", reason: str = "",
        until_s: float | None = None, dry_run: bool = False,
    ) -> ClusterActed:  # fmt: skip
        """Close a cluster to new work, or open it; or say what that would do."""
        self.limits.take(caller, "submit")
        return await self._act_on_cluster(caller, verb, cluster, by, reason, until_s, dry_run)

    async def _act_on_cluster(
        self, caller: Caller, verb: str, cluster: str, by: str, reason: str,
        until_s: float | None, dry_run: bool,
    ) -> ClusterActed:  # fmt: skip
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        views, faults = await self._list("clusters"), Faults()
        faults.of(partial(self._to_come, until_s))
        before = faults.of(partial(_cluster, cluster, views))
        faults.refuse()
        region = before.region
        self._reachable(region)
        jobs = tuple(dict.fromkeys(
            job for host in await self._list("hosts") if host.cluster == cluster
            for job in host.jobs
        ))  # fmt: skip
        by, closure = self.access.by(caller, by), None
        if verb == "close":
            more = f": {reason}" if reason else ""
            why = f"{by or 'an unknown user'} closed the cluster{more}"
            until = UNSET if until_s is None else until_s
            closure = m.Closure(why, cluster, until_s=until)
        known = await self._ask(lambda: fleet.closure_of(self.regions.placers[region], cluster))
        effect = "unchanged" if closure == known else "done"
        if not dry_run:
            order = m.SetClosure(cluster, closure, by, reason or UNSET)
            note = json_text(reason=reason, until_s=until_s, jobs=len(jobs))
            look = partial(fleet.closed_by, self.machines.placers.get(region), cluster)
            line = act(caller, f"{verb}-cluster", cluster, look=look, after=note)
            await self._tell(ids.placer(region), order, line)
            for _ in range(LOOKS):
                before = _cluster(cluster, await self._list("clusters"))
                placer = self.regions.placers[region]
                if not self.regions.is_apart(region) or (
                    fleet.closure_of(placer, cluster) == closure
                ):
                    break
                await asyncio.sleep(LOOK_S)  # the order is on its way
        return self._shown(caller, ClusterActed(verb, dry_run, before, effect, jobs))

    # --- which are meant ------------------------------------------------------------------------

    def _to_come(self, until_s: float | None) -> None:
        if until_s is not None and until_s <= self.clock.now():
            raise InvalidInput("this time is over", field="until_s", remedy="a time to come")

    def _reachable(self, region: str) -> None:
        """Raises Unavailable."""
        absence = self.machines.queue.cycle.reach.absent.get(region)
        if absence is not None:
            raise Unavailable(f"region '{region}' is out of reach: {absence.why}")

    # --- doing it -------------------------------------------------------------------------------

    async def _drains(self, by_region: dict[str, list[str]]) -> tuple[v.DrainView, ...]:
        now, found = self.clock.now(), list[v.DrainView]()
        for region, names in by_region.items():
            placer = self.regions.placers[region]
            found += await self._ask(partial(fleet.drain_plans, placer, names, now))
        return tuple(found)

    async def _set_hosts(
        self, caller: Caller, region: str, hosts: Sequence[str], wanted: HostsAct
    ) -> None:
        """One order, and one line of the audit log, for the hosts of a region."""
        order = m.SetHost(
            hosts[0], wanted.state, self.access.by(caller, wanted.by), wanted.at_once,
            tuple(hosts[1:]) or UNSET, wanted.reason or UNSET,
            UNSET if wanted.until_s is None else wanted.until_s,
        )  # fmt: skip
        placer = self.machines.placers.get(region)
        note = json_text(reason=wanted.reason) if wanted.reason else ""
        look = partial(fleet.states, placer, hosts)
        done = act(caller, wanted.verb, ",".join(hosts), look=look, after=note)
        await self._tell(ids.placer(region), order, done)

    async def _as_set(self, hosts: Sequence[v.HostView], state: HostState) -> list[v.HostView]:
        """The hosts as they stand; of a region apart when they follow, or after a while."""
        names = [host.name for host in hosts]
        for _ in range(LOOKS):
            of = {host.name: host for host in await self._list("hosts")}
            found = [of[name] for name in names if name in of]
            apart = [host for host in found if self.regions.is_apart(host.region)]
            if all(host.state == state.value for host in apart):
                break
            await asyncio.sleep(LOOK_S)  # the order is on its way
        return found


def _cluster(name: str, views: Sequence[v.ClusterView]) -> v.ClusterView:
    """The cluster of a name. Raises NotFound."""
    found = next((one for one in views if one.name == name), None)
    if found is None:
        raise no_such("cluster", name, [one.name for one in views])
    return found


def _is_so(host: v.HostView, wanted: HostsAct) -> bool:
    """Whether nothing is to be done to a host, but perhaps to move its jobs."""
    said = not wanted.reason or host.reason == wanted.reason
    return said and host.state == wanted.state.value and host.until_s == wanted.until_s
