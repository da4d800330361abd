"""Jobs: gangs of task groups that start together in one cluster, or not at all.

Journals hold a job several times. What is written leaves out the fields that have their default, so
a default of these types never changes: it would change what older journals say.
"""

from __future__ import annotations

import math
from enum import IntEnum

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from topmast.model.dependency import After
from topmast.model.engines import Capability
from topmast.model.sweep import Sweep, SweepPart

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


class Accelerator(Struct, frozen=True, gc=False, cache_hash=True, omit_defaults=True):
    """One acceptable GPU model of a task, and how many GPUs of it a task takes."""

    model: str | None
    """None accepts any model."""
    gpus_milli: int
    """Thousandths of a GPU: a multiple of 1000, or a share below 1000."""
    speed: float = 1.0
    """The job's throughput on this model, relative to the others."""


class Resources(Struct, frozen=True, gc=False, cache_hash=True, omit_defaults=True):
    """What one task needs."""

    accelerators: tuple[Accelerator, ...] = ()
    """In order of preference; empty for a task without GPUs."""
    cpus: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    """Of each GPU, whole or shared; 0: in proportion to the share."""

    def speed_on(self, model: str | None) -> float:
        """Work per second of a task on a GPU model; a model that is not listed counts as the first
        choice.
        """
        listed = self.accelerators
        return next((a.speed for a in listed if a.model == model), listed[0].speed)


class TaskGroup(Struct, frozen=True, gc=False, cache_hash=True, omit_defaults=True):
    """Identical tasks of one role.

    An elastic group may also run with fewer or more tasks than ``count``.
    """

    name: str
    count: int
    """The number of tasks."""
    resources: Resources
    run: str
    """A shell script."""
    setup: str = ""
    """A shell script that runs before ``run``."""
    min_count: int | None = None
    """The fewest tasks of an elastic group; None: it is not elastic."""
    max_count: int | None = None
    """The most tasks of an elastic group; None: it is not elastic."""

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


def needs_of_engine(spec: JobSpec) -> tuple[Capability, ...] | UnsetType:
    """What the engine of a job must be able to do, whatever its tasks take; absent: nothing.

    An image needs containers, as does a Secret of Kubernetes, which is given to them. O(secrets).
    """
    if spec.image is UNSET and spec.secrets is UNSET:
        return UNSET
    in_pods = spec.image is not UNSET or secrets_of(spec, "kubernetes")
    images = (Capability.IMAGES,) if in_pods else ()
    env = (Capability.ENV,) if secrets_of(spec, "env") else ()
    return (*images, *env) or UNSET


def secrets_of(spec: JobSpec, kind: str) -> dict[str, str]:
    """The secrets of a job of a kind, as in ``kind:rest``: the rest of each, by variable."""
    parts = ((name, *text.partition(":")) for name, text in (spec.secrets or {}).items())
    return {name: rest for name, found, _, rest in parts if found == kind}


def in_kubernetes(spec: JobSpec) -> dict[str, tuple[str, str]]:
    """The Secrets of Kubernetes that a job refers to: name and key, by variable."""
    found = {}
    for variable, where in secrets_of(spec, "kubernetes").items():
        name, _, key = where.partition("/")
        found[variable] = (name, key)
    return found


def speed_of_size(group: TaskGroup, tasks: int, efficiency: float) -> float:
    """The speed of a gang with ``tasks`` elastic tasks, relative to the requested number.

    ``efficiency``: each time the number of tasks doubles, the throughput of one task is multiplied
    by it. At 1 the speed is in proportion to the tasks.
    """
    ratio = tasks / group.count
    if efficiency == 1.0 or tasks == group.count:
        return ratio
    speed: float = ratio ** (1.0 + math.log2(efficiency))
    return speed


class Topology(Struct, frozen=True, gc=False, cache_hash=True, omit_defaults=True):
    """How near to one another the tasks of a gang must be, and would like to be."""

    required: Level | None = None
    preferred: Level | None = None


class Checkpoint(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where and how often the job checkpoints, and how long it needs after SIGTERM."""

    path: str = ""
    interval_s: float = 600.0
    grace_s: float = 30.0


class JobSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """A job as submitted."""

    name: str
    groups: tuple[TaskGroup, ...]
    tenant: str = "default"
    user: str = ""
    band: Band = Band.NORMAL
    envs: dict[str, str] = {}
    workdir: str = ""
    """The digest of a snapshot (``sha256:...``), or empty."""
    datasets: tuple[str, ...] = ()
    topology: Topology = Topology()
    checkpoint: Checkpoint = Checkpoint()
    time_limit_s: float | None = None
    max_restarts: int = 3
    preemptible: bool = True
    group: str = ""
    duration_s: float | None = None
    """The user's estimate from the first start to the end."""
    home: str = ""
    """The region or cluster that the user would choose by hand; empty: none is named."""
    deadline_s: float | None = None
    """How long after its submission it should have ended."""
    skew: float | None = None
    """The share of the model's parameters in its largest tensor; None: not known."""
    image: str | UnsetType = UNSET
    """The container image that its tasks run in; absent: that of the cluster, if it has one."""
    work: str | UnsetType = UNSET
    """Its name in a table of measured speeds, if there is one."""
    secrets: dict[str, str] | UnsetType = UNSET
    """Where the tasks find values of variables, by variable: ``file:/PATH`` or ``env:NAME`` of
    their host, or ``kubernetes:SECRET/KEY``. The values themselves come into no message.
    """
    labels: dict[str, str] | UnsetType = UNSET
    """What its user sorts jobs by, by key; absent: nothing."""
    depends_on: dict[str, After] | UnsetType = UNSET
    """What other jobs must have come to before it may start, by job; absent: nothing."""
    sweep: Sweep | UnsetType = UNSET
    """The jobs that a submission becomes; absent: one."""
    part: SweepPart | UnsetType = UNSET
    """Its place in the sweep that it belongs to; absent: none."""

    @property
    def tasks(self) -> int:
        """The size of the gang."""
        return sum([group.count for group in self.groups])

    @property
    def in_sweep(self) -> str:
        """The sweep that it belongs to; empty: none."""
        return self.part.sweep if self.part else ""

    @property
    def elastic(self) -> TaskGroup | None:
        """The one group that may run with fewer or more tasks, if there is one. O(groups)."""
        for group in self.groups:
            if group.min_count is not None:
                return group
        return None

    def at_least(self) -> JobSpec:
        """The same job with the fewest tasks that it can run with; itself if it is not elastic.
        O(groups).
        """
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
                taken = listed[choice] if choice < len(listed) else listed[-1]
                milli += group.count * taken.gpus_milli
        return milli

    def speed_on(self, model: str | None) -> float:
        """Work per second on a GPU model, 1 on the first of the list; the slowest group decides."""
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


class JobChanges(Struct, frozen=True, gc=False):
    """What may be changed of a job that was submitted; an absent field stays as it is."""

    band: Band | UnsetType = UNSET
    time_limit_s: float | UnsetType | None = UNSET
    max_restarts: int | UnsetType = UNSET
    preemptible: bool | UnsetType = UNSET
    duration_s: float | UnsetType | None = UNSET
    """How long it is expected to run in all; None: that is not known."""

    def of(self, spec: JobSpec) -> JobSpec:
        """A spec with the changes."""
        return replace(spec, **self.given())

    def others(self) -> bool:
        """Whether more changes than what is expected, which holds at once."""
        return any(name != "duration_s" for name in self.given())

    def given(self) -> dict[str, object]:
        """The fields that change, by name."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in fields if value is not UNSET}
