"""Jobs that are admitted, or looked at as if they were: all that is wrong is told at once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from topmast.fast.queue import fault_of, outstanding
from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.access import Caller, Permission
from topmast.model.dependency import After, awaited
from topmast.model.errors import InvalidInput, NotFound, Refused, refuse_all
from topmast.model.expansion import size_of
from topmast.model.job import JobSpec
from topmast.model.reason import HOPELESS, PendingReason
from topmast.model.states import JobState
from topmast.service.admission import Checked, ManyJobs
from topmast.service.explain import explain_spec
from topmast.service.explaining import refuse_too_large
from topmast.service.forecast import with_start
from topmast.service.holders import quotas_in_parts
from topmast.service.limits import GROUPS_PER_TAKE, JOB_BYTES_PER_TAKE, JOBS_PER_TAKE
from topmast.service.reserving import Reserving
from topmast.service.submission import submission
from topmast.service.turns import Turns, with_pauses

MAX_BULK = 100_000
MAX_WAITS = 200_000
"""What the jobs of one request wait for, counted for each job: each is kept and looked at."""
MAX_WARNINGS = 20
MOST_WRONG = 1_000
"""After so many errors no more of a request is read: each costs many times what a job does."""

Ended = dict[str, JobState]
"""How jobs ended, by id."""


class Submitting(Reserving):
    """What brings jobs into the queue."""

    async def submit(
        self, caller: Caller, document: Any, user: str, workdir: str, key: str, size_bytes: int = 0
    ) -> v.Receipt:
        """Admit one job, of a document so long; returns when that is durable."""
        async with self._key_turn(caller, key):
            return await self._submit(caller, document, user, workdir, key, size_bytes)

    async def _submit(
        self, caller: Caller, document: Any, user: str, workdir: str, key: str, size_bytes: int
    ) -> v.Receipt:
        self.limits.take(caller, "submit", floor=float(not self._is_repeated(caller, key)))
        self._refuse_if_full(caller, key)
        spec, ended = await self._read_job(caller, document, user, workdir)
        size = size_of((spec,))
        self.limits.charge(caller, "submit", (size - 1 + _waits_of(spec)) / JOBS_PER_TAKE)
        self._charge_groups(caller, size * (len(spec.groups) - 1))
        self._charge_size(caller, size * size_bytes, size)
        job = (await self._admit(caller, (spec,), key, ended))[0]
        if spec.sweep:
            job = ids.sweep_id(ids.job_number(job))
        return v.Receipt(job, spec.name, self.admission.warnings(spec), size)

    async def submit_many(
        self, caller: Caller, documents: Any, user: str, key: str, size_bytes: int = 0
    ) -> v.BulkReceipt:
        """Admit many jobs, of documents so long, all or none; returns when that is durable."""
        async with self._key_turn(caller, key):
            return await self._submit_many(caller, documents, user, key, size_bytes)

    async def _submit_many(
        self, caller: Caller, documents: Any, user: str, key: str, size_bytes: int
    ) -> v.BulkReceipt:
        self._refuse_if_full(caller, key)
        repeated = self._is_repeated(caller, key)
        jobs, ended = await self._read_jobs(caller, documents, user, size_bytes, repeated=repeated)
        warnings = [f"jobs[{i}]: {text}" for i, job in enumerate(jobs) for text in job.warnings]
        if len(warnings) > MAX_WARNINGS:
            more = len(warnings) - MAX_WARNINGS
            warnings[MAX_WARNINGS:] = [f"and {more} more warnings"]
        specs = tuple([job.spec for job in jobs])
        kinds = None if any(s.depends_on for s in specs) else tuple([job.kind for job in jobs])
        return v.BulkReceipt(await self._admit(caller, specs, key, ended, kinds), tuple(warnings))

    def _key_turn(self, caller: Caller, key: str) -> AbstractAsyncContextManager[None]:
        """A repeat waits while its first try is under way: before that is in, it would count."""
        return self.submitting.turn(caller, key) if key else nullcontext()

    def _refuse_if_full(self, caller: Caller, key: str) -> None:
        """One account could else fill the disk, and the server of all would end. Raises Full."""
        if not (caller.principal.trusted or self._is_repeated(caller, key)):
            self.blobs.room.refuse_if_full()

    def _is_repeated(self, caller: Caller, key: str) -> bool:
        """Whether a submission was admitted before: it adds nothing, and is always answered."""
        return _own_key(caller, key) in self.machines.queue.jobs.keys

    def _charge_size(self, caller: Caller, size_bytes: int, jobs: int) -> None:
        """Count what is longer than so many jobs are as a rule."""
        more = size_bytes / JOB_BYTES_PER_TAKE - jobs / JOBS_PER_TAKE
        self.limits.charge(caller, "submit", max(0.0, more))

    def _charge_groups(self, caller: Caller, more: int) -> None:
        """Count the groups of jobs beyond the first of each."""
        self.limits.charge(caller, "submit", max(0, more) / GROUPS_PER_TAKE)

    async def _admit(
        self,
        caller: Caller,
        specs: tuple[JobSpec, ...],
        key: str,
        ended: Ended,
        kinds: tuple[int, ...] | None = None,
    ) -> tuple[str, ...]:
        asks = not (caller.principal.trusted or self._is_repeated(caller, key))
        digest = hashlib.sha256(msgspec.json.encode(specs)).hexdigest() if key else ""
        key = _own_key(caller, key)
        order = m.SubmitJobs(specs, key, digest, ended or UNSET, True, kinds or UNSET)
        done = submission(caller, specs)
        with self.queue_room.for_some(specs if asks else ()) as claim:
            done = msgspec.structs.replace(done, within=partial(self.queue_room.applied, claim))
            admitted: tuple[str, ...] = await self._tell(ids.QUEUE, order, done)
        return admitted

    def _with_quota(self, caller: Caller, told: v.Explanation, spec: JobSpec) -> v.Explanation:
        """An explanation of a wait for quota, with the tenants that have the parts of it."""
        if told.reason != PendingReason.WAITING_FOR_QUOTA:
            return told
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        parts = quotas_in_parts(self.machines.queue, spec, seen)
        summary = f"{told.summary}; {parts}" if parts else told.summary
        return msgspec.structs.replace(told, summary=summary)

    async def check_job(
        self, caller: Caller, document: Any, user: str, workdir: str | None
    ) -> None:
        """Raises InvalidInput, with all that is wrong, or Forbidden for what no `submit` takes.

        ``workdir`` None: for what no `dry_run` takes.
        """
        self.limits.take(caller, "submit")
        await self._read_job(caller, document, user, workdir)

    async def check_jobs(
        self, caller: Caller, documents: Any, user: str, size_bytes: int = 0
    ) -> None:
        """The same of many jobs, for what no `submit_many` takes."""
        await self._read_jobs(caller, documents, user, size_bytes)

    async def _read_job(
        self, caller: Caller, document: Any, user: str, workdir: str | None
    ) -> tuple[JobSpec, Ended]:
        """A job from a request, and how jobs ended that it waits for.

        ``workdir`` None: it needs none yet. Raises InvalidInput, with all that is wrong, Forbidden.
        """
        faults: tuple[InvalidInput, ...] = ()
        try:
            spec = self.admission.read(caller, document, user, "job", workdir=workdir)
        except InvalidInput as error:
            if not isinstance(error.rest, JobSpec):
                raise
            faults, spec = (error, *error.more), error.rest
        if _waits_of(spec) > MAX_WAITS:
            raise _too_many_waits("depends_on")
        ended, absent = await self._awaited(caller, ((0, spec),), "job")
        refuse_all((*faults, *absent))
        return spec, ended

    async def _read_jobs(
        self, caller: Caller, documents: Any, user: str, size_bytes: int, *, repeated: bool = False
    ) -> tuple[list[Checked], Ended]:
        """Many jobs from a request, and how jobs ended that they wait for; all or none.

        Raises InvalidInput, with all that is wrong, Forbidden.
        """
        if not isinstance(documents, list) or not documents:
            raise InvalidInput("must be a list of jobs", field="jobs")
        if len(documents) > MAX_BULK:
            remedy = "send several requests"
            raise InvalidInput(f"more than {MAX_BULK} jobs", field="jobs", remedy=remedy)
        takes = 1.0 + len(documents) / JOBS_PER_TAKE
        self.limits.take(caller, "submit", takes, floor=float(not repeated))
        self._charge_size(caller, size_bytes, len(documents))
        self._charge_groups(caller, sum(map(_groups_said, documents)))
        many, refused = ManyJobs(self.admission, caller, user), Refused()
        jobs, waiting, waits = list[Checked](), dict[int, JobSpec](), 0
        async for i, document in with_pauses(enumerate(documents)):
            try:
                jobs.append(many.read(document, i))
                spec = jobs[-1].spec
            except InvalidInput as error:
                refused.add(error)
                if len(refused) >= MOST_WRONG:
                    refused.refuse(is_all=False)
                if not isinstance(error.rest, JobSpec):
                    continue
                spec = error.rest
            if spec.depends_on:
                waiting[i], waits = spec, waits + _waits_of(spec)
                if waits > MAX_WAITS:
                    raise _too_many_waits("jobs")
        self.limits.charge(caller, "submit", waits / JOBS_PER_TAKE)
        ended, absent = await self._awaited(caller, waiting.items(), "jobs[{}]")
        refused.add_all(absent)
        refused.refuse()
        return jobs, ended

    async def _awaited(
        self, caller: Caller, jobs: Iterable[tuple[int, JobSpec]], where: str
    ) -> tuple[Ended, list[InvalidInput]]:
        """How jobs ended that others depend on, of those that have left the memory.

        ``jobs`` have their places in the request, which ``where`` turns into the names of parts.
        Second, an error for each that there is not, or that the caller may not see.
        """
        wanted: dict[str, int] = {}
        for place, spec in jobs:
            for job in spec.depends_on or ():
                if ids.job_number(job) >= 0 or ids.sweep_number(job) >= 0:
                    wanted.setdefault(job, place)
        if not wanted:
            return {}, []
        queue, ended, absent = self.machines.queue, Ended(), list[InvalidInput]()
        records, sweeps = queue.jobs.records, queue.jobs.sweeps.records
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        tenants = await self._ask(
            lambda: {
                job: one.spec.tenant
                for job in wanted
                if (one := records.get(job) or sweeps.get(job)) is not None
            }
        )
        for job, place in wanted.items():
            hidden = job in tenants and seen is not None and tenants[job] not in seen
            if job not in tenants or hidden:  # a hidden one takes as long as one that is not there
                with suppress(NotFound):
                    view = await asyncio.to_thread(self._archived, job)
                    tenants[job], ended[job] = view.tenant, JobState(view.state)
            if job not in tenants or (seen is not None and tenants[job] not in seen):
                remedy = "name a job that was submitted before"
                at = where.format(place)
                absent.append(
                    InvalidInput(f"no job '{job}'", field="depends_on", where=at, remedy=remedy)
                )
        return ended, absent

    async def dry_run(self, caller: Caller, document: Any, user: str) -> v.Explanation:
        """What would become of a job, without submitting it."""
        async with self.explaining.turn(caller):
            return await self._dry_run(caller, document, user)

    async def _dry_run(self, caller: Caller, document: Any, user: str) -> v.Explanation:
        spec, ended = await self._read_job(caller, document, user, None)
        refuse_too_large(spec)
        waits = await self._ask(lambda: self._still_awaited(spec, ended))
        await self.regions.look()
        warnings = self.admission.warnings(spec)
        if spec.sweep:
            warnings += (f"it becomes {spec.sweep.size:,} jobs: this is said of each by itself",)
        if spec.depends_on:
            warnings += (f"it starts only when {awaited(spec.depends_on)}",)
        placers = self.regions.placers

        def look(turns: Turns) -> v.Explanation:
            now = self.clock.now()
            told = explain_spec(self.machines.queue, placers, spec, now, warnings, turns)
            return self._with_quota(caller, told, spec)

        found = await self._look(caller, look)
        may_start = found.reason not in HOPELESS
        # A forecast knows no jobs that have left the memory.
        spec = msgspec.structs.replace(spec, depends_on=waits or UNSET)
        found = with_start(found, await self.forecasts.of_spec(spec) if may_start else None)
        return self._shown(caller, found)

    def _still_awaited(self, spec: JobSpec, ended: Ended) -> dict[str, After]:
        """What a job would wait for if it were submitted now. Raises what that would raise."""
        jobs = self.machines.queue.jobs
        fault = fault_of((spec,), jobs, ended)
        if fault is not None:
            raise fault
        return outstanding(spec, jobs, ended)


def _waits_of(spec: JobSpec) -> int:
    """What the jobs that it becomes wait for, counted for each of them."""
    return size_of((spec,)) * len(spec.depends_on or ())


def _too_many_waits(field: str) -> InvalidInput:
    remedy = "let one job wait for the others, and the rest for that one; or send several requests"
    return InvalidInput(
        f"the jobs wait for more than {MAX_WAITS:,} others, counted for each", field=field,
        remedy=remedy,
    )  # fmt: skip


def _own_key(caller: Caller, key: str) -> str:
    """A key is its sender's own."""
    return f"{caller.principal.subject} {key}" if key and not caller.principal.trusted else key


def _groups_said(document: Any) -> int:
    """How many groups a job of a request says that it has beyond its first."""
    groups = document.get("groups") if isinstance(document, dict) else None
    return max(0, len(groups) - 1) if isinstance(groups, list | dict) else 0
