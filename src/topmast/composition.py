"""Putting a system together: machines, journal, engines, mover, service, in one process."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog

from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.local.files import Layout, epochs_in, log_of
from topmast.adapters.engines.registry import check_engines, engine_of
from topmast.adapters.grower import Grower
from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.adapters.link import Batch, LinkEnd, Peer
from topmast.adapters.objects import StoreMover
from topmast.adapters.planner import capacity_planner, data_planner
from topmast.adapters.store import JOURNAL as JOURNAL
from topmast.adapters.store import open_journal
from topmast.fast.region.inventory.slices import outer
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import OWN_FOLDER
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec, TenantSpec
from topmast.model.owners import settled
from topmast.model.states import TERMINAL
from topmast.orders import carry_out
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.ports import Clock, Engine, HistoryRow
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Rebuilt
from topmast.service.blobs import Blobs
from topmast.service.board import Board
from topmast.service.capacityplans import CapacityPlans
from topmast.service.dataplans import DataPlans
from topmast.service.hub import FIRST_EVENT, Hub
from topmast.service.regions import Regions
from topmast.service.service import Service
from topmast.slow.data.planner import Options

log = structlog.get_logger(__name__)

PROFILE = "profile.json"
"""The policies that the server last ran with: for `topmast whatif`."""
ROLE = "role"
QUEUE_ROLE = "the queue"
SHOWN = 10
"""How many names an error lists."""


def small_fleet() -> Fleet:
    """What `topmast up` runs on without a fleet file: this machine as one host of 8 virtual GPUs."""
    host = HostSpec("local-0", "virtual", 8)
    region = RegionSpec("local", (ClusterSpec("local", (host,)),))
    return Fleet((region,), tenants=(TenantSpec("default"),))


class System:
    """One process with everything in it, but for the placers of regions ``apart`` (name to URL).

    `open` recovers and starts; `close` leaves tasks running.
    """

    def __init__(
        self,
        state: Path,
        profile: Profile,
        fleet: Fleet | None,
        clock: Clock | None = None,
        *,
        apart: Mapping[str, str] | None = None,
        token: str = "",
        checkpoints: Path | None = None,
        pair_speeds: PairSpeeds | None = None,
    ) -> None:
        self.state = state
        self.clock = clock or SystemClock()
        self.checkpoints = checkpoints or state / "checkpoints"
        own_folder(state)
        claim_role(state, QUEUE_ROLE)
        self.journal = open_journal(state / JOURNAL)
        (state / PROFILE).write_bytes(msgspec.json.encode(profile))
        self.apart = dict(apart or {})
        relays = {ids.placer(r): ids.relay(r) for r in self.apart}
        self.machines = Machines(profile, relays, pair_speeds=pair_speeds)
        self.board = Board()
        self.hub = Hub(FIRST_EVENT + self.journal.history_count())
        self.runtime = Runtime(
            self.machines, self.journal, self.clock, self._release, self._observe, fail_stop,
            note_dropped,
        )  # fmt: skip
        self.rebuilt = self._recover()
        self.fleet = self._as_hosts_are(
            fleet or (self.machines.queue.fleet if self.rebuilt.seq else small_fleet())
        )
        self.missing: tuple[str, ...] = ()
        """Replicas that the fleet file names and that are not in their stores."""
        self.blobs = Blobs(state / "workdirs")
        self.mover = StoreMover(self._stores(), clock=self.clock)
        self.grower = Grower(self._poster(ids.QUEUE))
        self.engines = self._engines()
        self.ends = {r: self._end(r, url, token) for r, url in self.apart.items()}
        self.data_plans = DataPlans(
            self.runtime, self.journal, self.clock, self.hub, profile.slow,
            lambda: data_planner(Options(time_limit_s=profile.slow.plan_data_limit_s)),
        )  # fmt: skip
        regions = Regions(
            self.machines,
            {region: Peer(region, url, token) for region, url in self.apart.items()},
            lambda region: self.ends[region].up,
        )
        self.capacity_plans = CapacityPlans(
            self.runtime, self.clock, self.hub, profile.slow,
            lambda: capacity_planner(profile.slow.plan_capacity_limit_s), regions,
        )  # fmt: skip
        self.service = Service(
            self.runtime,
            self.journal,
            self.clock,
            self.log_path,
            self.mover,
            self.blobs,
            self.board,
            self.hub,
            self._process_of,
            regions,
            self.data_plans,
            self.capacity_plans,
        )

    def _recover(self) -> Rebuilt:
        gc.disable()  # nothing of what is rebuilt is garbage yet
        try:
            rebuilt = self.runtime.recover()
            if isinstance(self.clock, SystemClock):
                self.clock.not_before(rebuilt.at_s)
            return rebuilt
        finally:
            gc.freeze()  # and it stays: spare every later collection the walk through it
            gc.enable()

    def _as_hosts_are(self, fleet: Fleet) -> Fleet:
        """The fleet with its hosts in the clusters to which they moved, for engines to have them."""
        queue = self.machines.queue
        return settled(fleet, queue.fleet, queue.homes)

    def open(self) -> None:
        """Adopt what runs already, and begin to decide."""
        load_kernels(log.info)
        load_solvers(self.machines.profile)
        self._check_regions_apart()
        self._check_clusters_in_use()
        self.fleet = self._with_datasets_found(self.fleet)
        # The first event of all: a cluster manager must know its region when its hosts report.
        configured = self.runtime.call(ids.QUEUE, m.ConfigureFleet(self.fleet))
        self._skip_unknown_attempts()
        for name, engine in self.engines.items():
            engine.open(self._poster(ids.cluster(name)))
        self.mover.open(self._poster(ids.QUEUE))
        for region, end in self.ends.items():
            self.runtime.post(ids.QUEUE, m.LinkDown(region, end.why))
            end.open(uuid.uuid4().hex)
        self.runtime.start()
        configured.result()
        self.data_plans.open()
        self.capacity_plans.open()

    def close(self) -> None:
        """Save a snapshot and let go; jobs run on."""
        self.hub.close()
        self.data_plans.close()
        self.capacity_plans.close()
        for end in self.ends.values():
            end.close()
        self.runtime.stop()
        for engine in self.engines.values():
            engine.close()
        self.mover.close()
        self.journal.close()

    # --- wiring ---------------------------------------------------------------------------------------

    def _poster(self, address: str) -> Callable[[m.Message], None]:
        def post(message: m.Message) -> None:
            if not self.board.note(message):
                self.runtime.post(address, message)

        return post

    def _observe(self, rows: Sequence[HistoryRow]) -> None:
        """Show what was committed, and forget the steps of jobs that are over."""
        self.hub.publish(rows)
        for row in rows:
            if row.kind in TERMINAL:
                self.board.forget(row.job)

    def _release(self, send: m.Send) -> None:
        """Carry a message out of the process: to an engine, or to the mover."""
        message = send.message
        if isinstance(message, m.Forward):
            self.ends[send.to.removeprefix("link/")].carry(message)
            return
        if send.to == ids.MOVER:
            if isinstance(message, m.StartCopy):
                self.mover.start_copy(message)
            elif isinstance(message, m.DeleteReplica):
                self.mover.delete_replica(message.dataset, message.region, message.path)
            return
        if isinstance(message, m.GrowTree):
            self.grower.order(message)
            return
        engine = self.engines.get(send.to.removeprefix("engine/"))
        if engine is None and isinstance(message, m.ListTasks):
            return  # the cluster left the fleet, and with it all that ran there
        if engine is None:
            log.warning("no engine for a message", to=send.to, message=type(message).__name__)
        else:
            carry_out(engine, message)

    def receive(self, region: str, batch: Batch) -> Future[m.Receipt]:
        """Take a batch from a region's placer; what is only shown to people goes to the board."""
        left = tuple(p for p in batch.parcels if not self.board.note(p.message))
        return self.ends[region].receive(msgspec.structs.replace(batch, parcels=left))

    def _end(self, region: str, url: str, token: str) -> LinkEnd:
        """This end of the link to a region's placer; the queue is told whether it can be reached."""

        def changed(up: bool, why: str) -> None:
            news = m.LinkUp(region) if up else m.LinkDown(region, why)
            self.runtime.post(ids.QUEUE, news)

        return LinkEnd(region, ids.QUEUE, Peer(region, url, token), self.runtime, changed)

    def _stores(self) -> Mapping[str, str]:
        """Where each region keeps its datasets: as the fleet says, or a folder of the state."""
        stores = {}
        for region in self.fleet.regions:
            stores[region.name] = region.store or str(self.state / "stores" / region.name)
            if "://" not in stores[region.name]:
                Path(stores[region.name]).expanduser().mkdir(
                    parents=True, exist_ok=True, mode=0o700
                )
        return stores

    def _engines(self) -> dict[str, Engine]:
        check_engines(self.fleet.regions)
        engines: dict[str, Engine] = {}
        for region in self.fleet.regions:
            for cluster in region.clusters if region.name not in self.apart else ():
                engines[cluster.name] = self._engine(cluster, region.name)
        return engines

    def _engine(self, cluster: ClusterSpec, region: str) -> Engine:
        return engine_of(
            cluster,
            region,
            self.state / "engines" / cluster.name,
            clock=self.clock,
            dataset_path=self.dataset_path,
            blob_path=self.blobs.path,
            checkpoints=self.checkpoints,
        )

    def log_path(self, cluster: str, job: str, epoch: int, rank: int) -> Path | None:
        """Where a task's output is; also of a cluster that left the fleet, as long as its folder is there."""
        engine = self.engines.get(cluster)
        if engine is not None:
            return engine.log_path(job, epoch, rank)
        return log_of(Layout(self.state / "engines" / cluster), job, epoch, rank)

    def dataset_path(self, dataset: str, region: str) -> Path | None:
        """Where tasks of a region read a dataset, when its store is a directory."""
        record = self.machines.queue.catalogue.datasets.get(dataset)
        return self.mover.local_path(region, record.spec.path) if record else None

    def _process_of(self, cluster: str, host: str) -> tuple[int, bool] | None:
        engine = self.engines.get(cluster)
        return engine.host_process(host) if engine is not None else None

    def _check_regions_apart(self) -> None:
        """Regions named apart are in the fleet; one may not move in or out while jobs run there."""
        names = [region.name for region in self.fleet.regions]
        for name in self.apart:
            if name not in names:
                raise InvalidInput(
                    f"the fleet has no region '{name}'", field="--placer",
                    remedy=f"known: {', '.join(names)}",
                )  # fmt: skip
            here = self.machines.placers.get(name)
            if here is not None and here.state.allocations:
                raise InvalidInput(
                    f"jobs run in region '{name}' under this process", field="--placer",
                    remedy="start without it, drain the region, and try again",
                )  # fmt: skip
            self.machines.leave(name)
        for record in self.machines.queue.jobs.values():
            name = record.plan.region if record.plan else ""
            if name in self.machines.relays and name not in self.apart:
                raise InvalidInput(
                    f"job {record.id} runs in region '{name}' under a process of its own",
                    field="--placer", remedy=f"name it: --placer {name}=URL",
                )  # fmt: skip

    def _check_clusters_in_use(self) -> None:
        """A cluster that still runs jobs may not disappear from the fleet file."""
        listed = {c.name for region in self.fleet.regions for c in region.clusters}
        left: dict[str, list[str]] = {}
        for placer in self.machines.placers.values():
            for held in placer.state.allocations.values():
                left.setdefault(outer(held.plan.cluster), []).append(held.job)
        for cluster, jobs in left.items():
            if cluster not in listed:
                named = f"{', '.join(jobs[:3])}{' and more' if len(jobs) > 3 else ''}"
                raise InvalidInput(
                    f"cluster '{cluster}' is gone from it, and ran {named} when this server was stopped",
                    field="--fleet",
                    remedy="start once without --fleet: a job that has ended since is noticed then; wait for the "
                    "others (topmast wait JOB) or cancel them, stop the server, and start it with --fleet; "
                    "or use another folder (--state DIR)",
                )

    def _skip_unknown_attempts(self) -> None:
        """A journal that was lost, or is an old copy, must not give names that are taken: who bears one would
        be told how another ended, and find its checkpoints.
        """
        queue = self.machines.queue
        found = {folder.name: 0 for folder in folders_in(self.checkpoints)}
        for folder in folders_in(self.state / "engines"):
            for job, epoch in epochs_in(Layout(folder)).items():
                found[job] = max(epoch, found.get(job, 0))
        unknown = sorted((n, j) for j in found if (n := ids.job_number(j)) >= queue.next_job)
        epochs = {j: e for j, e in found.items() if j in queue.jobs and e > queue.jobs[j].epoch}
        far = {j: n for n, j in unknown if n >= queue.next_job + ids.AHEAD_MAX}
        far |= {j: e for j, e in epochs.items() if e > queue.jobs[j].epoch + ids.AHEAD_MAX}
        if far:
            log.warning(
                "names that are too far ahead of the journal are ignored: tasks can make them",
                jobs=list(far)[:SHOWN],
            )
        unknown = [(n, j) for n, j in unknown if j not in far]
        epochs = {j: e for j, e in epochs.items() if j not in far}
        if not unknown and not epochs:
            return
        last = max((number for number, _ in unknown), default=queue.next_job - 1)
        log.error(
            "the journal does not know all that ran here: it was lost, or is older than that",
            unknown_jobs=[job for _, job in unknown][:SHOWN] + ["..."] * (len(unknown) > SHOWN),
            unknown_attempts=sorted(ids.attempt_name(j, e) for j, e in epochs.items())[:SHOWN],
            remedy="stop the server and put back the newest journal if there is one; now what"
            f" runs unknown is stopped, and new jobs are numbered from {ids.job_id(last + 1)}",
        )
        self.runtime.post(ids.QUEUE, m.SkipAttempts(last + 1, epochs))

    def _with_datasets_found(self, fleet: Fleet) -> Fleet:
        """The fleet without replicas it names that are not there: no job may start on them."""
        catalogue = self.machines.queue.catalogue
        datasets = []
        missing: list[str] = []
        for dataset in fleet.datasets:
            if dataset.name not in catalogue.datasets:
                fault = catalogue.paths.fault(dataset.name, dataset.path)
                if fault:
                    raise InvalidInput(
                        fault, field=f"datasets.{dataset.name}.path", remedy=OWN_FOLDER
                    )
                found = tuple(
                    r
                    for r in dataset.replicas
                    if catalogue.deletions.at(r, dataset.path) is None
                    and self.mover.measure(r, dataset.path) > 0
                )
                missing += [f"{dataset.name} in {r}" for r in dataset.replicas if r not in found]
                dataset = msgspec.structs.replace(dataset, replicas=found)
            datasets.append(dataset)
        self.missing = tuple(missing)
        return msgspec.structs.replace(fleet, datasets=tuple(datasets))


def own_folder(state: Path) -> None:
    """Make the state folder, for its owner alone; close one that is open to others. Raises InvalidInput.

    Only a folder that is empty or Topmast's own is closed: who names another, such as a home, is asked to.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = state.stat()
    if not found.st_mode & 0o077:
        return
    ours = (state / ROLE).exists() or (state / JOURNAL).exists() or not any(state.iterdir())
    if found.st_uid != os.geteuid() or not ours:
        raise InvalidInput(
            f"{state} is open to other users of this machine", field="--state",
            remedy=f"chmod 700 {state}, or name a new folder",
        )  # fmt: skip
    state.chmod(0o700)
    log.warning("the state folder was open to other users; it is closed to them now", folder=state)


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder that may be missing, by name."""
    return sorted(f for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []


def claim_role(state: Path, role: str) -> None:
    """Note at the first start what a state folder is for; raises InvalidInput when it is another's."""
    file = state / ROLE
    fresh = not (state / JOURNAL).exists()
    known = file.read_text("utf-8").strip() if file.exists() else ""
    known = known or ("" if fresh else QUEUE_ROLE)
    if known not in ("", role):
        raise InvalidInput(
            f"{state} belongs to {known}, not to {role}", field="--state",
            remedy="one folder for each process",
        )  # fmt: skip
    if not known or not file.exists():
        file.write_text(f"{role}\n", encoding="utf-8")


def fail_stop(error: BaseException) -> NoReturn:
    """End the process at once: memory may be ahead of the disk, and must not be acted on."""
    log.critical("the runtime cannot go on; restart Topmast to recover", exc_info=error)
    os._exit(1)


def note_dropped(message: m.Message, error: Exception) -> None:
    """Say that an event was not handled, because the journal cannot hold what it says."""
    log.error(
        "dropped an event", event=type(message).__name__, of=repr(message)[:500], why=str(error)
    )
