"""What the two kinds of server share: state folder, journal, machines, engines and links."""

from __future__ import annotations

import gc
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import httpx
import structlog
from msgspec import Struct, field

from topmast.adapters.clock import SystemClock
from topmast.adapters.engines import registry
from topmast.adapters.engines.registry import Engines, engine_of
from topmast.adapters.handing import let_answer
from topmast.adapters.link import LinkEnd, Peer
from topmast.adapters.objects.checkpoints import bucket_of
from topmast.adapters.store import JOURNAL, Keeper, SqlJournal, open_journal
from topmast.app.claim import ENGINES, claim_of
from topmast.app.folder import claim_role, own_folder
from topmast.fast.cluster import TaskPhase
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput, TopmastError, refuse_all
from topmast.model.fleet import ClusterSpec
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.ports import Clock, Engine, HistoryRow, LogPage, Post, Replica, Site
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower, Rebuilt
from topmast.service.blobs import Blobs
from topmast.service.metrics import Metrics, Sources
from topmast.service.validating import Validator

log = structlog.get_logger(__name__)

LOST = "lost"
"""The file that a person makes in the folder of an engine: nothing of before runs any more."""
SHOWN = 3
"""Of the jobs in a message, the others are counted."""


class Outside(Struct, frozen=True):
    """What lies outside of a process: real by default, replaced by benchmarks and tests."""

    clock: Clock | None = None
    engines: Engines = field(default_factory=lambda: registry.ENGINES)
    transport: httpx.BaseTransport | None = None
    """Carries the requests to other processes."""
    stopwatch: Callable[[], float] = time.perf_counter
    """Times machines and commits: seconds from any fixed moment on."""


REAL = Outside()


class Term(Struct, frozen=True):
    """The term of a leader: what it leads with, and what ends it."""

    journal: SqlJournal
    follower: Follower | None = None
    """Machines that have followed the journal, if there are any."""
    keeper: Keeper | None = None
    """Renews the lease of the journal, if it has begun to already."""
    fail: Callable[[BaseException], NoReturn] = lambda error: fail_stop(error)
    """Ends the process, or makes it a candidate again."""


class Process(ABC):
    """Machines on a journal, the engines of the clusters run here, and links to other processes.

    The constructor recovers. `open` of a subclass begins to decide; `close` leaves tasks running.
    """

    def __init__(
        self,
        state: Path,
        role: str,
        profile: Profile,
        elsewhere: Mapping[ids.Address, ids.Address],
        *,
        outside: Outside,
        token: str,
        checkpoints: str | Path | None,
        pair_speeds: PairSpeeds | None = None,
        term: Term | None = None,
    ) -> None:
        """``term``: None where the journal is a file in the state folder."""
        self.state = state
        self.outside = outside
        self.clock = outside.clock or SystemClock()
        where = str(checkpoints or "")
        self.checkpoint_store = bucket_of(where)
        """The URL of a bucket; empty: checkpoints are in the folder."""
        folder = where if where and not self.checkpoint_store else state / "checkpoints"
        self.checkpoints = Path(folder)
        own_folder(state)
        claim_role(state, role)
        term = term or Term(open_journal(state / JOURNAL, claim=claim_of(state)))
        self.journal = term.journal
        self._keeper = term.keeper or Keeper(self.journal, term.fail)
        follower = term.follower or Follower(Machines(profile, elsewhere, pair_speeds=pair_speeds))
        self.machines = follower.machines
        self.runtime = Runtime(
            self.machines, self.journal, self.clock, self._release, self._observe, term.fail,
            note_dropped, let_answer, outside.stopwatch,
        )  # fmt: skip
        self.rebuilt = self._recover(follower)
        self.blobs = Blobs(state / "workdirs", self.journal if self.journal.must_renew else None)
        self.leader = self.journal.epoch
        """The epoch of the leader that the orders of this process come from."""
        self.site = Site(
            self.clock, self.replica, self.blob_path, self.checkpoints, self.journal.leads,
            self.checkpoint_store, self.leader,
        )  # fmt: skip
        self.engines: dict[str, Engine] = {}
        self.ends: dict[str, LinkEnd] = {}
        self.outlets: dict[ids.Address, Callable[[Any], None]] = {}
        """What takes the messages to an address outside of the machines."""
        self.metrics = Metrics(self.runtime, self._figures, self._look)
        self._validator: Validator | None = None
        self._token = token
        self._specs: dict[str, ClusterSpec] = {}
        self._equipping = threading.Lock()

    def _figures(self, metrics: Metrics) -> Sources:
        """Where the figures of this process are."""
        return Sources(
            self.runtime.meter, metrics.http, self.runtime.inbox_depth,
            {(name,): float(end.up) for name, end in self.ends.items()}, self.leader,
            validated=None if self._validator is None else self._validator.found,
        )  # fmt: skip

    def validate(self) -> None:
        """Check invariants from now on, until the process ends."""
        self._validator = Validator(self.runtime)
        self._validator.open()

    def _look(self) -> None:  # noqa: B027  may stay empty
        """Bring up to date what this process knows of others, before figures are read."""

    def _recover(self, follower: Follower) -> Rebuilt:
        gc.disable()  # nothing of what is rebuilt is garbage yet
        try:
            rebuilt = self.runtime.recover(follower)
            if isinstance(self.clock, SystemClock):
                self.clock.not_before(rebuilt.at_s)
            return rebuilt
        finally:
            gc.freeze()  # and it stays: spare every later collection the walk through it
            gc.enable()

    def close(self) -> None:
        """Save a snapshot and let go; jobs run on."""
        if self._validator is not None:
            self._validator.close()
        for end in self.ends.values():
            end.close()
        self.runtime.stop()
        for engine in self.engines.values():
            engine.close()
        self._keeper.close()
        self.journal.close()

    # --- engines --------------------------------------------------------------------------------

    def check_traces(self, clusters: Iterable[ClusterSpec]) -> None:
        """Refuse to begin where folders of engines are lost, or older than what has started.

        An engine would know nothing of tasks that run, and they would start again beside them. The
        file `LOST` in a folder says that none runs any more. Raises InvalidInput. O(attempts).
        """
        found = []
        for cluster in clusters:
            kind = self.outside.engines.get(cluster.engine)
            folder = self.state / ENGINES / cluster.name
            manager = self.machines.clusters.get(cluster.name)
            if kind is None or not kind.outlives_folder or manager is None:
                continue
            known = kind.stored_epochs(folder)
            lost = [
                a.job for a in manager.state.attempts.values()
                if known.get(a.job, 0) < a.epoch
                and any(task.phase is TaskPhase.RUNNING for task in a.tasks)
            ]  # fmt: skip
            if not lost:
                (folder / LOST).unlink(missing_ok=True)
            elif not (folder / LOST).exists():
                found.append(_lost(folder, lost))
        refuse_all(found)

    def equip(self, region: str, cluster: ClusterSpec, post: Post | None = None) -> None:
        """Run a cluster as its specification says now. Raises InvalidInput as `with_engines`.

        ``post`` takes what its engine tells; by default its manager does.
        """
        with self._equipping:
            if self._specs.get(cluster.name) == cluster:
                return
            address = ids.engine(cluster.name)
            known = self.engines.pop(cluster.name, None)
            if known is not None:
                self._let_go(cluster.name, known)
            engine = engine_of(
                cluster, region, self.state / ENGINES / cluster.name, self.site,
                self.machines.profile, self.outside.engines,
            )  # fmt: skip
            if self.checkpoint_store and not engine.keeps_in_buckets:
                raise InvalidInput(
                    f"engine '{cluster.engine}' keeps checkpoints in folders only, and they are to "
                    f"be in {self.checkpoint_store}",
                    field=f"regions.{region}.clusters.{cluster.name}.engine",
                    remedy="name a folder by --checkpoints, or leave the cluster out",
                )
            engine.open(post or self.poster(ids.cluster(cluster.name)))
            self.engines[cluster.name], self._specs[cluster.name] = engine, cluster
            self.outlets[address] = partial(self._order, engine)

    def unequip(self, cluster: str) -> None:
        """Close the engine of a cluster that left the fleet; nothing of it runs any more."""
        with self._equipping:
            self._let_go(cluster, self.engines.pop(cluster))

    def _let_go(self, cluster: str, engine: Engine) -> None:
        del self.outlets[ids.engine(cluster)], self._specs[cluster]
        engine.close()

    def _order(self, engine: Engine, message: m.Message) -> None:
        engine.order(message, self.leader)

    def read_log(
        self, cluster: str, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """A piece of a task's output, also of a cluster that left the fleet if its files are left.

        From any thread. Raises NotFound when it cannot be read.
        """
        engine = self.engines.get(cluster)
        if engine is not None:
            return engine.read_log(job, epoch, rank, offset, limit)
        folder = self.state / ENGINES / cluster
        for kind in self.outside.engines.values():
            page = kind.read_stored_log(folder, job, epoch, rank, offset, limit)
            if page is not None:
                return page
        return None

    @abstractmethod
    def replica(self, dataset: str, region: str) -> Replica | None:
        """Where a region has a dataset."""

    def blob_path(self, digest: str) -> Path | None:
        """Where the archive of a work folder is."""
        return self.blobs.path(digest)

    # --- links ----------------------------------------------------------------------------------

    def peer(self, region: str, url: str) -> Peer:
        """A client of the process at the other end of the link of a region."""
        return Peer(region, url, self._token, self.outside.transport)

    def link(
        self, name: str, to: ids.Address, peer: Peer, changed: Callable[[bool, str], None]
    ) -> LinkEnd:
        """This end of a link; see `LinkEnd`."""
        end = LinkEnd(name, to, peer, self.runtime, changed, self.leader)
        self.ends[name], self.outlets[ids.link(name)] = end, end.carry
        return end

    # --- in and out -----------------------------------------------------------------------------

    def poster(self, address: ids.Address) -> Callable[[m.Message], None]:
        """Hands what is posted from outside to a machine, unless it is only shown to people.

        What a start waits for is both: a machine that gives the start up tells it as the cause.
        """

        def post(message: m.Message) -> None:
            if not self._show(message) or isinstance(message, m.TaskPreparing):
                self.runtime.post(address, message)

        return post

    @abstractmethod
    def _show(self, message: m.Message) -> bool:
        """Take a message that is only shown to people, and not journalled; False for any other."""

    def _observe(self, rows: Sequence[HistoryRow]) -> None:  # noqa: B027  may stay empty
        """Show what was committed. Only the control plane has an audit trail to show."""

    def _release(self, send: m.Send) -> None:
        """Carry a message out of the process, if it is sure that no other leads."""
        if not self.journal.leads():
            self.journal.renew(at_once=True)
        outlet = self.outlets.get(send.to)
        if outlet is not None:
            outlet(send.message)
        elif not isinstance(send.message, m.ListTasks):
            # A cluster that left the fleet left with all that ran there, and has nothing to tell.
            log.warning("no engine for a message", to=send.to, message=type(send.message).__name__)


def _lost(folder: Path, jobs: Sequence[str]) -> InvalidInput:
    """The refusal of a folder of an engine that does not know what runs."""
    named = ", ".join(jobs[:SHOWN]) + (
        f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    )
    return InvalidInput(
        f"{folder} knows nothing of what runs there for {named}: it is lost, or an old copy",
        field="--state",
        remedy="put the folder back; or cancel what is left of these jobs with the site's own "
        f"tools, and only then make the file {folder / LOST}: they start again",
    )


def fail_stop(error: BaseException) -> NoReturn:
    """End the process at once: memory may be ahead of the disk, and must not be acted on.

    It ends also where the log cannot be written, such as on the full disk that is the error. An
    error of our own says what to do; only for another is it told where it came from.
    """
    try:
        told = {"why": str(error)} if isinstance(error, TopmastError) else {"exc_info": error}
        log.critical("the runtime cannot go on; restart Topmast to recover", **told)
    finally:
        os._exit(1)


def note_dropped(message: m.Message, error: Exception) -> None:
    """Say that an event was not handled, because the journal cannot hold what it says."""
    log.error(
        "dropped an event", event=type(message).__name__, of=repr(message)[:500], why=str(error)
    )
