"""The operator's use cases: hosts, plans and datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from topmast.adapters.handing import handed
from topmast.fast.queue import cannot_copy, cannot_drop, cannot_remove
from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.errors import Forbidden, InvalidInput, TopmastError, Unavailable
from topmast.model.files.fields import no_such
from topmast.model.fleet import Fleet
from topmast.model.history_views import FleetHistory
from topmast.model.map_views import FleetMap
from topmast.model.plan_views import CapacityPlanView, DataPlanView
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.service import fleet
from topmast.service.access import NO_REASON, Why, act, row
from topmast.service.fleet_map import seen_by
from topmast.service.history import RINGS, history_seen_by
from topmast.service.host_acts import HostActs
from topmast.service.whatif import WhatIfs, check_named

CANNOT: Mapping[type[m.Message], Callable[..., TopmastError | None]] = {
    m.RequestReplica: cannot_copy, m.DropReplica: cannot_drop, m.RemoveDataset: cannot_remove,
}  # fmt: skip
"""What tells why an order about a dataset would be refused."""


class Operating(HostActs):
    """What people do with hosts and datasets."""

    # --- the fleet ------------------------------------------------------------------------------

    async def list(self, caller: Caller, what: str) -> tuple[Any, ...]:
        """Regions, clusters, hosts, gpus, tenants or datasets."""
        self.limits.take(caller, "list")
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        found = await self._list(what, seen)
        if what == "tenants" and seen is not None:
            return tuple(tenant for tenant in found if tenant.name in seen)
        return tuple(self._shown(caller, one) for one in found) if seen is not None else found

    async def fleet_map(self, caller: Caller) -> FleetMap:
        """Every host with what holds its GPUs, as it is or was a moment ago."""
        self.limits.take(caller, "list")
        await self.regions.look()
        absent = self.machines.queue.cycle.reach.absent
        found = await self.fleet_maps.now(lambda: self.regions.placers, absent)
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        return found if seen is None else await asyncio.to_thread(seen_by, found, seen)

    async def host_story(self, caller: Caller, host: str) -> v.HostStory:
        """A host with what was done to it and what happened to it."""
        views: tuple[v.HostView, ...] = await self._list("hosts")
        view = next((h for h in views if h.name == host), None)
        if view is None:
            raise no_such("host", host, [h.name for h in views])
        known = not self.regions.is_apart(view.region)
        story = v.HostStory(view, await self._history(ids.host(host)), known)
        return self._shown(caller, story)

    async def drain_plan(self, caller: Caller, host: str, also: Sequence[str] = ()) -> v.DrainView:
        """What a drain of a host does now, or would do, if others are drained ``also``."""
        region, others = fleet.together(await self._list("hosts"), host, also)
        now, placer = self.clock.now(), self.regions.placers[region]
        found = await self._ask(lambda: fleet.drain_plans(placer, (host, *others), now))
        return self._shown(caller, found[0])

    def history(self, caller: Caller, period: str) -> FleetHistory:
        """The fleet over a period of `RINGS` up to now; other tenants' GPUs are added up."""
        if period not in RINGS:
            raise InvalidInput(
                f"'{period}' is not one of them", field="period", remedy=", ".join(RINGS)
            )
        if self.samples is None:
            now_s = self.clock.now()
            return FleetHistory(now_s, now_s, 0.0, None, (), ())
        found = self.samples.view(period)
        seen = self.access.tenants(caller, Permission.USAGE_VIEW)
        return found if seen is None else history_seen_by(found, seen)

    # --- what-ifs -------------------------------------------------------------------------------

    async def start_whatif(self, caller: Caller, asked: WhatIfAsk) -> WhatIfView:
        """Begin to run the system ahead twice, as it is and with something changed."""
        whatifs = await self.check_whatif(caller, asked)
        view = whatifs.start(asked, caller.principal.subject)
        await handed(self.runtime.note(row(caller, "whatif", view.id)))
        return view

    async def check_whatif(self, caller: Caller, asked: WhatIfAsk) -> WhatIfs:
        """What runs it. Raises InvalidInput, with all that is wrong and all that there is not."""
        whatifs = self._whatifs(caller)
        self.limits.take(caller, "explain")
        queue = self.machines.queue
        records = queue.jobs.records

        def known() -> tuple[Fleet, set[str]]:
            named = (job for job in asked.jobs if job in records)
            return queue.fleet, {job for job in named if not records[job].finished}

        faults = whatifs.check(asked)
        check_named(faults, asked, *await self._ask(known))
        faults.refuse()
        return whatifs

    def whatif(self, caller: Caller, number: str) -> WhatIfView:
        """A what-if on its way, or its result."""
        return self._whatifs(caller).view(number)

    def latest_whatifs(self, caller: Caller) -> tuple[WhatIfView, ...]:
        """The latest what-ifs since the server's start, the newest first."""
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        return () if self.whatifs is None else self.whatifs.latest()

    def _whatifs(self, caller: Caller) -> WhatIfs:
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        if self.whatifs is None:
            raise Unavailable("this server runs no what-ifs; `topmast whatif` does, on its folder")
        return self.whatifs

    # --- datasets -------------------------------------------------------------------------------

    async def add_dataset(
        self, caller: Caller, document: Any, why: Why = NO_REASON
    ) -> v.DatasetView:
        """Enter a dataset, uploading a directory of this machine first if ``source`` names one.

        That reads as the user of the server, and jobs read the copy: its keys, or its journal.
        """
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.DATA_EDIT, ROOT)
        if isinstance(document, dict) and document.get("source") is not None:
            self._require_source(caller)
        act_on = partial(act, caller, "add-dataset", after=why.note)
        spec = await self.arrivals.add(document, act_on, dry_run=why.dry_run)
        if why.dry_run:
            return v.DatasetView(
                spec.name, spec.size_bytes, spec.path, spec.allowed, spec.min_replicas, (), ()
            )
        return await self.dataset(caller, spec.name)

    def _require_source(self, caller: Caller) -> None:
        """Raises Forbidden, with what else can be done."""
        try:
            self.access.require(caller, Permission.FLEET_BUILD, ROOT)
        except Forbidden as error:
            raise Forbidden(
                f"source: {error.message}, which a folder of the server takes",
                f"{error.remedy}; or put the files into the store of the region, and leave out "
                "the source",
            ) from None

    async def data_plan(self, caller: Caller) -> DataPlanView:
        """What is planned about data."""
        if self.data_plans is None:
            raise Unavailable("this process plans no data")
        fetches = self.machines.queue.data.fetches
        fetched = await self._ask(lambda: fetches.count(self.clock.now()))
        view = self.data_plans.view()
        view = msgspec.structs.replace(view, fetched=fetched, fetched_most=fetches.most)
        return self._shown(caller, view)

    async def capacity_plan(self, caller: Caller) -> CapacityPlanView:
        """What is planned about hosts and clusters."""
        if self.capacity_plans is None:
            raise Unavailable("this process plans no capacity")
        return self._shown(caller, await self._ask(self.capacity_plans.view))

    async def dataset(self, caller: Caller, name: str) -> v.DatasetView:
        """One dataset."""
        listed = await self._list("datasets")
        found = [d for d in listed if d.name == name]
        if not found:
            raise no_such("dataset", name, [d.name for d in listed])
        view: v.DatasetView = found[0]
        return self._shown(caller, view)

    async def _change_dataset(
        self, caller: Caller, verb: str, name: str, order: m.Message, why: Why
    ) -> None:
        """Change it, or raise in a dry run what that would raise."""
        self.access.require(caller, Permission.DATA_EDIT, ROOT)
        queue = self.machines.queue
        if why.dry_run:
            if (error := await self._ask(partial(CANNOT[type(order)], queue, order))) is not None:
                raise error
            return
        catalogue = queue.data.catalogue
        look = partial(fleet.replicas, catalogue, name)
        done = act(caller, verb, name, look=look, after=why.note)
        await self._tell(ids.QUEUE, order, done)

    async def replicate(
        self, caller: Caller, name: str, region: str, by: str, why: Why = NO_REASON
    ) -> v.DatasetView:
        """Begin a copy of a dataset to a region; nothing to do if it is there."""
        self.limits.take(caller, "submit")
        order = m.RequestReplica(name, region, self.access.by(caller, by))
        await self._change_dataset(caller, "replicate", name, order, why)
        return await self.dataset(caller, name)

    async def drop(
        self, caller: Caller, name: str, region: str, why: Why = NO_REASON
    ) -> v.DatasetView:
        """Remove a replica that no job needs."""
        self.limits.take(caller, "submit")
        await self._change_dataset(caller, "drop-replica", name, m.DropReplica(name, region), why)
        return await self.dataset(caller, name)

    async def remove_dataset(
        self, caller: Caller, name: str, why: Why = NO_REASON
    ) -> v.DatasetView:
        """Forget a dataset and delete its replicas; answers what there was."""
        self.limits.take(caller, "submit")
        there = await self.dataset(caller, name)
        await self._change_dataset(caller, "remove-dataset", name, m.RemoveDataset(name), why)
        return there
