"""What a simulated world is like: overheads, faults, links between scopes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import one_of
from topmast.model.files.wording import in_words
from topmast.model.units import show
from topmast.policies.registry import value_of

PREFIX = "sim."
"""`--set sim.KEY=VALUE` is for the world; other keys are for the profile."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the world, all in seconds unless they say otherwise.

    ``startup_s``: from the launch of an attempt to its first work; ``checkpoint_s``: how long
    work stands still for a checkpoint; ``restore_s``: taking one up again. ``task_mtbf_s`` and
    ``host_mtbf_s``: mean time between failures of a task and of a host, None never;
    ``host_repair_s``: the mean time a host is away. ``latency_s``: of a message between the queue
    and a placer; ``jitter_s``: the mean of what is added at random; ``loss``: the chance that one
    is lost. ``across_hosts``, ``across_racks``, ``across_pods``: the speed of a gang that sits so
    far apart over that on one host, unless the model's skew is known and below ``spread_skew``;
    ``shared_gpu``: of a task on a GPU that others share; ``busy_cpus``: of a task on a host with
    all CPUs held (full speed up to a half). 1 slows no gang. ``elastic_efficiency``: what a task
    of an elastic job does, each time their number doubles, over what it did before. ``switch_s``:
    how long a suspended gang needs to be back at work. ``gpu_busy``: the part of its GPU that a
    job keeps busy alone, where no table tells how two jobs get on beside one another, and
    ``packing_loss`` what two lose besides; ``minibatch_s``: how long a mini-batch takes on the
    reference GPU, where no table says; None: a second, and no figures of mini-batches are given.
    ``plan_s``: how long a plan of data is in the making. ``durations_told``: whether the queue is
    told how long each job will run; None: unless its profile predicts that. ``timeline_s``: the
    interval of `timeline.csv`, None for one that gives about a thousand rows.
    """

    startup_s: float = 30.0
    checkpoint_s: float = 5.0
    restore_s: float = 20.0
    task_mtbf_s: float | None = None
    host_mtbf_s: float | None = None
    host_repair_s: float = 3_600.0
    latency_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    across_hosts: float = 1.0
    across_racks: float = 1.0
    across_pods: float = 1.0
    spread_skew: float = 0.0
    shared_gpu: float = 1.0
    busy_cpus: float = 1.0
    elastic_efficiency: float = 1.0
    switch_s: float = 1.0
    gpu_busy: float = 1.0
    packing_loss: float = 0.05
    minibatch_s: float | None = None
    plan_s: float = 60.0
    timeline_s: float | None = None
    durations_told: bool | None = None

    def without_overheads(self) -> Settings:
        """`--overheads none`: nothing but work takes time."""
        return msgspec.structs.replace(
            self, startup_s=0.0, checkpoint_s=0.0, restore_s=0.0, switch_s=0.0
        )


_SPEEDS = ("across_hosts", "across_racks", "across_pods", "shared_gpu", "busy_cpus")
_AT_MOST = {
    "loss": 0.99,
    "packing_loss": 0.99,
    "gpu_busy": 1.0,
    "elastic_efficiency": 1.0,
    **dict.fromkeys(_SPEEDS, 1.0),
}
_ABOVE_ZERO = (
    *_SPEEDS,
    "gpu_busy",
    "minibatch_s",
    "elastic_efficiency",
    "task_mtbf_s",
    "host_mtbf_s",
    "host_repair_s",
    "timeline_s",
)


def told_apart(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of a profile, and those of the world."""
    own = {key: text for key, text in options.items() if not key.startswith(PREFIX)}
    return own, {key: text for key, text in options.items() if key.startswith(PREFIX)}


def read_settings(options: Mapping[str, str]) -> Settings:
    """The settings of ``--set sim.KEY=VALUE``. Raises InvalidInput for one that does not fit."""
    document = {key.removeprefix(PREFIX): value_of(key, text) for key, text in options.items()}
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        what, place = in_words(error)
        if place in document:
            what += f" {show(str(document[place]))}"
        remedy = one_of(place, Settings.__struct_fields__) if what == "unknown field" else ""
        raise InvalidInput(what, field=f"--set sim.{place}", remedy=remedy) from error
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        if value is None or isinstance(value, bool):
            continue
        low_ok = value > 0 if name in _ABOVE_ZERO else value >= 0
        if not (low_ok and value <= _AT_MOST.get(name, 1e12)):
            raise InvalidInput(f"{value} is out of range", field=f"--set sim.{name}")
    return settings
