"""How many requests of a kind one principal may make."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct

from topmast.model.access import ROOT, Caller, Permission
from topmast.model.errors import TooMany

JOBS_PER_TAKE = 100
"""So many jobs, tenants or clusters of one request count as one more request."""
GROUPS_PER_TAKE = 10
"""So many task groups of jobs, but for the first of each, count as one more request: each is placed
by itself."""
ACTS_PER_TAKE = 20
"""So many jobs that are cancelled, held or changed count as one more: each costs several times what
one does that is submitted."""
JOB_BYTES_PER_TAKE = 100 * 1024
"""So much of what a request says of jobs counts as one more request, where it has fewer jobs than
that: all of it is kept, in memory and in the journal."""
STEPS_PER_TAKE = 20_000
"""So many comparisons of jobs with a selector count as one more request."""
ROWS_PER_TAKE = 250
"""So many rows on the page of a list, beyond as many, count as one more request."""
SECONDS_PER_TAKE = 0.01
"""So long a list takes the thread that decides, beyond as much, counts as one more request."""
SWEPT_PER_TAKE = 2_000
"""So many jobs of sweeps that are looked at count as one more request."""
BYTES_PER_TAKE = 1024 * 1024
"""So much of a work folder counts as one more request."""
T = TypeVar("T")
MOST_BUCKETS = 10_000
CLIENT_BITS_V6 = 64
"""One client has so much of an IPv6 address as its network, and all addresses in it (RFC 6177)."""


class Rate(Struct, frozen=True):
    """So many at once, and then so many each second."""

    per_s: float
    burst: float


class Rates(Struct, frozen=True):
    """The limits of each principal."""

    submit: Rate = Rate(50.0, 500.0)
    """Requests that submit jobs or change something; each hundred jobs, each 100 KiB of
    fewer jobs, and each MiB of a work folder, count as one more."""
    explain: Rate = Rate(1.0, 10.0)
    """Explanations and dry runs: each costs the thread that decides as much as a placement."""
    list: Rate = Rate(20.0, 200.0)
    """Requests for jobs and lists; each 250 rows beyond the first 250 count as one more."""
    refused: Rate = Rate(1.0, 20.0)
    """Refusals of one network address, or of one principal: each is a line of the audit log."""
    login: Rate = Rate(1.0, 20.0)
    """Attempts of one network address to log in."""


def client_of(address: str) -> str:
    """What limits count a network address as: itself, or in IPv6 the network of one client."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address or "unknown"
    if known.version == 4:
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known.packed, CLIENT_BITS_V6), strict=False))


class Timer:
    """How long pieces of work took of a processor, each on the thread that did it."""

    def __init__(self) -> None:
        self.took_s = 0.0
        """All of them together."""

    def run(self, work: Callable[[], T]) -> T:
        """What a piece of work returns or raises."""
        begun_s = time.thread_time()
        try:
            return work()
        finally:
            self.took_s += time.thread_time() - begun_s


class Limits:
    """Counts the requests of principals; used on the event loop alone.

    ``clock`` gives seconds that only grow.
    """

    def __init__(self, rates: Rates, clock: Callable[[], float]) -> None:
        self.rates = rates
        self.refuse_if_full: Callable[[float], None] = lambda floor: None
        """Raises Full where the disk has less left than this part of its floor."""
        self._clock = clock
        self._left: dict[tuple[str, str], tuple[float, float]] = {}
        """What is left of each burst, and when that was so; the latest used come last."""

    def take(self, caller: Caller, kind: str, count: float = 1.0, *, floor: float = 1.0) -> None:
        """Count a request of a caller. Raises TooMany, and Full of one that changes something.

        Those that operate the fleet may change it as long as the server goes on. ``floor``: the
        part of the disk's floor that has to be left: less for what ends jobs, 0 for what adds none.
        """
        principal = caller.principal
        if principal.trusted:
            return
        self.take_of(principal.subject, kind, count)
        if kind == "submit" and not principal.may(Permission.FLEET_OPERATE, (ROOT,)):
            self.refuse_if_full(floor)

    def charge(self, caller: Caller, kind: str, count: float) -> None:
        """Count what a request turned out to cost: it refuses nothing, what comes next pays."""
        name = caller.principal.subject
        if not caller.principal.trusted and (name, kind) in self._left:
            left, since = self._left[name, kind]
            self._left[name, kind] = (left - count, since)

    def charge_rows(self, caller: Caller, rows: int) -> None:
        """Count a page of a list that was so long."""
        self.charge(caller, "list", max(0, rows - ROWS_PER_TAKE) / ROWS_PER_TAKE)

    @contextmanager
    def paid(self, caller: Caller) -> Iterator[Timer]:
        """The caller pays in the end for the time that a list kept the machines."""
        timer = Timer()
        try:
            yield timer
        finally:
            more = max(0.0, timer.took_s - SECONDS_PER_TAKE) / SECONDS_PER_TAKE
            self.charge(caller, "list", more)

    def take_of(self, name: str, kind: str, count: float = 1.0) -> None:
        """Count a request under a name. Raises TooMany. O(1)."""
        rate: Rate = getattr(self.rates, kind)
        now = self._clock()
        key = (name, kind)
        left, since = self._left.pop(key, (rate.burst, now))
        left = min(rate.burst, left + (now - since) * rate.per_s)
        # What costs more than all at once may begin with a full burst, and is paid off after.
        needed = min(count, rate.burst)
        enough = left >= needed
        self._left[key] = (left - count if enough else left, now)
        if len(self._left) > MOST_BUCKETS:
            del self._left[next(iter(self._left))]
        if not enough:
            wait_s = (needed - left) / rate.per_s
            raise TooMany(
                f"too many requests of {name} ({kind}): at most {rate.per_s:g} each second, after "
                f"the first {rate.burst:g}",
                wait_s,
            )
