"""Figures for Prometheus: one table of families, read between two commits and written as text.

No family has a label for a job, a user or a host, so that their number stays small. What is read on
the runtime's thread is copied there; the text is made elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

import topmast
from topmast.adapters.handing import handed
from topmast.model import ids
from topmast.model.errors import Unavailable
from topmast.runtime.loop import Runtime
from topmast.runtime.meter import Family as Histograms
from topmast.runtime.meter import Histogram, Meter
from topmast.service.gauges import Gauges, Rows
from topmast.service.validating import Validated

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
HTTP_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds for how long a request takes."""

TURN_S = 2.0
"""How soon the loop of a server that is ready takes a question."""

Figures: TypeAlias = Rows | Mapping[tuple[str, ...], Histogram]


class Kind(StrEnum):
    """How a family's figures may change."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sources(Struct, frozen=True):
    """Where families read."""

    meter: Meter
    http: Histograms
    """How long requests took, by route, method and status."""
    inbox_depth: int
    links: Rows
    """By the process at the other end: 1 if the link is up."""
    epoch: int
    """Of the leader that the orders of this process come from."""
    gauges: Gauges | None = None
    """None in the process of one region."""
    streams: int = 0
    """Readers of the event stream."""
    validated: Validated | None = None
    """None in a process that checks nothing."""


class Family(Struct, frozen=True):
    """One name with its labels, and where its figures come from."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Callable[[Sources], Figures]


_BARE: tuple[str, ...] = ()
_STEPS = {ids.FLEET_PLACER: "fleet_placer"}
"""Addresses of the journal that say too little."""
_VERSION: Rows = {(topmast.__version__,): 1.0}


def _one(value: float) -> Rows:
    return {_BARE: float(value)}


def _state(read: Callable[[Gauges], Rows]) -> Callable[[Sources], Rows]:
    """Figures of the queue's state: none in a process that has no queue."""
    return lambda s: read(s.gauges) if s.gauges is not None else {}


def _by_step(sources: Sources) -> Figures:
    members = sources.meter.handle_s.members.items()
    return {tuple(_STEPS.get(kind, kind) for kind in labels): h for labels, h in members}


def _of_standbys(sources: Sources) -> Rows:
    """A process that leads, or places for one region, lacks nothing."""
    return {}


def _of_tenants(what: str) -> Callable[[Sources], Rows]:
    return _state(lambda gauges: gauges.tenant_gpus[what])


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

FAMILIES: tuple[Family, ...] = (
    # --- jobs
    Family("topmast_pending_jobs", _G, ("tenant", "band", "reason"),
           "Jobs that wait, by the reason that explain gives.",
           _state(lambda g: g.pending_jobs)),
    Family("topmast_pending_gpus", _G, ("tenant", "model"),
           "GPUs that waiting jobs ask for; model any where they name none.",
           _state(lambda g: g.pending_gpus)),
    Family("topmast_running_jobs", _G, ("tenant", "band"),
           "Jobs that have a place: they start, run or stop.",
           lambda s: s.meter.running),
    Family("topmast_submitted_jobs_total", _C, ("tenant", "band"),
           "Jobs that were acknowledged.", lambda s: s.meter.submitted.sums),
    Family("topmast_admitted_jobs_total", _C, ("tenant", "band", "region"),
           "Times that a job got a place.", lambda s: s.meter.admitted.sums),
    Family("topmast_refused_plans_total", _C, ("tenant",),
           "Places that the region refused when they were to be taken.",
           lambda s: s.meter.refused.sums),
    Family("topmast_admission_wait_seconds", _H, ("tenant", "band"),
           "Time from submission to the first start.", lambda s: s.meter.waits_s.members),
    Family("topmast_finished_jobs_total", _C, ("tenant", "state"),
           "Jobs that are over.", lambda s: s.meter.finished.sums),
    Family("topmast_evicted_jobs_total", _C, ("tenant", "cause"),
           "Attempts that were preempted, lost with a host, or could not be launched.",
           lambda s: s.meter.evicted.sums),
    Family("topmast_attempts_total", _C, ("cluster", "outcome"),
           "Attempts that are over.", lambda s: s.meter.attempts.sums),
    Family("topmast_gpu_seconds_total", _C, ("tenant", "model", "work"),
           "GPU-seconds of attempts that are over, with work that was kept or lost.",
           lambda s: s.meter.gpu_s.sums),
    # --- tenants
    Family("topmast_tenant_quota_gpus", _G, ("tenant", "model"),
           "The quota that a tenant states.", _of_tenants("quota")),
    Family("topmast_tenant_used_gpus", _G, ("tenant", "model"),
           "GPUs held within quota, by the tenant and all below it.", _of_tenants("used")),
    Family("topmast_tenant_borrowed_gpus", _G, ("tenant", "model"),
           "GPUs held over quota.", _of_tenants("borrowed")),
    Family("topmast_tenant_lent_gpus", _G, ("tenant", "model"),
           "GPUs of the quota that tenants outside its branch use.", _of_tenants("lent")),
    Family("topmast_tenant_share", _G, ("tenant", "kind"),
           "Part of the fleet that is fair by weight, and of the recent usage of ended attempts.",
           _state(lambda g: g.fair_share)),
    # --- the fleet
    Family("topmast_gpus", _G, ("region", "cluster", "model", "state"),
           "GPUs that are free, held by jobs, or on hosts that take no work.",
           _state(lambda g: g.gpus)),
    Family("topmast_hosts", _G, ("region", "cluster", "state"),
           "Hosts by state.", _state(lambda g: g.hosts)),
    Family("topmast_demand_supply_ratio", _G, ("region",),
           "GPUs that are held or promised over the GPUs present.",
           _state(lambda g: g.demand_supply)),
    Family("topmast_host_events_total", _C, ("event",),
           "What happened to hosts: down, up, closed, opened, suspected.",
           lambda s: s.meter.hosts.sums),
    Family("topmast_link_up", _G, ("region",),
           "1 if the process of the region can be reached; in that of a region: the queue.",
           lambda s: s.links),
    # --- data
    Family("topmast_copies", _G, ("source", "target"),
           "Copies of datasets under way.", _state(lambda g: g.copies)),
    Family("topmast_copies_total", _C, ("source", "target", "result"),
           "Copies of datasets that are over.", lambda s: s.meter.copies.sums),
    Family("topmast_copy_bytes_total", _C, ("source", "target"),
           "Bytes of complete copies.", lambda s: s.meter.copy_bytes.sums),
    # --- this process
    Family("topmast_decide_seconds", _H, ("step",),
           "Time that a machine took for one message: queue, placer, cluster and others.",
           _by_step),
    Family("topmast_commit_seconds", _H, (),
           "Time that a transaction of the journal took.",
           lambda s: {_BARE: s.meter.commit_s}),
    Family("topmast_journal_records_total", _C, (),
           "Records that were committed.", lambda s: _one(s.meter.records)),
    Family("topmast_dropped_events_total", _C, (),
           "Events that no journal can hold, and that were therefore not handled.",
           lambda s: _one(s.meter.dropped)),
    Family("topmast_invariant_checks_total", _C, ("invariant",),
           "Checks of what must hold, by a server with --validate.",
           lambda s: s.validated.checks.sums if s.validated else {}),
    Family("topmast_invariant_broken_total", _C, ("invariant",),
           "Checks that found something broken.",
           lambda s: s.validated.broken.sums if s.validated else {}),
    Family("topmast_invariant_check_seconds", _H, (),
           "Time that one check took, in which no event was handled.",
           lambda s: {_BARE: s.validated.took_s} if s.validated else {}),
    Family("topmast_inbox_depth", _G, (),
           "Events that wait to be handled.", lambda s: _one(s.inbox_depth)),
    Family("topmast_event_streams", _G, (),
           "Readers of the event stream.", lambda s: _one(s.streams)),
    Family("topmast_leader_status", _G, (),
           "1 if this process leads.", lambda s: _one(s.gauges is not None)),
    Family("topmast_leader_epoch", _G, (),
           "How often the leader has changed.", lambda s: _one(s.epoch)),
    Family("topmast_standby_lag_records", _G, (),
           "Records that a standby lacked when it last looked; it has them since.",
           _of_standbys),
    Family("topmast_standby_age_seconds", _G, (),
           "Time since a standby last had every record.",
           _of_standbys),
    Family("topmast_http_request_seconds", _H, ("route", "method", "status"),
           "Time that a request took until its answer began.", lambda s: s.http.members),
    Family("topmast_build_info", _G, ("version",),
           "Always 1; the version of this process.",
           lambda s: _VERSION),
)  # fmt: skip
"""All families, in the order in which they are written."""


def copied(sources: Sources) -> list[tuple[Family, Figures]]:
    """The figures of all families as they are now. On the runtime's thread; O(figures)."""
    return [(family, _copy(family.read(sources))) for family in FAMILIES]


def _copy(figures: Figures) -> Figures:
    return {
        labels: replace(value, counts=list(value.counts)) if isinstance(value, Histogram) else value
        for labels, value in figures.items()
    }  # type: ignore[return-value]


def text(figures: list[tuple[Family, Figures]]) -> bytes:
    """The figures as Prometheus reads them, with those of the process. O(figures)."""
    registry = CollectorRegistry()
    registry.register(_Copied(figures))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Copied(Collector):
    def __init__(self, figures: list[tuple[Family, Figures]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """One metric for each family."""
        for family, figures in self._figures:
            yield _metric(family, figures)


def _metric(family: Family, figures: Figures) -> Metric:
    name, about, labels = family.name, family.help, family.labels
    found: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if family.kind is Kind.HISTOGRAM:
        found = HistogramMetricFamily(name, about, labels=labels)
    elif family.kind is Kind.COUNTER:
        found = CounterMetricFamily(name, about, labels=labels)
    else:
        found = GaugeMetricFamily(name, about, labels=labels)
    for of, value in sorted(figures.items()):
        if isinstance(value, Histogram):
            bounds = [*map(str, value.bounds), "+Inf"]
            counted = list(zip(bounds, map(float, value.cumulative()), strict=True))
            found.add_metric(of, counted, value.sum)  # type: ignore[arg-type]
        else:
            found.add_metric(of, value)  # type: ignore[call-arg, arg-type]
    return found


def of_standby(epoch: int, lag_records: int, age_s: float) -> bytes:
    """The figures of a process that stands by: it leads nothing, and has counted nothing."""
    rows = {
        "topmast_leader_status": _one(0), "topmast_leader_epoch": _one(epoch),
        "topmast_standby_lag_records": _one(lag_records),
        "topmast_standby_age_seconds": _one(age_s), "topmast_build_info": _VERSION,
    }  # fmt: skip
    return text([(family, rows[family.name]) for family in FAMILIES if family.name in rows])


class Metrics:
    """What a process tells of itself. ``look``: brings what it knows of other processes up to date.

    ``read`` is called on the runtime's thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        read: Callable[[Metrics], Sources],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self.runtime = runtime
        self.http = Histograms(HTTP_S)
        self._read, self._look = read, look

    async def text(self) -> bytes:
        """All figures as Prometheus reads them."""
        await asyncio.to_thread(self._look)
        figures = await handed(self.runtime.ask(lambda: copied(self._read(self))))
        return await asyncio.to_thread(text, figures)

    async def ready(self) -> None:
        """Return once the loop has turned; raises Unavailable if that takes too long."""
        turned = handed(self.runtime.ask(lambda: None))
        try:
            await asyncio.wait_for(turned, TURN_S)
        except TimeoutError as error:
            raise Unavailable(f"the loop did not turn within {TURN_S:g} s") from error
