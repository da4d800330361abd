"""The index over the columns of some regions: their arrays side by side, counted by sections.

All regions of a process share one index, so that one kernel call looks at all of them. It is built
when first needed after a region was configured, and kept with each change from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory import allocation_table as holdings
from topmast.fast.region.inventory.allocation_index import AllocationIndex
from topmast.fast.region.inventory.arrays import I64, Arrays
from topmast.fast.region.inventory.columns import Columns
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest

Workspace = TypeVar("Workspace")

LAST_BIT = 61


class Pool:
    """The columns of the regions of one process."""

    def __init__(self) -> None:
        self._columns: dict[str, Columns] = {}
        self._index: Index | None = None

    def put(self, columns: Columns) -> None:
        """Take in the columns of a region, in place of what was known of it."""
        self._columns[columns.region] = columns
        columns.pool = self
        self._index = None

    def index(self) -> Index:
        """The index over all of them. O(1), or O(slots) after a change of configuration."""
        if self._index is None:
            self._index = Index([self._columns[name] for name in sorted(self._columns)])
        return self._index


class Index:
    """`Arrays` over the columns of some regions; ``parts`` are in the order of their names.

    Hosts, clusters and GPU models have numbers of their own here: clusters in the order of (region,
    cluster, time slice), models by name. The columns keep views of their parts of the arrays.
    """

    def __init__(self, parts: Sequence[Columns]) -> None:
        self.parts = list(parts)
        self.part_of = {p.region: p for p in parts}
        amounts = ([p.cpus for p in parts], [p.memory for p in parts])
        sizes = np.stack([_joined(each, np.float64) for each in amounts])
        self.sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        """(2 x H) CPUs and bytes of memory; 0 without a limit."""
        self._workspaces: dict[type[Any], Any] = {}
        """By class, what searches keep with this index (see `workspace`)."""
        self.first_row = _starts([len(p.hosts) for p in parts])
        names = sorted({name for p in parts for name in p.sections.models})
        self.models = {name: number for number, name in enumerate(names)}
        self.host_names = [host.name for p in parts for host in p.hosts]
        self.clusters = [(p.region, *part) for p in parts for part in p.parts]
        """Region, cluster and time slice."""
        self._numbers: dict[tuple[str, str], list[int]] = {}
        for number, (region, name, _) in enumerate(self.clusters):
            self._numbers.setdefault((region, name), []).append(number)
        ends = np.cumsum([0, *(len(p.parts) for p in parts)]).tolist()
        self.spans = {p.region: (ends[n], ends[n + 1]) for n, p in enumerate(parts)}
        """By region, which clusters are its own: the first, and after the last."""
        numbers = np.repeat(np.arange(len(parts)), [len(p.parts) for p in parts])
        self.region_bits: I64 = np.int64(1) << np.minimum(numbers, LAST_BIT).astype(np.int64)
        """(C) the bit of each cluster's region; regions beyond the last bit share it."""
        self.nowhere = np.full(len(self.clusters), np.inf)
        """(C) the cost of clusters that are not asked about."""
        self.slices: I64 | None = None
        """(C) the time slice of each cluster; None where there is only one."""
        if any(p.slices > 1 for p in parts):
            self.slices = np.array([number for _, _, number in self.clusters], np.int64)
        self.of_model = self._of_model(names)
        self.width = max((int(p.gpus.max(initial=0)) for p in parts), default=0) + 1
        """One more than the GPUs of the widest host."""
        self.arrays = self._arrays()
        self.version: I64 = np.zeros(len(self.arrays.whole), np.int64)
        """(H) grows when what is free of a host has changed, or whether it is in service."""
        self.changes: I64 = np.zeros(len(self.clusters), np.int64)
        """(C) grows with the version of any host of the cluster."""
        self.cluster_of: I64 = _joined(
            [p.sections.cluster + self.spans[p.region][0] for p in parts]
        )
        """(H) the number of the host's cluster."""
        self.holders = AllocationIndex(self.arrays, [p.region for p in parts])
        for number, part in enumerate(parts):
            changes = self.changes[slice(*self.spans[part.region])]
            first_row = int(self.first_row[number])
            part.adopt(self.holders, self.arrays, self.version, changes, first_row)
            for allocation in part.allocations.values() if part.watched else ():
                self.holders.enter(part, allocation)
        holdings.count_all(self.holders.counted, self.holders.held)

    def workspace(self, kind: type[Workspace]) -> Workspace:
        """What searches of one kind keep with this index: ``kind(self)``, made at its first use."""
        found = self._workspaces.get(kind)
        if found is None:
            self._workspaces[kind] = found = kind(self)  # type: ignore[call-arg]
        return found

    def changed(self, hosts: I64) -> None:
        """What is free of these hosts is other than before. O(hosts)."""
        self.version[hosts] += 1
        self.changes[self.cluster_of[hosts]] += 1

    def bits_of(self, regions: Iterable[str]) -> int:
        """The bits of some regions; 0 for one without clusters. O(regions)."""
        bits = 0
        for region in regions:
            first, last = self.spans.get(region, (0, 0))
            bits |= int(self.region_bits[first]) if first < last else 0
        return bits

    def numbers_of(self, region: str, cluster: str) -> list[int]:
        """The numbers of a cluster, one for each time slice; none if it is not known. O(slices)."""
        return self._numbers.get((region, cluster), [])

    def hosts_in(self, section: int) -> I64:
        """The rows of the hosts of a section, in order."""
        a = self.arrays
        return a.members[a.member_start[section] : a.member_start[section + 1]]

    def excluded(self, ask: PlacementRequest) -> list[int]:
        """The rows that the gang may not use, as `Columns.excluded`. O(names * regions + these)."""
        if not (ask.avoid_hosts or ask.reserved or ask.capabilities):
            return []  # as for most jobs: not one look for each region
        return [p.first_row + row for p in self.parts for row in p.excluded(ask)]

    def _of_model(self, names: list[str]) -> list[NDArray[np.bool_]]:
        models = _joined([p.models for p in self.parts], object)
        return [np.asarray(models == name, dtype=np.bool_) for name in names]

    def _arrays(self) -> Arrays:
        parts = self.parts
        gpus = _joined([p.gpus for p in parts])
        first_section = _starts([p.sections.count for p in parts])
        section = [p.sections.of_host + first_section[n] for n, p in enumerate(parts)]
        members = [p.sections.members + self.first_row[n] for n, p in enumerate(parts)]
        hist_start = _starts(_joined([p.sections.widths for p in parts]))
        return Arrays(
            free_milli=_joined([p.free_milli for p in parts]),
            offset=_starts(gpus),
            whole=_joined([p.whole_free() for p in parts]),
            available=_joined([p.available for p in parts], np.bool_),
            free_cpus=_joined([p.free_cpus for p in parts], np.float64),
            free_memory=_joined([p.free_memory for p in parts], np.float64),
            section=np.concatenate(section, axis=1) if parts else np.zeros((4, 0), np.int64),
            hist=np.zeros(int(hist_start[-1]), np.int64),
            hist_start=hist_start,
            members=_joined(members),
            member_start=_starts(_joined([p.sections.sizes for p in parts])),
            by_cluster=self._by_cluster(first_section),
        )

    def _by_cluster(self, first_section: I64) -> I64:
        """The spans of the regions' clusters, with the models numbered as they are here."""
        spans: I64 = np.zeros((len(self.clusters), max(1, len(self.models)), 4, 2), np.int64)
        at = 0
        for number, part in enumerate(self.parts):
            own = part.sections.by_cluster
            for model, name in enumerate(part.sections.models):
                there = own[:, model, :, 1:] > 0
                shifted = np.where(there, own[:, model] + first_section[number], 0)
                spans[at : at + len(own), self.models[name]] = shifted
            at += len(own)
        return spans

    def old_enough_at_s(self, band: Band, min_runtime_s: float, now: float) -> dict[str, float]:
        """By region: when an attempt of a lower band is next old enough to stop. O(attempts)."""
        k = holdings.threshold_of(band)
        of_region, held = self.holders.of_region, self.holders.held
        times_s = holdings.older_at(held, of_region, len(self.parts), k, now, min_runtime_s)
        found = zip(self.parts, times_s.tolist(), strict=True)
        return {part.region: at_s for part, at_s in found if at_s < np.inf}


def index_of(columns: Columns) -> Index:
    """The index that covers these columns and those of their pool; built if need be."""
    if columns.pool is None:
        Pool().put(columns)
    assert isinstance(columns.pool, Pool)
    return columns.pool.index()


def _joined(parts: Sequence[NDArray[Any]], dtype: Any = np.int64) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _starts(sizes: Any) -> I64:
    """Where each of some runs begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)
