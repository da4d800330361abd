"""Windows and quotas for a while: they begin and end by themselves.

The hosts of a window that is for no tenant's jobs are closed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.window import CLOSURE, Window


class WindowHooks(QueueHooks):
    """Closes hosts while a window lasts, and lets a quota for a while hold so long."""

    def __init__(self, queue: QueueViews) -> None:
        self._queue = queue

    def on_wake(self) -> None:
        """O(windows + quotas for a while)."""
        queue = self._queue
        for name, one in list(queue.windows.known.items()):
            if one.window.until_s <= queue.now:
                end(queue, name)
            elif not one.begun and one.window.from_s <= queue.now:
                queue.decide(f.WindowBegun(name))
                _tell(queue, one.window, closed=True)
        for tenant, known in list(queue.tenancy.timed.items()):
            if known.timed.until_s <= queue.now:
                queue.decide(f.QuotaOver(tenant))
            elif not known.begun and known.timed.from_s <= queue.now:
                queue.decide(f.QuotaBegun(tenant))

    def next_s(self) -> float | None:
        """When one of them begins or ends."""
        windows, quotas = self._queue.windows.known, self._queue.tenancy.timed
        if not windows and not quotas:
            return None
        times = [w.window.until_s if w.begun else w.window.from_s for w in windows.values()]
        times += [q.timed.until_s if q.begun else q.timed.from_s for q in quotas.values()]
        return min(times)


def set_window(queue: QueueViews, event: m.SetWindow) -> str:
    """Reserve hosts; the answer is the name of the window. The same again changes nothing."""
    known = queue.windows.known
    for name, one in known.items():
        if one.window.is_like(event.window):
            return name
    queue.decide(f.WindowSet(f"w{queue.windows.next_number}"))
    return next(reversed(known))


def end_window(queue: QueueViews, event: m.EndWindow) -> NotFound | None:
    """Hosts are reserved no more."""
    if event.name not in queue.windows.known:
        return NotFound(f"no reservation '{event.name}'")
    end(queue, event.name)
    return None


def end(queue: QueueViews, name: str) -> None:
    """Open what a window closed, and forget it."""
    one = queue.windows.known[name]
    if one.begun:
        _tell(queue, one.window, closed=False)
    queue.decide(f.WindowOver(name))


def _tell(queue: QueueViews, window: Window, *, closed: bool) -> None:
    """Close or open the hosts of a window; those that are for some tenants stay open."""
    for region, name, closure in _closures(queue, window):
        order = m.SetClosure(name, closure if closed else None, window.by)
        queue.send(ids.placer(region), order)


def _closures(queue: QueueViews, window: Window) -> Iterator[tuple[str, str, m.Closure]]:
    """What a window closes, by region."""
    if window.tenants:
        return
    why, until_s, name = window.why(), window.until_s, CLOSURE + window.name
    named = frozenset(window.hosts)
    for region in queue.fleet.regions:
        hosts = []
        for cluster in region.clusters:
            if window.region == region.name or window.cluster == cluster.name:
                closure = m.Closure(why, cluster.name, until_s=until_s)
                yield region.name, f"{name}/{cluster.name}", closure
            hosts += [host.name for host in cluster.hosts if host.name in named]
        if hosts:
            yield region.name, name, m.Closure(why, "", tuple(hosts), until_s)


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
