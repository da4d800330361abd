"""The hooks that an engine calls: who is next, what a place costs, where to wait, how to share time.

A hook receives read-only columns and returns numbers; it never sees a machine. A profile names them
(`options`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.model.job import Accelerator, JobSpec, Topology
from topmast.model.plan import PlacementRequest
from topmast.policies.options import ScoreWeights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class QueueView(Struct, frozen=True):
    """Jobs of the queue (n) in columns, to be read only.

    ``fairness`` is 1 for the job of a tenant that used nothing lately, 0 at its fair share and beyond.
    ``duration_s`` is the whole run as expected, ``remaining_s`` what is left of it,
    ``attained_gpu_s`` the GPU-seconds that the job has had. ``gpus`` are those of the whole gang.
    ``executed_s`` is the time it has held them; of one that rose to the top (`Drifting`) both count from
    then on. ``first_start_s`` is infinite for one that never ran; ``since_s``: since when it is ``running``, or waits.
    ``turn``: where time is shared, the job's place in this round.
    """

    now_s: float
    band: Ints
    submit_s: Floats
    gpus: Floats
    tasks: Ints
    tenant: Ints
    fairness: Floats
    duration_s: Floats
    remaining_s: Floats
    attained_gpu_s: Floats
    executed_s: Floats
    first_start_s: Floats
    since_s: Floats
    running: Bools
    turn: Floats


class Order(Protocol):
    """Hook `order`: who is next.

    ``by_band``: a higher effective band goes first, whatever the keys say. ``by_time``: keys change
    while jobs wait, so that they must be computed anew now and then.
    """

    by_band: bool
    by_time: bool

    def keys(self, view: QueueView) -> Floats:
        """Priorities (n x k): the lower row, read from left to right, goes first.

        Equal rows go by time of submission, then by number. No NaN.
        """
        ...


@runtime_checkable
class Drifting(Order, Protocol):
    """An `Order` in which jobs change places by the service that they get, at times that it can tell."""

    def drifts_s(self, view: QueueView) -> Floats:
        """When each running job may come to rank lower, and each waiting one rises to the top; inf: never (n).

        When a waiting job rises, what it has attained and executed is counted anew. A running one whose time has
        come is asked about again; so many are looked at as change their place, not all.
        """
        ...


@runtime_checkable
class Empirical(Order, Protocol):
    """An `Order` that goes by what jobs took that have succeeded."""

    def learn(self, total_gpu_s: Floats) -> None:
        """Take up a sample of the total service of jobs (n), in any order; the keys of all jobs change."""
        ...


class Score(Protocol):
    """Hook `score`: what a place costs, as the prices of the score's terms for one job."""

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The prices to be used for this question."""
        ...


@runtime_checkable
class Shaping(Score, Protocol):
    """A `Score` that decides, too, how near to one another the tasks of a job must sit."""

    def topology(self, spec: JobSpec, on_one_host: bool) -> Topology:
        """What is asked of the topology for a job; ``on_one_host``: some host, empty, would hold all of it."""
        ...


class Reserve(Protocol):
    """Hook `reserve`: GPU models that a job has to wait for longer than for others."""

    def held_back(self, listed: Sequence[Accelerator], gpus: float) -> tuple[int, ...]:
        """Which of the accelerators ``listed`` by a job of so many GPUs are held back from it; never all."""
        ...


class BindView(Struct, frozen=True):
    """The clusters (k, by region and name) that could hold one job if nothing ran there, in columns.

    ``number`` is the job's; ``times`` counts how often it was bound before, ``bound`` is the row where it
    waits now, -1 if none. ``region`` numbers the regions by name; ``at_home`` tells who is in the job's home
    region, ``has_data`` who has all of its data. ``load``: GPUs wanted and held by the jobs bound there
    over the GPUs present, as last signalled.
    """

    number: int
    times: int
    bound: int
    region: Ints
    at_home: Bools
    has_data: Bools
    gpus: Floats
    load: Floats


class Bind(Protocol):
    """Hook `bind`: where a job has to wait.

    ``whole_region``: it may use all clusters of the region chosen, not only the one.
    """

    whole_region: bool

    def choose(self, view: BindView) -> int:
        """The row of the cluster chosen; there is at least one."""
        ...


class SharesView(Struct, frozen=True):
    """Jobs (n) that want to share the GPUs of the fleet (m models), in columns, to be read only.

    ``speeds`` (n x m): work per second of the whole gang on each model, relative to the first that the job
    lists; 0 where it cannot run. ``gpus`` (m) are those of the fleet, ``width`` (n) those of a gang.
    ``left_s`` (n): work left, in seconds at speed 1. ``isolated_s`` (n): how long the work done so far would
    have taken on a share of its own. ``deadline_s`` (n) from now, NaN if none. ``tenant`` (n) are rows of
    ``tenant_weights``. ``pair_rows`` (p x 2): jobs of one width that may have the same GPUs at the same time, and
    ``pair_speeds`` (p x m x 2), as ``speeds``, theirs then; None: nobody shares.
    """

    ids: tuple[str, ...]
    models: tuple[str, ...]
    gpus: Ints
    speeds: Floats
    width: Floats
    weight: Floats
    left_s: Floats
    elapsed_s: Floats
    isolated_s: Floats
    deadline_s: Floats
    submit_s: Floats
    tenant: Ints
    tenant_weights: Floats
    pair_rows: Ints | None = None
    pair_speeds: Floats | None = None


class Parts(Struct, frozen=True):
    """What a policy answers: the part of its time that each job runs on each model (n x m).

    ``isolated_speeds`` (n): of a job with the n-th part of every model for itself. ``named`` (by row): jobs
    that get nothing, or whose deadline cannot be kept, and why. ``pair_fractions`` (p x m): the same of pairs, if there are any.
    """

    fractions: Floats
    isolated_speeds: Floats
    named: dict[int, str]
    pair_fractions: Floats | None = None


class PairSpeeds(Protocol):
    """What was measured of two kinds of work on the same GPUs at the same time."""

    def beside(
        self, one: tuple[str, int], other: tuple[str, int], model: str
    ) -> tuple[float, float] | None:
        """The speeds of the one and the other, each over its speed alone; None: not known, or one gets nowhere.

        Each is named by what the table calls it and the GPUs of the gang. O(1).
        """
        ...


class Share(Protocol):
    """Hook `shares`: for which part of the time each job runs, and on which GPU model.

    ``moves``: a running job may be stopped, or moved to another model, when shares change; else it keeps
    what it has. ``fills``: GPUs that nobody has a part in are given to those who wait.
    """

    moves: bool
    fills: bool

    def parts(self, view: SharesView) -> Parts:
        """Fractions of time: at most 1 for a job, and for a model at most its GPUs.

        Raises TopmastError if no answer was found.
        """
        ...


class PackView(Struct, frozen=True):
    """Gangs (n) that run in turns in one cluster, in columns, to be read only.

    Equal numbers of ``place`` sit on the very same GPUs. ``memory`` is what is used of one GPU's, as a fraction, 0 where
    nobody says. ``rate``: steps per second alone. ``failures``: how often it was tried beside another in vain.
    ``may_join`` (n x n): who may be tried beside whom now. ``expected`` (n x n): what two are expected to do together, by what
    pairs of their kinds were measured to do, each over that alone, summed; NaN where nobody knows.
    """

    place: Ints
    gpus: Floats
    memory: Floats
    rate: Floats
    failures: Ints
    may_join: Bools
    expected: Floats


class Pack(Protocol):
    """Hook `pack`: which gangs are to be tried on the same GPUs at the same time."""

    def pairs(self, view: PackView) -> Sequence[tuple[int, int]]:
        """Pairs of rows, the most promising first; each row at most once."""
        ...


class PairsView(Struct, frozen=True):
    """Pairs of gangs (n) on the same GPUs: steps per second of both, alone and beside the other."""

    first_alone: Floats
    first_beside: Floats
    second_alone: Floats
    second_beside: Floats


class SharingView(Struct, frozen=True):
    """Gangs (n) for which there are idle GPUs elsewhere in their region, in columns, to be read only.

    ``sharing``: how many gangs, with itself, were placed on its GPUs, on the fullest of them; ``paired``: whether one of them runs beside it. ``idle_speed``: its speed on the
    fastest model of which enough GPUs are idle, over that where it is, 0 if there is none. ``age_s``: since when it
    runs; ``cost_s``: how long a move keeps it from working; ``moved_lately``: whether it was moved not long ago.
    """

    gpus: Floats
    sharing: Ints
    idle_speed: Floats
    paired: Bools
    age_s: Floats
    cost_s: Floats
    moved_lately: Bools


class JoinView(Struct, frozen=True):
    """Gangs (n) that could move to the GPUs of another, to be tried beside it, in columns, to be read only.

    ``age_s`` is that of the younger of both; ``expected`` as in `PackView`; the rest as in `SharingView`.
    """

    gpus: Floats
    age_s: Floats
    cost_s: Floats
    expected: Floats


class MovedView(Struct, frozen=True):
    """Gangs (n) that were moved: steps per second in their part of the time, before and after."""

    before: Floats
    after: Floats


class SizesView(Struct, frozen=True):
    """Elastic gangs (n) that could go on with another number of tasks, in columns, to be read only.

    ``gpus``: those that it has, which do no work while it restarts; ``gained``: how many more would be at work then, in the mean,
    those of all gangs that it concerns. ``grows``: whether it would have more tasks than now. ``age_s``: since when the youngest of these runs; ``cost_s`` as in `SharingView`.
    """

    gpus: Floats
    gained: Floats
    grows: Bools
    age_s: Floats
    cost_s: Floats


class Rebalance(Protocol):
    """Hook `rebalance`: what becomes of gangs that share GPUs, by what was measured."""

    def keep(self, view: PairsView) -> Bools:
        """Which pairs stay together (n); the others take turns again."""
        ...

    def moves(self, view: SharingView) -> Ints:
        """Rows of gangs that are to move to idle GPUs, the first first."""
        ...

    def joins(self, view: JoinView) -> Ints:
        """Rows of gangs that are to move to the GPUs of another, the first first."""
        ...

    def sizes(self, view: SizesView) -> Ints:
        """Rows of gangs that are to go on with another number of tasks, the first first."""
        ...

    def good(self, view: MovedView) -> Bools:
        """Which moves were good (n); the others are taken back, where that can be."""
        ...
