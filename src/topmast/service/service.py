"""The use cases: submit, watch, explain, operate. The API is a thin presentation of this class.

Reads run on the runtime's thread between commits, so that nothing is shown before it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

import topmast
from topmast.adapters.clock import elapsed_s
from topmast.adapters.handing import handed
from topmast.fast.queue import JobRecord
from topmast.fast.region import count_of
from topmast.model import ids
from topmast.model import views as v
from topmast.model.absent import given
from topmast.model.access import Caller, Permission
from topmast.model.act_views import JobFileView
from topmast.model.errors import Faults, InvalidInput, NotFound, refuse_all
from topmast.model.files.jobfile import dump_job
from topmast.model.group_views import JobGroup, JobsGlance
from topmast.model.job import MILLI
from topmast.model.prices import price_of
from topmast.model.reason import HOPELESS, Rejection
from topmast.model.selector import selector_of
from topmast.model.states import WAITING
from topmast.model.system_views import SystemView
from topmast.ports import LogPage
from topmast.service import listing
from topmast.service.access import row
from topmast.service.explain import explain_job, rejected_hosts
from topmast.service.explaining import refuse_too_large
from topmast.service.forecast import with_start
from topmast.service.limits import BYTES_PER_TAKE
from topmast.service.periods import usual_period
from topmast.service.regions import LogChunk
from topmast.service.room import note
from topmast.service.selecting import SelectedNames
from topmast.service.sentences import standing
from topmast.service.submitting import Submitting
from topmast.service.system import timings
from topmast.service.turns import SLICE_S, Turns
from topmast.service.usage import check_key, running_rows, usage

Read = Callable[[str, int, int, int, int], LogPage | None]


class Service(Submitting):
    """Everything people can do, as coroutines that raise `TopmastError`."""

    # --- jobs -----------------------------------------------------------------------------------

    async def story(self, caller: Caller, job: str) -> v.JobStory:
        """A job with its history and its finished attempts."""
        self.limits.take(caller, "list")
        view = await self.job(caller, job)
        job = view.id
        attempts = await asyncio.to_thread(self.journal.attempts_of, job)
        told = await self.sentences(caller, [job] if view.state in WAITING else [])
        story = v.JobStory(
            view,
            await self._history(job),
            tuple(
                v.AttemptView(
                    a.epoch, a.region, a.cluster, a.model, a.gpus_milli / MILLI,
                    a.start_s, a.end_s, a.kept_s, a.outcome,
                )
                for a in attempts
            ),
            told.get(job, ""),
        )  # fmt: skip
        return self._shown(caller, story)

    async def job_file(self, caller: Caller, job: str) -> JobFileView:
        """What a job was submitted with, and what was changed since, as a job file."""
        view = await self.job(caller, job)

        def look() -> JobFileView | None:
            record = self.machines.queue.jobs.records.get(view.id)
            if record is None:
                return None
            spec = given(record.next_spec, record.spec)
            return JobFileView(view.id, spec.user, dump_job(spec))

        found = await self._ask(look)
        if found is None:
            message = f"the job file of {view.id} is not kept any more: it ended long ago"
            raise NotFound(message)
        return found

    async def jobs(
        self,
        caller: Caller,
        states: Sequence[str] = (),
        tenant: str = "",
        limit: int = 1,
        cursor: str = "",
        queue_order: bool = False,
        selector: str = "",
        fold: bool = False,
    ) -> v.JobPage:
        """A page of jobs, newest first, or in the order of the queue.

        ``fold``: the sweeps in place of their jobs, on the first page.
        """
        async with self._lists(caller):
            page = await self._job_page(
                caller, states, tenant, limit, cursor, queue_order, selector, fold
            )
        return self._shown(caller, page)

    async def _job_page(
        self,
        caller: Caller,
        states: Sequence[str],
        tenant: str,
        limit: int,
        cursor: str,
        queue_order: bool,
        selector: str,
        fold: bool,
    ) -> v.JobPage:
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        await self._read(caller, selector, Permission.JOBS_VIEW)
        wanted = listing.select(tuple(states), tenant, limit, cursor, queue_order, seen, selector)
        unknown = await self._unknown_in(caller, selector)
        if unknown and not wanted.may_be_archived:
            refuse_all(unknown)
        wanted = msgspec.structs.replace(wanted, fold=fold)
        if not listing.is_tallied(self.machines.queue, wanted):
            found = listing.Found()
            look = partial(listing.find, self.machines.queue, wanted, found)
            await self._walk(caller, wanted.jobs, look)
            wanted = msgspec.structs.replace(wanted, found=found)
        page = await self._jobs(caller, wanted)
        self.limits.charge_rows(caller, len(page.jobs))
        if not (page.jobs or page.sweeps or cursor):
            # What has left the fleet is known as long as it has jobs.
            if tenant and not self.access.sees(caller, tenant):
                error = self.access.unknown_tenant(caller, tenant, Permission.JOBS_VIEW)
                unknown.insert(0, error)
            refuse_all(unknown)
        return page

    async def _unknown_in(self, caller: Caller, selector: str) -> list[InvalidInput]:
        """What a selector of jobs to look at names that there is not."""
        jobs = selector_of(selector)
        if not (jobs.tenants or jobs.users or jobs.sweeps or jobs.clusters or jobs.hosts):
            return []
        names = SelectedNames(self.machines, self.access)
        found = await self._ask(lambda: names.unknown(caller, jobs, Permission.JOBS_VIEW))
        for error in found:
            # To look at the jobs of a tenant that is hidden shows none.
            error.conceals, error.may_conceal = "", False
        return found

    async def _jobs(self, caller: Caller, wanted: listing.Selection) -> v.JobPage:
        queue = self.machines.queue
        if wanted.queue_order:
            return await self._page_in_queue_order(caller, wanted)
        page = await self._ask_paid(
            caller, lambda: self._page(wanted, listing.newest(queue, wanted))
        )
        if not wanted.may_be_archived or not queue.jobs.has_forgotten:
            return page
        live = list(page.jobs)
        down_to = ids.job_number(live[-1].id) if len(live) == wanted.limit else 0
        found = await asyncio.to_thread(
            lambda: listing.merge(
                live, listing.archived(self.journal, queue, wanted, down_to), wanted.limit
            )
        )
        full = len(found) == wanted.limit
        cursor_after = str(ids.job_number(found[-1].id)) if full else None
        return v.JobPage(tuple(found), cursor_after, page.counts, page.total, page.sweeps)

    async def _page_in_queue_order(self, caller: Caller, wanted: listing.Selection) -> v.JobPage:
        """Decisions go on every `SLICE_S`: what stands before the page may be the whole queue."""
        walk = listing.QueueWalk(self.machines.queue, wanted)

        def look() -> v.JobPage | None:
            until_s = elapsed_s() + SLICE_S
            if walk.goes_on(lambda: elapsed_s() > until_s):
                return None
            return self._page(wanted, walk.found)

        with self.limits.paid(caller) as timer:
            while (page := await self._ask(partial(timer.run, look))) is None:
                pass
        return page

    def _page(self, wanted: listing.Selection, found: Sequence[JobRecord]) -> v.JobPage:
        queue, cursor = self.machines.queue, None
        total = listing.total(queue, wanted)
        if len(found) == wanted.limit:
            seen = (wanted.cursor or 0) + len(found)
            cursor = str(seen if wanted.queue_order else found[-1].number)
            if wanted.queue_order and seen == total:
                cursor = None
        views = tuple(self._view(record) for record in found)
        return v.JobPage(
            views, cursor, listing.counts(queue, wanted.seen), total,
            listing.sweeps(queue, wanted),
        )  # fmt: skip

    async def sentences(self, caller: Caller, jobs: Sequence[str]) -> dict[str, str]:
        """Why each of some jobs stands where it stands, without a search. O(jobs)."""
        seen, queue = self.access.tenants(caller, Permission.JOBS_VIEW), self.machines.queue

        def question() -> dict[str, str]:
            records = (queue.jobs.records.get(job) for job in jobs)
            return {
                record.id: standing(queue, record)
                for record in records
                if record is not None and (seen is None or record.spec.tenant in seen)
            }

        found, hides = await self._ask(question), self.redaction(caller)
        return found if hides is None else {job: hides.text(why) for job, why in found.items()}

    async def wanted_models(self, caller: Caller, jobs: Sequence[str]) -> dict[str, list[str]]:
        """The GPU models that some jobs ask for, the first choice first. O(jobs)."""
        seen, queue = self.access.tenants(caller, Permission.JOBS_VIEW), self.machines.queue
        return await self._ask(lambda: listing.wanted_models(queue, jobs, seen))

    async def glance(self, caller: Caller) -> JobsGlance:
        """All jobs that have not ended, added up."""
        self.limits.take(caller, "list")
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        return await self._ask(lambda: listing.glance(self.machines.queue, seen, self.clock.now()))

    async def counts(self, caller: Caller, selector: str) -> dict[str, int] | None:
        """Jobs in memory by state, of those that a selector means. O(kinds).

        None where that takes a look at each.
        """
        self.limits.take(caller, "list")
        seen, queue = self.access.tenants(caller, Permission.JOBS_VIEW), self.machines.queue
        jobs = listing.select((), "", 1, "", False, seen, selector).jobs
        if not jobs.counts_alike:
            return None
        return await self._ask(lambda: listing.counts(queue, seen, jobs))

    async def groups(
        self, caller: Caller, by: str, states: Sequence[str], selector: str
    ) -> tuple[JobGroup, ...]:
        """Jobs in memory by tenant, user, band or a label (``label.KEY``).

        O(kinds), or O(jobs) in portions, between which decisions go on: by a label, and where other
        things are selected than tenants, users, bands and states.
        """
        self.limits.take(caller, "list")
        seen, queue = self.access.tenants(caller, Permission.JOBS_VIEW), self.machines.queue
        wanted = listing.select(tuple(states), "", 1, "", True, seen, selector)
        groups = listing.Groups(wanted, by)
        refuse_all(await self._unknown_in(caller, selector))
        if groups.is_tallied(queue):
            await self._ask(lambda: groups.take_tallies(queue))
            return groups.shown(self.clock.now())
        await self._walk(caller, wanted.jobs, partial(groups.take, queue))
        return groups.shown(self.clock.now())

    async def explain(self, caller: Caller, job: str) -> v.Explanation:
        """Why a job stands where it stands."""
        async with self.explaining.turn(caller):
            return await self._explain(caller, job)

    async def _explain(self, caller: Caller, job: str) -> v.Explanation:
        view = await self.job(caller, job)
        job, start, ends = view.id, None, None
        if view.state in WAITING and view.reason not in HOPELESS:
            start = await self.forecasts.of_job(job)
            ends = None if start is None else self.forecasts.ends()

        def look(turns: Turns) -> v.Explanation | None:
            queue, now = self.machines.queue, self.clock.now()
            record = queue.jobs.records.get(job)
            if record is None:
                return None
            if record.state in WAITING:
                refuse_too_large(record.spec)
            told = explain_job(queue, self.regions.placers, record, now, turns=turns, ends=ends)
            told = self._with_quota(caller, told, given(record.next_spec, record.spec))
            preparing = self._view(record).preparing
            if preparing:
                summary = f"{told.summary}; its tasks wait: {preparing}"
                told = msgspec.structs.replace(told, summary=summary)
            more = (*self._trouble_with_data(record), *self._trouble_with_capacity(record))
            return msgspec.structs.replace(told, warnings=(*told.warnings, *more))

        await self.regions.look()
        found = await self._look(caller, look)
        if found is not None:
            found = with_start(found, start) if found.state in WAITING else found
            return self._shown(caller, found)
        cause = f": {view.cause}" if view.cause else ""
        summary = f"{view.id} is {view.state}{cause}"
        return v.Explanation(job, view.name, view.state, None, summary, (), (), ())

    async def rejected_hosts(self, caller: Caller, job: str) -> dict[str, Rejection]:
        """Why hosts are no place for a waiting job; those that could take a task are left out."""
        view = await self.job(caller, job)

        def look(turns: Turns) -> dict[str, Rejection]:
            queue = self.machines.queue
            record = queue.jobs.records.get(view.id)
            if record is None:
                return {}
            refuse_too_large(record.spec)
            return rejected_hosts(queue, self.regions.placers, record, self.clock.now(), turns)

        async with self.explaining.turn(caller):
            await self.regions.look()
            return await self._look(caller, look)

    def _trouble_with_data(self, record: JobRecord) -> tuple[str, ...]:
        """What a job that waits for its data should know of the planner."""
        plans = self.data_plans
        if plans is None or not record.spec.datasets or record.state not in WAITING:
            return ()
        trouble = plans.view().trouble
        why = f"no new plan of where datasets are stored: {trouble}; the last one stays in force"
        return (why,) if trouble else ()

    def _trouble_with_capacity(self, record: JobRecord) -> tuple[str, ...]:
        """What a job that waits for GPUs should know of the planner of hosts."""
        plans = self.capacity_plans
        if plans is None or not record.spec.gpus_milli() or record.state not in WAITING:
            return ()
        failure = plans.cadence.planning.failure
        if failure is None:
            return ()
        text = f"no new plan of which hosts belong to which clusters: {failure.why}"
        return (f"{text}; the last one stays in force",)

    async def log(
        self, caller: Caller, job: str, task: int, attempt: int | None, offset: int, limit: int
    ) -> LogChunk:
        """A piece of one task's output, of the latest attempt unless another is named."""
        view = await self.job(caller, job)
        job = view.id
        if not 0 <= task < view.tasks:
            raise InvalidInput(f"the job has tasks 0 to {view.tasks - 1}", field="task")
        epoch = view.attempts if attempt is None else attempt
        if not 0 <= epoch <= view.attempts:
            had = count_of(view.attempts, "attempt") if view.attempts else "no attempt yet"
            raise NotFound(f"job '{job}' has had {had}")
        over = epoch < view.attempts or view.finish_s is not None
        cluster, region = view.cluster, view.region
        if epoch < view.attempts:
            rows = await asyncio.to_thread(self.journal.attempts_of, job)
            found = next((r for r in rows if r.epoch == epoch), None)
            cluster, region = (found.cluster, found.region) if found else (None, None)
        if region is not None and self.regions.is_apart(region):
            read: Read = partial(self.regions.log, region)
        elif cluster:
            read = partial(self.read_log, cluster)
        else:
            return LogChunk(b"", 0, epoch, over)
        loop = asyncio.get_running_loop()
        page = await loop.run_in_executor(self.outside, read, job, epoch, task, offset, limit)
        page = page or LogPage(b"", offset, complete=True)
        return LogChunk(page.data, page.next_offset, epoch, over and page.complete)

    # --- records --------------------------------------------------------------------------------

    async def usage(
        self, caller: Caller, by: str, since_s: float | None, until_s: float | None
    ) -> dict[str, Any]:
        """GPU-hours held, kept and lost; by default of the last 30 days."""
        self.limits.take(caller, "list")
        faults = Faults()
        faults.of(partial(check_key, by))
        since, until = usual_period(faults, since_s, until_s, self.clock.now())
        faults.refuse()
        rows = await asyncio.to_thread(self.journal.attempts, since, until)
        days = await asyncio.to_thread(self.journal.usage_days, since, until)
        running = await self._ask(
            lambda: running_rows(self.machines.queue.jobs.placed.values(), self.clock.now())
        )
        seen = self.access.tenants(caller, Permission.USAGE_VIEW)
        counted = (row for row in (*rows, *running) if seen is None or row.tenant in seen)
        counted_days = (day for day in days if seen is None or day.tenant in seen)
        price = price_of(self.machines.queue.fleet)
        table = usage(counted, by, since, until, counted_days, price)
        return {"usage": table, "since_s": since, "until_s": until, "by": by}

    async def health(self, caller: Caller) -> v.Health:
        """Whether the loop turns, and on how much."""
        page = await self.jobs(caller)
        return v.Health(
            topmast.__version__, self.clock.now(), self.started_s, page.counts, self.runtime.seq,
            epoch=self.journal.epoch,
        )  # fmt: skip

    async def system(self, caller: Caller) -> SystemView:
        """How the server fares."""
        health = await self.health(caller)
        meter = self.runtime.meter
        steps, records = await self._ask(lambda: (timings(meter), meter.records))
        return SystemView(
            health, steps, self.runtime.inbox_depth, records, self.event_stream.readers,
            self.regions.out_of_reach(),
        )  # fmt: skip

    # --- work folders ---------------------------------------------------------------------------

    async def put_workdir(self, caller: Caller, digest: str, data: bytes) -> bool:
        """Keep a snapshot of a work folder; whether it is new."""
        self.limits.take(caller, "submit", 1.0 + len(data) / BYTES_PER_TAKE)
        tenants = self._require_somewhere(caller)
        account = "" if caller.principal.trusted else caller.principal.subject
        put = partial(self.blobs.put, digest, data, account, tenants)
        tops = [self.access.top(tenant) for tenant in tenants]
        new = await self.judging.run(caller, tops, put)
        done = row(caller, "upload", digest, outcome="done" if new else "unchanged")
        if new and account:
            # Not as the tenant of the line: a digest is the key to the content, and what an account
            # uploads for one of its tenants is not for those that audit another.
            done = note(done, self.blobs.room.owner(digest))
        await handed(self.runtime.note(done))
        return new

    def has_workdir(self, caller: Caller, digest: str) -> bool:
        """Whether a snapshot is there; its digest is known to those that have its content."""
        self._require_somewhere(caller)
        return self.blobs.path(digest) is not None

    def _require_somewhere(self, caller: Caller) -> tuple[str, ...]:
        """Where the caller has a role to submit jobs. Raises Forbidden without one."""
        tenants = self.access.granted(caller, Permission.JOBS_SUBMIT)
        if not tenants:
            raise caller.principal.forbidden(Permission.JOBS_SUBMIT)
        return tenants
