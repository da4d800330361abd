"""What a gang can do on each GPU model: its speed there, its GPUs, and by which choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.cycle.early_binding import could_hold
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.model.job import MILLI, JobSpec
from topmast.policies.base import Floats, Ints


class Kind(Struct, frozen=True):
    """Gangs that ask for the same, on the models of a fleet (m).

    ``speeds`` (m): work per second, 1 on the first model listed; 0 where no cluster could hold it.
    ``milli`` (m): thousandths of GPUs there; ``choice`` (m): which accelerator, -1 for none.
    """

    speeds: Floats
    milli: Ints
    choice: Ints

    @property
    def width(self) -> float:
        """GPUs of the whole gang, where it takes most."""
        return int(self.milli.max(initial=0)) / MILLI

    @property
    def runs(self) -> bool:
        """Whether it runs on any one model at all."""
        return bool(self.speeds.any())

    def among(self, choices: Collection[int]) -> Kind:
        """The same, where only some choices may be taken now; itself, if that is all. O(m)."""
        if all(choice < 0 or choice in choices for choice in self.choice.tolist()):
            return self
        may = np.isin(self.choice, list(choices))
        speeds, milli = np.where(may, self.speeds, 0.0), np.where(may, self.milli, 0)
        return Kind(speeds, milli, np.where(may, self.choice, -1))


class Kinds:
    """The kinds that have been asked for, on one fleet; each is looked at once."""

    def __init__(self, fleet: Fleet, entitlements: Entitlements) -> None:
        self.models = fleet.models()
        self._entitlements = entitlements
        self._clusters = [(r.name, c) for r in fleet.regions for c in r.clusters]
        self._known: dict[object, Kind] = {}

    def of(self, spec: JobSpec, regions: frozenset[str] | None = None) -> Kind:
        """The kind of a job, in some regions or in all.

        O(choices x hosts) the first time, then O(groups + regions).
        """
        key = (regions, *((g.count, g.resources) for g in spec.groups))
        kind = self._known.get(key)
        if kind is None:
            there = [c for name, c in self._clusters if regions is None or name in regions]
            kind = self._known[key] = self._look(spec, there)
        return kind

    def _look(self, spec: JobSpec, clusters: Sequence[ClusterSpec]) -> Kind:
        """A choice of several models at once for a group is none: its time cannot be divided."""
        speeds, milli = np.zeros(len(self.models)), np.zeros(len(self.models), np.int64)
        choices = np.full(len(self.models), -1)
        for choice, wanted in enumerate(self._entitlements.wanted(spec)):
            model = next(iter(wanted), "")
            if len(wanted) != 1 or model not in self.models or not wanted[model]:
                continue
            at = self.models.index(model)
            taken = self._entitlements.taken(spec, choice)
            only = self._entitlements.with_only(spec, choice)
            if choices[at] < 0 and any(could_hold(cluster, only) for cluster in clusters):
                speeds[at] = min(a.speed for a in taken if a is not None)
                milli[at], choices[at] = wanted[model], choice
        return Kind(speeds, milli, choices)
