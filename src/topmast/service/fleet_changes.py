"""Changes of the fleet of a running server: shown first, checked, and refused on a stale base."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.act_views import FleetDiff, FleetView
from topmast.model.errors import Conflict, InvalidInput, TopmastError
from topmast.model.files.fleetdump import dump_fleet
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.model.fleet_changes import (
    FleetChange,
    fleet_changes,
    fleet_version,
    with_what_stays,
)
from topmast.model.states import HostState
from topmast.service.access import act, json_text, row
from topmast.service.pausing import Pausing

PARTS = ("fleet", "tenants")


class FleetChanges(Pausing):
    """What operators do with the whole fleet."""

    async def fleet(self, caller: Caller) -> FleetView:
        """The fleet as a fleet file, and its version."""
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        fleet = await self._ask(lambda: self.machines.queue.fleet)
        return FleetView(fleet_version(fleet), dump_fleet(fleet))

    async def fleet_diff(self, caller: Caller, document: dict[str, Any]) -> FleetDiff:
        """What another fleet file would change."""
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        found, _ = await self._compared(document)
        return found

    async def fleet_apply(
        self, caller: Caller, document: dict[str, Any], base: str, reason: str
    ) -> FleetDiff:
        """Take up another fleet file, made from version ``base``; returns what that changed."""
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        try:
            found, fleet = await self._compared(document)
            self._check_apply(found, base)
        except TopmastError as error:
            line = row(caller, "fleet-apply", base, outcome=f"refused: {error}")
            await asyncio.wrap_future(self.runtime.note(line))
            raise
        changes = [f"{change.what}: {change.change}" for change in found.changes]
        after = json_text(changes=changes, reason=reason)
        done = act(caller, "fleet-apply", found.version, after=after)
        await self._tell(ids.QUEUE, m.ConfigureFleet(fleet, base=found.version), done)
        await self._drain_leaving(caller, found)
        version = await self._ask(lambda: fleet_version(self.machines.queue.fleet))
        return replace(found, version=version)

    def _check_apply(self, found: FleetDiff, base: str) -> None:
        """Raises Conflict if a running server cannot take up what was found."""
        if base and base != found.version:
            raise Conflict(
                f"the fleet is another since version {base}: now it is {found.version}; "
                "look at the differences again"
            )
        if (fixed := [change for change in found.changes if not change.live]) != []:
            raise Conflict(
                f"{fixed[0].what}: {fixed[0].change}: a running server cannot do that; "
                "stop it, and start it with this file (--fleet)"
            )

    async def _compared(self, document: dict[str, Any]) -> tuple[FleetDiff, Fleet]:
        """A document beside the fleet as it is. Raises InvalidInput."""
        parts = [part for part in PARTS if document.get(part) is not None]
        if len(parts) != 1 or not isinstance(document[parts[0]], dict):
            raise InvalidInput("give a whole fleet, or its tenants", field="fleet")
        now = await self._ask(lambda: self.machines.queue.fleet)
        given: dict[str, Any] = document[parts[0]]
        if parts == ["tenants"]:
            given = {**dump_fleet(now), "tenants": given}
        fleet = with_what_stays(parse_fleet(given), now)
        changes = fleet_changes(now, fleet)
        changes = await self._ask(lambda: tuple(self._with_jobs(change) for change in changes))
        gone = [change.what.partition(" ")[2] for change in changes if _is_gone(change, "tenant")]
        return FleetDiff(fleet_version(now), changes, self.directory.left_at(gone)), fleet

    def _with_jobs(self, change: FleetChange) -> FleetChange:
        """Of a host or tenant that goes: the jobs that are there."""
        name = change.what.partition(" ")[2]
        records = self.machines.queue.jobs.records
        if not (_is_gone(change, "host") or _is_gone(change, "tenant")):
            return change
        if _is_gone(change, "tenant"):
            jobs = [r.id for r in records.values() if r.spec.tenant == name and not r.finished]
        else:
            placed = self.machines.queue.jobs.placed
            jobs = [r.id for r in placed.values() if name in r.hosts]
        return replace(change, jobs=tuple(jobs))

    async def _drain_leaving(self, caller: Caller, found: FleetDiff) -> None:
        """Hosts that leave while jobs are there are drained: the jobs move as soon as they can."""
        leaving = [c.what.partition(" ")[2] for c in found.changes if c.jobs]
        by = self.access.by(caller, "")
        for name, placer in sorted(self.machines.placers.items()):
            here = [host for host in leaving if host in placer.columns.index]
            if here:
                order = m.SetHost(here[0], HostState.DRAINING, by, also=tuple(here[1:]) or UNSET)
                await self._tell(ids.placer(name), order, act(caller, "drain", ",".join(here)))


def _is_gone(change: FleetChange, kind: str) -> bool:
    return change.change == "removed" and change.what.startswith(f"{kind} ")
