"""How much a cluster should ask for: its configured GPUs, corrected by what it lacked and what
lay idle there.

An integral controller for each cluster and GPU model. What waited for a cluster (GPUs, in the
mean over the time since the last plan) raises what it asks for, what was idle there lowers it:

    correction <- clip(correction + gain (unmet - idle)),
    least <= (configured + correction) / configured <= most

It has no leak: a cluster that neither lacks nor wastes anything goes on asking for what it has. A
gain of 0 is the open loop of the published system (RAS, SOSP '21): what was configured is asked
for.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

Key = tuple[str, str]
"""A cluster, and a GPU model."""
Gpus = dict[Key, float]


class Sample(Struct, frozen=True):
    """One look: GPUs that jobs wait for, and GPUs that take work and have none, by cluster and
    model.
    """

    unmet: Gpus
    idle: Gpus


class Mean:
    """The time-weighted mean of samples; each holds until the next."""

    def __init__(self) -> None:
        self._unmet: Gpus = {}
        self._idle: Gpus = {}
        self._last: Sample | None = None
        self._at_s = self._begun_s = 0.0

    def observe(self, sample: Sample, now_s: float) -> None:
        """Take a look into account. O(clusters x models)."""
        self._pass(now_s)
        if self._last is None:
            self._begun_s = now_s
        self._last, self._at_s = sample, now_s

    def take(self, now_s: float) -> Sample:
        """The mean since the last one was taken; a new period begins."""
        self._pass(now_s)
        length_s = now_s - self._begun_s
        if self._last is None or length_s <= 0:
            found = self._last or Sample({}, {})
        else:
            found = Sample(
                {key: sum_ / length_s for key, sum_ in self._unmet.items()},
                {key: sum_ / length_s for key, sum_ in self._idle.items()},
            )
        self._unmet, self._idle = {}, {}
        self._at_s = self._begun_s = now_s
        return found

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._at_s
        if self._last is None or passed_s <= 0:
            return
        for sums, values in ((self._unmet, self._last.unmet), (self._idle, self._last.idle)):
            for key, gpus in values.items():
                sums[key] = sums.get(key, 0.0) + gpus * passed_s
        self._at_s = now_s


class Limits(Struct, frozen=True):
    """``least`` and ``most``: of what is configured, the parts between which a cluster may ask."""

    gain: float = 0.5
    least: float = 0.25
    most: float = 4.0


class Feedback:
    """The corrections of all clusters."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.corrections: Gpus = {}

    def step(self, configured: Mapping[Key, float], seen: Sample) -> Gpus:
        """What every cluster asks for now, having seen so much. O(clusters x models)."""
        limits, found = self.limits, {}
        for key, gpus in configured.items():
            error = seen.unmet.get(key, 0.0) - seen.idle.get(key, 0.0)
            wanted = self.corrections.get(key, 0.0) + limits.gain * error
            low, high = (limits.least - 1.0) * gpus, (limits.most - 1.0) * gpus
            # Clipped here, not only in the request: a long queue must not be remembered for days.
            self.corrections[key] = min(high, max(low, wanted))
            found[key] = gpus + self.corrections[key]
        self.corrections = {key: self.corrections[key] for key in configured}
        return found
