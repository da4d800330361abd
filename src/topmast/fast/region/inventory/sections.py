"""The sections of a region: the hosts of one GPU model in one domain of the topology, numbered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topmast.fast.region.inventory.arrays import I64
from topmast.model.job import Level

LEVELS = (Level.RACK, Level.POD, Level.DATACENTER, Level.CLUSTER)


class Sections:
    """How the hosts of one region (H) fall into S sections; fixed by its configuration.

    Those of one cluster, model and level stand next to one another. Hosts without GPUs share one
    section that no gang requests: the last.
    """

    def __init__(
        self,
        clusters: Sequence[tuple[str, int]],
        cluster_of: Sequence[tuple[str, int]],
        models: I64,
        gpus: I64,
        domain: I64,
    ) -> None:
        """``cluster_of`` (H): cluster and slice; ``models`` (H): names; ``domain`` (levels x H).

        O(H log H).
        """
        count = len(gpus)
        self.models: list[str] = sorted(set(models[gpus > 0].tolist()))
        number = {name: at for at, name in enumerate(self.models)}
        place = {part: at for at, part in enumerate(clusters)}
        self.cluster: I64 = np.array([place[part] for part in cluster_of], dtype=np.int64)
        """(H) the number of each host's cluster and slice."""
        model: I64 = np.array([number.get(name, 0) for name in models.tolist()], dtype=np.int64)
        group = (self.cluster * max(1, len(self.models)) + model) * len(LEVELS)
        keys = np.stack([(group + at) * (count + 1) + domain[lv] for at, lv in enumerate(LEVELS)])
        known, numbers = np.unique(keys[:, gpus > 0], return_inverse=True)
        self.count = len(known) + 1
        self.of_host: I64 = np.full((len(LEVELS), count), len(known), np.int64)
        """(4 x H) the host's section at each level."""
        self.of_host[:, gpus > 0] = numbers.reshape(len(LEVELS), -1)
        shape = (len(clusters), len(self.models), len(LEVELS), 2)
        self.by_cluster: I64 = _spans(known // (count + 1), shape)
        """(C x models x 4 x 2) where those of a cluster, model and level begin and end."""
        self.members, self.sizes = _members(self.of_host, self.count)
        self.widths = self._widths(gpus)
        """(S) one more than the GPUs of the widest host."""

    def _widths(self, gpus: I64) -> I64:
        widest: I64 = np.zeros(self.count, np.int64)
        for of_host in self.of_host:
            np.maximum.at(widest, of_host, gpus)
        return widest + 1


def _spans(groups: I64, shape: tuple[int, ...]) -> I64:
    """Where each group's run begins and ends in ``groups``, which is sorted."""
    spans: I64 = np.zeros((int(np.prod(shape[:-1])), 2), np.int64)
    numbers, starts, counts = np.unique(groups, return_index=True, return_counts=True)
    spans[numbers, 0] = starts
    spans[numbers, 1] = starts + counts
    return spans.reshape(shape)


def _members(of_host: I64, count: int) -> tuple[I64, I64]:
    """The hosts of every section one after the other, in order, and how many each has."""
    flat = of_host.ravel()
    hosts = np.tile(np.arange(of_host.shape[1], dtype=np.int64), of_host.shape[0])
    order = np.argsort(flat, kind="stable")
    return hosts[order], np.bincount(flat, minlength=count).astype(np.int64)
