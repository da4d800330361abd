"""Plans: where a gang would run, which running jobs it displaces, and what that costs, by term."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from topmast.model.engines import Capability
from topmast.model.job import (
    MILLI,
    Band,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
    needs_of_engine,
)


class Seat(Struct, frozen=True, gc=False, omit_defaults=True):
    """The place of one task: its rank in the gang, its host, its GPU slots there."""

    group: str
    rank: int
    host: str
    slots: tuple[int, ...] = ()
    slot_milli: int = MILLI
    """Thousandths of each slot that the task holds (1000: whole)."""


class Victim(Struct, frozen=True, gc=False):
    """A running attempt that a plan would stop, and the work it would lose."""

    job: str
    epoch: int
    lost_gpu_s: float
    to: Plan | None = None
    """The place found for it, where it continues; None sends it back to the queue."""


class Plan(Struct, frozen=True, gc=False, omit_defaults=True):
    """One placement of one job."""

    job: str
    region: str
    cluster: str
    model: str
    """Empty for a gang without GPUs."""
    gpus_milli: int
    """Of the whole gang."""
    seats: tuple[Seat, ...]
    level: Level
    score: float
    """The weighted sum of ``terms``; lower is better."""
    terms: dict[str, float]
    victims: tuple[Victim, ...] = ()
    region_version: int = 0
    data_s: float = 0.0
    data_bytes: int = 0
    by_model: dict[str, int] = {}
    """Thousandths of GPUs by model, if there are several models; else empty."""
    time_slice: int | UnsetType = field(name="layer", default=UNSET)
    """The time slice, if there are several and it is not the first."""
    colocated_with: str | UnsetType = field(name="beside", default=UNSET)
    """The job that runs on the same GPUs at the same time."""

    @property
    def in_slice(self) -> int:
        """The number of its time slice; 0 where there is only one."""
        return self.time_slice or 0

    def held(self) -> dict[str, int]:
        """Thousandths of GPUs by model."""
        return self.by_model or {self.model: self.gpus_milli}

    def tasks_of(self, group: str) -> int:
        """How many tasks of a group it seats. O(seats)."""
        return sum([seat.group == group for seat in self.seats])

    def milli_per_task(self, group: str) -> int:
        """Thousandths of GPUs of one task of a group; 0 for a group without seats. O(seats)."""
        return next((len(s.slots) * s.slot_milli for s in self.seats if s.group == group), 0)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts used, in the order of ranks, each once."""
        if len(self.seats) == 1:
            return (self.seats[0].host,)
        return tuple(dict.fromkeys(seat.host for seat in self.seats))


class Binding(Struct, frozen=True, gc=False):
    """The place that a job was bound to before the search: a region, or one cluster of it."""

    region: str
    cluster: str | None = None


def capabilities_of(spec: JobSpec) -> tuple[Capability, ...]:
    """What an engine must be able to do for a job. O(groups x choices + secrets)."""
    return _capabilities(spec.groups, needs_of_engine(spec))


def _capabilities(
    groups: Iterable[GroupRequest | TaskGroup], needs: tuple[Capability, ...] | UnsetType
) -> tuple[Capability, ...]:
    """What groups need that may take parts of GPUs, beside what their job needs in any case."""
    more = needs or ()
    for group in groups:
        for choice in group.resources.accelerators:
            if choice.gpus_milli < MILLI:
                return (Capability.SHARES, *more)
    return more


class GroupRequest(Struct, frozen=True, gc=False, cache_hash=True):
    """What the search needs to know of a task group."""

    name: str
    count: int
    resources: Resources


def needs_of(groups: Iterable[GroupRequest | TaskGroup]) -> dict[str, Resources]:
    """Resources of a task by group name."""
    return {group.name: group.resources for group in groups}


DEFAULT_MIX: tuple[tuple[int, float], ...] = ((1, 0.25), (2, 0.25), (4, 0.25), (8, 0.25))
"""The sizes of tasks that are assumed before any job was submitted."""


class Reservation(Struct, frozen=True, gc=False):
    """Seats where a waiting gang is expected to start; others may use them until then."""

    job: str
    region: str
    cluster: str
    from_s: float
    """The expected start."""
    seats: tuple[Seat, ...]
    groups: tuple[GroupRequest, ...]


class More(Struct, frozen=True, gc=False):
    """How many tasks an elastic gang would like to have."""

    group: int
    """The number of the elastic group."""
    tasks: tuple[tuple[int, int], ...]
    """Pairs: an accelerator choice, and the most tasks that the queue allows with it."""
    anywhere: int | UnsetType = UNSET
    """The most tasks at any place; more than that only at a place that is kept for the gang."""

    @property
    def most(self) -> int:
        """The most tasks that the group may have with any choice."""
        return max((tasks for _, tasks in self.tasks), default=0)


class RegionTerms(Struct, frozen=True, gc=False):
    """What differs from region to region in a request for one job."""

    data_bytes: int = 0
    """What has to be copied to the region before the job can start there; 0 when all is there."""
    data_s: float = 0.0
    """How long that takes."""
    balance: float = 0.0
    """The region's demand over its supply."""


class Free(Struct, frozen=True, gc=False, tag="free"):
    """On GPUs that are free."""

    more: More | None = None
    """Of an elastic gang. Its groups are in the request as small as will do."""


class Colocate(Struct, frozen=True, gc=False, tag="colocate"):
    """On the GPUs of another job, at the same time, and nowhere else."""

    job: str


class Move(Struct, frozen=True, gc=False, tag="move"):
    """On GPUs that running jobs leave, which go on at another place."""

    worth_gpu_s: float
    """What room for the gang is worth; moves that cost more are not made."""


class Shrink(Struct, frozen=True, gc=False, tag="shrink"):
    """On GPUs that elastic jobs give away, which go on with fewer tasks."""


class Preempt(Struct, frozen=True, gc=False, tag="preempt"):
    """On GPUs of jobs that are stopped."""

    outranked: tuple[str, ...] | None = None
    """Running jobs that may be stopped, the last in order first; None: the bands decide."""


FREE = Free()
Mode = Free | Colocate | Move | Shrink | Preempt
"""How a place may be found: the one thing that the phases of the pipeline differ in."""


class TaskShape(Struct, frozen=True, gc=False, cache_hash=True):
    """What tasks ask for that came lately."""

    gpus_milli: int
    cpus: float
    memory_bytes: int
    models: tuple[str, ...]
    """GPU models that will do; empty: any."""
    share: float
    """Of the tasks with GPUs."""


class PlacementRequest(Struct, frozen=True, gc=False, cache_hash=True):
    """A request to a region: where would this job run best, and at which cost?"""

    job: str
    groups: tuple[GroupRequest, ...]
    topology: Topology
    band: Band
    """The effective band: over quota every job is opportunistic."""
    mode: Mode = FREE
    models: tuple[int, ...] | None = None
    """The accelerator choices (by index) that the queue allows; None: all."""
    avoid_hosts: tuple[str, ...] = ()
    terms: RegionTerms = RegionTerms()
    """What the region that is asked adds."""
    held: Reservation | None = None
    """Seats reserved for another gang, which this one may not take."""
    reserve: bool = False
    """Without room now, say where and when there will be room first."""
    mix: tuple[tuple[int, float], ...] = DEFAULT_MIX
    """Sizes of recent tasks, in GPUs, with their shares."""
    shapes: tuple[TaskShape, ...] | UnsetType = UNSET
    """Shapes of recent tasks; absent where the sizes say it all, or the score asks for no more."""
    cluster: str | None = None
    """The only cluster that may hold the gang; None: any."""
    needs: tuple[Capability, ...] | UnsetType = UNSET
    """What the engine must be able to do whatever the tasks take; absent: nothing."""
    reserved: tuple[str, ...] | UnsetType = UNSET
    """Hosts that are reserved before the gang would have ended; absent: none."""
    scarcity: tuple[tuple[str, float], ...] | UnsetType = UNSET
    """For a gang to which any GPU model will do: which models others need more, from 0 to 1.

    A model that is not there: 0. Absent: the gang's own order of models counts.
    """

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """What the engine of a cluster must be able to do for the gang. O(groups x choices)."""
        return _capabilities(self.groups, self.needs)

    @property
    def preempt(self) -> bool:
        """Whether jobs may be stopped."""
        return isinstance(self.mode, Preempt)

    @property
    def outranked(self) -> tuple[str, ...] | None:
        """Those that may be stopped, where that is decided by name."""
        return self.mode.outranked if isinstance(self.mode, Preempt) else None

    @property
    def more(self) -> More | None:
        """How many tasks an elastic gang would like to have."""
        return self.mode.more if isinstance(self.mode, Free) else None

    def in_region(self, terms: RegionTerms) -> PlacementRequest:
        """The request as it is put to one region."""
        return replace(self, terms=terms)

    def kind(self) -> PlacementRequest:
        """What requests have in common that are answered alike: all but the job and the balance."""
        terms = RegionTerms(self.terms.data_bytes, self.terms.data_s)
        return replace(self, job="", terms=terms)
