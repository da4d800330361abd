"""Early binding: jobs that wait in one region or cluster, to which they were sent.

The profile's hook `bind` sends them. A binding is a fact, so that it survives a restart; loads and
alarms are working memory, counted anew from the jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from topmast.fast.queue.data.catalogue import Catalogue
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.fast.timers import Timers
from topmast.model.dataset import ReplicaState
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec
from topmast.model.job import MILLI, JobSpec, Resources, needs_of_engine
from topmast.model.plan import Binding, capabilities_of
from topmast.policies.base import BindPolicy, BindView, Bools, Floats, Ints
from topmast.policies.options import BindOptions

MANY = 1 << 30
"""Tasks without needs that one host takes."""


class Loads:
    """GPUs wanted and held by cluster (k), now and as signalled last, every ``signal_s``."""

    def __init__(self, clusters: int, signal_s: float) -> None:
        self._signal_s = signal_s
        self._milli: Ints = np.zeros(clusters, np.int64)
        self._signalled = self._milli.copy()
        self._period = 0
        self._of: dict[str, tuple[int, int]] = {}

    def put(self, job: str, row: int, milli: int, now: float) -> None:
        """From now on a job waits or runs in this cluster alone. O(1), or O(k) after a signal."""
        self.drop(job, now)
        self._of[job] = row, milli
        self._milli[row] += milli

    def drop(self, job: str, now: float) -> None:
        """A job is over, or bound nowhere."""
        self._signal(now)
        if job in self._of:
            row, milli = self._of.pop(job)
            self._milli[row] -= milli

    def seen(self, now: float) -> Ints:
        """What a chooser sees (k): fresh if there is no period. O(k)."""
        self._signal(now)
        return (self._signalled if self._signal_s else self._milli).copy()

    def _signal(self, now: float) -> None:
        """At the first change or look after a period: signal what held when the period ended."""
        if self._signal_s:
            period = int(now // self._signal_s)
            if period != self._period:
                self._period = period
                self._signalled = self._milli.copy()


class EarlyBinding:
    """Sends jobs to places. Without ``bind`` it sends none."""

    def __init__(self, options: BindOptions, bind: BindPolicy | None) -> None:
        self.options = options
        self._bind = bind
        self._clusters: list[tuple[str, ClusterSpec]] = []
        self._entitlements = Entitlements(Ledger(()))
        self._row_of: dict[Binding, int] = {}
        self._region: Ints = np.zeros(0, np.int64)
        self._gpus: Floats = np.zeros(0)
        self._regions: list[str] = []
        self._able: dict[object, Ints] = {}
        self._loads = Loads(0, options.signal_s)
        self.patience: Timers[str] = Timers()
        """When each waiting job has waited long enough where it is."""

    def configure(
        self,
        fleet: Fleet,
        entitlements: Entitlements,
        records: Mapping[str, JobRecord],
        now: float,
    ) -> None:
        """Take up the clusters of a fleet, and the jobs bound to them. O(clusters + jobs)."""
        if self._bind is None:
            return
        self._entitlements = entitlements
        regions = sorted(fleet.regions, key=lambda r: r.name)
        self._regions = [region.name for region in regions]
        self._clusters = [
            (r.name, c) for r in regions for c in sorted(r.clusters, key=lambda c: c.name)
        ]
        self._row_of = {Binding(r, c.name): i for i, (r, c) in enumerate(self._clusters)}
        self._region = np.array([self._regions.index(r) for r, _ in self._clusters], np.int64)
        self._gpus = np.array([float(sum(h.gpus for h in c.hosts)) for _, c in self._clusters])
        self._able = {}
        self._loads = Loads(len(self._clusters), self.options.signal_s)
        for record in records.values():
            if not record.finished:
                self.note(record, now)

    # --- where to ---------------------------------------------------------------------------------

    @property
    def binds(self) -> bool:
        """Whether jobs are sent to places at all."""
        return self._bind is not None

    def places(
        self, specs: Sequence[JobSpec], first: int, catalogue: Catalogue, now: float
    ) -> tuple[Binding | None, ...]:
        """Where new jobs, numbered from ``first``, have to wait; each knows of those before it."""
        if self._bind is None:
            return ()
        found: list[Binding | None] = []
        more: Ints = np.zeros(len(self._clusters), np.int64)
        for offset, spec in enumerate(specs):
            place = self._choose(spec, first + offset, 0, None, catalogue, now, more)
            if place is not None and place in self._row_of and not self.options.signal_s:
                more[self._row_of[place]] += spec.gpus_milli()
            found.append(place)
        return tuple(found)

    def again(self, record: JobRecord, catalogue: Catalogue, now: float) -> Binding | None:
        """The next place to wait for a job that waited long, or one that lost its place."""
        return self._choose(
            record.spec, record.number, record.bindings, record.bound, catalogue, now, None
        )

    def is_astray(self, record: JobRecord) -> bool:
        """Whether a job waits for a place that is gone, or has become too small for it."""
        place = record.bound
        if place is None or self._bind is None:
            return False
        if place.cluster is None:
            return place.region not in self._regions
        if record.finished or record.plan is not None or place not in self._row_of:
            return place not in self._row_of
        able = self._able_to_hold(record.spec)
        return len(able) > 0 and self._row_of[place] not in able

    def _choose(
        self,
        spec: JobSpec,
        number: int,
        times: int,
        bound: Binding | None,
        catalogue: Catalogue,
        now: float,
        more: Ints | None,
    ) -> Binding | None:
        """Ask the policy; None, so anywhere, if no cluster could hold the job. O(clusters)."""
        if self._bind is None:
            return None
        rows, has_data = self._eligible(spec, catalogue)
        if not len(rows):
            return None
        milli = self._loads.seen(now)
        if more is not None:
            milli += more
        at_home = self._at_home(spec, rows, catalogue)
        at = np.flatnonzero(rows == self._row_of[bound]) if bound in self._row_of else rows[:0]
        view = BindView(
            number=number,
            times=times,
            bound=int(at[0]) if len(at) else -1,
            region=self._region[rows],
            at_home=at_home,
            has_data=has_data,
            gpus=self._gpus[rows],
            load=milli[rows] / MILLI / np.maximum(self._gpus[rows], 1.0),
        )
        region, cluster = self._clusters[int(rows[self._bind.choose(view)])]
        return Binding(region, None if self._bind.whole_region else cluster.name)

    def _eligible(self, spec: JobSpec, catalogue: Catalogue) -> tuple[Ints, Bools]:
        """The clusters that could hold a job, and which of them have all its data."""
        able = self._able_to_hold(spec)
        known = [catalogue.datasets[n] for n in spec.datasets if n in catalogue.datasets]
        complete = ReplicaState.COMPLETE
        may = np.array(
            [
                all(d.spec.allowed is None or r in d.spec.allowed for d in known)
                for r in self._regions
            ]
        )
        has = np.array([all(d.replicas.get(r) is complete for d in known) for r in self._regions])
        rows = able[may[self._region[able]]]
        return rows, has[self._region[rows]]

    def _able_to_hold(self, spec: JobSpec) -> Ints:
        """The clusters that could hold a job if they were empty, on models that quota may allow.

        Of a job that quota never allows anything all that it asks for counts. O(choices x models x
        depth of the tenant) if asked for its like.
        """
        ever = self._entitlements.ever(spec)
        kind = (needs_of_engine(spec), ever, *((g.least, g.resources) for g in spec.groups))
        able = self._able.get(kind)
        if able is None:
            every = not ever or len(ever) == len(self._entitlements.accelerators(spec))
            asks = [spec] if every else [self._entitlements.with_only(spec, c) for c in ever]
            fits = [
                row
                for row, (_, cluster) in enumerate(self._clusters)
                if any(could_hold(cluster, ask) for ask in asks)
            ]
            able = self._able[kind] = np.array(fits, np.int64)
        return able

    def _at_home(self, spec: JobSpec, rows: Ints, catalogue: Catalogue) -> Bools:
        """Which clusters are the job's home: the one that it names, or its home region's. O(k)."""
        if spec.home and spec.home not in self._regions:
            named = np.array([self._clusters[row][1].name == spec.home for row in rows], np.bool_)
            if any(cluster.name == spec.home for _, cluster in self._clusters):
                return named
        found: Bools = self._region[rows] == self._home(spec, catalogue)
        return found

    def _home(self, spec: JobSpec, catalogue: Catalogue) -> int:
        """The home region's number: the named one, one with the first dataset, or the first."""
        if spec.home in self._regions:
            return self._regions.index(spec.home)
        first = catalogue.datasets.get(spec.datasets[0]) if spec.datasets else None
        holders = [] if first is None else [r for r in self._regions if r in first.replicas]
        return self._regions.index(holders[0]) if holders else 0

    # --- books ------------------------------------------------------------------------------------

    def note(self, record: JobRecord, now: float) -> None:
        """A job is bound to where its record says. O(1)."""
        row = None if record.bound is None else self._row_of.get(record.bound)
        if row is not None:
            self._loads.put(record.id, row, record.spec.gpus_milli(), now)

    def forget(self, job: str, now: float) -> None:
        """A job is over."""
        self._loads.drop(job, now)

    def waits(self, record: JobRecord, now: float) -> None:
        """A job begins to wait where it was sent: its patience begins. O(log jobs)."""
        patience_s = self.options.patience_s
        if record.bound is not None and patience_s is not None:
            self.patience.set(record.id, now + patience_s, record.number)


def could_hold(cluster: ClusterSpec, spec: JobSpec) -> bool:
    """Whether an empty cluster has room for each group by itself, and its engine can run it.

    O(groups x models x hosts).
    """
    return all(cluster.can(capability) for capability in capabilities_of(spec)) and all(
        _tasks_in(cluster, g.resources) >= g.least for g in spec.groups
    )


def _tasks_in(cluster: ClusterSpec, needs: Resources) -> int:
    """How many tasks fit on the hosts of the one model that takes the most of them.

    Tasks without GPUs may be on hosts of all models at once.
    """
    choices = [(a.model, a.gpus_milli) for a in needs.accelerators] or [(None, 0)]
    most = 0
    for model, milli in choices:
        by_model: Counter[str] = Counter()
        for host in cluster.hosts:
            if not milli or model in (None, host.model):
                by_model[host.model if milli else ""] += _tasks_on(host, needs, milli)
        most = max(most, *by_model.values(), 0)
    return most


def _tasks_on(host: HostSpec, needs: Resources, milli: int) -> int:
    """How many tasks an empty host takes, each with ``milli`` thousandths of GPUs."""
    room = [MANY]
    if milli:
        room.append(host.gpus * (MILLI // milli) if milli < MILLI else host.gpus * MILLI // milli)
    if needs.cpus > 0 and host.cpus > 0:
        room.append(int(host.cpus // needs.cpus))
    if needs.memory_bytes and host.memory_bytes:
        room.append(host.memory_bytes // needs.memory_bytes)
    return min(room)
