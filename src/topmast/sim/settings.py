"""What a simulated world is like: overheads, faults, links between scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.files.wording import in_words
from topmast.model.units import show
from topmast.policies.registry import value_of

PREFIX = "sim."
"""`--set sim.KEY=VALUE` is for the world; other keys are for the profile."""
GPU_SPEED = f"{PREFIX}gpu_speed."
"""The name of a GPU model follows."""
FASTEST, SLOWEST = 100.0, 0.01
"""Of `gpu_speed`."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the world, all in seconds unless they say otherwise."""

    startup_s: float = 30.0
    """From the launch of an attempt to its first work."""
    checkpoint_s: float = 5.0
    """How long work stands still for a checkpoint."""
    restore_s: float = 20.0
    """How long an attempt needs to take up a checkpoint."""
    task_mtbf_s: float | None = None
    """Mean time between failures of a task; None: never."""
    host_mtbf_s: float | None = None
    """Mean time between failures of a host; None: never."""
    host_repair_s: float = 3_600.0
    """Mean time that a failed host is away."""
    latency_s: float = 0.0
    """Of a message between the queue and a placer."""
    jitter_s: float = 0.0
    """Mean of what is added to the latency at random."""
    loss: float = 0.0
    """Chance that such a message is lost."""
    across_hosts: float = 1.0
    """Speed of a gang on several hosts of a rack, over that on one host; 1: as fast."""
    across_racks: float = 1.0
    """The same of a gang on several racks of a pod."""
    across_pods: float = 1.0
    """The same of a gang on several pods."""
    spread_skew: float = 0.0
    """Models with a known skew below this lose no speed where a gang is spread."""
    shared_gpu: float = 1.0
    """Speed of a task on a GPU that others share."""
    busy_cpus: float = 1.0
    """Speed of a task on a host with all CPUs held; full speed up to a half of them."""
    gpu_speed: dict[str, float] = {}
    """By GPU model: how fast work really goes there, over what the job says of it."""
    elastic_efficiency: float = 1.0
    """What each task of an elastic job does over what it did before, when their number doubles."""
    switch_s: float = 1.0
    """How long a suspended gang needs to be back at work."""
    gpu_busy: float = 1.0
    """Part of its GPU that a job keeps busy alone, where no table has the speed of the pair."""
    packing_loss: float = 0.05
    """What two jobs on the same GPU lose besides."""
    minibatch_s: float | None = None
    """Time of a mini-batch on the reference GPU, where no table has it; None: a second, and no
    figures of mini-batches are given.
    """
    plan_s: float = 60.0
    """How long a plan of the slow path is in the making."""
    timeline_s: float | None = None
    """Interval of `timeline.csv`; None: one that gives about a thousand rows."""
    durations_told: bool | None = None
    """Whether the queue is told how long each job will run; None: unless its profile predicts."""

    def without_overheads(self) -> Settings:
        """`--overheads none`: nothing but work takes time."""
        none = {key.removeprefix(PREFIX): 0.0 for key in OVERHEADS}
        return msgspec.structs.replace(self, **none)


OVERHEADS = tuple(
    f"{PREFIX}{key}" for key in ("startup_s", "checkpoint_s", "restore_s", "switch_s")
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


ROUNDS = ROUNDS_ALONE, ROUNDS_SHARED = "rounds_s", "shares.round_s"
"""Options of a profile that are found beside those of the world: of one that shares no time, and of
one that does.
"""


def told_apart(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of a profile, and those of the world."""
    own = {key: text for key, text in options.items() if not key.startswith(PREFIX)}
    return own, {key: text for key, text in options.items() if key.startswith(PREFIX)}


def read_settings(options: Mapping[str, str]) -> Settings:
    """The settings of ``--set sim.KEY=VALUE``. Raises InvalidInput, with each that does not fit."""
    faults, document = Faults(), dict[str, Any]()
    for key, text in options.items():
        if not key.startswith(GPU_SPEED):
            document |= faults.rest_of(partial(_setting, key, text)) or {}
    document["gpu_speed"] = faults.of(lambda: _gpu_speeds(options))
    faults.refuse()
    return msgspec.convert(document, Settings)


def _setting(key: str, text: str) -> dict[str, Any]:
    """One setting, by its name. Raises InvalidInput if there is none such, or it does not fit."""
    name, value = key.removeprefix(PREFIX), value_of(key, text)
    try:
        read = getattr(msgspec.convert({name: value}, Settings), name)
    except msgspec.ValidationError as error:
        what, place = in_words(error)
        remedy = ""
        if what == "unknown field":
            what, remedy = "there is no such option", _meant(place)
        elif place == name:
            what += f" {show(str(value))}"
        raise InvalidInput(what, field=f"--set {PREFIX}{place}", remedy=remedy) from error
    if read is None or isinstance(read, bool | dict):
        return {name: value}
    most, above_zero = _AT_MOST.get(name, 1e12), name in _ABOVE_ZERO
    if not ((read > 0 if above_zero else read >= 0) and read <= most):
        remedy = f"above 0, at most {most:g}" if above_zero else f"from 0 to {most:g}"
        raise InvalidInput(f"{read} is out of range", field=f"--set {key}", remedy=remedy)
    return {name: value}


def read_foreseen(options: Mapping[str, str], command: str) -> Settings:
    """The world of a look ahead: what `calibrate` found of it; no overheads but these.

    Raises InvalidInput for other options: a look ahead draws no faults and loses no messages.
    """
    for key in options:
        if key not in OVERHEADS and not key.startswith(GPU_SPEED):
            raise InvalidInput(
                f"is not an option of {command}", field=f"--set {key}",
                remedy=f"of the world: {', '.join(OVERHEADS)}, {GPU_SPEED}MODEL",
            )  # fmt: skip
    return read_settings({**dict.fromkeys(OVERHEADS, "0"), **options})


def _meant(name: str) -> str:
    known = [f"{PREFIX}{field}" for field in Settings.__struct_fields__]
    return nearest(f"{PREFIX}{name}", known) or one_of(name, known)


def _gpu_speeds(options: Mapping[str, str]) -> dict[str, float]:
    """By GPU model, of the keys that begin with `GPU_SPEED`."""
    found = {}
    for key, text in options.items():
        if not key.startswith(GPU_SPEED):
            continue
        speed = value_of(key, text)
        if isinstance(speed, bool) or not isinstance(speed, int | float):
            raise InvalidInput(f"{show(text)} is not a number", field=f"--set {key}")
        if not SLOWEST <= speed <= FASTEST:
            raise InvalidInput(
                f"{text} is out of range", field=f"--set {key}",
                remedy=f"from {SLOWEST:g} to {FASTEST:g}; 1: as fast as the job says",
            )  # fmt: skip
        found[key.removeprefix(GPU_SPEED)] = float(speed)
    return found


def check_models(settings: Settings, models: Sequence[str]) -> None:
    """Raises InvalidInput for the speed of a GPU model that the fleet lacks."""
    for model in settings.gpu_speed:
        if model not in models:
            raise InvalidInput(
                "the fleet has no such GPU model", field=f"--set {GPU_SPEED}{model}",
                remedy=one_of(model, models),
            )  # fmt: skip
