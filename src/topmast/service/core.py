"""What all use cases share: questions to the machines, orders with their acts, what callers see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from topmast.adapters.answering import locked, reading, refuse_unwanted
from topmast.adapters.clock import elapsed_s
from topmast.adapters.handing import handed
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.access import Caller, Permission
from topmast.model.selector import Selector
from topmast.ports import Act, Clock, Journal, LogPage, Mover
from topmast.runtime.loop import Runtime
from topmast.service import fleet
from topmast.service.access import Access
from topmast.service.accounts import Directory
from topmast.service.admission import Admission
from topmast.service.arrivals import Arrivals
from topmast.service.blobs import Blobs
from topmast.service.budgets import Budgets
from topmast.service.capacityplans import CapacityPlans
from topmast.service.dataplans import DataPlans
from topmast.service.event_stream import EventStream
from topmast.service.execs import Commands
from topmast.service.explaining import Explaining
from topmast.service.fleet_map import FleetMaps
from topmast.service.forecast import Forecasts
from topmast.service.history import History
from topmast.service.judging import Judging
from topmast.service.limits import STEPS_PER_TAKE, Limits, Rates, Timer
from topmast.service.listing import PORTION
from topmast.service.live_progress import LiveProgress
from topmast.service.logins import Logins
from topmast.service.profile import Profiles
from topmast.service.queue_room import QueueRoom
from topmast.service.redaction import Redaction
from topmast.service.regions import Regions
from topmast.service.turns import SLICE_S, InTurns, OneEach, Turns, taken
from topmast.service.webhooks import Webhooks
from topmast.service.whatif import WhatIfs

T = TypeVar("T")

DRAWN_AT_ONCE = 16
"""So many jobs are judged or shown between two looks at the time: a millisecond."""
MANY_AT_ONCE = 4
"""So many acts on many jobs are under way; those that wait are not begun if their clients leave."""
OUTSIDE = 8
"""So many calls wait at the same time for what tasks write: their output, and commands beside them.
They have threads of their own: a region that does not answer takes none of those that all share."""

ReadLog = Callable[[str, str, int, int, int, int], LogPage | None]
"""A piece of a task's output: (cluster, job, attempt, rank, offset, limit) -> page, if any."""


class Core:
    """The machines with everything around them, asked between two commits."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        clock: Clock,
        read_log: ReadLog,
        mover: Mover,
        blobs: Blobs,
        live_progress: LiveProgress,
        event_stream: EventStream,
        process_of: fleet.Processes,
        regions: Regions | None = None,
        data_plans: DataPlans | None = None,
        capacity_plans: CapacityPlans | None = None,
    ) -> None:
        self.runtime = runtime
        self.machines = runtime.machines
        self.journal = journal
        self.clock = clock
        self.read_log = read_log
        self.arrivals = Arrivals(runtime, mover)
        self.blobs = blobs
        self.outside = ThreadPoolExecutor(OUTSIDE, "outside")
        self.live_progress = live_progress
        self.event_stream = event_stream
        self.process_of = process_of
        self.regions = regions or Regions(runtime.machines)
        self.data_plans = data_plans
        self.capacity_plans = capacity_plans
        self.forecasts = Forecasts(runtime, self.regions, clock, journal.option)
        self.whatifs: WhatIfs | None = None
        """None where no process can be run for them."""
        self.fleet_maps = FleetMaps(runtime, clock, process_of, elapsed_s)
        self.started_s = clock.now()
        self.access = Access(runtime.machines.queue)
        self.limits = Limits(Rates(), elapsed_s)
        self.limits.refuse_if_full = blobs.room.refuse_if_full
        self.queue_room = QueueRoom(runtime.machines.queue, self.access.path)
        self.judging = Judging(self.limits)
        self.explaining = Explaining(self.limits)
        self.acting = OneEach()
        """Acts that may be about many jobs."""
        self.listing = OneEach()
        """Lists of jobs and sweeps."""
        self.submitting = OneEach()
        """Submissions with one key."""
        self.profiles = Profiles(runtime, self.access, journal.option, self.limits)
        self.directory = Directory(
            runtime, journal, clock, self.access, self.limits, self.redaction
        )
        self.logins = Logins(runtime, self.directory, self.limits)
        self._looking = asyncio.Lock()
        """Held for a long look at the machines."""
        self._walking, self._pieces = asyncio.Lock(), asyncio.Lock()
        """Held while jobs are compared with a selector, one by one; and for a piece of large work:
        what others ask comes in between two of these, of however many accounts."""
        self.building, self._begun = asyncio.Lock(), asyncio.Semaphore(MANY_AT_ONCE)
        """Held while the fleet is changed; and for an act on many jobs, with all its pieces."""
        self.budgets: Budgets | None = None
        """Set by what composes the server."""
        self.webhooks: Webhooks | None = None
        """Set by what composes the server."""
        self.execs: Commands | None = None
        """Set by what composes the server; None: no engine is within reach."""
        self.samples: History | None = None
        """The fleet over time; set by what composes the server."""
        self.admission = Admission(runtime.machines, self.regions, self.access, blobs)

    def set_limits(self, rates: Rates) -> None:
        """Give each principal other limits, before the first request."""
        self.limits.rates = rates

    async def _ask(self, question: Callable[[], T]) -> T:
        """The answer to a question; it is not worked out for a client that only reads and left."""
        with reading():
            return await handed(self.runtime.ask(question))

    @asynccontextmanager
    async def _lists(self, caller: Caller) -> AsyncIterator[None]:
        """A list of an account is made when those before it are paid. Raises TooMany."""
        async with self.listing.turn(caller):
            self.limits.take(caller, "list")
            yield

    async def _ask_paid(self, caller: Caller, question: Callable[[], T]) -> T:
        """The answer to a question that may take long: the caller pays for its time."""
        with self.limits.paid(caller) as timer:
            return await self._ask(partial(timer.run, question))

    async def _look(self, caller: Caller, look: Callable[[Turns], T]) -> T:
        """A long look at the machines, one after the other; decisions go on between its slices.

        What is an explanation says on which events it rests. The caller pays for its time.
        """
        timer = Timer()

        def dated(turns: InTurns) -> T:
            found = timer.run(partial(look, turns))
            if isinstance(found, v.Explanation):
                first, last = turns.first_seq, turns.last_seq
                return msgspec.structs.replace(found, from_event=first, to_event=last)
            return found

        async with locked(self._looking):
            try:
                return await taken(self.runtime, dated)
            finally:
                self.explaining.pay(caller, timer.took_s)

    async def _walk(
        self, caller: Caller, jobs: Selector, look: Callable[[Sequence[str]], object]
    ) -> None:
        """``look`` at all jobs in memory in portions, between which decisions go on.

        One walk at a time: many at once would leave little between their portions. The caller pays
        for comparisons, or else for the time. Raises TooMany, Unavailable.
        """
        records = self.machines.queue.jobs.records
        self.limits.take(caller, "list", jobs.steps * len(records) / STEPS_PER_TAKE)
        async with locked(self._walking):
            names = await self._ask(lambda: list(records))
            size = max(1, PORTION // max(1, jobs.steps))
            with self.limits.paid(caller) as timer:
                for first in range(0, len(names), size):
                    refuse_unwanted()
                    compare = partial(look, names[first : first + size])
                    await self._ask(compare if jobs.steps else partial(timer.run, compare))

    async def _drawn(self, things: Iterator[T]) -> list[T]:
        """All that is found among the machines; decisions go on every `SLICE_S`."""
        found: list[T] = []

        def draw() -> bool:
            until_s = elapsed_s() + SLICE_S
            while few := list(islice(things, DRAWN_AT_ONCE)):
                found.extend(few)
                if elapsed_s() > until_s:
                    return False
            return True

        is_over = await self._ask(draw)
        while not is_over:
            async with self._pieces:
                is_over = await self._ask(draw)
        return found

    async def _tell(self, to: str, message: m.Message, done: Act) -> Any:
        return await handed(self.runtime.call(to, message, done))

    def _shown(self, caller: Caller, value: T) -> T:
        """What a caller sees of a value: of other tenants' jobs only GPUs and bands."""
        hides = self.redaction(caller)
        return value if hides is None else hides.of(value)

    def redaction(self, caller: Caller) -> Redaction | None:
        """What hides other tenants' jobs from a caller; None for one that sees them all."""
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        return None if seen is None else self.redacting(seen)

    def redacting(self, seen: frozenset[str]) -> Redaction:
        """What hides the jobs of all tenants but those ``seen``."""
        return Redaction(self.machines.queue, seen, self._tenant_of)

    def _tenant_of(self, job: str) -> str | None:
        row = self.journal.finished_job(job)
        return None if row is None else msgspec.json.decode(row.view, type=v.JobView).tenant

    async def _list(self, what: str, seen: fleet.Seen = None) -> tuple[Any, ...]:
        """``seen``: the tenants with jobs that count where only the jobs of a place are counted."""
        await self.regions.look()
        queue, placers = self.machines.queue, self.regions.placers
        questions: dict[str, Callable[[], tuple[Any, ...]]] = {
            "regions": lambda: fleet.regions(queue, placers, seen),
            "clusters": lambda: fleet.clusters(queue, placers, seen),
            "hosts": lambda: fleet.hosts(placers, self.clock.now()),
            "gpus": lambda: fleet.gpus(placers),
            "tenants": lambda: fleet.tenants(queue, now=self.clock.now()),
            "datasets": lambda: fleet.datasets(queue, self.live_progress.of_copy, self._why),
        }
        found = await self._ask(questions[what])
        if what != "hosts":
            return found
        found = await asyncio.to_thread(fleet.with_processes, found, self.process_of)
        return fleet.with_reach(found, queue.cycle.reach.absent)

    async def _history(self, subject: str) -> tuple[v.HistoryView, ...]:
        rows = await asyncio.to_thread(self.journal.history, subject)
        return tuple(
            v.HistoryView(row.at_s, row.kind, row.text, msgspec.json.decode(row.detail))
            for row in rows
        )

    def _why(self, dataset: str, region: str) -> str:
        return "" if self.data_plans is None else self.data_plans.why(dataset, region)
