"""Acts on many jobs in one request: which jobs, what it costs, may the caller, and then do it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import msgspec
from msgspec.structs import replace

from topmast.adapters.answering import asked_for, locked, refuse_unwanted
from topmast.adapters.handing import handed
from topmast.fast.queue import Effect, JobRecord, Judgement, SweepRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.access import Caller, Permission
from topmast.model.act_views import ONCE, JobsActed
from topmast.model.errors import Forbidden, InvalidInput, NotFound, Unavailable, refuse_all
from topmast.model.expansion import size_of
from topmast.model.job import MILLI
from topmast.model.selector import Selector, like, right_of, selector_of
from topmast.model.states import TERMINAL, WAITING, JobState
from topmast.model.sweep_views import SweepView
from topmast.model.views import JobView
from topmast.ports import Act
from topmast.service.access import NO_REASON, Why, act, json_text, row
from topmast.service.jobs_act import ENDED, LATE, STOPS, JobsAct, Target, named
from topmast.service.limits import ACTS_PER_TAKE, JOB_BYTES_PER_TAKE, SWEPT_PER_TAKE
from topmast.service.listing import selects
from topmast.service.operating import Operating
from topmast.service.queue_room import Sums
from topmast.service.selecting import SelectedNames
from topmast.service.sweeps import (
    job_named,
    jobs_named,
    no_job,
    seen_by,
    size_named,
    sweep_of,
    too_old,
    views_of,
)
from topmast.service.turns import with_pauses

MAX_JOBS = 100_000
"""One request is about so many jobs at most; each of them is in the answer."""
FEW_JOBS = 100
"""An act on more of them lets others' questions come in before the next such act."""
ACTED_AT_ONCE = 2_000
"""So many jobs are changed without a pause, and in one transaction: a tenth of a second."""
GOING = tuple(state for state in JobState if state not in TERMINAL)
TRIED_ANEW = tuple(state for state in TERMINAL if state is not JobState.SUCCEEDED)


class Verbs(Operating):
    """What people do to jobs, by id or by selector."""

    def _view(self, record: JobRecord) -> JobView:
        queue = self.machines.queue
        reason = queue.word_for(record, queue.verdict_on(record))
        view = record.view(self.clock.now(), reason)
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

    def _archived(self, job: str, sees: Callable[[str], bool] = lambda _: False) -> JobView:
        kept = self.journal.finished_job(job)
        if kept is None:
            raise NotFound(no_job(self.machines.queue, job, sees))
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
            found = self._archived(job, sees)
        if not sees(found.tenant):
            raise NotFound(f"no job '{job}'")
        return self._shown(caller, found)

    async def sweeps(self, caller: Caller) -> tuple[SweepView, ...]:
        """The sweeps in memory, the newest first."""
        async with self._lists(caller):
            queue, seen = self.machines.queue, self.access.tenants(caller, Permission.JOBS_VIEW)
            known = queue.jobs.sweeps.records
            return await self._ask_paid(
                caller, lambda: views_of(queue, seen_by(known.values(), seen))
            )

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
        held = sum([bool(record.hold) for record in records])
        bands = Counter([(record.next_spec or record.spec).band for record in records])
        more = {"held": held} if held else {}
        states = Counter([record.state for record in records])
        return json_text(
            states={state.value: count for state, count in states.items()},
            bands={band.name.lower(): count for band, count in bands.items()}, **more,
        )  # fmt: skip

    async def cancel(self, caller: Caller, job: str, by: str, why: Why = NO_REASON) -> JobView:
        """End a job for good; returns before its processes have stopped."""
        wanted = JobsAct("cancel", (job,), by=by, reason=why.reason, dry_run=why.dry_run)
        await self.act_on_jobs(caller, wanted)
        return await self.job(caller, job)

    async def act_on_jobs(self, caller: Caller, wanted: JobsAct) -> JobsActed:
        """Do one thing to many jobs, or say what it would do; a repetition changes nothing."""
        async with self._turn(caller, wanted):
            acted, hides = await self._acted(caller, wanted), self.redaction(caller)
            if hides is None:
                return acted
            # What is named keeps its name: it tells no more than the request did.
            shown = [hides.of(view) async for view in with_pauses(acted.jobs)]
            return replace(acted, jobs=tuple(shown))

    @asynccontextmanager
    async def _turn(self, caller: Caller, wanted: JobsAct) -> AsyncIterator[None]:
        """The request is counted when those before it have paid. Raises TooMany, Full."""
        async with nullcontext() if wanted.is_on_one else self.acting.turn(caller):
            self.limits.take(caller, "submit", floor=0.5 if wanted.verb == "cancel" else 1.0)
            yield

    async def check_jobs_meant(self, caller: Caller, wanted: JobsAct) -> None:
        """Raises InvalidInput or NotFound for what a request names that there is not, for all."""
        async with self._turn(caller, wanted):
            targets = await self._targets(caller, wanted)
        refuse_all(
            NotFound(target.judgement.why, field="jobs") for target in targets if not target.tenant
        )

    async def _acted(self, caller: Caller, wanted: JobsAct) -> JobsActed:
        targets = await self._targets(caller, wanted)
        refused = self._refuse(caller, wanted.permission, targets)
        if not wanted.dry_run:
            async with locked(self._begun) if len(targets) > FEW_JOBS else nullcontext():
                refuse_unwanted()  # what is begun is done to all of them
                if refused is not None:
                    self.limits.take(caller, "refused")
                    refused.is_noted = True
                again = [one.job for one in targets if one.is_done and wanted.verb == "requeue"]
                with self.queue_room.for_again(caller, again) as claim:
                    await self._act(caller, wanted, targets, claim)
        if refused is not None:
            raise refused
        await self._drawn(self._show([one for one in targets if one.view is None]))
        views = tuple([target.view for target in targets if target.view is not None])
        counts = Counter(target.judgement.effect.value for target in targets)
        done = [target for target in targets if target.is_done]
        return JobsActed(
            wanted.verb, wanted.dry_run, views, tuple(target.effect() for target in targets),
            {effect.value: counts[effect.value] for effect in Effect},
            sum(target.gpus for target in done), sum(target.lost_gpu_h for target in done),
        )  # fmt: skip

    async def _targets(self, caller: Caller, wanted: JobsAct) -> list[Target]:
        """The jobs that are meant; the caller pays for them. Raises InvalidInput."""
        targets = await self._looked_for(caller, wanted)
        said_bytes = len(wanted.reason.encode())  # it is in the history of each
        cost = 1 / ACTS_PER_TAKE + said_bytes / JOB_BYTES_PER_TAKE
        self.limits.charge(caller, "submit", len(targets) * cost)
        return targets

    async def _looked_for(self, caller: Caller, wanted: JobsAct) -> list[Target]:
        jobs = await self._read(caller, wanted.selector, wanted.permission)
        if bool(wanted.jobs) != jobs.takes_all:  # a selector that means any job is none
            remedy = "state=active selects all that have not ended"
            raise InvalidInput("name jobs, or give a selector", field="jobs", remedy=remedy)
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        if not wanted.jobs:
            return await self._selected(caller, wanted, jobs, seen)
        queue, also_ended = self.machines.queue, wanted.verb == "requeue"
        sees = partial(self.access.may, caller, Permission.JOBS_VIEW)

        def takes(record: JobRecord) -> bool:
            return not wanted.leaves_out(record) and (also_ended or not record.finished)

        named = tuple(dict.fromkeys(wanted.jobs))
        meant = size_named(queue, named, sees)
        self.limits.charge(caller, "submit", meant / SWEPT_PER_TAKE)
        _refuse_beyond(meant)
        names = dict.fromkeys(await self._drawn(jobs_named(queue, named, sees, takes)))
        found = await self._drawn(self._named_jobs(wanted, seen, names))
        missing = [target.job for target in found if not target.tenant]
        ended = await asyncio.to_thread(self._ended_long_ago, wanted.verb, missing, seen)
        targets = [ended.get(target.job, target) for target in found]
        known = queue.jobs.sweeps.records if also_ended else {}
        sweeps = seen_by([known[name] for name in named if name in known], seen)
        return targets + await self._drawn(self._too_old(TRIED_ANEW, sweeps))

    def _too_old(
        self, states: Sequence[JobState], sweeps: Sequence[SweepRecord]
    ) -> Iterator[Target]:
        """Sweeps with jobs that a requeue means and does not find; it would leave them out."""
        for sweep, why in too_old(self.machines.queue, sweeps, states):
            none = Judgement(Effect.REFUSED, why)
            yield Target(sweep.id, sweep.spec.tenant, sweep.spec.user, none)

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
    ) -> list[Target]:
        """Jobs in memory; unless states are named, only those that have not ended.

        Raises InvalidInput if the selector names what there is not.
        """
        if not jobs.states:
            jobs = replace(jobs, states=GOING)
        names = SelectedNames(self.machines, self.access)
        refuse_all(await self._ask(lambda: names.unknown(caller, jobs, wanted.permission)))
        records, found = self.machines.queue.jobs.records, list[Target]()

        def look(some: Sequence[str]) -> None:
            for record in filter(None, map(records.get, some)):
                if selects(jobs, record, seen) and not wanted.leaves_out(record):
                    found.append(self._target(wanted, record))
            _refuse_beyond(len(found))

        await self._walk(caller, jobs, look)
        if wanted.verb != "requeue" or replace(jobs, states=(), sweeps=()) != Selector():
            return found  # a sweep knows how many of its jobs ended how, and no more of them
        states = [state for state in TRIED_ANEW if state in jobs.states]
        sweeps = seen_by(tuple(self.machines.queue.jobs.sweeps.records.values()), seen)
        meant = [one for one in sweeps if jobs.sweeps and like(jobs.sweeps, one.id)]
        return found + await self._drawn(self._too_old(states, meant))

    def _named_jobs(
        self, wanted: JobsAct, seen: frozenset[str] | None, names: Iterable[str]
    ) -> Iterator[Target]:
        """Without a tenant: one that is not in memory, or may not be seen."""
        records = self.machines.queue.jobs.records
        for name in names:
            record = records.get(name)
            hidden = record is None or (seen is not None and record.spec.tenant not in seen)
            if record is None or hidden:
                said = no_job(self.machines.queue, name, lambda t: seen is None or t in seen)
                none = Judgement(Effect.REFUSED, said)
                sweep = sweep_of(self.machines.queue, name)
                theirs = sweep is not None and seen is not None and sweep.spec.tenant not in seen
                is_hidden = record is not None or theirs
                yield Target(name, judgement=none, is_hidden=is_hidden)
            else:
                yield self._target(wanted, record)

    def _ended_long_ago(
        self, verb: str, jobs: Sequence[str], seen: frozenset[str] | None
    ) -> dict[str, Target]:
        """Those of the jobs that have left the memory, and may be seen."""
        effect, found = Effect.UNCHANGED if verb == "cancel" else Effect.REFUSED, {}
        for kept in self.journal.finished_jobs_of([job for job in jobs if ids.job_number(job) > 0]):
            view = msgspec.json.decode(kept.view, type=JobView)
            if seen is None or view.tenant in seen:
                ended = Judgement(effect, f"ended long ago: {view.state}")
                found[kept.job] = Target(kept.job, view.tenant, view.user, ended)
        return found

    def _target(self, wanted: JobsAct, record: JobRecord) -> Target:
        spec, tenants = record.spec, self.machines.queue.tenancy.ledger.tenants
        target = Target(record.id, spec.tenant, spec.user, wanted.judge(tenants)(record))
        if target.is_done and wanted.verb in STOPS:
            target.lost_gpu_h = self._lost_gpu_h(wanted.verb, record)
            if record.plan is not None:
                target.gpus = record.plan.gpus_milli / MILLI
        return target

    def _lost_gpu_h(self, verb: str, record: JobRecord) -> float:
        """What no checkpoint keeps; of a job that is cancelled nothing is kept."""
        plan, lost_s = record.plan, 0.0
        if plan is not None and record.start_s is not None:
            now = self.clock.now()
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
        self, caller: Caller, permission: Permission, targets: list[Target]
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
        self, caller: Caller, wanted: JobsAct, targets: list[Target], claim: Sums
    ) -> None:
        """One order, and one line of the audit log, for the jobs of each tenant."""
        known = [target for target in targets if target.tenant]
        if not known and targets:
            await self._note(caller, wanted.verb, targets, f"refused: {_why_none(caller, targets)}")
        elif not any(target.is_done or target.forbidden for target in known):
            await self._note(caller, wanted.verb, known, "unchanged")
        of_tenant: dict[str, list[Target]] = {}
        for target in known:
            if target.is_done or target.forbidden:
                of_tenant.setdefault(target.tenant, []).append(target)
        request = asked_for()
        goes_on = (lambda: True) if request is None else (lambda: not request.stops)
        acts = (self._act_at(caller, wanted, *at, claim, goes_on) for at in of_tenant.items())
        if left := sum(await asyncio.gather(*acts)):
            all_jobs = sum([target.is_done for target in known])
            rest = (
                "`topmast audit` tells which" if wanted.verb in ONCE else "ask again for the rest"
            )
            raise Unavailable(
                f"the server stops: {wanted.verb} came to {all_jobs - left:,} of {all_jobs:,} "
                f"jobs: {rest}"
            )

    async def _act_at(
        self,
        caller: Caller,
        wanted: JobsAct,
        tenant: str,
        targets: list[Target],
        claim: Sums,
        goes_on: Callable[[], bool],
    ) -> int:
        """Act on jobs of one tenant; the line names those, too, that the caller may not touch.

        Others' requests and decisions go on between the pieces of a large act, so jobs that wait
        come first: they would start on the GPUs that others let go of. How many jobs are left,
        because between two pieces it does not go on.
        """
        done = sorted((target for target in targets if target.is_done), key=lambda one: one.gpus)
        forbidden = [target for target in targets if target.forbidden]
        if not done:
            await self._note(caller, wanted.verb, targets, f"refused: {forbidden[0].forbidden}")
            return 0
        more = {"selector": wanted.selector} if wanted.selector else {}
        refused = dict[str, str]()
        if forbidden:
            refused["refused"] = ids.compact([target.job for target in forbidden])
            refused["why"] = forbidden[0].forbidden
        for first in range(0, len(done), ACTED_AT_ONCE):
            if not goes_on():
                return len(done) - first
            piece = done[first : first + ACTED_AT_ONCE]
            await self._act_once(
                caller, wanted, tenant, piece, claim, more | ({} if first else refused)
            )
        return 0

    async def _act_once(
        self,
        caller: Caller,
        wanted: JobsAct,
        tenant: str,
        targets: Sequence[Target],
        claim: Sums,
        more: dict[str, str],
    ) -> None:
        """One order about jobs of one tenant, with its line of the audit log."""
        jobs = [target.job for target in targets]
        if len(jobs) == 1 and not more.get("refused"):
            look = partial(self._state_of, jobs[0])
            note = json_text(reason=wanted.reason, **more) if wanted.reason else ""
        else:
            look = partial(self._states_of, jobs)
            note = json_text(jobs=len(jobs), reason=wanted.reason, **more)
        done = act(caller, wanted.verb, ids.compact(jobs), tenant, look=look, after=note)
        done = replace(done, within=partial(self.queue_room.applied, claim))
        order = wanted.order(self.access.by(caller, wanted.by))
        async with self._pieces if len(jobs) > FEW_JOBS else nullcontext():
            acted = frozenset(await self._tell_of(jobs, order, done))
        late = [target for target in targets if target.job not in acted]
        if late:
            await self._ask(partial(self._judge_late, wanted, late))
        await self._drawn(self._show(targets))  # they leave the memory as others end

    def _judge_late(self, wanted: JobsAct, late: Sequence[Target]) -> None:
        """Judge jobs anew with which another request was faster: this one did nothing to them."""
        queue = self.machines.queue
        for target in late:
            record = queue.jobs.records.get(target.job)
            judged = ENDED if record is None else wanted.judge(queue.tenancy.ledger.tenants)(record)
            target.judgement = LATE if judged.effect is Effect.DONE else judged

    async def _note(
        self, caller: Caller, verb: str, targets: Sequence[Target], outcome: str
    ) -> None:
        tenants = dict.fromkeys(target.tenant for target in targets)
        tenant = next(iter(tenants)) if len(tenants) == 1 else ""
        line = row(caller, verb, named([t.job for t in targets]), tenant, outcome)
        await handed(self.runtime.note(line))

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

    def _show(self, targets: Sequence[Target]) -> Iterator[None]:
        for target in targets:
            target.view = self._live(target.job) if target.tenant else None
            yield


def _refuse_beyond(jobs: int) -> None:
    """Raises InvalidInput for more jobs than one answer can have."""
    if jobs > MAX_JOBS:
        remedy = "name some of them, or select some by `name=`, `user=`, `state=` or a label"
        raise InvalidInput(f"more than {MAX_JOBS:,} jobs", field="jobs", remedy=remedy)


def _why_none(caller: Caller, targets: Sequence[Target]) -> str:
    """Why nothing is done about jobs that are not there for the caller, as the audit log has it."""
    if any(target.is_hidden for target in targets):
        return caller.principal.refusal(Permission.JOBS_VIEW, " for the tenant of a job")
    return "no such job"
