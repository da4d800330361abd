"""How much more quota, or less use of it, would let a waiting job start: tried on a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue, JobRecord, Ledger
from topmast.fast.region import count_of, listed, when_over
from topmast.model.bisection import fewest_that, most_that, most_with
from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI, Band, JobSpec, TaskGroup
from topmast.model.reason import Change, ChangeKind
from topmast.service.changes import Start, World, in_regions, told

GROUPS_TRIED = 4
RAISES_TRIED = 64
"""So often a quota is raised, up the tree and over the models of one job."""
ENDS_TRIED = 1_000
JOBS_NAMED = 12

_MAKES_QUOTA_ENOUGH = (ChangeKind.TASKS, ChangeKind.GPUS)
"""With fewer GPUs asked for, the quota might do as it is."""

Wanted = Mapping[str, int]
"""Thousandths of GPUs by model."""


def quota_changes(world: World) -> Iterator[Change]:
    """Quotas and limits that keep a job from starting, each raised as little as helps."""
    queue, spec = world.queue, world.spec
    if queue.tenancy.choices(spec, False):
        return
    if spec.band is not Band.OPPORTUNISTIC:
        # Within its quota a job may preempt, and borrowed GPUs it may not even get.
        may_borrow = bool(queue.tenancy.choices(spec, True))
        for wanted in all_wanted(world.queue, world.spec):
            for change in _more_quota(world, wanted):
                if not (may_borrow and change.also):
                    yield change
    if queue.tenancy.choices(spec, True):
        return
    for wanted in all_wanted(world.queue, world.spec):
        if spec.preemptible or spec.band is Band.OPPORTUNISTIC:
            yield from _more_to_borrow(world, wanted)
    for group in spec.groups[:GROUPS_TRIED]:
        yield from _fewer_tasks(world, group)
    yield from _when_jobs_end(world)


def _fewer_tasks(world: World, group: TaskGroup) -> Iterator[Change]:
    """The most tasks of a group that quota and room allow. O(log tasks) trials."""

    def start(count: int) -> Start | None:
        groups = world.spec.groups
        fewer = tuple(replace(g, count=count) if g is group else g for g in groups)
        return world.with_spec(groups=fewer).start()

    found = most_with(start, 0, group.count)
    if found is not None:
        tasks, best = found
        of = f" of group {group.name}" if len(world.spec.groups) > 1 else ""
        size = (group.count - tasks) / group.count
        text = f"{count_of(tasks, 'task', of)} instead of {group.count}"
        yield told(
            ChangeKind.TASKS,
            text,
            size,
            best,
            group=group.name,
            was=float(group.count),
            to=float(tasks),
        )


def all_wanted(queue: GlobalQueue, spec: JobSpec) -> list[Wanted]:
    """What a job would hold by model, for each of its choices."""
    ask = queue.request(spec, False, ())
    lists = [g.resources.accelerators for g in ask.groups]
    found: list[Wanted] = []
    for choice in range(max(len(models) for models in lists)):
        milli: dict[str, int] = {}
        for group, models in zip(ask.groups, lists, strict=True):
            if models:
                taken = models[min(choice, len(models) - 1)]
                model = taken.model or ""
                milli[model] = milli.get(model, 0) + group.count * taken.gpus_milli
        found.append(milli)
    return found


def _with(world: World, ledger: Ledger) -> World:
    trial = world.queue.with_tenancy(world.queue.tenancy.by(ledger))
    return replace(world, queue=trial)


# --- quota --------------------------------------------------------------------------------------


def _more_quota(world: World, wanted: Wanted) -> Iterator[Change]:
    """The least that has to be added to quotas, from the tenant upwards."""
    ledger, tenant = world.queue.tenancy.ledger, world.spec.tenant
    raised = raise_quotas(ledger, tenant, wanted)
    if raised is None:
        return
    added: dict[str, dict[str, int]] = {}
    for node in ledger.tree.node(tenant).up():
        before = node.quota or {}
        after = raised[node.name].quota or {} if node.name in raised else {}
        more = {m: n - before.get(m, 0) // MILLI for m, n in after.items()}
        if any(more.values()):
            added[node.name] = {m: n for m, n in more.items() if n}
    single = [(name, model, n) for name, of in added.items() for model, n in of.items()]
    text = " and ".join(f"{n} more {model} of quota for tenant {name}" for name, model, n in single)
    name, model, more_gpus = single[0]
    was = (ledger.tenants[name].quota or {}).get(model, 0)
    size = max(n for _, _, n in single) * MILLI / max(sum(wanted.values()), MILLI)
    change = Change(
        ChangeKind.QUOTA, text, size, was=float(was), to=float(was + more_gpus), added_gpus=added
    )
    yield from _and_a_place(_with(world, ledger.twin(raised.values())), change)


def raise_quotas(ledger: Ledger, tenant: str, wanted: Wanted) -> dict[str, TenantSpec] | None:
    """The tenants with quotas just large enough for ``wanted``; None if nothing is too small.

    What is stated below a quota stays within it, as fleet files must have it. O(raises x a twin).
    """
    specs = dict(ledger.tenants)
    trial = ledger
    for _ in range(RAISES_TRIED):
        full = [(trial.full_at(tenant, m, n), m, n) for m, n in wanted.items()]
        missing = [(name, m, _lacking(trial, tenant, m, n, name)) for name, m, n in full if name]
        missing = missing or list(_too_much_below(trial, tenant))
        if not missing:
            return specs if trial is not ledger else None
        name, model, more = missing[0]
        quota = dict(specs[name].quota or {})
        quota[model] = quota.get(model, 0) + more
        specs[name] = replace(specs[name], quota=quota)
        trial = ledger.twin(specs.values())
    return None


def _lacking(ledger: Ledger, tenant: str, model: str, milli: int, name: str) -> int:
    """By how many GPUs the quota of ``name`` is too small."""

    def fits(asked: int) -> bool:
        return ledger.full_at(tenant, model, asked) != name

    # What fits now may be less than nothing: a quota that shrank below what is held.
    return -(-(milli - most_that(fits, -_PAST_ALL, milli)) // MILLI)


_PAST_ALL = 1 << 40


def _too_much_below(ledger: Ledger, tenant: str) -> Iterator[tuple[str, str, int]]:
    """Quotas above a tenant that are smaller than the quotas stated below them."""
    for node in ledger.tree.node(tenant).up():
        for model, given in node.given.items() if node.quota is not None else ():
            stated = node.stated(model)
            excess = 0 if stated is None else given - stated
            if excess > 0:
                yield node.name, model, -(-excess // MILLI)


# --- borrowing ----------------------------------------------------------------------------------


def _more_to_borrow(world: World, wanted: Wanted) -> Iterator[Change]:
    """Each limit to borrowing, of the tenant or above it, raised as little as helps."""
    ledger, tenant = world.queue.tenancy.ledger, world.spec.tenant
    for node in ledger.tree.node(tenant).up():
        spec = ledger.tenants.get(node.name)
        for model in wanted if spec is not None and spec.borrow_limit is not None else ():
            assert spec is not None
            more = fewest_that(
                lambda more, spec=spec, model=model: all(  # type: ignore[misc]
                    _with_limit(ledger, spec, model, more).may_borrow(tenant, m, n)
                    for m, n in wanted.items()
                ),
                -(-wanted[model] // MILLI),
            )
            if more is not None:
                better = _with(world, _with_limit(ledger, spec, model, more))
                yield from _and_a_place(better, _borrow(spec, model, more, wanted[model]))


def _with_limit(ledger: Ledger, spec: TenantSpec, model: str, more: int) -> Ledger:
    limits = dict(spec.borrow_limit or {})
    limits[model] = limits.get(model, 0) + more
    specs = {**ledger.tenants, spec.name: replace(spec, borrow_limit=limits)}
    return ledger.twin(specs.values())


def _borrow(spec: TenantSpec, model: str, more: int, milli: int) -> Change:
    was = (spec.borrow_limit or {}).get(model, 0)
    return Change(
        ChangeKind.BORROW,
        f"a borrow_limit of {was + more} {model} for tenant {spec.name} instead of {was}",
        more * MILLI / max(milli, MILLI),
        was=float(was),
        to=float(was + more),
        added_gpus={spec.name: {model: more}},
    )


def _and_a_place(better: World, change: Change) -> Iterator[Change]:
    """The change, with the place that there is then, or with what must change as well."""
    start = better.start()
    if start is not None:
        place = start.place
        text = f"{change.text}: {start}"
        yield replace(
            change, text=text, region=place.region, cluster=place.cluster,
            preempting=place.preempting,
        )  # fmt: skip
        return
    besides = [c for c in in_regions(better) if c.kind not in _MAKES_QUOTA_ENOUGH]
    if besides:
        first = besides[0]
        over = first.jobs if first.kind is ChangeKind.ENDS else ()
        yield replace(
            change, text=f"{change.text}, and also {first.text}", also=first.text,
            jobs=over, size=change.size + first.size, region=first.region, cluster=first.cluster,
        )  # fmt: skip


# --- jobs of the tenant that end ----------------------------------------------------------------


def _when_jobs_end(world: World) -> Iterator[Change]:
    """The jobs of the tenant's tree that must end first, as they are expected to."""
    queue, spec = world.queue, world.spec
    ends: dict[str, float] = {}
    for name in sorted(world.placers):
        ends |= world.placers[name].expected_ends(world.now)
    held = _of_the_tree(world, ends)

    def without(gone: list[JobRecord]) -> World:
        ledger = queue.tenancy.ledger.twin()
        for record in gone:
            _let_go(ledger, record)
        return _with(world, ledger)

    def helps(gone: list[JobRecord]) -> bool:
        trial = without(gone).queue.tenancy
        return bool(trial.choices(spec, False) or trial.choices(spec, True))

    count = fewest_that(lambda n: helps(held[:n]), min(len(held), ENDS_TRIED))
    if count is None:
        return
    gone = held[:count]
    for record in gone[:-1] if count <= JOBS_NAMED else ():
        others = [other for other in gone if other is not record]
        gone = others if helps(others) else gone
    jobs = tuple(record.id for record in gone)
    start = without(gone).start(gone=jobs)
    if start is not None:
        last_s = ends[held[count - 1].id]
        when, at_s = when_over(jobs, last_s, world.now, world.ends)
        text = f"the end of {listed(jobs)}, which frees the quota that it needs{when}"
        size = max(0.0, last_s - world.now) / 3600.0
        yield told(ChangeKind.ENDS, text, size, start, jobs=jobs, at_s=at_s)


def _of_the_tree(world: World, ends: Mapping[str, float]) -> list[JobRecord]:
    """The jobs that hold GPUs of the tenant's tree, the first to end first. O(attempts x depth)."""
    queue = world.queue
    tree = _branch(queue.tenancy.ledger, world.spec.tenant)
    held = [
        record
        for record in (queue.jobs.records.get(job) for job in ends)
        if record is not None and record.plan is not None and record.plan.gpus_milli
        if _branch(queue.tenancy.ledger, record.spec.tenant) == tree
    ]
    return sorted(held, key=lambda record: (ends[record.id], record.number))


def _branch(ledger: Ledger, tenant: str) -> str:
    """The highest tenant above one: its tree."""
    names = [node.name for node in ledger.tree.node(tenant).up() if node is not ledger.tree.top]
    return names[-1] if names else ""


def _let_go(ledger: Ledger, record: JobRecord) -> None:
    plan, tenant = record.plan, record.spec.tenant
    for model, milli in plan.held().items() if plan is not None else ():
        ledger.give_back(tenant, plan.region if plan else "", model, milli, record.over_quota)
