"""Acts on many jobs in one request: which jobs, what it costs, may the caller, and then do it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.queue import JUDGES, Effect, JobRecord, Judgement, judge_edit, judge_requeue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.access import Caller, Permission
from topmast.model.act_views import JobEffect, JobsActed
from topmast.model.errors import Forbidden, InvalidInput, NotFound, refuse_all
from topmast.model.expansion import size_of
from topmast.model.job import MILLI, JobChanges
from topmast.model.selector import Selector, right_of, selector_of
from topmast.model.states import TERMINAL, WAITING, JobState
from topmast.model.sweep_views import SweepView
from topmast.model.views import JobView
from topmast.ports import Act
from topmast.service.access import NO_REASON, Why, act, json_text, row
from topmast.service.limits import ACTS_PER_TAKE, SWEPT_PER_TAKE
from topmast.service.listing import selects
from topmast.service.operating import Operating
from topmast.service.queue_room import Sums
from topmast.service.selecting import SelectedNames
from topmast.service.sweeps import job_named, jobs_named, seen_by, sweep_of, views_of

MAX_JOBS = 100_000  # at most so many are named in one request
NAMED_LENGTH = 200  # characters of what a request names, in the audit log
GOING = tuple(state for state in JobState if state not in TERMINAL)


class JobsAct(Struct, frozen=True):
    """An act on jobs, as a request says it."""

    verb: str
    jobs: tuple[str, ...] = ()
    selector: str = ""
    """Instead of naming jobs."""
    by: str = ""
    reason: str = ""
    dry_run: bool = False
    changes: JobChanges = JobChanges()
    """What `edit` changes."""

    def judge(self, tenants: Collection[str]) -> Callable[[JobRecord], Judgement]:
        """What it would do to a job, with these tenants in the fleet."""
        if self.verb == "edit":
            return partial(judge_edit, changes=self.changes)
        if self.verb == "requeue":
            return partial(judge_requeue, tenants=tenants)
        return JUDGES[self.verb]

    def leaves_out(self, record: JobRecord) -> bool:
        """Whether a sweep or a selector does not mean a job here, which by itself is refused."""
        return self.verb == "requeue" and record.state is JobState.SUCCEEDED

    @property
    def permission(self) -> Permission:
        """What it takes to act so on own jobs."""
        return Permission.JOBS_CANCEL if self.verb == "cancel" else Permission.JOBS_EDIT

    def order(self, by: str) -> Callable[[tuple[str, ...]], m.Message]:
        """The message to the queue about jobs."""
        more = {"changes": self.changes} if self.verb == "edit" else {}
        return partial(ORDERS[self.verb], by=by, reason=self.reason or UNSET, **more)


ORDERS: dict[str, Callable[..., m.Message]] = {
    "cancel": m.CancelJobs,
    "hold": m.HoldJobs,
    "release": m.ReleaseJobs,
    "suspend": partial(m.HoldJobs, stop=True),
    "resume": m.ReleaseJobs,
    "preempt": m.PreemptJobs,
    "requeue": m.RequeueJobs,
    "edit": m.EditJobs,
}
"""By verb: the message to the queue."""
STOPS = frozenset({"cancel", "suspend", "preempt", "requeue"})
"""Acts that take the GPUs of jobs."""


class _Target(Struct):
    """A job that was named or selected, and what the act does to it."""

    job: str
    tenant: str = ""
    user: str = ""
    judgement: Judgement = Judgement()
    gpus: float = 0.0
    lost_gpu_h: float = 0.0
    forbidden: str = ""
    """The permission that the caller lacks, in words."""
    is_hidden: bool = False
    """It is there, but the caller may not see it, and is told that there is none."""

    @property
    def is_done(self) -> bool:
        return self.judgement.effect is Effect.DONE

    def forbid(self, why: str) -> None:
        self.judgement, self.forbidden = Judgement(Effect.REFUSED, why), why

    def effect(self) -> JobEffect:
        judgement = self.judgement
        cost = (self.gpus, self.lost_gpu_h) if self.is_done else (0.0, 0.0)
        return JobEffect(self.job, judgement.effect.value, judgement.why, *cost)


_ENDED = Judgement(Effect.UNCHANGED, "has ended")
_LATE = Judgement(Effect.UNCHANGED, "another request did something to it at the same time")


class Verbs(Operating):
    """What people do to jobs, by id or by selector."""

    def _view(self, record: JobRecord) -> JobView:
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

    def _archived(self, job: str) -> JobView:
        kept = self.journal.finished_job(job)
        if kept is None:
            of_sweep = job[:1] == "s" and job[1:].isdecimal()
            more = f": that is a sweep, and its first job is {job}[0]" if of_sweep else ""
            raise NotFound(f"no job '{job}'{more}")
        return msgspec.json.decode(kept.view, type=JobView)

    async def job(self, caller: Caller, job: str) -> JobView:
        """One job as it stands, by its id or as ``s7[3]``.

        One that the caller may not see is not there.
        """
        sees = partial(self.access.may, caller, Permission.JOBS_VIEW)
        job = job_named(self.machines.queue, job, sees) or job
        found = await self._ask(lambda: self._live(job))
        if found is None or not sees(found.tenant):
            # The archive is asked for a hidden one too: it takes as long as one that is not there.
            found = self._archived(job)
        if not sees(found.tenant):
            raise NotFound(f"no job '{job}'")
        return self._shown(caller, found)

    async def sweeps(self, caller: Caller) -> tuple[SweepView, ...]:
        """The sweeps in memory, the newest first."""
        self.limits.take(caller, "list")
        queue, seen = self.machines.queue, self.access.tenants(caller, Permission.JOBS_VIEW)
        known = queue.jobs.sweeps.records
        found = await self._ask(lambda: views_of(queue, seen_by(known.values(), seen)))
        self.limits.charge(caller, "list", sum(sweep.jobs for sweep in found) / SWEPT_PER_TAKE)
        return found

    async def sweep(self, caller: Caller, sweep: str) -> SweepView:
        """One sweep as it stands; one that the caller may not see is not there."""
        queue = self.machines.queue
        one = queue.jobs.sweeps.records.get(sweep)
        if one is None or not self.access.may(caller, Permission.JOBS_VIEW, one.spec.tenant):
            raise NotFound(f"no sweep '{sweep}'")
        self.limits.take(caller, "list", size_of((one.spec,)) / SWEPT_PER_TAKE)
        (found,) = await self._ask(lambda: views_of(queue, (one,)))
        return found

    def _live(self, job: str) -> JobView | None:
        record = self.machines.queue.jobs.records.get(job)
        return None if record is None else self._view(record)

    def _state_of(self, job: str) -> str:
        """The state of a job for the audit log."""
        record = self.machines.queue.jobs.records.get(job)
        if record is None:
            return ""
        spec = given(record.next_spec, record.spec)
        more = {"hold": record.hold} if record.hold else {}
        return json_text(
            state=record.state.value, cause=record.cause, band=spec.band.name.lower(), **more
        )

    def _states_of(self, jobs: Sequence[str]) -> str:
        """The states of many jobs for the audit log: how many are in each. O(jobs)."""
        known = self.machines.queue.jobs.records
        records = [record for job in jobs if (record := known.get(job)) is not None]
        held = sum(bool(record.hold) for record in records)
        bands = (given(record.next_spec, record.spec).band.name.lower() for record in records)
        more = {"held": held} if held else {}
        states = Counter(record.state.value for record in records)
        return json_text(states=states, bands=Counter(bands), **more)

    async def cancel(self, caller: Caller, job: str, by: str, why: Why = NO_REASON) -> JobView:
        """End a job for good; returns before its processes have stopped."""
        wanted = JobsAct("cancel", (job,), by=by, reason=why.reason, dry_run=why.dry_run)
        await self.act_on_jobs(caller, wanted)
        return await self.job(caller, job)

    async def act_on_jobs(self, caller: Caller, wanted: JobsAct) -> JobsActed:
        """Do one thing to many jobs, or say what it would do; a repetition changes nothing."""
        self._count(caller, wanted)
        acted, hides = await self._acted(caller, wanted), self.redaction(caller)
        if hides is None:
            return acted
        # What is named keeps its name: it tells no more than the request did.
        return replace(acted, jobs=tuple(hides.of(view) for view in acted.jobs))

    def _count(self, caller: Caller, wanted: JobsAct) -> None:
        self.limits.take(caller, "submit", floor=0.5 if wanted.verb == "cancel" else 1.0)

    async def check_jobs_meant(self, caller: Caller, wanted: JobsAct) -> None:
        """Raises InvalidInput or NotFound for what a request names that there is not, for all."""
        self._count(caller, wanted)
        targets = await self._targets(caller, wanted)
        refuse_all(
            NotFound(target.judgement.why, field="jobs") for target in targets if not target.tenant
        )

    async def _acted(self, caller: Caller, wanted: JobsAct) -> JobsActed:
        targets = await self._targets(caller, wanted)
        self.limits.charge(caller, "submit", len(targets) / ACTS_PER_TAKE)
        refused = self._refuse(caller, wanted.permission, targets)
        if not wanted.dry_run:
            if refused is not None:
                self.limits.take(caller, "refused")
                refused.is_noted = True
            again = [one.job for one in targets if one.is_done and wanted.verb == "requeue"]
            with self.queue_room.for_again(caller, again) as claim:
                await self._act(caller, wanted, targets, claim)
        if refused is not None:
            raise refused
        views = tuple(await self._in_portions(targets, self._views))
        counts = Counter(target.judgement.effect.value for target in targets)
        done = [target for target in targets if target.is_done]
        return JobsActed(
            wanted.verb, wanted.dry_run, views, tuple(target.effect() for target in targets),
            {effect.value: counts[effect.value] for effect in Effect},
            sum(target.gpus for target in done), sum(target.lost_gpu_h for target in done),
        )  # fmt: skip

    async def _targets(self, caller: Caller, wanted: JobsAct) -> list[_Target]:
        jobs = await self._read(caller, wanted.selector, wanted.permission)
        if bool(wanted.jobs) != jobs.takes_all:  # a selector that means any job is none
            remedy = "state=active selects all that have not ended"
            raise InvalidInput("name jobs, or give a selector", field="jobs", remedy=remedy)
        if len(wanted.jobs) > MAX_JOBS:
            remedy = "send several requests, or a selector"
            raise InvalidInput(f"more than {MAX_JOBS} jobs", field="jobs", remedy=remedy)
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        if not wanted.jobs:
            return await self._selected(caller, wanted, jobs, seen)
        queue, also_ended = self.machines.queue, wanted.verb == "requeue"
        sees = partial(self.access.may, caller, Permission.JOBS_VIEW)

        def takes(record: JobRecord) -> bool:
            return not wanted.leaves_out(record) and (also_ended or not record.finished)

        names = await self._ask(
            lambda: tuple(dict.fromkeys(jobs_named(queue, wanted.jobs, sees, takes)))
        )
        found = await self._in_portions(names, partial(self._named_jobs, wanted, seen))
        missing = [target.job for target in found if not target.tenant]
        ended = await asyncio.to_thread(self._ended_long_ago, wanted.verb, missing, seen)
        return [ended.get(target.job, target) for target in found]

    async def _read(self, caller: Caller, selector: str, permission: Permission) -> Selector:
        """A selector of jobs. Raises InvalidInput, also for what it names that there is not."""
        try:
            return selector_of(selector)
        except InvalidInput as error:
            read, names = right_of(selector), SelectedNames(self.machines, self.access)
            unknown = await self._ask(lambda: names.unknown(caller, read, permission))
            for one in unknown if permission is Permission.JOBS_VIEW else ():
                one.conceals = ""  # to look at the jobs of a tenant that is hidden shows none
            refuse_all((error, *error.more, *unknown))
            raise

    async def _selected(
        self, caller: Caller, wanted: JobsAct, jobs: Selector, seen: frozenset[str] | None
    ) -> list[_Target]:
        """Jobs in memory; unless states are named, only those that have not ended.

        Raises InvalidInput if the selector names what there is not.
        """
        if not jobs.states:
            jobs = replace(jobs, states=GOING)
        names = SelectedNames(self.machines, self.access)
        refuse_all(await self._ask(lambda: names.unknown(caller, jobs, wanted.permission)))
        records, found = self.machines.queue.jobs.records, list[_Target]()

        def look(some: Sequence[str]) -> None:
            for record in filter(None, map(records.get, some)):
                if selects(jobs, record, seen) and not wanted.leaves_out(record):
                    found.append(self._target(wanted, record))

        await self._walk(caller, jobs, look)
        return found

    def _named_jobs(
        self, wanted: JobsAct, seen: frozenset[str] | None, names: Sequence[str]
    ) -> list[_Target]:
        """Without a tenant: one that is not in memory, or may not be seen."""
        records, found = self.machines.queue.jobs.records, []
        for name in names:
            record = records.get(name)
            hidden = record is None or (seen is not None and record.spec.tenant not in seen)
            if record is None or hidden:
                kind = "sweep" if ids.sweep_number(name) >= 0 else "job"
                none = Judgement(Effect.REFUSED, f"no {kind} '{name}'")
                sweep = sweep_of(self.machines.queue, name)
                theirs = sweep is not None and seen is not None and sweep.spec.tenant not in seen
                is_hidden = record is not None or theirs
                found.append(_Target(name, judgement=none, is_hidden=is_hidden))
            else:
                found.append(self._target(wanted, record))
        return found

    def _ended_long_ago(
        self, verb: str, jobs: Sequence[str], seen: frozenset[str] | None
    ) -> dict[str, _Target]:
        """Those of the jobs that have left the memory, and may be seen."""
        effect, found = Effect.UNCHANGED if verb == "cancel" else Effect.REFUSED, {}
        for kept in self.journal.finished_jobs_of([job for job in jobs if ids.job_number(job) > 0]):
            view = msgspec.json.decode(kept.view, type=JobView)
            if seen is None or view.tenant in seen:
                ended = Judgement(effect, f"ended long ago: {view.state}")
                found[kept.job] = _Target(kept.job, view.tenant, view.user, ended)
        return found

    def _target(self, wanted: JobsAct, record: JobRecord) -> _Target:
        spec, tenants = record.spec, self.machines.queue.tenancy.ledger.tenants
        target = _Target(record.id, spec.tenant, spec.user, wanted.judge(tenants)(record))
        if target.is_done and wanted.verb in STOPS:
            target.lost_gpu_h = self._lost_gpu_h(wanted.verb, record)
            if record.plan is not None:
                target.gpus = record.plan.gpus_milli / MILLI
        return target

    def _lost_gpu_h(self, verb: str, record: JobRecord) -> float:
        """What no checkpoint keeps; of a job that is cancelled nothing is kept."""
        now, plan, lost_s = self.clock.now(), record.plan, 0.0
        if plan is not None and record.start_s is not None:
            lost_s = max(0.0, now - record.start_s)
            placer = self.regions.placers.get(plan.region)
            held = None if placer is None else placer.state.allocations.get(record.id)
            if verb != "cancel" and held is not None:
                lost_s = held.lost_s(now)
        lost_gpu_s = lost_s * (plan.gpus_milli / MILLI if plan is not None else 0.0)
        if verb == "cancel":
            lost_gpu_s += record.held_s * record.spec.gpus_milli() / MILLI
        return lost_gpu_s / 3600.0

    def _refuse(
        self, caller: Caller, permission: Permission, targets: list[_Target]
    ) -> Forbidden | None:
        """Refuse what the caller may not do; the error if nothing is left of it."""
        principal, allowed = caller.principal, dict[tuple[str, bool], Forbidden | None]()
        for target in targets:
            if not target.is_done:
                continue
            own = principal.trusted or target.user == principal.user
            key = (target.tenant, own)
            if key not in allowed:
                needed = permission if own else Permission.JOBS_OTHERS
                try:
                    self.access.require(caller, needed, target.tenant)
                    allowed[key] = None
                except Forbidden as error:
                    allowed[key] = error
            if why := allowed[key]:
                target.forbid(str(why))
        refused = [why for why in allowed.values() if why]
        nothing_left = refused and not any(target.is_done for target in targets)
        return refused[0] if nothing_left else None

    async def _act(
        self, caller: Caller, wanted: JobsAct, targets: list[_Target], claim: Sums
    ) -> None:
        """One order, and one line of the audit log, for the jobs of each tenant."""
        known = [target for target in targets if target.tenant]
        if not known and targets:
            await self._note(caller, wanted.verb, targets, f"refused: {_why_none(caller, targets)}")
        elif not any(target.is_done or target.forbidden for target in known):
            await self._note(caller, wanted.verb, known, "unchanged")
        of_tenant: dict[str, list[_Target]] = {}
        for target in known:
            if target.is_done or target.forbidden:
                of_tenant.setdefault(target.tenant, []).append(target)
        acts = (self._act_at(caller, wanted, *at, claim) for at in of_tenant.items())
        await asyncio.gather(*acts)

    async def _act_at(
        self, caller: Caller, wanted: JobsAct, tenant: str, targets: list[_Target], claim: Sums
    ) -> None:
        """Act on jobs of one tenant; the line names those, too, that the caller may not touch."""
        jobs = [target.job for target in targets if target.is_done]
        forbidden = [target for target in targets if target.forbidden]
        if not jobs:
            await self._note(caller, wanted.verb, targets, f"refused: {forbidden[0].forbidden}")
            return
        more = {"selector": wanted.selector} if wanted.selector else {}
        if forbidden:
            more["refused"] = ids.compact([target.job for target in forbidden])
            more["why"] = forbidden[0].forbidden
        if len(targets) == 1:
            look = partial(self._state_of, jobs[0])
            note = json_text(reason=wanted.reason, **more) if wanted.reason else ""
        else:
            look = partial(self._states_of, jobs)
            note = json_text(jobs=len(jobs), reason=wanted.reason, **more)
        done = act(caller, wanted.verb, ids.compact(jobs), tenant, look=look, after=note)
        done = replace(done, within=partial(self.queue_room.applied, claim))
        order = wanted.order(self.access.by(caller, wanted.by))
        acted = frozenset(await self._tell_of(jobs, order, done))
        late = [target for target in targets if target.is_done and target.job not in acted]
        if late:
            await self._ask(partial(self._judge_late, wanted, late))

    def _judge_late(self, wanted: JobsAct, late: Sequence[_Target]) -> None:
        """Judge jobs anew with which another request was faster: this one did nothing to them."""
        queue = self.machines.queue
        for target in late:
            record = queue.jobs.records.get(target.job)
            judged = (
                _ENDED if record is None else wanted.judge(queue.tenancy.ledger.tenants)(record)
            )
            target.judgement = _LATE if judged.effect is Effect.DONE else judged

    async def _note(
        self, caller: Caller, verb: str, targets: Sequence[_Target], outcome: str
    ) -> None:
        tenants = dict.fromkeys(target.tenant for target in targets)
        tenant = next(iter(tenants)) if len(tenants) == 1 else ""
        line = row(caller, verb, _named([t.job for t in targets]), tenant, outcome)
        await asyncio.wrap_future(self.runtime.note(line))

    async def _tell_of(
        self, jobs: Sequence[str], order: Callable[[tuple[str, ...]], m.Message], done: Act
    ) -> Sequence[str]:
        """Give an order about jobs, and tell on which it acted.

        Those that have left the memory meanwhile have ended.
        """
        acted: Sequence[str] = ()
        try:
            acted = await self._tell(ids.QUEUE, order(tuple(jobs)), done)
        except NotFound:
            records = self.machines.queue.jobs.records
            left = await self._ask(lambda: [job for job in jobs if job in records])
            if left:
                acted = await self._tell(ids.QUEUE, order(tuple(left)), done)
        return acted

    def _views(self, targets: Sequence[_Target]) -> tuple[JobView, ...]:
        found = (self._live(target.job) for target in targets if target.tenant)
        return tuple(view for view in found if view is not None)


def _why_none(caller: Caller, targets: Sequence[_Target]) -> str:
    """Why nothing is done about jobs that are not there for the caller, as the audit log has it."""
    if any(target.is_hidden for target in targets):
        return caller.principal.refusal(Permission.JOBS_VIEW, " for the tenant of a job")
    return "no such job"


def _named(jobs: Sequence[str]) -> str:
    """Jobs as a request names them, in a few characters; also names that no job can have."""
    others = [job for job in jobs if ids.job_number(job) < 0]
    ours = ids.compact([job for job in jobs if ids.job_number(job) >= 0])
    return ",".join([*([ours] if ours else []), *others])[:NAMED_LENGTH]
