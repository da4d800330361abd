"""Plans: where a gang would run, who has to go for it, and what that costs, term by term."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.job import MILLI, Band, Level, Resources, Topology


class Seat(Struct, frozen=True, gc=False):
    """The place of one task: its rank in the gang, its host, its GPU slots there.

    Each slot is held for ``slot_milli`` thousandths (1000: whole).
    """

    group: str
    rank: int
    host: str
    slots: tuple[int, ...] = ()
    slot_milli: int = MILLI


class Victim(Struct, frozen=True, gc=False):
    """A running attempt that a plan would stop, and the work it would lose.

    ``to``: the place found for it, where it goes on; None sends it back to the queue.
    """

    job: str
    epoch: int
    lost_gpu_s: float
    to: Plan | None = None


class Plan(Struct, frozen=True, gc=False):
    """One placement of one job. ``score`` is the weighted sum of ``terms``; lower is better.

    ``gpus_milli`` counts the whole gang; ``model`` is empty for a gang without GPUs. ``by_model``
    counts them by model where they are of several, and is empty otherwise. ``layer``: the time slice, where there
    are several and it is not the first. ``beside``: the job on whose GPUs it runs at the same time.
    """

    job: str
    region: str
    cluster: str
    model: str
    gpus_milli: int
    seats: tuple[Seat, ...]
    level: Level
    score: float
    terms: dict[str, float]
    victims: tuple[Victim, ...] = ()
    region_version: int = 0
    data_s: float = 0.0
    data_bytes: int = 0
    by_model: dict[str, int] = {}
    layer: int | UnsetType = UNSET
    beside: str | UnsetType = UNSET

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


class Place(Struct, frozen=True, gc=False):
    """Where a job was bound to run before it was looked for: a region, or one cluster of it."""

    region: str
    cluster: str | None = None


class GroupAsk(Struct, frozen=True, gc=False):
    """What the search needs to know of a task group."""

    name: str
    count: int
    resources: Resources


DEFAULT_MIX: tuple[tuple[int, float], ...] = ((1, 0.25), (2, 0.25), (4, 0.25), (8, 0.25))
"""What tasks ask for while nobody has asked yet."""


class Reservation(Struct, frozen=True, gc=False):
    """Seats where a waiting gang is expected to start at ``from_s``; others may use them until then."""

    job: str
    region: str
    cluster: str
    from_s: float
    seats: tuple[Seat, ...]
    groups: tuple[GroupAsk, ...]


class More(Struct, frozen=True, gc=False):
    """How many tasks an elastic gang would like to have. ``group``: which of its groups (number) that is.

    ``tasks``: pairs of an accelerator choice and the most tasks that the queue allows it with that. ``anywhere``: more than so
    many it has only at a place that is kept for it.
    """

    group: int
    tasks: tuple[tuple[int, int], ...]
    anywhere: int | UnsetType = UNSET

    @property
    def most(self) -> int:
        """The most tasks that the group may have with any choice."""
        return max((tasks for _, tasks in self.tasks), default=0)


class Ask(Struct, frozen=True, gc=False):
    """A question to a region: where would this job best run, at which cost?

    ``band`` is the effective band; ``models`` are the accelerator choices (by index) that the
    queue allows for this question, None meaning all; ``data_bytes`` and ``data_s`` price
    bringing its datasets to the region, 0 when they are there; ``balance`` is the region's
    demand over its supply. ``mix``: sizes of tasks seen lately, in GPUs, with their shares.
    ``held``: seats reserved for another gang, which this one may not take; ``reserve``: if there is
    no room now, tell where and when there will be first. ``room_gpu_s``: what room for it is worth, if
    others are to be moved to make it; None moves nobody. ``outranked``: the running jobs that may be
    stopped for this one, the last in order first; None leaves that to the bands. ``cluster``: the only one
    that may hold it; None: any. ``more``: of an elastic gang, whose groups are here as small as will do.
    ``shrinks``: elastic work may be made smaller for this job. ``beside``: the job on whose GPUs it has to run, and nowhere else.
    """

    job: str
    groups: tuple[GroupAsk, ...]
    topology: Topology
    band: Band
    preempt: bool
    models: tuple[int, ...] | None = None
    avoid_hosts: tuple[str, ...] = ()
    data_bytes: int = 0
    data_s: float = 0.0
    balance: float = 0.0
    held: Reservation | None = None
    reserve: bool = False
    outranked: tuple[str, ...] | None = None
    room_gpu_s: float | None = None
    mix: tuple[tuple[int, float], ...] = DEFAULT_MIX
    cluster: str | None = None
    more: More | None = None
    shrinks: bool = False
    beside: str | UnsetType = UNSET
