"""What a tenant may start now: the accelerators of a job that quota, its own or lent, allows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec
from msgspec import Struct

from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.model.bisection import most_that
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Resources, TaskGroup
from topmast.model.plan import GroupRequest, More, Plan
from topmast.model.reason import PendingReason
from topmast.model.units import format_bytes

KINDS_KEPT = 1_024
"""Of so many kinds of gangs the groups are kept as they are asked about."""


Key = tuple[Hashable, ...]
Wanted = tuple[dict[str, int], ...]
"""By choice, thousandths of GPUs by model."""


class QuotaGate(Struct):
    """What one tenant's quota lets jobs use that want the same of it."""

    key: Key
    spec: JobSpec
    """Of one of its jobs: the same for all as far as quota goes."""
    members: dict[int, None] = {}
    """Its job classes with jobs, by number."""
    users: int = 0
    """How many job classes it has, with jobs or without."""
    as_of: int = -1
    """The change of the ledger for which ``choices`` hold."""
    choices: dict[bool, tuple[int, ...]] = {}
    """By mode, the accelerators that it may use."""
    fleet: Fleet | None = None
    """The fleet for which ``wanted`` holds."""
    wanted: Wanted = ()
    """What its jobs take of each GPU model."""


def gate_key(spec: JobSpec) -> Key:
    """All that decides what quota lets a job use: the key of its quota gate."""
    return (spec.tenant, wanted_of(spec), spec.band is Band.OPPORTUNISTIC, spec.preemptible)


def wanted_of(spec: JobSpec) -> tuple[tuple[int, int | None, Resources], ...]:
    """By group, the tasks that there are, or are at least, and what each needs. O(groups)."""
    return tuple([(group.count, group.min_count, group.resources) for group in spec.groups])


class Entitlements:
    """Reads the ledger and changes nothing; knows which models the fleet has, and where."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._models: tuple[str, ...] = ()
        self._model_of: dict[str, str] = {}
        self._memory_of: dict[str, int] = {}
        """By model, the memory of a GPU in bytes; models of which it is not known are not there."""
        self._asked: dict[tuple[TaskGroup, ...], tuple[GroupRequest, ...]] = {}

    def configure(self, fleet: Fleet) -> None:
        """Take up a fleet. O(hosts)."""
        self._asked = {}
        self._models = fleet.models()
        self._model_of = {
            h.name: h.model for r in fleet.regions for c in r.clusters for h in c.hosts
        }
        self._memory_of = fleet.gpu_memory_bytes()

    def by(self, ledger: Ledger) -> Entitlements:
        """The same in the eyes of another ledger. O(1)."""
        other = Entitlements(ledger)
        other._models, other._model_of = self._models, self._model_of
        other._memory_of = self._memory_of
        return other

    def wanted(self, spec: JobSpec) -> Wanted:
        """By choice, what the gang takes of each model. O(accelerators x groups)."""
        return tuple(self._wanted(spec, choice) for choice in range(len(self.accelerators(spec))))

    def choices_of(self, spec: JobSpec, wanted: Wanted) -> dict[bool, tuple[int, ...]]:
        """By mode, what a gang may use that wants so much. O(choices x models x depth)."""
        if not wanted:
            return {False: (0,), True: ()}
        within = [i for i, milli in enumerate(wanted) if self.is_within(spec, milli)]
        over = [
            i for i, milli in enumerate(wanted) if i not in within and self.may_borrow(spec, milli)
        ]
        return {False: tuple(within), True: tuple(over)}

    def is_within(self, spec: JobSpec, milli: Mapping[str, int]) -> bool:
        """Whether so much of each model fits within quota; opportunistic work does not use it."""
        if not self.uses_quota(spec):
            return False
        for model, count in milli.items():  # a generator costs more
            if not self._ledger.has_room(spec.tenant, model, count):
                return False
        return True

    def may_borrow(self, spec: JobSpec, milli: Mapping[str, int]) -> bool:
        """Whether so much of each model may run over quota: only what may be preempted borrows."""
        may_borrow = self._ledger.may_borrow
        gentle = spec.preemptible or spec.band is Band.OPPORTUNISTIC
        return gentle and all(may_borrow(spec.tenant, m, n) for m, n in milli.items())

    def _wanted(self, spec: JobSpec, choice: int) -> dict[str, int]:
        """The least thousandths of GPUs by model for the gang, each group by its ``choice``-th."""
        milli: dict[str, int] = {}
        for group in spec.groups:
            listed = self.named(group.resources).accelerators
            if listed:
                taken = listed[min(choice, len(listed) - 1)]
                model = taken.model or ""
                milli[model] = milli.get(model, 0) + group.least * taken.gpus_milli
        return milli

    def more_of(
        self, spec: JobSpec, over_quota: bool, choices: tuple[int, ...], limit: int
    ) -> More | None:
        """The most tasks of an elastic gang by each choice, up to ``limit``.

        O(choices x log tasks x models x depth of the tenant); None for any other gang.
        """
        elastic = spec.elastic
        if elastic is None:
            return None
        may = self.may_borrow if over_quota else self.is_within
        low, wanted = elastic.least, self.wanted(spec)
        listed = self.named(elastic.resources).accelerators
        found = []
        for choice in choices:
            per_task = dict[str, int]()
            if listed:
                taken = listed[min(choice, len(listed) - 1)]
                per_task = {taken.model or "": taken.gpus_milli}

            def fits(tasks: int, choice: int = choice, per_task: dict[str, int] = per_task) -> bool:
                least = wanted[choice]
                extra = {m: (tasks - low) * milli for m, milli in per_task.items()}
                return may(spec, {m: n + extra.get(m, 0) for m, n in least.items()})

            few = not wanted or limit <= low or fits(limit)
            most = limit if few else most_that(fits, low, limit)
            found.append((choice, most))
        return More(spec.groups.index(elastic), tuple(found))

    def counted(self, spec: JobSpec, plan: Plan) -> Plan:
        """The plan with its GPUs by model: groups may want others than the first task does."""
        if len(spec.groups) == 1:
            return plan
        by_model: dict[str, int] = {}
        for seat in plan.seats:
            if seat.slots:
                model = self._model_of.get(seat.host, plan.model)
                by_model[model] = by_model.get(model, 0) + len(seat.slots) * seat.slot_milli
        first = next(iter(by_model), "")
        several = by_model if len(by_model) > 1 else {}
        return msgspec.structs.replace(plan, model=first, by_model=several)

    def accelerators(self, spec: JobSpec) -> tuple[Accelerator, ...]:
        """A job's choices: the longest list of its groups, every model named."""
        lists = (self.named(group.resources).accelerators for group in spec.groups)
        return max(lists, key=len, default=())

    def asked_for(self, groups: tuple[TaskGroup, ...]) -> tuple[GroupRequest, ...]:
        """Task groups as a search knows them: every model named, with the fewest tasks allowed.

        Made once for gangs alike. O(groups).
        """
        known = self._asked.get(groups)
        if known is None:
            if len(self._asked) >= KINDS_KEPT:
                self._asked = {}
            known = self._asked[groups] = tuple(
                GroupRequest(g.name, g.least, self.named(g.resources)) for g in groups
            )
        return known

    def fewest_milli(self, spec: JobSpec, choices: tuple[int, ...]) -> int:
        """Thousandths of GPUs that a gang needs at least, with one of some choices.

        O(choices x groups).
        """
        found = [sum(self._wanted(spec, choice).values()) for choice in choices]
        return min(found, default=0)

    def named(self, resources: Resources) -> Resources:
        """Any model means each model of the fleet: every one has a quota of its own.

        Of each, a task takes what its memory needs: see `with_memory`.
        """
        listed = resources.accelerators
        if len(listed) == 1 and listed[0].model is None and self._models:
            listed = tuple(msgspec.structs.replace(listed[0], model=m) for m in self._models)
            resources = msgspec.structs.replace(resources, accelerators=listed)
        if not resources.gpu_memory_bytes or not listed:
            return resources
        need = resources.gpu_memory_bytes
        sized = tuple(with_memory(a, need, self._memory_of.get(a.model or "", 0)) for a in listed)
        return msgspec.structs.replace(resources, accelerators=sized)

    def uses_quota(self, spec: JobSpec) -> bool:
        """Whether a job may be within quota: opportunistic work waits for free GPUs alone."""
        return spec.band is not Band.OPPORTUNISTIC

    def are_idle(self, spec: JobSpec) -> bool:
        """Whether as many GPUs as a job may borrow for one of its choices are in no job's hands.

        They count in service or not, as they do for quota: no more of it would make room by itself.
        """
        capacity, held = self._ledger.capacity, self._ledger.by_model
        wanted = self.wanted(spec)
        return any(
            all(capacity.get(m, 0) - held.get(m, 0) >= n for m, n in wanted[choice].items())
            for choice in self.choices_of(spec, wanted)[True]
        )

    def ever(self, spec: JobSpec) -> tuple[int, ...]:
        """The choices that quota, its own or lent, allows a gang when nothing else runs.

        O(choices x models x depth of the tenant).
        """
        wanted = self.wanted(spec)
        if not self._ledger.is_limited(spec.tenant):
            return tuple(range(len(wanted)))
        idle = self.by(self._ledger.empty)
        allowed = (idle.is_within(spec, n) or idle.may_borrow(spec, n) for n in wanted)
        return tuple(choice for choice, may in enumerate(allowed) if may)

    def taken(self, spec: JobSpec, choice: int) -> list[Accelerator | None]:
        """What each group takes by a choice; None for one without GPUs."""
        lists = [self.named(group.resources).accelerators for group in spec.groups]
        return [listed[min(choice, len(listed) - 1)] if listed else None for listed in lists]

    def with_only(self, spec: JobSpec, choice: int) -> JobSpec:
        """The job as if its groups had no other choice."""
        replace, taken = msgspec.structs.replace, self.taken(spec, choice)
        groups = tuple(
            replace(g, resources=replace(g.resources, accelerators=() if a is None else (a,)))
            for g, a in zip(spec.groups, taken, strict=True)
        )
        return replace(spec, groups=groups)

    def quota_reason(self, spec: JobSpec) -> tuple[PendingReason, str]:
        """Why the quota keeps a job from starting: it never could, or not now."""
        tenant, wanted = spec.tenant, self.wanted(spec)
        if wanted and not self.ever(spec):
            return PendingReason.EXCEEDS_MAX_QUOTA, ""
        full = {self._ledger.full_at(tenant, m, n) for milli in wanted for m, n in milli.items()}
        above = sorted(name for name in full if name not in (None, tenant))
        of = " and ".join(f"the quota of {name}" for name in above) or "its quota"
        return PendingReason.WAITING_FOR_QUOTA, f"tenant {tenant} would exceed {of}"


def with_memory(wanted: Accelerator, need_bytes: int, there_bytes: int) -> Accelerator:
    """What a task with so much memory takes of a GPU; ``there_bytes`` 0: unknown.

    A share of a GPU is that share of its memory. The larger of the two is taken, so that no memory
    is given away twice. A model with too little of it is no model of the fleet.
    """
    if not there_bytes:
        return wanted
    if need_bytes > there_bytes:
        model = f"{wanted.model} with {format_bytes(need_bytes)}"
        return msgspec.structs.replace(wanted, model=model)
    milli = -(-need_bytes * MILLI // there_bytes)
    if wanted.gpus_milli >= MILLI or milli <= wanted.gpus_milli:
        return wanted
    return msgspec.structs.replace(wanted, gpus_milli=milli)
