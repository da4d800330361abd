"""Quotas for a while: they begin and end by themselves."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.auction import earliest
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.model import messages as m
from topmast.model.errors import NotFound


class QuotaHooks(QueueHooks):
    """Lets quotas for a while hold from their time on, until another."""

    def __init__(self, queue: QueueViews) -> None:
        self._queue = queue

    def on_wake(self) -> None:
        """O(quotas for a while)."""
        queue = self._queue
        for tenant, known in list(queue.tenancy.timed.items()):
            if known.timed.until_s <= queue.now:
                queue.decide(f.QuotaOver(tenant))
            elif not known.begun and known.timed.from_s <= queue.now:
                queue.decide(f.QuotaBegun(tenant))

    def next_s(self) -> float | None:
        """When one begins or ends."""
        every = self._queue.tenancy.timed
        if not every:
            return None
        return earliest(
            known.timed.until_s if known.begun else known.timed.from_s for known in every.values()
        )


def set_quota(queue: QueueViews, event: m.SetQuota) -> NotFound | None:
    """A tenant is to have another quota for a while; the same again changes nothing."""
    timed = event.timed
    if timed.tenant not in queue.tenancy.ledger.tenants:
        return NotFound(f"no tenant '{timed.tenant}'")
    known = queue.tenancy.timed.get(timed.tenant)
    if known is None or known.timed != timed:
        queue.decide(f.QuotaSet(timed.tenant))
        if timed.from_s <= queue.now:
            queue.decide(f.QuotaBegun(timed.tenant))
    return None


def end_quota(queue: QueueViews, event: m.EndQuota) -> NotFound | None:
    """A tenant has the quota of the fleet again."""
    if event.tenant not in queue.tenancy.timed:
        return NotFound(f"tenant '{event.tenant}' has no quota for a while")
    queue.decide(f.QuotaOver(event.tenant))
    return None
