"""The process of one region: its placer, its clusters and their engines, behind a link to the queue."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import quote

import msgspec
import structlog

from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.registry import engine_of
from topmast.adapters.kernels import load_kernels
from topmast.adapters.link import Batch, LinkEnd, Peer
from topmast.adapters.store import open_journal
from topmast.composition import JOURNAL, claim_role, fail_stop, note_dropped, own_folder
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.decoding import decode
from topmast.model.errors import InvalidInput, TopmastError
from topmast.model.fleet import ClusterSpec
from topmast.orders import carry_out
from topmast.policies.options import Profile
from topmast.ports import Clock, Engine, HistoryRow
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import Machines
from topmast.service.blobs import Blobs

log = structlog.get_logger(__name__)


class RegionalSystem:
    """One region. What it is made of the queue says; what runs goes on whether or not it is heard."""

    def __init__(
        self,
        region: str,
        queue_url: str,
        state: Path,
        profile: Profile,
        clock: Clock | None = None,
        *,
        token: str = "",
        checkpoints: Path | None = None,
    ) -> None:
        self.region = region
        self.state = state
        self.clock = clock or SystemClock()
        self.checkpoints = checkpoints or state / "checkpoints"
        own_folder(state)
        claim_role(state, f"the placer of region {region}")
        self.journal = open_journal(state / JOURNAL)
        self.machines = Machines(profile, {ids.QUEUE: ids.relay("queue")})
        self.runtime = Runtime(
            self.machines, self.journal, self.clock, self._release, _nobody_watches, fail_stop,
            note_dropped,
        )  # fmt: skip
        self.rebuilt = self.runtime.recover()
        if isinstance(self.clock, SystemClock):
            self.clock.not_before(self.rebuilt.at_s)
        self.blobs = Blobs(state / "workdirs")
        self.peer = Peer(region, queue_url, token)
        self.end = LinkEnd("queue", ids.placer(region), self.peer, self.runtime, _nobody_asks)
        self.engines: dict[str, Engine] = {}
        self._specs: dict[str, ClusterSpec] = {}
        self._equipping = threading.Lock()

    def open(self) -> None:
        """Adopt what runs already, and listen to the queue."""
        load_kernels(log.info)
        self._equip(self._clusters())
        self.end.open(uuid.uuid4().hex)
        self.runtime.start()

    def close(self) -> None:
        """Save a snapshot and let go; jobs run on."""
        self.end.close()
        self.runtime.stop()
        for engine in self.engines.values():
            engine.close()
        self.journal.close()

    # --- what the queue says ---------------------------------------------------------------------------

    def receive(self, batch: Batch) -> Future[m.Receipt]:
        """Take a batch from the queue; the engines follow when it changes the region."""
        receipt = self.end.receive(batch)
        if any(isinstance(parcel.message, m.ConfigureRegion) for parcel in batch.parcels):
            receipt.add_done_callback(lambda _: self._follow())
        return receipt

    def _follow(self) -> None:
        """Have an engine for every cluster; not on the runtime's thread, for engines take their time."""
        threading.Thread(target=self._equip_as_told, daemon=True).start()

    def _equip_as_told(self) -> None:
        try:
            self._equip(self.runtime.ask(self._clusters).result())
        except InvalidInput as error:
            log.error("a cluster gets no engine, and starts no jobs", why=error)

    def snapshot(self) -> Future[bytes]:
        """The placer's books, for those who look at the region from elsewhere."""
        return self.runtime.ask(lambda: self.machines.placers[self.region].snapshot())

    def _clusters(self) -> tuple[ClusterSpec, ...]:
        placer = self.machines.at(ids.placer(self.region))
        assert placer is self.machines.placers[self.region]
        return self.machines.placers[self.region].state.region.clusters

    def _equip(self, clusters: Sequence[ClusterSpec]) -> None:
        with self._equipping:
            for spec in clusters:
                if self._specs.get(spec.name) == spec:
                    continue
                known = self.engines.get(spec.name)
                if known is not None:
                    known.close()
                engine = self._engine(spec)
                engine.open(self._poster(ids.cluster(spec.name)))
                self.engines[spec.name], self._specs[spec.name] = engine, spec

    # --- wiring ----------------------------------------------------------------------------------------

    def _poster(self, address: str) -> Callable[[m.Message], None]:
        def post(message: m.Message) -> None:
            if isinstance(message, m.Progress):
                self.end.carry(m.Forward(0, message))  # people look at it where the queue is
            else:
                self.runtime.post(address, message)

        return post

    def _release(self, send: m.Send) -> None:
        """Carry a message out of the process: to the queue, or to an engine."""
        message = send.message
        if isinstance(message, m.Forward):
            self.end.carry(message)
            return
        engine = self.engines.get(send.to.removeprefix("engine/"))
        if engine is None and isinstance(message, m.ListTasks):
            return  # the cluster left the fleet, and with it all that ran there
        if engine is None:
            log.warning("no engine for a message", to=send.to, message=type(message).__name__)
        else:
            carry_out(engine, message)

    def _engine(self, cluster: ClusterSpec) -> Engine:
        return engine_of(
            cluster,
            self.region,
            self.state / "engines" / cluster.name,
            clock=self.clock,
            dataset_path=self._dataset_path,
            blob_path=self._blob_path,
            checkpoints=self.checkpoints,
        )

    def _dataset_path(self, dataset: str, region: str) -> Path | None:
        """Where a replica lies, as the queue has it; None when it cannot be asked or has none."""
        try:
            path = decode(self.peer.get(f"/datasets/{quote(dataset)}"), str)
        except (TopmastError, msgspec.DecodeError) as error:
            log.warning("the queue does not tell where a dataset is", dataset=dataset, why=error)
            return None
        return Path(path) if path and Path(path).exists() else None

    def _blob_path(self, digest: str) -> Path | None:
        """The archive of a work folder, fetched from the queue the first time."""
        try:
            return self.blobs.fetch(digest, lambda: self.peer.get(f"/workdirs/{quote(digest)}"))
        except TopmastError as error:
            log.warning("the queue does not give a work folder", digest=digest, why=error)
            return None


def _nobody_watches(rows: Sequence[HistoryRow]) -> None:
    """The audit trail is where the queue is."""


def _nobody_asks(up: bool, why: str) -> None:
    """A placer decides the same whether or not the queue can be reached."""
