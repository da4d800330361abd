"""The compiled preemption search: gangs of one group with whole GPUs, in all regions at once."""

from __future__ import annotations

import numpy as np

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.allocation_table import (
    THRESHOLDS,
    AllocationTable,
    threshold_of,
)
from topmast.fast.region.inventory.arrays import Arrays
from topmast.fast.region.inventory.columns import Floats, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.preemption import kernels
from topmast.fast.region.preemption.host_offers import Scratch
from topmast.fast.region.preemption.price import STOP, Terms
from topmast.fast.region.search.compiled import Spread, choices_in, question_of
from topmast.fast.region.search.kernels import NOWHERE
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights


class Workspace:
    """Room for one search after the other; it grows with the attempts of the index."""

    def __init__(self, index: Index) -> None:
        self._holders = index.holders
        self._scratch: Scratch | None = None

    def scratch(self) -> Scratch:
        """Room for one search to work in."""
        size = len(self._holders.of_region)
        if self._scratch is None or len(self._scratch.fate) != size:
            self._scratch = Scratch(
                fate=np.zeros(size, np.int8),
                spread=np.zeros(size),
                charged=np.zeros(size),
                victim=np.zeros(size, np.bool_),
                gone=np.zeros(size, np.bool_),
            )
        return self._scratch


class PlainPreemption:
    """One search for the victims of least cost, in all clusters of finite cost (C)."""

    def __init__(
        self,
        index: Index,
        ask: PlacementRequest,
        profile: Profile,
        weights: ScoreWeights,
        cluster_cost: Floats,
        now: float,
        may: int,
    ) -> None:
        needs, usable = ask.groups[0].resources, index.arrays.available
        if excluded := index.excluded(ask):
            usable = usable.copy()
            usable[excluded] = False
        self.index = index
        self.arrays: Arrays = index.arrays
        self.held: AllocationTable = index.holders.held
        self.choices = choices_in(index, ask)
        self.question = question_of(index, ask, weights, self.choices, cluster_cost)
        self.terms = Terms(
            threshold=threshold_of(ask.band) if may == STOP else len(THRESHOLDS) - 1,
            now=now,
            min_runtime_s=profile.min_runtime_s,
            restart_s=profile.restart_cost_s,
            per_gpu_s=points(1.0, weights.preemption),
            may=may,
            named=index.holders.named(ask.outranked or ()),
            usable=usable,
            cpus=cpus_of(needs),
            memory=float(needs.memory_bytes),
        )
        """On which terms attempts may be stopped for this gang."""
        self.stops_any = bool(self.choices) and (ask.band > Band.OPPORTUNISTIC or may != STOP)
        self.scratch: Scratch = index.workspace(Workspace).scratch()

    def best(self) -> Spread | None:
        """The place of least score, victims included: one host, or several of a section."""
        if not self.stops_any:
            return None
        q, p = self.question, self.terms
        gang = p._replace(cpus=p.cpus * q.tasks, memory=p.memory * q.tasks)
        cluster, at, seated = kernels.best_place(self.arrays, self.held, q, p, gang, self.scratch)
        if cluster == NOWHERE:
            return None
        rows, tasks, victims = (part.tolist() for part in seated)
        return Spread(cluster, self.choices[at], rows, tasks, victims)
