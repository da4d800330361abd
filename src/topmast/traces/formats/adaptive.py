"""Jobs that change their batch size while they run, as Shockwave's traces have them.

Shockwave (Zheng et al., NSDI '23) runs two such rules: *accordion* trains with the largest batch
outside of critical regimes, *gns* doubles the batch when the gradient's noise allows it. The public
code fixes, for each network, the epochs at which that happens; so do the tables here. A larger
batch is more samples a second: the epochs that remain are shorter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import groupby

from msgspec import Struct

STATIC, ACCORDION, GNS = "static", "accordion", "gns"
MODES = (STATIC, ACCORDION, GNS)
SAMPLES = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "A3C": 4,
    "CycleGAN": 6_287,
}
"""Of the data set of each network: what an epoch goes through."""
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "LM": 80, "Recommendation": 8_192}
"""The largest batch of a network that adapts."""
FIRST_PART = 0.3
"""So much of a job's epochs count as critical under `ACCORDION`, whatever the network."""
MOST_EPOCHS = 1_000_000
"""Of a job; one that has more is taken as static."""
_TYPE = re.compile(r"(.+) \(batch size ([0-9]{1,9})\)")

_DOUBLES: dict[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71),
    ("ResNet-18", 32, 1): (21, 31, 51),
    ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,),
    ("ResNet-18", 16, 2): (21, 31, 91, 111),
    ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41),
    ("ResNet-18", 128, 2): (41,),
    ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61),
    ("ResNet-18", 64, 4): (11, 61),
    ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,),
    ("ResNet-50", 32, 2): (101, 111),
    ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221),
    ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71),
    ("LM", 10, 1): (11, 21, 41),
    ("LM", 20, 1): (11, 41),
    ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71),
    ("LM", 10, 2): (11, 31, 41),
    ("LM", 20, 2): (31, 41),
    ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91),
    ("LM", 10, 4): (11, 31, 61),
    ("LM", 20, 4): (11, 61),
    ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91),
    ("Recommendation", 1_024, 1): (21, 51, 91),
    ("Recommendation", 2_048, 1): (21, 41),
    ("Recommendation", 4_096, 1): (41,),
}
"""By network, first batch and GPUs: the epochs from which on the batch is twice as large."""

Rate = Callable[[str], float | None]
"""Steps a second of a job type on the GPUs of the job; None: not known."""


class Run(Struct, frozen=True):
    """How long a job runs, and how long it was thought to run, all in seconds."""

    duration_s: float
    told_s: float
    """At submission: as if it kept its first batch."""
    later: tuple[tuple[float, float], ...]
    """At each change of the batch: the time run by then, and how long it will run in all if this
    one stays.
    """


def run_of(job_type: str, mode: str, gpus: int, steps: float, rate: Rate) -> Run:
    """The run of a job of so many steps at its first batch. O(epochs).

    ``rate`` has to know ``job_type`` itself; of a batch that it does not know the job makes none.
    """
    first = rate(job_type)
    assert first is not None
    told_s = steps / first
    found = _TYPE.fullmatch(job_type)
    if found is None or found[1] not in SAMPLES:
        return Run(told_s, told_s, ())
    model, batch = found[1], int(found[2])
    epochs = steps / _steps(model, batch)
    if mode == STATIC or not 1 < epochs < MOST_EPOCHS:
        return Run(told_s, told_s, ())
    done, spent_s, epoch_s, later = 0.0, 0.0, told_s / epochs, []
    for count, own_batch in _batches(model, batch, gpus, mode, math.ceil(epochs)):
        own_rate = rate(f"{model} (batch size {own_batch})")
        before_s = epoch_s
        epoch_s = epoch_s if own_rate is None else _steps(model, own_batch) / own_rate
        if done and epoch_s != before_s:
            later.append((spent_s, spent_s + (epochs - done) * epoch_s))
        part = min(count, epochs - done)
        done, spent_s = done + part, spent_s + part * epoch_s
    return Run(spent_s, told_s, tuple(later))


def _steps(model: str, batch: int) -> int:
    """Of one epoch."""
    return math.ceil(SAMPLES[model] / batch)


def _batches(
    model: str, batch: int, gpus: int, mode: str, epochs: int
) -> Iterator[tuple[int, int]]:
    """For how many epochs the job has which batch, in order."""
    own = _accordion if mode == ACCORDION else _gns
    sizes = (own(model, batch, gpus, epoch, epochs) for epoch in range(epochs))
    return ((sum(1 for _ in same), size) for size, same in groupby(sizes))


def _accordion(model: str, batch: int, gpus: int, epoch: int, epochs: int) -> int:
    """The largest batch outside of critical regimes: where the gradients change fast."""
    if model not in LARGEST or epoch <= epochs * FIRST_PART:
        return batch
    within = {
        "ResNet-18": epoch < (20 if batch == 256 else 10) or epoch in _LATE_18,
        "ResNet-50": epoch % 30 < 10,
        "LM": epoch < 10,
        "Recommendation": epoch < _HEAD.get(batch, 10) or epoch in _LATE_RECOMMENDATION,
    }
    return batch if within[model] else LARGEST[model]


_LATE_18 = (*range(150, 160), *range(250, 260))
_LATE_RECOMMENDATION = (*range(60, 70), *range(80, 90))
_HEAD = {512: 30, 1_024: 30, 2_048: 40}


def _gns(model: str, batch: int, gpus: int, epoch: int, epochs: int) -> int:
    doubled = sum(epoch >= at for at in _DOUBLES.get((model, batch, gpus), ()))
    return min(LARGEST.get(model, batch), batch << doubled)
