"""Changes of the fleet of a running server: shown first, checked, and refused on a stale base."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from topmast.adapters.handing import handed
from topmast.fast.queue import GlobalQueue, jobs_in_clusters, stranded
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.act_views import FleetDiff, FleetView
from topmast.model.errors import Conflict, InvalidInput, TopmastError
from topmast.model.files.fleetdump import dump_fleet
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import DatasetSpec, Fleet
from topmast.model.fleet_changes import (
    FleetChange,
    cluster_regions,
    fleet_changes,
    fleet_version,
    is_built,
    not_live,
    with_what_stays,
)
from topmast.service.access import act, json_text, row
from topmast.service.pausing import Pausing

PARTS = ("fleet", "tenants")
NAMED = 100
"""So many changes are named in the history; the audit log has all."""


class Surroundings(Protocol):
    """The engines and stores around the machines, which follow the fleet. Calls may block."""

    def check_file(self, fleet: Fleet) -> None:
        """Raises InvalidInput for the first thing that engines find wrong with a fleet file."""
        ...

    def checked(self, fleet: Fleet) -> Fleet:
        """The fleet, each cluster told what its engine can do. Raises InvalidInput."""
        ...

    def open(self, fleet: Fleet) -> None:
        """Open the engines and stores that are new, before anything is ordered of them.

        Raises InvalidInput.
        """
        ...

    def settle(self, fleet: Fleet) -> None:
        """This is the fleet now: hear the engines that are new, and close what it does not have."""
        ...


class FleetChanges(Pausing):
    """What operators do with the whole fleet."""

    surroundings: Surroundings
    """Set by what composes the server."""

    async def fleet(self, caller: Caller) -> FleetView:
        """The fleet as a fleet file, and its version."""
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        fleet = await self._ask(lambda: self.machines.queue.fleet)
        return FleetView(fleet_version(fleet), dump_fleet(fleet))

    async def fleet_diff(self, caller: Caller, document: dict[str, Any]) -> FleetDiff:
        """What another fleet file would change."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        found, fleet = await self._compared(document)
        left = await self._ask(lambda: stranded(self.machines.queue, fleet))
        refused = (f"it would be refused now: {left}",) if left else ()
        return replace(found, warnings=(*found.warnings, *refused))

    async def fleet_apply(
        self,
        caller: Caller,
        document: dict[str, Any],
        base: str | None,
        reason: str,
        *,
        dry_run: bool = False,
    ) -> FleetDiff:
        """Take up another fleet file, made from version ``base``; returns what that changed.

        Without ``base`` it may be made from any. A ``dry_run`` ends before engines are opened.
        """
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        if dry_run:
            found, fleet = await self._compared(document)
            await self._check_apply(caller, found, fleet, base)
            return found
        async with self.building:
            try:
                found, fleet = await self._compared(document)
                await self._check_apply(caller, found, fleet, base)
                await self._open(fleet)
            except TopmastError as error:
                line = row(caller, "fleet-apply", base or "", outcome=f"refused: {error}")
                await handed(self.runtime.note(line))
                raise
            await self._configure(caller, found, fleet, reason)
        version = await self._ask(lambda: fleet_version(self.machines.queue.fleet))
        return replace(found, version=version)

    async def _open(self, fleet: Fleet) -> None:
        """Open the engines and stores that are new. Raises InvalidInput."""
        try:
            await asyncio.to_thread(self.surroundings.open, fleet)
        except BaseException:
            await self._settle()
            raise

    async def _settle(self) -> None:
        """Let engines and stores be those of the fleet as it is, whatever came of a change."""
        fleet = await self._ask(lambda: self.machines.queue.fleet)
        await asyncio.to_thread(self.surroundings.settle, fleet)

    async def _configure(self, caller: Caller, found: FleetDiff, fleet: Fleet, reason: str) -> None:
        """Let the queue have another fleet; its engines and stores are open."""
        changes = [f"{change.what}: {change.change}" for change in found.changes]
        after = json_text(changes=changes, reason=reason)
        done = act(caller, "fleet-apply", found.version, after=after)
        try:
            order = m.ConfigureFleet(
                fleet, base=found.version, by=self.access.by(caller, ""), reason=reason or UNSET,
                changed=tuple(_in_short(change) for change in found.changes[:NAMED]),
            )  # fmt: skip
            await self._tell(ids.QUEUE, order, done)
        finally:
            await self._settle()

    async def _check_apply(
        self, caller: Caller, found: FleetDiff, fleet: Fleet, base: str | None
    ) -> None:
        """Raises Conflict if a running server cannot take up what was found."""
        if any(is_built(change) for change in found.changes):
            self.access.require(caller, Permission.FLEET_BUILD, ROOT)
        if base == "":
            remedy = "the version that the shown differences are about, or no base at all"
            raise InvalidInput("is empty", field="base", remedy=remedy)
        if base is not None and base != found.version:
            raise Conflict(
                f"the fleet is another since version {base}: now it is {found.version}; "
                "make the change in what `topmast fleet show` writes now"
            )
        # The queue looks again at what is left behind: here no engine was opened for nothing.
        left = await self._ask(lambda: stranded(self.machines.queue, fleet))
        if why := "; ".join(filter(None, (not_live(found.changes), left))):
            raise Conflict(why)

    async def _compared(self, document: dict[str, Any]) -> tuple[FleetDiff, Fleet]:
        """A document beside the fleet as it is. Raises InvalidInput."""
        parts = [part for part in PARTS if document.get(part) is not None]
        if len(parts) != 1 or not isinstance(document[parts[0]], dict):
            raise InvalidInput("give a whole fleet, or its tenants", field="fleet")
        now = await self._ask(lambda: self.machines.queue.fleet)
        given: dict[str, Any] = document[parts[0]]
        if parts == ["tenants"]:
            given = {**dump_fleet(now), "tenants": given}
        check = self.surroundings.check_file if parts == ["fleet"] else None
        told = parse_fleet(given, check=check)
        fleet = self.surroundings.checked(with_what_stays(told, now))
        changes = fleet_changes(now, fleet)
        changes = await self._ask(lambda: tuple(self._with_jobs(now, c) for c in changes))
        changes += await self._ask(lambda: tuple(self._of_reservations(now, fleet)))
        gone = [change.what.partition(" ")[2] for change in changes if _is_gone(change, "tenant")]
        queue = self.machines.queue
        asked = told.datasets if parts == ["fleet"] else ()
        missing = await self._ask(lambda: tuple(_missing_datasets(queue, asked)))
        warnings = (*self.directory.left_at(gone), *missing)
        return FleetDiff(fleet_version(now), changes, warnings), fleet

    def _with_jobs(self, now: Fleet, change: FleetChange) -> FleetChange:
        """Of what goes: the jobs that are there, and whether a running server can do it."""
        kind, _, name = change.what.partition(" ")
        if change.change != "removed" or kind not in _JOBS_OF:
            return change
        live = not (kind == "region" and self.regions.is_apart(name))
        return replace(
            change, live=live, jobs=tuple(_JOBS_OF[kind](self.machines.queue, now, name))
        )

    def _of_reservations(self, now: Fleet, fleet: Fleet) -> Iterator[FleetChange]:
        """Reservations that would have fewer hosts. O(reservations * hosts)."""
        for name, one in self.machines.queue.windows.known.items():
            before, after = one.window.hosts_in(now), frozenset(one.window.hosts_in(fleet))
            left = sum(host in after for host in before)
            if left < len(before):
                yield FleetChange(f"reservation {name}", f"hosts {len(before)} -> {left}")


def _missing_datasets(queue: GlobalQueue, datasets: Iterable[DatasetSpec]) -> Iterator[str]:
    """A line if a fleet file has datasets that the server has not: it does not add them."""
    there = queue.data.catalogue.datasets
    names = [dataset.name for dataset in datasets if dataset.name not in there]
    if names:
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        yield (
            f"datasets of this file are not applied: {', '.join(names[:NAMED])}{more}; add them "
            "with `topmast datasets add`"
        )


def _of_tenant(queue: GlobalQueue, now: Fleet, name: str) -> list[str]:
    records = queue.jobs.records.values()
    return [r.id for r in records if r.spec.tenant == name and not r.finished]


def _on_host(queue: GlobalQueue, now: Fleet, name: str) -> list[str]:
    return [record.id for record in queue.jobs.placed.values() if name in record.hosts]


def _in_cluster(queue: GlobalQueue, now: Fleet, name: str) -> list[str]:
    return jobs_in_clusters(queue, {name: cluster_regions(now)[name]})[name]


def _in_region(queue: GlobalQueue, now: Fleet, name: str) -> list[str]:
    clusters = {cluster: r for cluster, r in cluster_regions(now).items() if r == name}
    found = jobs_in_clusters(queue, clusters).values()
    return list(dict.fromkeys(job for jobs in found for job in jobs))


_JOBS_OF: Mapping[str, Callable[[GlobalQueue, Fleet, str], list[str]]] = {
    "tenant": _of_tenant, "host": _on_host, "cluster": _in_cluster, "region": _in_region,
}  # fmt: skip


def _in_short(change: FleetChange) -> str:
    """A change for all to read: figures of a tenant are for its own people."""
    is_whole = change.change in ("added", "removed")
    return f"{change.what} {change.change}" if is_whole else f"{change.what} changed"


def _is_gone(change: FleetChange, kind: str) -> bool:
    return change.change == "removed" and change.what.startswith(f"{kind} ")
