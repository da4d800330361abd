"""The use cases: submit, watch, explain, operate. The API is a thin presentation of this class.

Reads run on the runtime's thread between commits, so that nothing is shown before it is durable.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

import topmast
from topmast.fast.queue import JobRecord
from topmast.fast.region import count_of
from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.errors import InvalidInput, NotFound, Unavailable, refuse_all
from topmast.model.files.fields import nearest
from topmast.model.files.jobfile import faults_in_fleet, parse_job
from topmast.model.job import MILLI, JobSpec, has_image
from topmast.model.reason import HOPELESS
from topmast.model.states import WAITING, HostState, JobState
from topmast.ports import Clock, Journal, LogPage, Mover
from topmast.runtime.loop import Runtime
from topmast.service import fleet, listing
from topmast.service.arrivals import Arrivals
from topmast.service.blobs import Blobs
from topmast.service.capacityplans import CapacityPlans
from topmast.service.dataplans import DataPlans
from topmast.service.event_stream import EventStream
from topmast.service.explain import explain_job, explain_spec
from topmast.service.forecast import Forecasts, with_start
from topmast.service.live_progress import LiveProgress
from topmast.service.regions import LogChunk, Regions
from topmast.service.usage import KEYS, running_rows, usage
from topmast.service.warnings import warnings_of

T = TypeVar("T")
ReadLog = Callable[[str, str, int, int, int, int], LogPage | None]
"""A piece of a task's output: (cluster, job, attempt, rank, offset, limit) -> page, if any."""

Read = Callable[[str, int, int, int, int], LogPage | None]

MAX_BULK = 100_000
MAX_WARNINGS = 20
HOST_LOOKS, HOST_LOOK_S = 10, 0.25


class Service:
    """Everything people can do, as coroutines that raise `TopmastError`."""

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
        self.live_progress = live_progress
        self.event_stream = event_stream
        self.process_of = process_of
        self.regions = regions or Regions(runtime.machines)
        self.data_plans = data_plans
        self.capacity_plans = capacity_plans
        self.forecasts = Forecasts(runtime, self.regions, clock)
        self.started_s = clock.now()
        self._warned: dict[tuple[Any, ...], tuple[str, ...]] = {}

    async def _ask(self, question: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.runtime.ask(question))

    async def _tell(self, to: str, message: m.Message) -> Any:
        return await asyncio.wrap_future(self.runtime.call(to, message))

    # --- submitting -----------------------------------------------------------------------------

    def _read(self, document: Any, user: str, where: str) -> JobSpec:
        """A job from a request, checked against the fleet. Raises InvalidInput."""
        if not isinstance(document, dict):
            raise InvalidInput("must be an object", field=where, remedy="see the job file")
        tenants = self.machines.queue.tenancy.ledger.tenants
        default = "default" if "default" in tenants or not tenants else next(iter(tenants))
        file = parse_job(document, where=where, tenant_default=default, user=user)
        if file.workdir is not None:
            raise InvalidInput(
                "a request cannot bring a folder", field="workdir", where=where,
                remedy="upload a snapshot (PUT /workdirs/DIGEST), and give its digest",
            )  # fmt: skip
        spec = file.spec
        models = self.machines.queue.fleet.models()
        refuse_all(faults_in_fleet(spec, tenants, models, where))
        return spec

    def _warnings(self, spec: JobSpec) -> tuple[str, ...]:
        """What the user should know at once: the job is accepted but cannot start as things are."""
        queue, shapes = self.machines.queue, self.regions.shapes()
        unknown = queue.data.catalogue.unknown(spec.datasets)
        shape = tuple((g.count, g.resources) for g in spec.groups)
        datasets = len(queue.data.catalogue.datasets) if unknown else 0
        books = (id(queue.tenancy.ledger.tree), shapes, datasets)
        key = (
            shape,
            has_image(spec),
            spec.topology,
            spec.tenant,
            spec.band,
            spec.preemptible,
            unknown,
            books,
        )
        if key not in self._warned:
            if len(self._warned) > 10_000:
                self._warned.clear()
            regions = [placer.columns for placer in self.regions.placers.values()]
            # It is unknown what a region of another process can hold before it was reached.
            self._warned[key] = warnings_of(queue, None if shapes is None else regions, spec)
        return self._warned[key]

    def _with_workdir(self, spec: JobSpec, workdir: str) -> JobSpec:
        if workdir:
            spec = msgspec.structs.replace(spec, workdir=workdir)
        if spec.workdir and self.blobs.path(spec.workdir) is None:
            raise InvalidInput(
                "this snapshot was not uploaded", field="workdir", remedy="PUT it first"
            )
        return spec

    async def submit(self, document: Any, user: str, workdir: str, key: str) -> v.Receipt:
        """Admit one job; returns when that is durable."""
        spec = self._with_workdir(self._read(document, user, "job"), workdir)
        job = (await self._admit((spec,), key))[0]
        return v.Receipt(job, spec.name, self._warnings(spec))

    async def submit_many(self, documents: Any, user: str, key: str) -> v.BulkReceipt:
        """Admit many jobs, all or none; returns when that is durable."""
        if not isinstance(documents, list) or not documents:
            raise InvalidInput("must be a list of jobs", field="jobs")
        if len(documents) > MAX_BULK:
            raise InvalidInput(
                f"more than {MAX_BULK} jobs", field="jobs", remedy="send several requests"
            )
        specs, warnings = [], []
        for i, document in enumerate(documents):
            specs.append(self._with_workdir(self._read(document, user, f"jobs[{i}]"), ""))
            warnings += [f"jobs[{i}]: {warning}" for warning in self._warnings(specs[-1])]
            if i % 100 == 99:
                await asyncio.sleep(0)  # others' requests get their turn
        if len(warnings) > MAX_WARNINGS:
            more = len(warnings) - MAX_WARNINGS
            warnings[MAX_WARNINGS:] = [f"and {more} more warnings"]
        return v.BulkReceipt(await self._admit(tuple(specs), key), tuple(warnings))

    async def _admit(self, specs: tuple[JobSpec, ...], key: str) -> tuple[str, ...]:
        digest = hashlib.sha256(msgspec.json.encode(specs)).hexdigest() if key else ""
        admitted: tuple[str, ...] = await self._tell(ids.QUEUE, m.SubmitJobs(specs, key, digest))
        return admitted

    async def dry_run(self, document: Any, user: str) -> v.Explanation:
        """What would become of a job, without submitting it."""
        spec = self._read(document, user, "job")
        await self.regions.look()
        warnings = self._warnings(spec)
        found = await self._ask(
            lambda: explain_spec(
                self.machines.queue, self.regions.placers, spec, self.clock.now(), warnings
            )
        )
        may_start = found.reason not in HOPELESS
        return with_start(found, await self.forecasts.of_spec(spec) if may_start else None)

    # --- jobs -----------------------------------------------------------------------------------

    def _view(self, record: JobRecord) -> v.JobView:
        verdict = self.machines.queue.verdict_on(record)
        view = record.view(self.clock.now(), verdict.reason.value if verdict else None)
        steps = self.live_progress.of_job(record.id, record.epoch)
        if record.state not in WAITING and not record.finished:
            reachable = view.region not in self.machines.queue.cycle.reach.absent
            view = msgspec.structs.replace(view, reachable=reachable)
        if steps is None or record.finished:
            return view
        starting = record.state is JobState.STARTING or steps.begun
        return msgspec.structs.replace(
            view,
            preparing=steps.preparing_text() if starting else "",
            step=view.step if steps.step is None else steps.step,
            metrics=steps.metrics or view.metrics,
        )

    def _archived(self, job: str) -> v.JobView:
        row = self.journal.finished_job(job)
        if row is None:
            raise NotFound(f"no job '{job}'")
        return msgspec.json.decode(row.view, type=v.JobView)

    async def job(self, job: str) -> v.JobView:
        """One job as it stands."""
        found = await self._ask(lambda: self._live(job))
        return found if found is not None else self._archived(job)

    def _live(self, job: str) -> v.JobView | None:
        record = self.machines.queue.jobs.records.get(job)
        return None if record is None else self._view(record)

    async def story(self, job: str) -> v.JobStory:
        """A job with its history and its finished attempts."""
        view = await self.job(job)
        attempts = await asyncio.to_thread(self.journal.attempts_of, job)
        return v.JobStory(
            view,
            await self._history(job),
            tuple(
                v.AttemptView(
                    a.epoch, a.region, a.cluster, a.model, a.gpus_milli / MILLI,
                    a.start_s, a.end_s, a.kept_s, a.outcome,
                )
                for a in attempts
            ),
        )  # fmt: skip

    async def jobs(
        self, states: Sequence[str], tenant: str, limit: int, cursor: str, queue_order: bool
    ) -> v.JobPage:
        """A page of jobs, newest first, or in the order of the queue."""
        wanted = listing.select(tuple(states), tenant, limit, cursor, queue_order)
        page = await self._ask(lambda: self._page(wanted))
        queue = self.machines.queue
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
        return v.JobPage(tuple(found), cursor_after, page.counts, page.total)

    def _page(self, wanted: listing.Selection) -> v.JobPage:
        queue = self.machines.queue
        order = listing.in_queue_order if wanted.queue_order else listing.newest
        found = order(queue, wanted)
        cursor = None
        if len(found) == wanted.limit:
            seen = (wanted.cursor or 0) + len(found)
            cursor = str(seen if wanted.queue_order else found[-1].number)
        views = tuple(self._view(record) for record in found)
        return v.JobPage(views, cursor, listing.counts(queue), listing.total(queue, wanted))

    async def explain(self, job: str) -> v.Explanation:
        """Why a job stands where it stands."""

        def question() -> v.Explanation | None:
            queue = self.machines.queue
            record = queue.jobs.records.get(job)
            if record is None:
                return None
            told = explain_job(queue, self.regions.placers, record, self.clock.now())
            view = self._view(record)
            if view.preparing:
                summary = f"{told.summary}; its tasks wait: {view.preparing}"
                told = msgspec.structs.replace(told, summary=summary)
            more = (*self._trouble_with_data(record), *self._trouble_with_capacity(record))
            return msgspec.structs.replace(told, warnings=(*told.warnings, *more))

        await self.regions.look()
        found = await self._ask(question)
        if found is not None:
            waits = found.state in WAITING and found.reason not in HOPELESS
            return with_start(found, await self.forecasts.of_job(job)) if waits else found
        view = self._archived(job)
        cause = f": {view.cause}" if view.cause else ""
        summary = f"{view.id} is {view.state}{cause}"
        return v.Explanation(job, view.name, view.state, None, summary, (), (), ())

    async def cancel(self, job: str, by: str) -> v.JobView:
        """End a job for good; returns before its processes have stopped."""
        try:
            await self._tell(ids.QUEUE, m.CancelJobs((job,), by))
        except NotFound:
            return self._archived(job)
        return await self.job(job)

    async def log(
        self, job: str, task: int, attempt: int | None, offset: int, limit: int
    ) -> LogChunk:
        """A piece of one task's output, of the latest attempt unless another is named."""
        view = await self.job(job)
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
        page = await asyncio.to_thread(read, job, epoch, task, offset, limit)
        page = page or LogPage(b"", offset, complete=True)
        return LogChunk(page.data, page.next_offset, epoch, over and page.complete)

    # --- the fleet ------------------------------------------------------------------------------

    async def list(self, what: str) -> tuple[Any, ...]:
        """Regions, clusters, hosts, gpus, tenants or datasets."""
        await self.regions.look()
        queue, placers = self.machines.queue, self.regions.placers
        questions: dict[str, Callable[[], tuple[Any, ...]]] = {
            "regions": lambda: fleet.regions(queue, placers),
            "clusters": lambda: fleet.clusters(placers),
            "hosts": lambda: fleet.hosts(placers, self.process_of, self.clock.now()),
            "gpus": lambda: fleet.gpus(placers),
            "tenants": lambda: fleet.tenants(queue),
            "datasets": lambda: fleet.datasets(queue, self.live_progress.of_copy, self._why),
        }
        found = await self._ask(questions[what])
        return fleet.with_reach(found, queue.cycle.reach.absent) if what == "hosts" else found

    async def set_host(
        self, host: str, state: HostState, by: str, at_once: bool = False, also: Sequence[str] = ()
    ) -> v.HostView:
        """Cordon, drain or return hosts; ``at_once`` stops also jobs without another place."""
        region, others = fleet.together(await self.list("hosts"), host, also)
        absence = self.machines.queue.cycle.reach.absent.get(region)
        if absence is not None:
            raise Unavailable(f"region '{region}' is out of reach: {absence.why}")
        order = m.SetHost(host, state, by, at_once, others or msgspec.UNSET)
        await self._tell(ids.placer(region), order)
        for _ in range(HOST_LOOKS):
            views: tuple[v.HostView, ...] = await self.list("hosts")
            found = next(h for h in views if h.name == host)
            if not self.regions.is_apart(region) or found.state == state.value:
                break
            await asyncio.sleep(HOST_LOOK_S)  # the order is on its way
        return found

    async def host_story(self, host: str) -> v.HostStory:
        """A host with what was done to it and what happened to it."""
        views: tuple[v.HostView, ...] = await self.list("hosts")
        view = next((h for h in views if h.name == host), None)
        if view is None:
            raise NotFound(f"no host '{host}'")
        known = not self.regions.is_apart(view.region)
        return v.HostStory(view, await self._history(ids.host(host)), known)

    async def _history(self, subject: str) -> tuple[v.HistoryView, ...]:
        rows = await asyncio.to_thread(self.journal.history, subject)
        return tuple(
            v.HistoryView(row.at_s, row.kind, row.text, msgspec.json.decode(row.detail))
            for row in rows
        )

    async def drain_plan(self, host: str, also: Sequence[str] = ()) -> v.DrainView:
        """What a drain of a host does now, or would do, if others are drained ``also``."""
        region, others = fleet.together(await self.list("hosts"), host, also)
        now = self.clock.now()
        placer = self.regions.placers[region]
        return await self._ask(lambda: fleet.drain_plan(placer, host, now, others))

    # --- datasets -------------------------------------------------------------------------------

    async def add_dataset(self, document: Any) -> v.DatasetView:
        """Enter a dataset, uploading a directory of this machine first if ``source`` names one."""
        name = await self.arrivals.add(document)
        return await self.dataset(name)

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

    def _why(self, dataset: str, region: str) -> str:
        return "" if self.data_plans is None else self.data_plans.why(dataset, region)

    async def data_plan(self) -> v.DataPlanView:
        """What is planned about data."""
        if self.data_plans is None:
            raise Unavailable("this process plans no data")
        fetches = self.machines.queue.data.fetches
        fetched = await self._ask(lambda: fetches.count(self.clock.now()))
        view = self.data_plans.view()
        return msgspec.structs.replace(view, fetched=fetched, fetched_most=fetches.most)

    async def capacity_plan(self) -> v.CapacityPlanView:
        """What is planned about hosts and clusters."""
        if self.capacity_plans is None:
            raise Unavailable("this process plans no capacity")
        return await self._ask(self.capacity_plans.view)

    async def dataset(self, name: str) -> v.DatasetView:
        """One dataset."""
        listed = await self.list("datasets")
        found = [d for d in listed if d.name == name]
        if not found:
            near = nearest(name, [d.name for d in listed])
            raise NotFound(f"no dataset '{name}'" + (f" ({near})" if near else ""))
        view: v.DatasetView = found[0]
        return view

    async def replicate(self, name: str, region: str, by: str) -> v.DatasetView:
        """Begin a copy of a dataset to a region; nothing to do if it is there."""
        await self._tell(ids.QUEUE, m.RequestReplica(name, region, by))
        return await self.dataset(name)

    async def drop(self, name: str, region: str) -> v.DatasetView:
        """Remove a replica that no job needs."""
        await self._tell(ids.QUEUE, m.DropReplica(name, region))
        return await self.dataset(name)

    async def remove_dataset(self, name: str) -> v.DatasetView:
        """Forget a dataset and delete its replicas; answers what there was."""
        there = await self.dataset(name)
        await self._tell(ids.QUEUE, m.RemoveDataset(name))
        return there

    # --- accounts -------------------------------------------------------------------------------

    async def usage(self, by: str, since_s: float | None, until_s: float | None) -> dict[str, Any]:
        """GPU-hours held, kept and lost; by default of the last 30 days."""
        if by not in KEYS:
            raise InvalidInput(f"'{by}' is not one of {', '.join(KEYS)}", field="by")
        for name, time_s in (("since", since_s), ("until", until_s)):
            if time_s is not None and not math.isfinite(time_s):
                raise InvalidInput("not a time", field=name)
        now = self.clock.now()
        until = now if until_s is None else until_s
        since = until - 30 * 86_400.0 if since_s is None else since_s
        if since > until:
            message = (
                "the period begins after it ends" if until_s is not None else "is in the future"
            )
            raise InvalidInput(message, field="since", remedy="an earlier since, or a later until")
        rows = await asyncio.to_thread(self.journal.attempts, since, until)
        running = await self._ask(
            lambda: running_rows(self.machines.queue.jobs.records.values(), self.clock.now())
        )
        table = usage([*rows, *running], by, since, until)
        return {"usage": table, "since_s": since, "until_s": until, "by": by}

    async def health(self) -> v.Health:
        """Whether the loop turns, and on how much."""
        page = await self.jobs((), "", 1, "", queue_order=False)
        return v.Health(
            topmast.__version__, self.clock.now(), self.started_s, page.counts, self.runtime.seq,
            epoch=self.journal.epoch,
        )  # fmt: skip
