"""The control plane: the queue and the service, the mover, and every region that is not apart."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from topmast.adapters.engines.registry import with_engines
from topmast.adapters.grower import Grower
from topmast.adapters.kernels import begin_with_kernels, load_solvers
from topmast.adapters.link import Batch, RemoteExec
from topmast.adapters.objects import StoreMover
from topmast.adapters.objects.checkpoints import jobs_with_checkpoints
from topmast.adapters.objects.fence import Term as StoreTerm
from topmast.adapters.planner import capacity_planner, data_planner
from topmast.adapters.store import PROFILE
from topmast.adapters.webhooks import Network, check, deliver
from topmast.app.claim import ENGINES, folders_in
from topmast.app.fleet_choice import fleet_of_start
from topmast.app.folder import QUEUE_ROLE, note
from topmast.app.process import REAL, Outside, Process, Term
from topmast.app.surroundings import LiveSurroundings
from topmast.fast.queue import hosts_in_use
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.engines import Capability
from topmast.model.errors import InvalidInput, NotFound
from topmast.model.exec_views import ExecSpec
from topmast.model.files.fleetfile import OWN_FOLDER
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec, TenantSpec
from topmast.model.fleet_changes import fleet_version
from topmast.model.owners import settled
from topmast.model.states import TERMINAL
from topmast.model.views import JobView
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.ports import Exec, HistoryRow, Replica
from topmast.service.budgets import Budgets
from topmast.service.capacityplans import CapacityPlans
from topmast.service.dataplans import DataPlans
from topmast.service.event_stream import FIRST_EVENT, EventStream
from topmast.service.execs import Commands
from topmast.service.gauges import gauges
from topmast.service.history import ANSWER_S, History, Key, sample
from topmast.service.live_progress import LiveProgress
from topmast.service.metrics import Metrics, Sources
from topmast.service.notifier import Notifier, Told
from topmast.service.regions import Regions
from topmast.service.room import uploads
from topmast.service.service import Service
from topmast.service.webhooks import Webhooks
from topmast.slow.data.planner import Options

log = structlog.get_logger(__name__)

SHOWN = 10
"""How many names an error lists."""
SCRAPE_S = 15.0
"""How old the books of a region apart may be in the metrics: they are large."""


def small_fleet() -> Fleet:
    """The fleet of `topmast up` without a fleet file: one host with 8 virtual GPUs."""
    host = HostSpec("local-0", "virtual", 8)
    region = RegionSpec("local", (ClusterSpec("local", (host,)),))
    return Fleet((region,), tenants=(TenantSpec("default"),))


def relays_of(apart: Iterable[str]) -> dict[ids.Address, ids.Address]:
    """The placers of other processes, each with the relay that stands for it."""
    return {ids.placer(region): ids.relay(region) for region in apart}


class ControlPlane(Process):
    """The queue, the service, and all regions but those ``apart`` (name to URL of the placer).

    ``require`` raises InvalidInput for a fleet that this server may not have.
    """

    def __init__(
        self,
        state: Path,
        profile: Profile,
        fleet: Fleet | None,
        *,
        fleet_replaces: bool = False,
        apart: Mapping[str, str] | None = None,
        token: str = "",
        checkpoints: str | Path | None = None,
        pair_speeds: PairSpeeds | None = None,
        outside: Outside = REAL,
        term: Term | None = None,
        notify_networks: Sequence[Network] = (),
        require: Callable[[Fleet], None] = lambda fleet: None,
    ) -> None:
        self.apart = dict(apart or {})
        self.live_progress = LiveProgress()
        super().__init__(
            state, QUEUE_ROLE, profile, relays_of(self.apart), outside=outside, token=token,
            checkpoints=checkpoints, pair_speeds=pair_speeds, term=term,
        )  # fmt: skip
        note(state, PROFILE, msgspec.json.encode(profile))
        self.event_stream = EventStream(FIRST_EVENT + self.journal.history_count())
        queue = self.machines.queue
        if fleet is not None:
            fleet = fleet_of_start(fleet, queue, replaces=fleet_replaces)
        self._file = msgspec.UNSET if fleet is None else fleet_version(fleet)
        if fleet is None:
            fleet = queue.fleet if self.rebuilt.seq else small_fleet()
        self.fleet = with_engines(
            settled(fleet, queue.fleet, queue.homes), profile, outside.engines
        )
        """With each host in the cluster to which it moved: engines need them there."""
        self.missing: tuple[str, ...] = ()
        """Replicas that the fleet file names and that are not in their stores."""
        self.mover = self._mover()
        self.outlets[ids.MOVER] = self.mover.order
        self.outlets[ids.GROWER] = Grower(self.poster(ids.QUEUE)).order
        for region, url in self.apart.items():
            self.link(region, ids.QUEUE, self.peer(region, url), partial(self._tell_link, region))
        self.data_plans = DataPlans(
            self.runtime, self.journal, self.clock, self.event_stream, profile.slow,
            lambda: data_planner(Options(time_limit_s=profile.slow.plan_data_limit_s)),
        )  # fmt: skip
        self._peers = {region: self.peer(region, url) for region, url in self.apart.items()}
        self.regions = regions = Regions(
            self.machines,
            self._peers,
            lambda region: self.ends[region].up,
        )
        self.capacity_plans = CapacityPlans(
            self.runtime, self.clock, self.event_stream, profile.slow,
            lambda: capacity_planner(profile.slow.plan_capacity_limit_s), regions,
        )  # fmt: skip
        self.service = Service(
            self.runtime, self.journal, self.clock, self.read_log, self.mover, self.blobs,
            self.live_progress, self.event_stream, self._process_of, regions,
            self.data_plans, self.capacity_plans,
        )  # fmt: skip
        self.service.surroundings = LiveSurroundings(
            self, self.mover, self.stores_of, self.apart, require
        )
        self.samples = self.service.samples = History(self.journal, self.clock, self._sample)
        self.notifier = self._notifier(notify_networks)
        self.service.execs = self._commands()
        self.service.budgets = self.budgets = Budgets(self.runtime, self.journal, self.clock)
        self.service.webhooks = Webhooks(
            self.runtime, self.service.access, self.clock, self.notifier, self.service.limits
        )

    def open(self) -> None:
        """Adopt what runs already, and begin to decide."""
        self.service.profiles.fits = lambda wanted: with_engines(
            self.machines.queue.fleet, wanted, self.outside.engines
        )
        self.blobs.room.path = self.service.access.path
        self.blobs.room.uploads = partial(uploads, self.journal)
        begin_with_kernels(log.info)
        load_solvers(self.machines.profile)
        self._check_regions_apart()
        self._check_clusters_in_use()
        self._check_hosts_in_use()
        self.check_traces(
            cluster for region in self.fleet.regions if region.name not in self.apart
            for cluster in region.clusters
        )  # fmt: skip
        self.fleet = self._with_datasets_found(self.fleet)
        # The first event of all: a cluster manager must know its region when its hosts report.
        configured = self.runtime.call(ids.QUEUE, m.ConfigureFleet(self.fleet, file=self._file))
        self._skip_unknown_attempts()
        for region in self.fleet.regions:
            for cluster in region.clusters if region.name not in self.apart else ():
                self.equip(region.name, cluster)
        self.mover.open(self.poster(ids.QUEUE))
        for name, end in self.ends.items():
            self.runtime.post(ids.QUEUE, m.LinkDown(name, end.why))
            end.open(uuid.uuid4().hex)
        self.runtime.start()
        configured.result()
        self.data_plans.open()
        self.capacity_plans.open()
        self.notifier.open()
        self.samples.open()
        self.budgets.open()

    def close(self) -> None:
        """Save a snapshot and let go; jobs run on."""
        self.event_stream.close()
        self.samples.close()
        self.notifier.close()
        self.budgets.close()
        self.data_plans.close()
        self.capacity_plans.close()
        super().close()
        self.mover.close()

    def _mover(self) -> StoreMover:
        shared = self.journal.shared_by
        return StoreMover(
            self.stores_of(self.fleet), clock=self.clock, leads=self.journal.leads,
            term=StoreTerm(shared, self.leader) if shared else None,
        )  # fmt: skip

    def _notifier(self, networks: Sequence[Network]) -> Notifier:
        return Notifier(
            self.journal, self.clock, self._told_of, self.service.access.path,
            partial(self._deliver, networks), partial(check, allowed=networks),
        )  # fmt: skip

    # --- wiring ---------------------------------------------------------------------------------

    def _figures(self, metrics: Metrics) -> Sources:
        return replace(
            super()._figures(metrics), streams=self.event_stream.readers,
            gauges=gauges(self.machines.queue, self.regions.placers),
        )  # fmt: skip

    def _look(self) -> None:
        self.regions.look_now(SCRAPE_S)

    def _sample(self) -> dict[Key, float]:
        self._look()
        question = partial(sample, self.machines.queue, self.regions.placers)
        return self.runtime.ask(question).result(ANSWER_S)

    def _show(self, message: m.Message) -> bool:
        return self.live_progress.note(message)

    def _observe(self, rows: Sequence[HistoryRow]) -> None:
        """Show what was committed, and forget the steps of jobs that are over."""
        self.event_stream.publish(rows, self._tenant_of)
        for row in rows:
            if row.kind in TERMINAL:
                self.live_progress.forget(row.job)

    def _told_of(self, job: str) -> Told | None:
        """What a webhook is told of a job; any thread may ask."""
        record = self.machines.queue.jobs.records.get(job)
        if record is not None:
            spec = record.spec
            return Told(job, spec.name, spec.tenant, spec.user, dict(spec.labels or {}))
        kept = self.journal.finished_job(job)
        if kept is None:
            return None
        view = msgspec.json.decode(kept.view, type=JobView)
        return Told(job, view.name, view.tenant, view.user, dict(view.labels or {}))

    @staticmethod
    def _deliver(
        networks: Sequence[Network], url: str, body: bytes, headers: dict[str, str]
    ) -> None:
        deliver(url, body, headers, networks)

    def _tenant_of(self, job: str) -> str:
        record = self.machines.queue.jobs.records.get(job)
        return record.spec.tenant if record is not None else ""

    def _tell_link(self, region: str, up: bool, why: str) -> None:
        """The queue asks only regions that can be reached."""
        columns = self.ends[region].columns
        news = m.LinkUp(region, columns) if up else m.LinkDown(region, why)
        self.runtime.post(ids.QUEUE, news)

    def receive(self, region: str, batch: Batch) -> Future[m.Receipt]:
        """Take a batch from a region's placer; some of it is live progress only."""
        left = tuple(p for p in batch.envelopes if not self.live_progress.note(p.message))
        return self.ends[region].receive(replace(batch, envelopes=left))

    def stores_of(self, fleet: Fleet) -> dict[str, str]:
        """Where each region keeps its datasets: as the fleet says, or a folder of the state."""
        stores = {}
        for region in fleet.regions:
            stores[region.name] = region.store or str(self.state / "stores" / region.name)
            if "://" not in stores[region.name]:
                Path(stores[region.name]).expanduser().mkdir(
                    parents=True, exist_ok=True, mode=0o700
                )
        return stores

    def replica(self, dataset: str, region: str) -> Replica | None:
        """Where a region has a dataset."""
        record = self.machines.queue.data.catalogue.datasets.get(dataset)
        return self.mover.replica(region, record.spec.path) if record else None

    def _commands(self) -> Commands:
        service = self.service
        return Commands(
            self.runtime, service.access, service.limits, service.job,
            self._require_execs, self._begin_exec, service.logins.renewed, service.outside,
        )  # fmt: skip

    def _require_execs(self, region: str, cluster: str) -> None:
        """Raises InvalidInput for a cluster that runs no commands beside tasks."""
        for spec in (c for r in self.machines.queue.fleet.regions for c in r.clusters):
            if spec.name == cluster and not spec.can(Capability.EXEC):
                raise InvalidInput(
                    f"engine {spec.engine} of cluster '{cluster}' runs no commands beside tasks",
                    remedy="use what the cluster itself has for that",
                )

    def _begin_exec(self, region: str, cluster: str, spec: ExecSpec) -> Exec:
        if region in self.apart:
            return RemoteExec(self._peers[region], cluster, spec)
        engine = self.engines.get(cluster)
        if engine is None:
            raise NotFound(f"cluster '{cluster}' has left the fleet")
        return engine.execute(spec)

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
        for record in self.machines.queue.jobs.records.values():
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
                left.setdefault(held.plan.cluster, []).append(held.job)
        for cluster, jobs in left.items():
            if cluster not in listed:
                named = f"{', '.join(jobs[:3])}{' and more' if len(jobs) > 3 else ''}"
                raise InvalidInput(
                    f"cluster '{cluster}' is gone from it, and ran {named} when this server was "
                    "stopped",
                    field="--fleet",
                    remedy="start once without --fleet: a job that ended since is noticed then; "
                    "wait for the others (topmast wait JOB) or cancel them, stop the server, and "
                    "start it with --fleet; or use another folder (--state DIR)",
                )

    def _check_hosts_in_use(self) -> None:
        """Hosts with jobs that have not ended may not be given to another region."""
        if left := list(hosts_in_use(self.machines.queue, self.fleet)):
            raise InvalidInput("; ".join(left), field="--fleet")

    def _skip_unknown_attempts(self) -> None:
        """Skip the names of jobs and attempts that ran here and that the journal does not know.

        After a journal was lost, or replaced by an old copy, a new job with such a name would be
        told how the earlier one ended, and would find its checkpoints.
        """
        queue = self.machines.queue
        found = {folder.name: 0 for folder in folders_in(self.checkpoints)}
        if self.checkpoint_store:
            found |= dict.fromkeys(jobs_with_checkpoints(self.checkpoint_store), 0)
        for folder in folders_in(self.state / ENGINES):
            for kind in self.outside.engines.values():
                for job, epoch in kind.stored_epochs(folder).items():
                    found[job] = max(epoch, found.get(job, 0))
        jobs, next_number = queue.jobs.records, queue.jobs.next_number
        unknown = sorted((n, j) for j in found if (n := ids.job_number(j)) >= next_number)
        epochs = {j: e for j, e in found.items() if j in jobs and e > jobs[j].epoch}
        far = {j: n for n, j in unknown if n >= next_number + ids.AHEAD_MAX}
        far |= {j: e for j, e in epochs.items() if e > jobs[j].epoch + ids.AHEAD_MAX}
        if far:
            log.warning(
                "names that are too far ahead of the journal are ignored: tasks can make them",
                jobs=list(far)[:SHOWN],
            )
        unknown = [(n, j) for n, j in unknown if j not in far]
        epochs = {j: e for j, e in epochs.items() if j not in far}
        if not unknown and not epochs:
            return
        last = max((number for number, _ in unknown), default=queue.jobs.next_number - 1)
        log.error(
            "the journal does not know all jobs that ran here: it was lost, or is an old copy",
            unknown_jobs=[job for _, job in unknown][:SHOWN] + ["..."] * (len(unknown) > SHOWN),
            unknown_attempts=sorted(ids.attempt_name(j, e) for j, e in epochs.items())[:SHOWN],
            remedy="stop the server and put back the newest journal if there is one; now what"
            f" runs unknown is stopped, and new jobs are numbered from {ids.job_id(last + 1)}",
        )
        self.runtime.post(ids.QUEUE, m.SkipAttempts(last + 1, epochs))

    def _with_datasets_found(self, fleet: Fleet) -> Fleet:
        """The fleet without replicas it names that are not there: no job may start on them."""
        catalogue = self.machines.queue.data.catalogue
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
                dataset = replace(dataset, replicas=found)
            datasets.append(dataset)
        self.missing = tuple(missing)
        return replace(fleet, datasets=tuple(datasets))
