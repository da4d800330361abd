"""What people are shown of what they do to jobs and to the fleet."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from topmast.model.fleet_changes import FleetChange
from topmast.model.timed_quota import TimedQuota
from topmast.model.views import ClusterView, DrainView, HostView, JobView

ONCE = frozenset({"preempt", "requeue"})
"""Acts on jobs that stop one which runs again by now: no client sends such a request twice."""


class JobEffect(Struct, frozen=True):
    """What an act does to one job, or would do."""

    job: str
    effect: str
    """``done``, ``unchanged`` or ``refused``."""
    why: str = ""
    """Why it does nothing, or what it does only later."""
    gpus: float = 0.0
    """GPUs that the job lets go of."""
    lost_gpu_h: float = 0.0
    """GPU-hours of work that nothing keeps: all since the last checkpoint; of a job that is
    cancelled, all so far."""


class JobsActed(Struct, frozen=True):
    """What an act does to jobs, or would do."""

    verb: str
    dry_run: bool
    """True: nothing was done, ``effects`` says what would be."""
    jobs: tuple[JobView, ...]
    """The jobs as they stand now, in the order of their numbers; without those not known."""
    effects: tuple[JobEffect, ...]
    """One for each job that was named or selected."""
    counts: dict[str, int]
    """How many jobs by effect."""
    gpus: float
    """The sum over the jobs."""
    lost_gpu_h: float
    """The sum over the jobs."""


class JobFileView(Struct, frozen=True):
    """What a job was submitted with, as a job file."""

    id: str
    user: str
    """For this user it was submitted."""
    job: dict[str, Any]
    """The document of a job file, with what was changed since."""


class TenantPause(Struct, frozen=True):
    """What it means for jobs that a tenant is paused or resumed, or would be."""

    tenant: str
    paused: str
    """Why no job of it starts, as things are now; empty: they may."""
    dry_run: bool
    """True: nothing was done."""
    waiting: int
    """Jobs of it and of the tenants below it that waited."""
    running: int
    """Those that had GPUs."""
    stops: tuple[JobEffect, ...]
    """Those of the latter that a drain stops at their checkpoints."""
    gpus: float
    """The sum over the jobs that are stopped."""
    lost_gpu_h: float
    """The sum over the jobs that are stopped."""
    effect: str = "done"
    """``done`` or ``unchanged``; of a dry run what it would be."""


class HostEffect(Struct, frozen=True):
    """What an act does to one host, or would do."""

    host: str
    effect: str
    """``done`` or ``unchanged``."""


class HostsActed(Struct, frozen=True):
    """What an act does to hosts, or would do."""

    verb: str
    dry_run: bool
    """True: nothing was done, ``effects`` says what would be."""
    hosts: tuple[HostView, ...]
    """The hosts that were named or selected, as they stand now, with the jobs on each."""
    effects: tuple[HostEffect, ...]
    """One for each of them."""
    gpus: float
    """On hosts that the act changes."""
    jobs: tuple[str, ...]
    """Jobs with tasks on hosts that the act changes."""
    drains: tuple[DrainView, ...] = ()
    """Of a drain: where each job goes, or why not."""


class ClusterActed(Struct, frozen=True):
    """What it means that a cluster is closed or opened, or would be."""

    verb: str
    dry_run: bool
    """True: nothing was done."""
    cluster: ClusterView
    """As it stands now."""
    effect: str
    """``done`` or ``unchanged``; of a dry run what it would be."""
    jobs: tuple[str, ...]
    """Jobs with tasks there, which go on."""


class QuotaActed(Struct, frozen=True):
    """What a tenant's quota for a while is, or would be."""

    tenant: str
    dry_run: bool
    """True: nothing was done."""
    before: dict[str, int]
    """Its quota by GPU model now, or before the act."""
    quota: dict[str, int]
    """Its quota while it lasts; of an act that ends it, its quota from then on."""
    from_s: float | None
    until_s: float | None
    """None: for good."""
    reason: str
    waiting: int
    """Jobs of it and of the tenants below it that wait."""
    running: int
    """Those that have GPUs."""
    replaces: TimedQuota | None = None
    """The quota for a while that the tenant had, or was to have, and has no more."""
    warnings: tuple[str, ...] = ()
    """GPU models of which the quotas then promise more than there are."""


class ReservationView(Struct, frozen=True):
    """Hosts that are reserved for a while."""

    name: str
    """Empty in a dry run."""
    state: str
    """``planned``, or ``begun``."""
    from_s: float
    until_s: float
    """When it ends by itself."""
    hosts: tuple[str, ...]
    """The hosts that it reserves now."""
    cluster: str
    """If a whole cluster is reserved."""
    region: str
    """If a whole region is."""
    tenants: tuple[str, ...]
    """Their jobs may start there all the same."""
    by: str
    reason: str
    gpus: float
    """On these hosts."""
    jobs: tuple[str, ...]
    """Jobs there that may run on when it begins."""


class FleetView(Struct, frozen=True):
    """The fleet as it is."""

    version: str
    """Another one after each change."""
    fleet: dict[str, Any]
    """The document of a fleet file."""


class FleetDiff(Struct, frozen=True):
    """What another fleet file changes."""

    version: str
    """Of the fleet that it is compared with; after an apply, of the fleet as it is now."""
    changes: tuple[FleetChange, ...]
    warnings: tuple[str, ...] = ()
    """What else to know: roles and service accounts at tenants that go, datasets that are
    not added."""
