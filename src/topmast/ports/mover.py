"""Datasets: what copies them between the stores of regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from topmast.model import messages as m
from topmast.ports.engines import Calls, Orders, Replica
from topmast.ports.machines import Post


class Mover(Orders, ABC):
    """Copies datasets between region stores, and deletes them.

    Posts `CopyDone`, `CopyFailed`, `CopyProgress`; `ReplicaDeleted`, `DeletionFailed`.
    """

    orders: ClassVar[Calls] = {
        m.StartCopy: lambda mover, order: mover.start_copy(order),
        m.DeleteReplica: lambda mover, order: mover.delete_replica(
            order.dataset, order.region, order.path
        ),
    }

    @abstractmethod
    def open(self, post: Post) -> None:
        """Begin; called once."""

    @abstractmethod
    def start_copy(self, order: m.StartCopy) -> None:
        """Copy in the background; resumes what an earlier run of the same copy left."""

    @abstractmethod
    def delete_replica(self, dataset: str, region: str, path: str) -> None:
        """Delete a dropped replica's objects in the background; a repetition goes on with it."""

    @abstractmethod
    def measure(self, region: str, path: str) -> int:
        """Bytes of the objects under ``path`` in the region's store (0: nothing there)."""

    @abstractmethod
    def check_source(self, region: str, source: str) -> Path:
        """The local directory that the files of a dataset in ``region`` may be brought from.

        Raises InvalidInput for what is none, or belongs to the region's store. Blocks.
        """

    @abstractmethod
    def put_directory(self, region: str, path: str, source: Path, *, dry_run: bool = False) -> int:
        """Upload a local directory as a dataset; returns its bytes. Blocks.

        A ``dry_run`` looks at it as the upload does, refuses what that would refuse, and ends; of a
        very large directory it says that it looked no further.
        """

    @abstractmethod
    def replica(self, region: str, path: str) -> Replica:
        """Where the region's store has the dataset at ``path``, if it is there."""

    @abstractmethod
    def close(self) -> None:
        """Stop; unfinished copies resume at the next start."""
