"""Jobs: gangs of task groups that start together in one cluster, or not at all."""

from __future__ import annotations

import math
from enum import IntEnum

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

MILLI = 1000
"""GPUs are counted in thousandths, so that shares of a GPU add up exactly."""


class Band(IntEnum):
    """Priority bands; a higher number wins."""

    CRITICAL = 400
    HIGH = 300
    NORMAL = 200
    LOW = 100
    OPPORTUNISTIC = 0


class Level(IntEnum):
    """Levels of the topology, tightest first."""

    HOST = 0
    RACK = 1
    POD = 2
    DATACENTER = 3
    CLUSTER = 4


class Accelerator(Struct, frozen=True, gc=False):
    """One acceptable GPU model of a task, and how many of it a task takes.

    ``model`` None accepts any model. ``gpus_milli`` is in thousandths of a GPU: a multiple of 1000,
    or a share below 1000. ``speed`` is the job's throughput on this model relative to the others.
    """

    model: str | None
    gpus_milli: int
    speed: float = 1.0


class Resources(Struct, frozen=True, gc=False):
    """What one task needs; ``accelerators`` in order of preference, empty for a task without GPUs.

    ``gpu_memory_bytes``: of the memory of each GPU, whole or in shares; 0: as much as its share.
    """

    accelerators: tuple[Accelerator, ...] = ()
    cpus: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0

    def speed_on(self, model: str | None) -> float:
        """Work per second of a task on a GPU model, that of its first choice where it is not listed."""
        listed = self.accelerators
        return next((a.speed for a in listed if a.model == model), listed[0].speed)


class TaskGroup(Struct, frozen=True, gc=False):
    """``count`` identical tasks of one role; ``run`` and ``setup`` are shell scripts.

    An elastic group may also run with fewer or more tasks, from ``min_count`` to ``max_count``; None: it may not.
    """

    name: str
    count: int
    resources: Resources
    run: str
    setup: str = ""
    min_count: int | None = None
    max_count: int | None = None

    @property
    def is_elastic(self) -> bool:
        """Whether it may run with another number of tasks than ``count``."""
        return self.min_count is not None

    @property
    def least(self) -> int:
        """The fewest tasks with which it runs."""
        return self.count if self.min_count is None else self.min_count

    @property
    def most(self) -> int:
        """The most tasks with which it runs."""
        return self.count if self.max_count is None else self.max_count


def speed_of_size(group: TaskGroup, tasks: int, efficiency: float) -> float:
    """The speed of a gang with so many tasks of its elastic group, over that with as many as it asked for.

    ``efficiency``: what a task does, each time their number doubles, over what it did before; 1: the speed is
    in proportion to the tasks.
    """
    ratio = tasks / group.count
    if efficiency == 1.0 or tasks == group.count:
        return ratio
    speed: float = ratio ** (1.0 + math.log2(efficiency))
    return speed


class Topology(Struct, frozen=True, gc=False):
    """How near to one another the tasks of a gang must be, and would like to be."""

    required: Level | None = None
    preferred: Level | None = None


class Checkpoint(Struct, frozen=True, gc=False):
    """Where and how often the job checkpoints, and how long it needs after SIGTERM."""

    path: str = ""
    interval_s: float = 600.0
    grace_s: float = 30.0


class JobSpec(Struct, frozen=True, gc=False):
    """A job as submitted. ``workdir`` is the digest of a snapshot (``sha256:...``), or empty.

    ``duration_s`` is how long its people expect it to run, from its first start to its end. ``home`` is the
    region, or the cluster, where they would go by hand; empty: none is named. ``deadline_s``: how long after its submission
    it should be over. ``skew``: the share of the model's parameters that its largest tensor holds; None: not known.
    ``work``: what a table of measured speeds calls it, where there is one.
    """

    name: str
    groups: tuple[TaskGroup, ...]
    tenant: str = "default"
    user: str = ""
    band: Band = Band.NORMAL
    envs: dict[str, str] = {}
    workdir: str = ""
    datasets: tuple[str, ...] = ()
    topology: Topology = Topology()
    checkpoint: Checkpoint = Checkpoint()
    time_limit_s: float | None = None
    max_restarts: int = 3
    preemptible: bool = True
    group: str = ""
    duration_s: float | None = None
    home: str = ""
    deadline_s: float | None = None
    skew: float | None = None
    work: str | UnsetType = UNSET

    @property
    def tasks(self) -> int:
        """The size of the gang."""
        return sum([group.count for group in self.groups])

    @property
    def elastic(self) -> TaskGroup | None:
        """The one group that may run with fewer or more tasks, if there is one. O(groups)."""
        for group in self.groups:
            if group.min_count is not None:
                return group
        return None

    def at_least(self) -> JobSpec:
        """The same job with the fewest tasks with which it runs; itself if it is not elastic. O(groups)."""
        if self.elastic is None:
            return self
        fewest = [replace(g, count=g.least, min_count=None, max_count=None) for g in self.groups]
        return replace(self, groups=tuple(fewest))

    def gpus_milli(self, choice: int = 0) -> int:
        """Thousandths of GPUs of the whole gang when every group takes its ``choice``-th model.

        A group that lists fewer models takes its last.
        """
        milli = 0
        for group in self.groups:
            listed = group.resources.accelerators
            if listed:
                milli += group.count * listed[min(choice, len(listed) - 1)].gpus_milli
        return milli

    def speed_on(self, model: str | None) -> float:
        """Work per second on a GPU model, 1 on the first that is listed; of several groups the slowest decides."""
        speeds = (g.resources.speed_on(model) for g in self.groups if g.resources.accelerators)
        return min(speeds, default=1.0)

    def gpus_by_model(self, choice: int = 0) -> dict[str | None, int]:
        """The same by model; None stands for any model."""
        milli: dict[str | None, int] = {}
        for group in self.groups:
            listed = group.resources.accelerators
            if listed:
                taken = listed[min(choice, len(listed) - 1)]
                milli[taken.model] = milli.get(taken.model, 0) + group.count * taken.gpus_milli
        return milli
