"""Windows begin and end by themselves; for no tenant's jobs, their hosts are closed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.auction import earliest
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.window import CLOSURE, Window


class WindowHooks(QueueHooks):
    """Closes hosts when a window begins, and opens them when it is over."""

    def __init__(self, queue: QueueViews) -> None:
        self._queue = queue

    def on_wake(self) -> None:
        """O(windows)."""
        queue = self._queue
        for name, one in list(queue.windows.known.items()):
            if one.window.until_s <= queue.now:
                end(queue, name)
            elif not one.begun and one.window.from_s <= queue.now:
                queue.decide(f.WindowBegun(name))
                close(queue, one.window)

    def next_s(self) -> float | None:
        """When a window begins or ends."""
        known = self._queue.windows.known
        if not known:
            return None
        times = (one.window.until_s if one.begun else one.window.from_s for one in known.values())
        return earliest(times)


def set_window(queue: QueueViews, event: m.SetWindow) -> str:
    """Reserve hosts; the answer is the name of the window. The same again changes nothing."""
    known = queue.windows.known
    for name, one in known.items():
        if one.window.is_like(event.window):
            return name
    queue.decide(f.WindowSet(queue.windows.next_name()))
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


def close(queue: QueueViews, window: Window) -> None:
    """Close the hosts of a window; those that are for some tenants stay open to their jobs."""
    _tell(queue, window, closed=True)


def _tell(queue: QueueViews, window: Window, *, closed: bool) -> None:
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
