"""The index over a region's columns: sections of the topology by GPU model, kept with each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topmast.fast.placement import kernels
from topmast.fast.placement.kernels import I64, Arrays
from topmast.model.job import Level

if TYPE_CHECKING:
    from topmast.fast.placement.columns import Columns

LEVELS = (Level.RACK, Level.POD, Level.DATACENTER, Level.CLUSTER)
WIDEST_HOST = 1024
"""Hosts with more GPUs than that are not indexed: their region is searched host by host."""


class Index:
    """`Arrays` that share their memory with the columns, and the numbers of models and clusters."""

    def __init__(self, columns: Columns) -> None:
        models = sorted({h.model for h in columns.hosts if h.gpus})
        self.models = {name: number for number, name in enumerate(models)}
        self.clusters = sorted(columns.clusters)
        self.cluster_number = {name: number for number, name in enumerate(self.clusters)}
        self.of_model = [np.asarray(columns.models == name, dtype=np.bool_) for name in models]
        section, by_cluster, sections = self._sections(columns)
        members, member_start = _members(section, len(sections))
        width = int(columns.gpus.max(initial=0)) + 1
        self.arrays = Arrays(
            free_milli=columns.free_milli,
            offset=columns.offset,
            whole=columns.whole_free(),
            available=columns.available,
            section=section,
            hist=np.zeros((len(sections) + 1, width), np.int64),
            member_start=member_start,
            members=members,
            by_cluster=by_cluster,
            sections=sections,
        )
        for level in range(len(LEVELS)):
            rows = np.flatnonzero(columns.available)
            np.add.at(self.arrays.hist, (section[level][rows], self.arrays.whole[rows]), 1)

    def _sections(self, columns: Columns) -> tuple[I64, I64, I64]:
        """Number the sections; those of one cluster, model and level stand next to one another.

        Hosts without GPUs share one section that nobody asks for: the last.
        """
        count = len(columns.hosts)
        section: I64 = np.zeros((len(LEVELS), count), np.int64)
        keys: dict[tuple[int, int, int, int], int] = {}
        for at, level in enumerate(LEVELS):
            for row, host in enumerate(columns.hosts):
                if host.gpus:
                    cluster = self.cluster_number[columns.cluster_of[row]]
                    domain = int(columns.domain[level, row])
                    keys.setdefault((cluster, self.models[host.model], at, domain), 0)
        by_cluster: I64 = np.zeros((len(self.clusters), len(self.models), 4, 2), np.int64)
        for number, key in enumerate(sorted(keys)):
            keys[key] = number
            cluster, model, at, _ = key
            span = by_cluster[cluster, model, at]
            if span[1] == 0:
                span[0] = number
            span[1] = number + 1
        for at, level in enumerate(LEVELS):
            for row, host in enumerate(columns.hosts):
                number = len(keys)
                if host.gpus:
                    cluster = self.cluster_number[columns.cluster_of[row]]
                    domain = int(columns.domain[level, row])
                    number = keys[cluster, self.models[host.model], at, domain]
                section[at, row] = number
        return section, by_cluster, np.arange(len(keys), dtype=np.int64)

    def refresh(self, row: int) -> None:
        """A host's slots have changed. O(its slots)."""
        kernels.refresh(self.arrays, row)

    def serve(self, row: int, available: bool) -> None:
        """A host goes in or out of service. O(levels)."""
        kernels.serve(self.arrays, row, available)


def _members(section: I64, count: int) -> tuple[I64, I64]:
    """The hosts of every section, in order, and where each section's begin."""
    lists: list[list[int]] = [[] for _ in range(count)]
    for level in range(section.shape[0]):
        for row, number in enumerate(section[level].tolist()):
            if number < count:
                lists[number].append(row)
    start = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    flat = [row for x in lists for row in x]
    return np.array(flat, dtype=np.int64), start
