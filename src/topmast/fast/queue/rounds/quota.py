"""Quota in a round: what tenants may have when all that may be stopped has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.tenancy import Tenancy
from topmast.model.job import JobSpec


class RoundQuota:
    """The books of a round that begins: a copy, in which ``stoppable`` jobs hold nothing.

    O(tenants x models + holdings x depth).
    """

    def __init__(self, tenancy: Tenancy, stoppable: Iterable[JobRecord]) -> None:
        self._ledger = tenancy.ledger.twin()
        self._entitlements = tenancy.entitlements.by(self._ledger)
        for record in stoppable:
            assert record.plan is not None
            for model, milli in record.plan.held().items():
                self._ledger.give_back(
                    record.spec.tenant, record.plan.region, model, milli, record.over_quota
                )

    def choices(self, spec: JobSpec) -> set[int]:
        """The accelerators that a job may have, of its quota or lent. O(choices x models)."""
        found = self._entitlements.choices_of(spec, self._entitlements.wanted(spec))
        return {*found[False], *found[True]}

    def take(self, wishes: Sequence[tuple[JobSpec, int]]) -> bool:
        """Book what each job takes by its choice, if quota has it for all of them; else nothing."""
        booked: list[tuple[str, str, int, bool]] = []
        for spec, choice in wishes:
            wanted = self._entitlements.wanted(spec)[choice]
            over_quota = not self._entitlements.is_within(spec, wanted)
            if over_quota and not self._entitlements.may_borrow(spec, wanted):
                for tenant, model, milli, over in booked:
                    self._ledger.give_back(tenant, "", model, milli, over)
                return False
            for model, milli in wanted.items():
                self._ledger.take(spec.tenant, "", model, milli, over_quota)
                booked.append((spec.tenant, model, milli, over_quota))
        return True
