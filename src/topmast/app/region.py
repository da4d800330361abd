"""The process of one region: its placer, its clusters and engines, and a link to the queue."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import quote

import msgspec
import structlog

from topmast.adapters.engines.leader import LeaderFence
from topmast.adapters.kernels import begin_with_kernels
from topmast.adapters.link import Batch
from topmast.app.process import REAL, Outside, Process
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.decoding import decode
from topmast.model.errors import Conflict, InvalidInput, TopmastError
from topmast.model.fleet import ClusterSpec
from topmast.policies.options import Profile
from topmast.ports import Replica

log = structlog.get_logger(__name__)

QUEUE = "queue"
"""The folder with what is remembered of the leaders of the queue."""


class RegionProcess(Process):
    """One region, as the queue configures it. Jobs run on while the queue cannot be reached."""

    def __init__(
        self,
        region: str,
        queue_url: str,
        state: Path,
        profile: Profile,
        *,
        token: str = "",
        checkpoints: str | Path | None = None,
        outside: Outside = REAL,
    ) -> None:
        self.region = region
        super().__init__(
            state, f"the placer of region {region}", profile, {ids.QUEUE: ids.relay("queue")},
            outside=outside, token=token, checkpoints=checkpoints,
        )  # fmt: skip
        self._waiting: dict[ids.Address, list[m.Message]] = {}
        """Orders for engines that are still being opened; of the runtime's thread alone."""
        self._refused: frozenset[str] = frozenset()
        """Clusters that get no engine."""
        self._following = threading.Lock()
        """One change of the region is followed after the other, each as the region is by then."""
        self.queue = self.peer(region, queue_url)
        self._leaders = LeaderFence(state / QUEUE)
        # A placer decides the same whether or not the queue can be reached.
        self.end = self.link("queue", ids.placer(region), self.queue, lambda up, why: None)

    def open(self) -> None:
        """Adopt what runs already, and listen to the queue."""
        self.check_traces(self._clusters())
        for cluster in self._clusters():
            self.equip(self.region, cluster)  # first: without an engine there is nothing to run
        begin_with_kernels(log.info)
        self.end.open(uuid.uuid4().hex)
        self.runtime.start()

    # --- what the queue says --------------------------------------------------------------------

    def receive(self, batch: Batch) -> Future[m.Receipt]:
        """Take a batch from the queue; the engines follow when it changes the region.

        Raises Conflict for one of a leader that another has replaced.
        """
        if not self._leaders.admits(batch.leader):
            raise Conflict(f"a later leader of the queue is known (epoch {self._leaders.highest})")
        receipt = self.end.receive(batch)
        if any(isinstance(envelope.message, m.ConfigureRegion) for envelope in batch.envelopes):
            receipt.add_done_callback(lambda _: self._follow())
        return receipt

    def _follow(self) -> None:
        """Equip every cluster, on a thread of its own: the runtime must not wait for engines."""
        threading.Thread(target=self._equip_as_told, daemon=True).start()

    def _equip_as_told(self) -> None:
        with self._following:
            refused = set()
            for cluster in self.runtime.ask(self._clusters).result():
                try:
                    self.equip(self.region, cluster)
                except InvalidInput as error:
                    refused.add(cluster.name)
                    log.error("a cluster gets no engine, and starts no jobs", why=error)
            self._refused = frozenset(refused)
        self.runtime.ask(self._release_waiting).result()

    def _release(self, send: m.Send) -> None:
        """Carry a message out; an order waits for its engine where that is still being opened.

        The placer may use the hosts of a new cluster before its engine is there.
        """
        if send.to not in self.outlets and self._is_to_come(send.to):
            self._waiting.setdefault(send.to, []).append(send.message)
            return
        for message in self._waiting.pop(send.to, ()):
            super()._release(m.Send(send.to, message))
        super()._release(send)

    def _is_to_come(self, address: ids.Address) -> bool:
        return any(
            ids.engine(cluster.name) == address and cluster.name not in self._refused
            for cluster in self._clusters()
        )

    def _release_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for address, messages in waiting.items():
            for message in messages:
                self._release(m.Send(address, message))

    def snapshot(self) -> Future[bytes]:
        """The state of the region's machines, for a view of the region from elsewhere."""
        return self.runtime.ask(
            lambda: msgspec.json.encode(self.machines.region_state(self.region))
        )

    def _clusters(self) -> tuple[ClusterSpec, ...]:
        placer = self.machines.at(ids.placer(self.region))
        assert placer is self.machines.placers[self.region]
        return self.machines.placers[self.region].state.region.clusters

    # --- wiring ---------------------------------------------------------------------------------

    def _show(self, message: m.Message) -> bool:
        shown = isinstance(message, m.Progress | m.TaskPreparing)
        if shown:
            self.end.carry(m.Forward(0, message))  # people look at it where the queue is
        return shown

    def replica(self, dataset: str, region: str) -> Replica | None:
        """Where a replica lies, as the queue has it; None when it cannot be asked or has none."""
        try:
            found = decode(self.queue.get(f"/datasets/{quote(dataset)}"), Replica)
        except (TopmastError, msgspec.DecodeError) as error:
            log.warning("the queue does not tell where a dataset is", dataset=dataset, why=error)
            return None
        return found if found.folder is None or found.folder.exists() else None

    def blob_path(self, digest: str) -> Path | None:
        """The archive of a work folder, fetched from the queue the first time."""
        try:
            return self.blobs.fetch(digest, lambda: self.queue.get(f"/workdirs/{quote(digest)}"))
        except TopmastError as error:
            log.warning("the queue does not give a work folder", digest=digest, why=error)
            return None
