"""What would have to change in a region, or in a gang, for the gang to have a place: one thing at a time.

Nothing is guessed: each change is tried on the columns as they would be, with the sums that the search
uses, and told only if the gang has a place then. It is an explanation, not a decision: whether there is
a place counts, not which is best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from topmast.fast.placement.allocation import Allocation, Hold
from topmast.fast.placement.columns import Bools, Columns, Ints
from topmast.fast.placement.packing import gpus_of_task
from topmast.fast.placement.reservation import expected_end_s
from topmast.fast.placement.search import Domain, Search, choices_of, levels_of
from topmast.fast.placement.space import Space, fewest_gone, without_attempts
from topmast.model.job import MILLI, Band, Level, Topology
from topmast.model.plan import Ask, GroupAsk
from topmast.model.reason import Change, ChangeKind
from topmast.model.units import BYTE_UNITS, exact_bytes, format_duration

ENDS_TRIED = 1_000
"""Of the attempts that run, so many are thought away, the first to end first."""
JOBS_NAMED = 12
"""Of so many that have to end, those that need not are found out."""
GROUPS_TRIED = 4
HOSTS_NAMED = 64


class Place:
    """Where a gang would sit, in words."""

    def __init__(self, region: str, domain: Domain, preempting: bool) -> None:
        self.region = region
        self.cluster = domain.cluster
        self.preempting = preempting

    def __str__(self) -> str:
        how = ", others being preempted" if self.preempting else ""
        return f"there is room in {self.region}/{self.cluster}{how}"


class Trials:
    """One gang that a region has no place for, and the worlds in which it would have one.

    ``unheld``: the columns with what is kept for another gang, if the search must leave that alone.
    Times are for H hosts (with their slots), A attempts, G groups, n tasks.
    """

    def __init__(
        self, search: Search, ask: Ask, *, preempt: bool, unheld: Columns | None = None
    ) -> None:
        self.search = search
        self.ask = ask
        self.preempt = preempt
        self.unheld = unheld
        self._cleared: dict[Band, Space] = {}

    # --- whether it fits --------------------------------------------------------------------------

    @cached_property
    def space(self) -> Space:
        """The region as it is."""
        return Space(self.search.columns, self.ask.avoid_hosts)

    def place(self, ask: Ask) -> Place | None:
        """Where a gang has a place as things are: on free GPUs, else by preemption. O(H)."""
        domain = self.space.place_for(ask)
        if domain is not None:
            return Place(self.search.region, domain, preempting=False)
        if self.preempt and ask.band > Band.OPPORTUNISTIC:
            domain = self._without_victims(ask.band).place_for(ask)
        return None if domain is None else Place(self.search.region, domain, preempting=True)

    def _without_victims(self, band: Band) -> Space:
        """The region once everything is gone that may be stopped for a band. O(A) once."""
        if band not in self._cleared:
            trial = self.search.columns.trial()
            for allocation in self._lower(band):
                if self._old_at_s(allocation) <= self.search.now:
                    trial.give_back(allocation.plan.seats, allocation.needs())
            self._cleared[band] = Space(trial, self.ask.avoid_hosts)
        return self._cleared[band]

    def _lower(self, band: Band) -> list[Allocation]:
        """Attempts that may be stopped for a band, at once or when they are old enough."""
        return [
            a
            for a in self.search.allocations.values()
            if a.band < band and a.spec.preemptible and a.hold in (Hold.STARTING, Hold.RUNNING)
        ]

    def _old_at_s(self, allocation: Allocation) -> float:
        return allocation.start_s + self.search.profile.min_runtime_s

    # --- all of it --------------------------------------------------------------------------------

    def changes(self) -> Iterator[Change]:
        """Every change that was found. O((G log n + log A) x H + A)."""
        yield from self._without_reservation()
        yield from self._on_avoided_hosts()
        yield from self._wider()
        for group in self.ask.groups[:GROUPS_TRIED]:
            yield from self._fewer_tasks(group)
            yield from self._fewer_gpus(group)
            yield from self._fewer_cpus(group)
            yield from self._less_memory(group)
        yield from self._when_old_enough()
        yield from self._when_jobs_end()
        for cluster in sorted(self.search.columns.clusters):
            yield from self._hosts_freed(cluster)
            yield from self._hosts_back(cluster)

    def _change(
        self, kind: ChangeKind, text: str, size: float, place: Place, **more: object
    ) -> Change:
        told = f"{text}: {place}"
        return Change(kind, told, size, place.region, place.cluster, **more)  # type: ignore[arg-type]

    # --- what the job asks for --------------------------------------------------------------------

    def _wider(self) -> Iterator[Change]:
        """The next wider level of the topology that helps. O(levels x H)."""
        required = self.ask.topology.required
        for level in Level if required is not None else ():
            if required is None or level <= required:
                continue
            place = self.place(replace(self.ask, topology=Topology(level)))
            if place is not None:
                was, to = required.name.lower(), level.name.lower()
                text = f"`topology: {{required: {to}}}` instead of {was}"
                size = (level - required) / len(Level)
                yield self._change(ChangeKind.TOPOLOGY, text, size, place, was=was, to=to)
                return

    def _fewer_tasks(self, group: GroupAsk) -> Iterator[Change]:
        """The most tasks of a group that fit. O(log n x H)."""
        found = self._most(group.count - 1, lambda n: self._with(replace(group, count=n)))
        if found is not None:
            most, place = found
            text = f"{_tasks(most, self._of(group))} instead of {group.count}"
            size = (group.count - most) / group.count
            yield self._change(
                ChangeKind.TASKS, text, size, place, group=group.name,
                was=float(group.count), to=float(most),
            )  # fmt: skip

    def _fewer_gpus(self, group: GroupAsk) -> Iterator[Change]:
        """The most GPUs per task with which the gang fits. O(log GPUs x H)."""
        resources = group.resources
        listed = resources.accelerators
        before = max((a.gpus_milli for a in listed), default=0) // MILLI

        def with_gpus(gpus: int) -> Ask:
            fewer = tuple(replace(a, gpus_milli=min(a.gpus_milli, gpus * MILLI)) for a in listed)
            return self._with(replace(group, resources=replace(resources, accelerators=fewer)))

        found = self._most(before - 1, with_gpus)
        if found is not None:
            most, place = found
            text = f"{_number(most, 'GPU')} per task{self._of(group)} instead of {before}"
            yield self._change(
                ChangeKind.GPUS, text, (before - most) / before, place, group=group.name,
                was=float(before), to=float(most),
            )  # fmt: skip

    def _fewer_cpus(self, group: GroupAsk) -> Iterator[Change]:
        """The most CPUs per task with which the gang fits, in whole ones or tenths. O(log CPUs x H)."""
        before = group.resources.cpus
        step = 1.0 if before > 1 else 0.1

        def with_cpus(steps: int) -> Ask:
            cpus = round(steps * step, 1)
            return self._with(replace(group, resources=replace(group.resources, cpus=cpus)))

        found = self._most(_steps_below(before, step), with_cpus, least=0)
        if found is not None:
            steps, place = found
            most = round(steps * step, 1)
            text = f"{most:g} CPUs per task{self._of(group)} instead of {before:g}"
            yield self._change(
                ChangeKind.CPUS, text, (before - most) / before, place, group=group.name,
                was=before, to=most,
            )  # fmt: skip

    def _less_memory(self, group: GroupAsk) -> Iterator[Change]:
        """The most memory per task with which the gang fits, in GB or MB. O(log memory x H)."""
        before = group.resources.memory_bytes
        step = BYTE_UNITS["GB"] if before > BYTE_UNITS["GB"] else BYTE_UNITS["MB"]

        def with_memory(steps: int) -> Ask:
            less = replace(group.resources, memory_bytes=steps * step)
            return self._with(replace(group, resources=less))

        found = self._most(_steps_below(before, step), with_memory, least=0)
        if found is not None:
            steps, place = found
            most = exact_bytes(steps * step)
            text = f"{most} of memory per task{self._of(group)} instead of {exact_bytes(before)}"
            size = (before - steps * step) / before
            yield self._change(
                ChangeKind.MEMORY, text, size, place, group=group.name,
                was=float(before), to=float(steps * step),
            )  # fmt: skip

    def _most(
        self, high: int, ask_with: Callable[[int], Ask], *, least: int = 1
    ) -> tuple[int, Place] | None:
        """The largest of ``least`` to ``high`` for which the gang has a place. O(log high) trials."""
        if high < least:
            return None
        place = self.place(ask_with(high))
        if place is not None:
            return high, place
        place = self.place(ask_with(least))
        if place is None:
            return None
        low, best = least, place
        while high - low > 1:
            middle = (low + high) // 2
            place = self.place(ask_with(middle))
            if place is None:
                high = middle
            else:
                low, best = middle, place
        return low, best

    def _with(self, group: GroupAsk) -> Ask:
        """The question with one group in place of that of its name."""
        groups = tuple(group if g.name == group.name else g for g in self.ask.groups)
        return replace(self.ask, groups=groups)

    def _of(self, group: GroupAsk) -> str:
        return f" of group {group.name}" if len(self.ask.groups) > 1 else ""

    # --- what others hold -------------------------------------------------------------------------

    def _without_reservation(self) -> Iterator[Change]:
        """What is kept for another gang would do. O(H)."""
        held = self.ask.held
        if held is None or self.unheld is None:
            return
        domain = Space(self.unheld, self.ask.avoid_hosts).place_for(self.ask)
        if domain is not None:
            place = Place(self.search.region, domain, preempting=False)
            wait_s = max(0.0, held.from_s - self.search.now)
            text = f"the room that is kept for {held.job}, or a run of at most {format_duration(wait_s)}"
            yield self._change(
                ChangeKind.KEPT, text, wait_s / 3600.0, place, jobs=(held.job,), at_s=held.from_s
            )

    def _on_avoided_hosts(self) -> Iterator[Change]:
        """The hosts on which the job failed would do. O(H)."""
        here = tuple(h for h in self.ask.avoid_hosts if h in self.search.columns.index)
        domain = Space(self.search.columns).place_for(self.ask) if here else None
        if domain is not None:
            place = Place(self.search.region, domain, preempting=False)
            text = f"the hosts that it avoids since it lost an attempt there ({_listed(here)})"
            yield self._change(ChangeKind.AVOIDED, text, 0.5, place, hosts=here)

    def _when_old_enough(self) -> Iterator[Change]:
        """Attempts too young to be stopped will be old enough soon. O(A + log A x H)."""
        if not self.preempt or self.ask.band <= Band.OPPORTUNISTIC:
            return
        now = self.search.now
        young = [a for a in self._lower(self.ask.band) if self._old_at_s(a) > now]
        young.sort(key=lambda a: (self._old_at_s(a), a.job))
        base = self._without_victims(self.ask.band).columns
        count = fewest_gone(base, young[:ENDS_TRIED], lambda c: self._holds(c) is not None)
        if count is not None:
            at_s = self._old_at_s(young[count - 1])
            wait_s = at_s - now
            patience = format_duration(self.search.profile.min_runtime_s)
            text = (
                f"{format_duration(wait_s)} of patience, for jobs that are not {patience} old may "
                f"not be preempted"
            )
            domain = self._holds(without_attempts(base, young[:count]))
            if domain is not None:
                place = Place(self.search.region, domain, preempting=True)
                jobs = tuple(a.job for a in young[:count])
                yield self._change(
                    ChangeKind.PATIENCE, text, wait_s / 3600.0, place, jobs=jobs, at_s=at_s
                )

    def _when_jobs_end(self) -> Iterator[Change]:
        """Jobs that are to end, the first as expected; of a few, those that matter. O(A + log A x H)."""
        now, default_s = self.search.now, self.search.profile.default_duration_s
        ends = sorted(
            ((expected_end_s(a, default_s, now), a.job) for a in self.search.allocations.values()),
        )[:ENDS_TRIED]
        order = [self.search.allocations[job] for _, job in ends]
        columns = self.search.columns
        count = fewest_gone(columns, order, lambda c: self._holds(c) is not None)
        if count is None:
            return
        gone = self._needed(order[:count])
        domain = self._holds(without_attempts(columns, gone))
        if domain is not None:
            at_s = ends[count - 1][0]
            jobs = tuple(a.job for a in gone)
            wait_s = max(0.0, at_s - now)
            text = f"the end of {_listed(jobs)}, expected in {format_duration(wait_s)}"
            place = Place(self.search.region, domain, preempting=False)
            yield self._change(ChangeKind.ENDS, text, wait_s / 3600.0, place, jobs=jobs, at_s=at_s)

    def _needed(self, gone: list[Allocation]) -> list[Allocation]:
        """Those of a few without which the gang would not fit; a long list stays as it is."""
        if len(gone) > JOBS_NAMED:
            return gone
        for allocation in gone[:-1]:
            others = [a for a in gone if a is not allocation]
            if self._holds(without_attempts(self.search.columns, others)) is not None:
                gone = others
        return gone

    def _holds(self, columns: Columns) -> Domain | None:
        return Space(columns, self.ask.avoid_hosts).place_for(self.ask)

    # --- hosts ------------------------------------------------------------------------------------

    def _hosts_freed(self, cluster: str) -> Iterator[Change]:
        """The fewest hosts of one domain that would have to come free. O(choices x H log H)."""
        columns = self.search.columns
        free = columns.empty()
        free.available = self.space.columns.available
        rows = self._fewest_hosts(cluster, Space(free))
        if rows is None:
            return
        trial = columns.trial()
        for row in rows:
            trial.slots(row)[:] = MILLI
            trial.free_cpus[row], trial.free_memory[row] = columns.cpus[row], columns.memory[row]
        domain = self._holds(trial)
        if domain is not None:
            where = self._domain_name(rows[0])
            names = tuple(columns.hosts[row].name for row in rows)
            have = f"{self._free_gpus(rows[0]):g} of the {self._need_gpus():g} GPUs that it needs are free there"
            jobs = self._jobs_on(set(names))
            text = f"{_number(len(rows), 'more host')} of {where} free ({_listed(names)}): {have}"
            yield Change(
                ChangeKind.HOSTS, text, self._size_of_hosts(cluster, len(rows)),
                self.search.region, cluster, to=float(len(rows)), hosts=names[:HOSTS_NAMED],
                jobs=jobs[:HOSTS_NAMED],
            )  # fmt: skip

    def _hosts_back(self, cluster: str) -> Iterator[Change]:
        """The fewest hosts out of service that would have to be in service. O(choices x H log H)."""
        columns = self.search.columns
        if bool(columns.available[columns.clusters[cluster]].all()):
            return
        served = columns.trial()
        served.available = np.ones(len(columns.hosts), dtype=np.bool_)
        usable = Space(served, self.ask.avoid_hosts)
        rows = self._fewest_hosts(cluster, usable)
        if rows is None:
            return
        trial = columns.trial()
        trial.available = columns.available.copy()
        trial.available[rows] = True
        domain = self._holds(trial)
        if domain is not None:
            names = tuple(columns.hosts[row].name for row in rows)
            states = _listed([f"{n} is {columns.states[columns.index[n]].value}" for n in names])
            text = f"{_number(len(rows), 'host')} of {cluster} back in service ({states})"
            yield Change(
                ChangeKind.SERVICE, text, self._size_of_hosts(cluster, len(rows)),
                self.search.region, cluster, to=float(len(rows)), hosts=names[:HOSTS_NAMED],
            )  # fmt: skip

    def _fewest_hosts(self, cluster: str, better: Space) -> list[int] | None:
        """The fewest hosts of one domain that, each being as in ``better``, give the gang a place.

        Exact for a gang of one group: those that gain most come first. Of several groups, what the
        hungriest gains decides. O(choices x H log H).
        """
        rows = self.search.columns.clusters[cluster]
        best: list[int] | None = None
        for choice in choices_of(self.ask) if len(rows) else ():
            groups = self.ask.groups
            group = max(groups, key=lambda g: (gpus_of_task(g.resources, choice), g.count))
            now = self.space.room(group.resources, choice)[rows]
            then = better.room(group.resources, choice)[rows]
            domain = self.search.columns.domain[levels_of(self.ask)[-1]][rows]
            found = fewest_to_gain(domain, now, np.maximum(then - now, 0), group.count)
            if found is not None and len(found) and (best is None or len(found) < len(best)):
                best = rows[found].tolist()
        return best

    def _size_of_hosts(self, cluster: str, count: int) -> float:
        """How many hosts, against how many the gang would need if they were free."""
        empty = Space(self.search.columns.empty())
        rows = self.search.columns.clusters[cluster]
        most = [
            int(empty.room(g.resources, c)[rows].max(initial=0))
            for g in self.ask.groups[:1]
            for c in choices_of(self.ask)
        ]
        needed = -(-self.ask.groups[0].count // max(1, *most, 1))
        return count / max(1, needed)

    def _domain_name(self, row: int) -> str:
        """The domain that the gang must stay in, by a host of it."""
        host, level = self.search.columns.hosts[row], levels_of(self.ask)[-1]
        cluster = self.search.columns.cluster_of[row]
        names = {
            Level.HOST: host.name,
            Level.RACK: f"rack {host.rack} of {cluster}",
            Level.POD: f"pod {host.pod} of {cluster}",
            Level.DATACENTER: f"datacenter {host.datacenter} of {cluster}",
            Level.CLUSTER: cluster,
        }
        return names[level]

    def _free_gpus(self, row: int) -> float:
        """GPUs of acceptable models free in the domain of a host, on hosts in service."""
        columns = self.search.columns
        numbers = columns.domain[levels_of(self.ask)[-1]]
        here: Bools = (numbers == numbers[row]) & self.space.columns.available
        models = {
            a.model
            for g in self.ask.groups
            for at, a in enumerate(g.resources.accelerators)
            if at in choices_of(self.ask) or len(g.resources.accelerators) == 1
        }
        if None not in models:
            here &= np.isin(columns.models.astype(str), sorted(str(m) for m in models))
        return int(columns.free_by_host()[here].sum()) / MILLI

    def _need_gpus(self) -> float:
        choice = choices_of(self.ask)[0]
        return sum(g.count * gpus_of_task(g.resources, choice) for g in self.ask.groups) / MILLI

    def _jobs_on(self, hosts: set[str]) -> tuple[str, ...]:
        held = self.search.allocations.values()
        return tuple(a.job for a in held if any(seat.host in hosts for seat in a.plan.seats))


def fewest_to_gain(domain: Ints, now: Ints, gain: Ints, count: int) -> Ints | None:
    """The fewest hosts of one domain whose gains bring its tasks from ``now`` up to ``count``.

    Places in the arrays (hosts); of equals the domain first in order, and in it the hosts that gain
    most. None if no domain can. O(hosts log hosts).
    """
    order = np.lexsort((-gain, domain))
    numbers = domain[order]
    first = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    best: Ints | None = None
    for start, end in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        here = order[start:end]
        missing = count - int(now[here].sum())
        gained = np.cumsum(gain[here])
        if missing > 0 and len(gained) and gained[-1] >= missing:
            needed = int(np.searchsorted(gained, missing)) + 1
            if best is None or needed < len(best):
                best = here[:needed]
    return best


def _steps_below(amount: float, step: float) -> int:
    """The most whole steps that are less than an amount; -1 if the amount is 0."""
    return int(np.ceil(amount / step - 1e-6)) - 1


def _tasks(count: int, of: str) -> str:
    return f"{count} task{'' if count == 1 else 's'}{of}"


def _number(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """A few names, and how many more there are."""
    few = ", ".join(names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"
