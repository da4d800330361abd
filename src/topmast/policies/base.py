"""The hooks of policies: the order, the cost of a place, where to wait, how to share time.

A hook receives read-only columns and returns numbers; it never sees a machine. A profile names the
policies (`options`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.model.job import Accelerator, JobSpec, Topology
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class QueueView(Struct, frozen=True):
    """Jobs of the queue (n) in columns, to be read only."""

    now_s: float
    band: Ints
    submit_s: Floats
    gpus: Floats
    """Of the whole gang."""
    tasks: Ints
    tenant: Ints
    fairness: Floats
    """1 if the job's tenant used nothing lately, 0 at the tenant's fair share and beyond."""
    duration_s: Floats
    """The whole run, as expected."""
    remaining_s: Floats
    """What is left of the run, as expected."""
    attained_gpu_s: Floats
    """The GPU-seconds that the job has had; after a promotion (`Drifting`), since then."""
    executed_s: Floats
    """How long it has held GPUs; after a promotion (`Drifting`), since then."""
    first_start_s: Floats
    """Infinite for a job that never ran."""
    since_s: Floats
    """When it began to run, or to wait."""
    running: Bools
    turn: Floats
    """The job's place in this round, where time is shared."""


class OrderPolicy(Protocol):
    """Hook `order`: which job is next."""

    by_band: bool
    """A higher effective band goes first, whatever the keys say."""
    by_time: bool
    """Keys change while jobs wait: they must be computed anew now and then."""

    def keys(self, view: QueueView) -> Floats:
        """Priorities (n x k): the lower row, read from left to right, goes first.

        Equal rows go by time of submission, then by number. No NaN.
        """
        ...


@runtime_checkable
class Drifting(OrderPolicy, Protocol):
    """An `OrderPolicy` that ranks by attained service: ranks change at times known beforehand."""

    def drifts_s(self, view: QueueView) -> Floats:
        """When the rank of each job changes by itself (n); inf: never.

        A running job may sink; a waiting job may be promoted to the top, and its attained service
        and executed time start from 0 again. When the time of a running job has come, the hook is
        asked again.
        """
        ...


@runtime_checkable
class Empirical(OrderPolicy, Protocol):
    """An `OrderPolicy` that depends on the service of jobs that succeeded."""

    def learn(self, total_gpu_s: Floats) -> None:
        """Use a sample of the total service of jobs (n), in any order; all keys change."""
        ...


class ScorePolicy(Protocol):
    """Hook `score`: what a place costs, as the prices of the score's terms for one job."""

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The prices for this request."""
        ...


@runtime_checkable
class Shaping(ScorePolicy, Protocol):
    """A `ScorePolicy` that also decides how close to each other the tasks of a job must be."""

    def topology(self, spec: JobSpec, on_one_host: bool) -> Topology:
        """The topology that a job has to have.

        ``on_one_host``: some host would hold all of it when empty.
        """
        ...


class ReservePolicy(Protocol):
    """Hook `reserve`: GPU models that a job gets only after a longer wait."""

    def held_back(self, listed: Sequence[Accelerator], gpus: float) -> tuple[int, ...]:
        """Which accelerators ``listed`` by a job of so many GPUs are held back; never all."""
        ...


class BindView(Struct, frozen=True):
    """The clusters (k, by region and name) that could hold one job when empty, in columns."""

    number: int
    """The job's number."""
    times: int
    """How often the job was bound before."""
    bound: int
    """The row of the cluster where it waits now; -1 if none."""
    region: Ints
    """The region's rank by name."""
    at_home: Bools
    """Whether the cluster is in the job's home region."""
    has_data: Bools
    """Whether its region has all data of the job."""
    gpus: Floats
    load: Floats
    """GPUs wanted and held by jobs bound there over the GPUs present, as last signalled."""


class BindPolicy(Protocol):
    """Hook `bind`: where a job has to wait."""

    whole_region: bool
    """The job may use all clusters of the chosen region."""

    def choose(self, view: BindView) -> int:
        """The row of the cluster chosen; there is at least one."""
        ...


class SharesView(Struct, frozen=True):
    """Jobs (n) that want to share the GPUs of the fleet (m models), in columns, to be read only."""

    ids: tuple[str, ...]
    models: tuple[str, ...]
    gpus: Ints
    """GPUs of the fleet (m)."""
    speeds: Floats
    """Work per second of the whole gang by model (n x m), relative to the job's first choice.

    0 where the job cannot run.
    """
    width: Floats
    """GPUs of the gang (n)."""
    weight: Floats
    left_s: Floats
    """Work left (n), in seconds at speed 1."""
    elapsed_s: Floats
    isolated_s: Floats
    """How long the work done so far would have taken on the job's own share (n)."""
    deadline_s: Floats
    """From now (n); NaN if there is none."""
    submit_s: Floats
    tenant: Ints
    """Rows of ``tenant_weights`` (n)."""
    tenant_weights: Floats
    before: Floats | None = None
    """The fractions that they have had (n x m), 0 for one that is new; None: of no concern."""
    steps_per_s: Floats | None = None
    """At speed 1 (n); None: not known, or not to be counted."""
    pair_rows: Ints | None = None
    """Jobs of one width that may share GPUs at the same time (p x 2); None: no pairs."""
    pair_speeds: Floats | None = None
    """Their speeds when they do (p x m x 2), like ``speeds``."""


class Parts(Struct, frozen=True):
    """The answer of a policy that shares time."""

    fractions: Floats
    """The part of its time that each job runs on each model (n x m)."""
    isolated_speeds: Floats
    """The speed of a job that has the n-th part of every model for itself (n)."""
    named: dict[int, str]
    """By row: why a job gets nothing, or cannot keep its deadline."""
    pair_fractions: Floats | None = None
    """The part of the time of each pair on each model (p x m), if there are pairs."""


class PairSpeeds(Protocol):
    """What was measured of two kinds of work on the same GPUs at the same time."""

    def beside(
        self, one: tuple[str, int], other: tuple[str, int], model: str
    ) -> tuple[float, float] | None:
        """Two jobs' speeds, each relative to running alone; None: unknown, or one makes no
        progress.

        A job is given by its name in the table of speeds and the GPUs of its gang. O(1).
        """
        ...

    def steps_per_s(self, work: tuple[str, int], model: str) -> float | None:
        """Of a job alone; None: not known. O(1)."""
        ...


class SharePolicy(Protocol):
    """Hook `shares`: for which part of the time each job runs, and on which GPU model."""

    moves: bool
    """A running job may be stopped or moved to another model when shares change."""
    fills: bool
    """Waiting jobs get GPUs that are part of no share."""
    every_pair: bool
    """It takes pairs that do less together than in turns."""

    def parts(self, view: SharesView) -> Parts:
        """Fractions of time: at most 1 for a job, and for a model at most its GPUs.

        Raises TopmastError if no answer was found.
        """
        ...


class PackView(Struct, frozen=True):
    """Gangs (n) that run in turns in one cluster, in columns, to be read only."""

    place: Ints
    """Gangs with equal numbers hold the very same GPUs."""
    gpus: Floats
    memory: Floats
    """The used part of each GPU's memory; 0 if unknown."""
    rate: Floats
    """Steps per second alone."""
    failures: Ints
    """How often a trial with another gang failed."""
    may_join: Bools
    """Which two gangs may be tried together now (n x n)."""
    expected: Floats
    """The expected sum of both throughputs, each relative to running alone (n x n).

    It comes from measured pairs of the same kinds; NaN if there are none.
    """


class PackPolicy(Protocol):
    """Hook `pack`: which gangs are to be tried on the same GPUs at the same time."""

    def pairs(self, view: PackView) -> Sequence[tuple[int, int]]:
        """Pairs of rows, the most promising first; each row at most once."""
        ...


class PairsView(Struct, frozen=True):
    """Pairs of gangs (n) on the same GPUs: steps per second of both, alone and together."""

    first_alone: Floats
    first_beside: Floats
    second_alone: Floats
    second_beside: Floats


class SharingView(Struct, frozen=True):
    """Gangs (n) that could move to idle GPUs of their region, in columns, to be read only."""

    gpus: Floats
    sharing: Ints
    """How many gangs share its fullest GPU, itself included."""
    idle_speed: Floats
    """The speed on the fastest model with enough idle GPUs, over its speed now; 0: none."""
    paired: Bools
    """Whether another gang runs on its GPUs at the same time."""
    age_s: Floats
    """How long it has run."""
    cost_s: Floats
    """How long a move keeps it from working."""
    moved_lately: Bools
    """Whether it was moved not long ago."""


class JoinView(Struct, frozen=True):
    """Gangs (n) that could move to another gang's GPUs, to be tried there together, in columns."""

    gpus: Floats
    age_s: Floats
    """That of the younger gang of the two."""
    cost_s: Floats
    """As in `SharingView`."""
    expected: Floats
    """As in `PackView`."""


class MovedView(Struct, frozen=True):
    """Gangs (n) that were moved: steps per second in their part of the time, before and after."""

    before: Floats
    after: Floats


class SizesView(Struct, frozen=True):
    """Elastic gangs (n) that could continue with another number of tasks, in columns."""

    gpus: Floats
    """Those that it has now, which are idle while it restarts."""
    gained: Floats
    """How many more GPUs would work then on average, over all gangs concerned."""
    grows: Bools
    """Whether it would have more tasks than now."""
    age_s: Floats
    """How long the youngest of the gangs concerned has run."""
    cost_s: Floats
    """As in `SharingView`."""


class RebalancePolicy(Protocol):
    """Hook `rebalance`: what to do with gangs that share GPUs, by what was measured."""

    def keep(self, view: PairsView) -> Bools:
        """Which pairs stay together (n); the others take turns again."""
        ...

    def moves(self, view: SharingView) -> Ints:
        """Rows of gangs that move to idle GPUs, in order of preference."""
        ...

    def joins(self, view: JoinView) -> Ints:
        """Rows of gangs that move to the GPUs of another gang, in order of preference."""
        ...

    def sizes(self, view: SizesView) -> Ints:
        """Rows of gangs that continue with another number of tasks, in order of preference."""
        ...

    def good(self, view: MovedView) -> Bools:
        """Which moves were good (n); the others are undone where possible."""
        ...


class Policies(Struct, frozen=True):
    """A profile and the policies that it names."""

    profile: Profile
    order: OrderPolicy
    score: ScorePolicy
    bind: BindPolicy | None = None
    share: SharePolicy | None = None
    reserve: ReservePolicy | None = None
    pack: PackPolicy | None = None
    rebalance: RebalancePolicy | None = None
