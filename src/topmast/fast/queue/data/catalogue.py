"""The data catalogue: which region holds which dataset, what is being copied, what a copy costs."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from topmast.fast.queue.data.deletions import Deletions
from topmast.model.dataset import Copy, Deletion, Paths, ReplicaState
from topmast.model.fleet import DatasetSpec, Fleet, Link
from topmast.model.reason import Rejection, ruled_out

RETRY_COPY_S = 30.0
"""How long a failed copy is not tried again."""


class DatasetRecord(Struct):
    """A dataset and its replicas by region."""

    spec: DatasetSpec
    replicas: dict[str, ReplicaState] = {}


class DataCost(Struct, frozen=True):
    """What stands between a region and a job's data."""

    missing: tuple[tuple[str, str], ...] = ()
    """(dataset, region to copy it from); empty when all is there."""
    bytes: int = 0
    seconds: float = 0.0
    barred: Rejection | None = None
    """Why no copy can help."""
    detail: str = ""
    copying: bool = False
    """Every missing dataset is on its way already."""
    retry_at_s: float | None = None
    """When ``barred`` is over, if that is known."""

    @property
    def why(self) -> str:
        """Why the region is ruled out, in words; empty if it is not."""
        return "" if self.barred is None else ruled_out(self.barred, self.detail)


class Catalogue:
    """Datasets, replicas, copies in flight; changed only through the methods below."""

    def __init__(self) -> None:
        self.datasets: dict[str, DatasetRecord] = {}
        self.copies: dict[str, Copy] = {}
        self.failed: dict[str, float] = {}
        self.deletions = Deletions()
        self.links: dict[tuple[str, str], Link] = {}
        self.storage_bytes: dict[str, int | None] = {}
        self.paths = Paths()
        self._stored_bytes: dict[str, int] = {}
        """By region, of all replicas and deletions: what they say, added up as they change."""
        self._under_way: dict[tuple[str, str], Copy] = {}
        """The copies by dataset and the region they go to."""

    def restore(
        self,
        datasets: dict[str, DatasetRecord],
        copies: dict[str, Copy],
        failed: dict[str, float],
        deletions: list[Deletion],
    ) -> None:
        """Take up what a snapshot holds. O(replicas + copies + deletions)."""
        self.datasets, self.copies, self.failed = datasets, copies, failed
        self.paths, self._stored_bytes = Paths(), {}
        for record in datasets.values():
            self.paths.add(record.spec.name, record.spec.path)
            for region in record.replicas:
                self._store(region, record.spec.size_bytes)
        self._under_way = {(copy.dataset, copy.target): copy for copy in copies.values()}
        self.deletions = Deletions(deletions)
        for deletion in deletions:
            self._store(deletion.region, deletion.bytes)

    def configure(self, fleet: Fleet) -> None:
        """Take up links and storage, and datasets not known yet; known ones keep their replicas."""
        self.links = {(link.source, link.target): link for link in fleet.links}
        self.storage_bytes = {r.name: r.storage_bytes for r in fleet.regions}
        for spec in fleet.datasets:
            if spec.name not in self.datasets:
                self.add(spec)

    def add(self, spec: DatasetSpec) -> None:
        """Enter a dataset and its complete replicas."""
        if spec.name in self.datasets:
            for region in list(self.datasets[spec.name].replicas):
                self.drop(spec.name, region)
            self.paths.remove(spec.name, self.datasets[spec.name].spec.path)
        self.paths.add(spec.name, spec.path)
        replicas = dict.fromkeys(spec.replicas, ReplicaState.COMPLETE)
        self.datasets[spec.name] = DatasetRecord(spec, replicas)
        for region in replicas:
            self._store(region, spec.size_bytes)

    def _store(self, region: str, more_bytes: int) -> None:
        self._stored_bytes[region] = self._stored_bytes.get(region, 0) + more_bytes

    def unknown(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that the catalogue does not have."""
        return tuple(name for name in names if name not in self.datasets)

    def stored_bytes(self, region: str) -> int:
        """Bytes of all replicas of a region, those on their way or being deleted included. O(1)."""
        return self._stored_bytes.get(region, 0)

    def cost(self, names: Iterable[str], region: str, now: float) -> DataCost:
        """What it takes to have all of ``names`` in ``region``. O(datasets named x regions)."""
        missing: list[tuple[str, str]] = []
        total_bytes = 0
        ordered_bytes = 0
        seconds = 0.0
        copying = True
        for name in names:
            record = self.datasets[name]
            spec = record.spec
            if spec.allowed is not None and region not in spec.allowed:
                return DataCost(barred=Rejection.RESIDENCY, detail=name)
            if record.replicas.get(region) is ReplicaState.COMPLETE:
                continue
            source = self.source(name, region)
            if source is None or self.deletions.at(region, spec.path) is not None:
                return DataCost(barred=Rejection.DATA_UNREACHABLE, detail=name)
            on_the_way = self.copy_to(name, region)
            if on_the_way is None:
                copying = False
                retry_at_s = self.failed.get(f"{name}@{region}", 0.0)
                if retry_at_s > now:
                    unreachable = Rejection.DATA_UNREACHABLE
                    return DataCost(barred=unreachable, detail=name, retry_at_s=retry_at_s)
                ordered_bytes += spec.size_bytes
                if not self.has_space(region, ordered_bytes):
                    return DataCost(barred=Rejection.STORAGE_FULL, detail=name)
            duration_s = spec.size_bytes / self.links[source, region].bytes_per_s
            begun_s = on_the_way.begun_s if on_the_way else now
            seconds = max(seconds, begun_s + duration_s - now)
            total_bytes += spec.size_bytes
            missing.append((name, source))
        return DataCost(
            tuple(missing), total_bytes, max(0.0, seconds), copying=bool(missing) and copying
        )

    def shared(self, name: str) -> str:
        """Why the files of a dataset may be another's too; empty if they are its own.

        New datasets never share files; folders of state from older versions may have some that do.
        """
        return self.paths.fault(name, self.datasets[name].spec.path)

    def source(self, name: str, region: str) -> str | None:
        """The region to copy from: the widest link, then the first by name.

        A copy of files that are shared might replace those of the other dataset, so none is made.
        """
        if self.shared(name):
            return None
        holders = [
            holder
            for holder, state in self.datasets[name].replicas.items()
            if state is ReplicaState.COMPLETE and (holder, region) in self.links
        ]
        if not holders:
            return None
        return min(holders, key=lambda holder: (-self.links[holder, region].bytes_per_s, holder))

    def has_space(self, region: str, more_bytes: int) -> bool:
        """Whether the region's store can take ``more_bytes``."""
        limit = self.storage_bytes.get(region)
        return limit is None or self.stored_bytes(region) + more_bytes <= limit

    def copy_to(self, name: str, region: str) -> Copy | None:
        """The copy in flight of a dataset to a region. O(1)."""
        return self._under_way.get((name, region))

    def begin(self, copy: Copy) -> None:
        """A copy was ordered: the replica exists, but may not be read."""
        self.copies[copy.id] = self._under_way[copy.dataset, copy.target] = copy
        record = self.datasets[copy.dataset]
        if copy.target not in record.replicas:
            self._store(copy.target, record.spec.size_bytes)
        record.replicas[copy.target] = ReplicaState.COPYING

    def complete(self, copy_id: str) -> None:
        """A copy is there and verified."""
        copy = self.copies.pop(copy_id)
        self._under_way.pop((copy.dataset, copy.target), None)
        self.datasets[copy.dataset].replicas[copy.target] = ReplicaState.COMPLETE

    def abandon(self, copy_id: str, now: float) -> None:
        """A copy failed: nothing of it is visible, and it is not tried again at once."""
        copy = self.copies.pop(copy_id)
        self._under_way.pop((copy.dataset, copy.target), None)
        self.drop(copy.dataset, copy.target)
        self.failed[f"{copy.dataset}@{copy.target}"] = now + RETRY_COPY_S

    def drop(self, name: str, region: str) -> None:
        """A replica is no more."""
        record = self.datasets[name]
        if record.replicas.pop(region, None) is not None:
            self._store(region, -record.spec.size_bytes)

    def begin_deletion(self, deletion: Deletion) -> None:
        """The files of a replica that is no more take up room until they are gone."""
        self.deletions.begin(deletion)
        self._store(deletion.region, deletion.bytes)

    def end_deletion(self, deletion: Deletion) -> None:
        """The files are gone."""
        self.deletions.end(deletion)
        self._store(deletion.region, -deletion.bytes)

    def remove(self, name: str) -> None:
        """A dataset is known no more."""
        for region in list(self.datasets[name].replicas):
            self.drop(name, region)
        self.paths.remove(name, self.datasets.pop(name).spec.path)
        self.failed = {key: t for key, t in self.failed.items() if key.rpartition("@")[0] != name}
