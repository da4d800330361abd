"""Finds what a selector of jobs names that there is not: it would mean no job, without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from topmast.model.access import ROOT, Caller, Permission
from topmast.model.errors import InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.selector import Selector
from topmast.model.units import show
from topmast.runtime.machines import Machines
from topmast.service.access import Access


class SelectedNames:
    """Tenants, users, sweeps, clusters and hosts, as far as a caller knows of them.

    Labels and names of jobs are free: that no job has one is no fault.
    """

    def __init__(self, machines: Machines, access: Access) -> None:
        self._queue = machines.queue
        self._accounts = machines.accounts
        self._access = access

    def unknown(self, caller: Caller, jobs: Selector, permission: Permission) -> list[InvalidInput]:
        """An error for each name. To be called between two commits.

        ``permission``: what is asked for at tenants. O(kinds of jobs), and O(jobs) for a cluster or
        host that the fleet has not.
        """
        seen = self._access.tenants(caller, Permission.JOBS_VIEW)
        kinds = [kind for kind in self._queue.jobs.tallies.kinds if seen is None or kind[0] in seen]
        with_jobs = {kind[0] for kind in kinds}
        found = [
            self._access.unknown_tenant(caller, name, permission, "selector")
            for name in _names(jobs.tenants)
            if name not in with_jobs and not self._access.sees(caller, name)
        ]
        found += self._unknown_users(caller, jobs, {kind[1] for kind in kinds})
        found += self._unknown_sweeps(caller, jobs, permission)
        found += self._unknown_places(caller, jobs, seen)
        return found

    def _unknown_users(
        self, caller: Caller, jobs: Selector, with_jobs: set[str]
    ) -> Iterator[InvalidInput]:
        """Users without a job that have no account either.

        A server without login has no accounts: there it takes one with a job that is near.
        """
        for name in _names(jobs.users):
            if name in with_jobs or name == caller.principal.user:
                continue
            if self._has_account(caller, name):
                continue
            near = nearest(name, with_jobs) or nearest(f"sa:{name}", with_jobs)
            if near or not caller.principal.trusted:
                remedy = near or "no job of it is known"
                yield InvalidInput(f"unknown user {show(name)}", field="selector", remedy=remedy)

    def _unknown_sweeps(
        self, caller: Caller, jobs: Selector, permission: Permission
    ) -> Iterator[InvalidInput]:
        """Sweeps that are not in memory, or of tenants that the caller does not see."""
        sweeps = self._queue.jobs.sweeps.records
        for name in _names(jobs.sweeps):
            sweep = sweeps.get(name)
            if sweep is not None and self._access.sees(caller, sweep.spec.tenant):
                continue
            remedy = "the id of a sweep, such as s7: `topmast queue` shows those that there are"
            error = InvalidInput(f"no sweep {show(name)}", field="selector", remedy=remedy)
            error.may_conceal = not self._access.sees_all(caller)
            if sweep is not None:
                error.conceals = caller.principal.refusal(permission, " for the tenant of a sweep")
            yield error

    def _has_account(self, caller: Caller, user: str) -> bool:
        """Whether a user has logged in, or has an account or a role, as far as a caller sees it."""
        known, subject = self._accounts, user if user.startswith("sa:") else f"user:{user}"
        account = known.accounts.get(subject.removeprefix("sa:"))
        tenants = [b.tenant for b in tuple(known.bindings) if b.subject == subject]
        tenants += [ROOT] if subject in known.people else []
        tenants += [account.tenant] if account is not None else []
        return any(self._access.may(caller, Permission.ACCOUNTS_VIEW, one) for one in tenants)

    def _unknown_places(
        self, caller: Caller, jobs: Selector, seen: frozenset[str] | None
    ) -> Iterator[InvalidInput]:
        """Clusters and hosts of which the fleet has none, and no job was there."""
        if not self._access.may(caller, Permission.FLEET_VIEW, ROOT):
            return
        clusters = [one for region in self._queue.fleet.regions for one in region.clusters]
        places: tuple[tuple[str, tuple[str, ...], Callable[[], list[str]]], ...] = (
            ("cluster", jobs.clusters, lambda: [one.name for one in clusters]),
            ("host", jobs.hosts, lambda: [host.name for one in clusters for host in one.hosts]),
        )
        for what, patterns, list_all in places:
            named = _names(patterns)
            there = list_all() if named else []
            left = set(named).difference(there)
            used = self._places_used(what, seen) if left else set()
            for name in named:
                if name in left - used:
                    message = f"unknown {what} {show(name)}"
                    yield InvalidInput(message, field="selector", remedy=one_of(name, there))

    def _places_used(self, what: str, seen: frozenset[str] | None) -> set[str]:
        """Clusters or hosts of jobs in memory. O(jobs x hosts of each)."""
        found: set[str] = set()
        for record in self._queue.jobs.records.values():
            if seen is None or record.spec.tenant in seen:
                found.update(record.hosts if what == "host" else (record.cluster or "",))
        return found


def _names(patterns: Iterable[str]) -> list[str]:
    """Those that stand for one name alone."""
    return [pattern for pattern in dict.fromkeys(patterns) if "*" not in pattern]
