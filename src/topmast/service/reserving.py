"""Reservations of hosts: the people that may make them, which jobs they concern, their list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.act_views import ReservationView
from topmast.model.errors import MOST_TOLD, Faults, InvalidInput, NotFound, refuse_all
from topmast.model.files.fields import no_such, one_of
from topmast.model.fleet_selector import selected
from topmast.model.window import Window
from topmast.service.access import act, json_text
from topmast.service.quoting import Quoting

MOST = 1_000
"""Reservations at a time."""
LONGEST_S = 366 * 86_400.0


class Reserving(Quoting):
    """What operators do with reservations."""

    async def reservations(self, caller: Caller) -> tuple[ReservationView, ...]:
        """All reservations, the first to begin first."""
        self.limits.take(caller, "list")
        await self.regions.look()
        known = await self._ask(lambda: list(self.machines.queue.windows.known.values()))
        found = [
            await self._ask(partial(self._reservation, one.window, bool(one.begun)))
            for one in known
        ]
        return self._shown(caller, tuple(sorted(found, key=lambda view: (view.from_s, view.name))))

    async def reserve(
        self, caller: Caller, wanted: Window, selector: str = "", *, dry_run: bool = False
    ) -> ReservationView:
        """Reserve hosts, or say which hosts and jobs that would concern.

        ``wanted`` has no name; ``selector`` is an alternative to its hosts, cluster and region.
        """
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        window = await self._checked(caller, wanted, selector)
        if dry_run:
            return self._shown(caller, await self._ask(partial(self._reservation, window, False)))
        what = window.cluster or window.region or ",".join(window.hosts)
        note = json_text(
            reason=window.reason, from_s=window.from_s, until_s=window.until_s,
            tenants=window.tenants,
        )  # fmt: skip
        name = await self._tell(
            ids.QUEUE, m.SetWindow(window), act(caller, "reserve", what, after=note)
        )
        known = self.machines.queue.windows.known
        begun = await self._ask(lambda: name in known and bool(known[name].begun))
        view = await self._ask(partial(self._reservation, replace(window, name=name), begun))
        return self._shown(caller, view)

    async def end_reservation(
        self, caller: Caller, name: str, by: str, reason: str, *, dry_run: bool = False
    ) -> ReservationView:
        """End a reservation before its time; answers what it was."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_OPERATE, ROOT)
        known = await self._ask(lambda: dict(self.machines.queue.windows.known))
        one = known.get(name)
        if one is None:
            there = one_of(name, known) or "there is none"
            raise NotFound(f"no reservation '{name}' ({there})")
        view = await self._ask(partial(self._reservation, one.window, bool(one.begun)))
        if not dry_run:
            order = m.EndWindow(name, self.access.by(caller, by), reason or UNSET)
            note, look = json_text(reason=reason), partial(self._window_of, name)
            line = act(caller, "end-reservation", name, look=look, after=note)
            await self._tell(ids.QUEUE, order, line)
        return self._shown(caller, view)

    # --- which hosts, and which jobs ------------------------------------------------------------

    async def _checked(self, caller: Caller, wanted: Window, selector: str) -> Window:
        """A window that names what there is. Raises InvalidInput, NotFound."""
        named = (wanted.hosts, wanted.cluster, wanted.region, selector.strip())
        faults = Faults()
        if sum(map(bool, named)) != 1:
            many = "; one of these, not several" if any(named) else ""
            told = f"name hosts, a cluster or a region, or give a selector{many}"
            faults.add(told, "hosts", "host=* selects all hosts")
        now = self.clock.now()
        wanted = replace(wanted, from_s=wanted.from_s or now)
        faults.of(lambda: refuse_all(_time_faults(wanted, now)))
        queue = self.machines.queue
        tenants = await self._ask(lambda: tuple(queue.tenancy.ledger.tenants))
        views: tuple[v.HostView, ...] = await self._list("hosts")
        fleet = queue.fleet
        clusters = [cluster.name for region in fleet.regions for cluster in region.clusters]
        regions = [region.name for region in fleet.regions]
        unknown = _unknown(
            ("tenants", "tenant", wanted.tenants, tenants),
            ("hosts", "host", wanted.hosts, [view.name for view in views]),
            ("cluster", "cluster", (wanted.cluster,) * bool(wanted.cluster), clusters),
            ("region", "region", (wanted.region,) * bool(wanted.region), regions),
        )
        faults.of(lambda: refuse_all(unknown))
        if selector.strip():
            meant = faults.of(partial(selected, "host", selector, views)) or ()
            wanted = replace(wanted, hosts=tuple(view.name for view in meant))
        faults.refuse()
        if await self._ask(lambda: len(queue.windows.known)) >= MOST:
            raise InvalidInput(f"there are {MOST} reservations already", remedy="end some")
        hosts = tuple(dict.fromkeys(wanted.hosts))
        by = self.access.by(caller, wanted.by)
        return replace(wanted, hosts=hosts, by=by)

    def _reservation(self, window: Window, begun: bool) -> ReservationView:
        """A window with the jobs that may still run when it begins. O(hosts + attempts)."""
        queue = self.machines.queue
        hosts = window.hosts_in(queue.fleet)
        reserved, jobs = frozenset(hosts), dict[str, None]()
        for placer in self.regions.placers.values():
            for allocation in placer.state.allocations.values():
                if reserved.isdisjoint(allocation.plan.hosts):
                    continue
                record = queue.jobs.records.get(allocation.job)
                if record is not None and not self._may_stay(record.spec.tenant, window):
                    left = (allocation.time_left_s, allocation.expected_s)
                    lasts_s = next((s for s in left if s is not None), None)
                    if lasts_s is None or allocation.start_s + lasts_s > window.from_s:
                        jobs[allocation.job] = None
        gpus = sum(
            host.gpus
            for region in queue.fleet.regions
            for cluster in region.clusters
            for host in cluster.hosts
            if host.name in reserved
        )
        return ReservationView(
            window.name, "begun" if begun else "planned", window.from_s, window.until_s, hosts,
            window.cluster, window.region, window.tenants, window.by, window.reason, float(gpus),
            tuple(jobs),
        )  # fmt: skip

    def _window_of(self, name: str) -> str:
        """A reservation for the audit log; empty when it is over."""
        one = self.machines.queue.windows.known.get(name)
        if one is None:
            return ""
        window = one.window
        what = window.cluster or window.region or ",".join(window.hosts)
        return json_text(what=what, from_s=window.from_s, until_s=window.until_s)

    def _may_stay(self, tenant: str, window: Window) -> bool:
        return not set(self.access.path(tenant)).isdisjoint(window.tenants)


def _time_faults(wanted: Window, now: float) -> Iterator[InvalidInput]:
    if wanted.until_s <= max(now, wanted.from_s):
        remedy = "a time to come, after its begin"
        yield InvalidInput("the reservation ends before it begins", field="until_s", remedy=remedy)
    if wanted.from_s > now + LONGEST_S:
        yield InvalidInput("begins in more than a year", field="from_s")
    elif wanted.until_s - wanted.from_s > LONGEST_S:
        yield InvalidInput("longer than a year", field="until_s")


def _unknown(*asked: tuple[str, str, Sequence[str], Sequence[str]]) -> list[NotFound]:
    """Of fields and what they name: an error for each name that is not among those there are."""
    faults = [
        no_such(what, name, there, field)
        for field, what, names, there in asked
        for name in _missing(names, there)
    ]
    left = len(faults) - MOST_TOLD
    return [*faults[:MOST_TOLD], *([NotFound(f"and {left:,} more")] if left > 0 else [])]


def _missing(names: Sequence[str], there: Sequence[str]) -> list[str]:
    known = frozenset(there)
    return [name for name in dict.fromkeys(names) if name not in known]
