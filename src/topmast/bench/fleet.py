"""A large fleet in memory, filled by Topmast's own machines: what the search is measured on.

Everything goes through the messages of a server: the fleet placer answers a request, the region's
placer commits the plan, its cluster would report that the gang runs and keeps checkpoints. What is
behind the cluster managers is left out, and so are queue and journal.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.queue import Mix
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import (
    MILLI,
    Accelerator,
    Band,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.plan import Free, GroupRequest, PlacementRequest, Plan, Preempt, RegionTerms
from topmast.model.states import Outcome
from topmast.policies.registry import load_profile
from topmast.ports import Decision as Handled
from topmast.runtime.machines import Machines

MODEL = "H100"
HOSTS_PER_RACK = 16
RACKS_PER_POD = 3
CPUS_PER_GPU, MEMORY_PER_GPU_BYTES = 12.0, 128 << 30
LIMITED_SHARE = 0.25
"""How many of the filling jobs ask for CPUs and memory as well."""
ASKED_CPUS, ASKED_MEMORY_BYTES = 10.0, 96 << 30
"""Per GPU, of those."""
FILLING_BANDS = (Band.OPPORTUNISTIC, Band.LOW, Band.NORMAL)
FILLED_S = 14_400.0
"""An empty fleet would be filled wholly in so long a time."""
LAUNCH_S = 5.0
SIZES_GPUS = (1, 2, 4, 8, 16, 64)
PATIENCE = 50
"""So many jobs in a row that find no place, and the fleet is as full as it gets."""


class FleetSize(Struct, frozen=True):
    """How many of each in the whole fleet; clusters and hosts are spread as evenly as can be."""

    regions: int = 20
    clusters: int = 200
    hosts: int = 20_000
    gpus_per_host: int = 8

    @property
    def gpus(self) -> int:
        """In the whole fleet."""
        return self.hosts * self.gpus_per_host

    def checked(self) -> FleetSize:
        """Itself, if there are enough clusters for the regions and hosts for the clusters.

        Raises InvalidInput.
        """
        if self.clusters < self.regions:
            raise InvalidInput(
                f"{self.clusters} clusters are not enough for {self.regions} regions",
                field="clusters", remedy="give at least one cluster for each region",
            )  # fmt: skip
        if self.hosts < self.clusters:
            raise InvalidInput(
                f"{self.hosts} hosts are not enough for {self.clusters} clusters",
                field="hosts", remedy="give at least one host for each cluster",
            )  # fmt: skip
        return self


def regions_of(size: FleetSize) -> list[RegionSpec]:
    """The fleet: racks of 16 hosts, pods of 3 racks, clusters of one datacenter each."""
    clusters = [
        ClusterSpec(f"c{c:04d}", tuple(_host(f"c{c:04d}h{i:04d}", i, size) for i in range(count)))
        for c, count in enumerate(_evenly(size.hosts, size.clusters))
    ]
    regions, at = [], 0
    for r, count in enumerate(_evenly(size.clusters, size.regions)):
        regions.append(RegionSpec(f"r{r:03d}", tuple(clusters[at : at + count])))
        at += count
    return regions


def _evenly(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


def _host(name: str, number: int, size: FleetSize) -> HostSpec:
    rack = number // HOSTS_PER_RACK
    return HostSpec(
        name, MODEL, size.gpus_per_host,
        cpus=CPUS_PER_GPU * size.gpus_per_host,
        memory_bytes=MEMORY_PER_GPU_BYTES * size.gpus_per_host,
        datacenter="d0", pod=f"p{rack // RACKS_PER_POD}", rack=f"k{rack}",
    )  # fmt: skip


def job_of(gpus: int, gpus_per_host: int, band: Band, *, limited: bool = False) -> JobSpec:
    """A job of so many GPUs: one task, or whole hosts that prefer one rack and require one pod.

    ``limited``: it asks for CPUs and memory as well.
    """
    tasks = max(1, gpus // gpus_per_host)
    return gang_of(tasks, min(gpus, gpus_per_host), band, limited=limited)


def gang_of(tasks: int, gpus: int, band: Band, *, limited: bool = False) -> JobSpec:
    """A gang of equal tasks of so many GPUs each."""
    topology = Topology(Level.POD, Level.RACK) if tasks > 1 else Topology()
    needs = Resources(
        (Accelerator(MODEL, gpus * MILLI),),
        ASKED_CPUS * gpus if limited else 0.0,
        ASKED_MEMORY_BYTES * gpus if limited else 0,
    )
    return JobSpec(
        "bench", (TaskGroup("main", tasks, needs, "true"),), band=band, topology=topology
    )


class Filled:
    """The machines of a fleet, and jobs that hold a part of it. ``now_s`` is the fleet's time."""

    def __init__(
        self,
        size: FleetSize,
        seed: int,
        profile: str = "mast",
        settings: Mapping[str, str] | None = None,
        *,
        mixed: bool = False,
    ) -> None:
        """``mixed``: requests tell the mix of tasks seen lately, as those of a queue do."""
        self.size = size.checked()
        self.profile = load_profile(profile, settings)
        self._mix = Mix(gpus={MODEL: size.gpus}) if mixed else None
        self.machines = Machines(self.profile)
        self.now_s = 0.0
        self.held_gpus = 0
        self.rng = random.Random(seed)
        self._numbers = itertools.count(1)
        self._specs: dict[str, JobSpec] = {}
        self._held_in: dict[str, int] = {}
        self._supply: dict[str, int] = {}
        for region in regions_of(size):
            self._tell(ids.placer(region.name), m.ConfigureRegion(region))
            self._held_in[region.name] = 0
            self._supply[region.name] = sum(h.gpus for c in region.clusters for h in c.hosts)
        self.machines.pool.index()

    def _tell(self, address: str, message: m.Message) -> Handled:
        machine = self.machines.at(address)
        assert machine is not None
        return machine.handle(message, self.now_s)

    @property
    def running(self) -> int:
        """Jobs that hold GPUs."""
        return len(self._specs)

    @property
    def fill(self) -> float:
        """The part of the fleet that is held."""
        return self.held_gpus / self.size.gpus

    # --- one decision -----------------------------------------------------------------------------

    def question(self, spec: JobSpec, *, preempt: bool = False) -> m.RequestFleetBids:
        """What the queue would ask about a job, with the regions' demand as it is."""
        number = next(self._numbers)
        groups = tuple(GroupRequest(g.name, g.count, g.resources) for g in spec.groups)
        mode = Preempt() if preempt else Free()
        models = tuple(range(max(1, len(spec.groups[0].resources.accelerators))))
        ask = PlacementRequest(f"j{number}", groups, spec.topology, spec.band, mode, models)
        if self._mix is not None:
            self._mix.saw([spec])
            self._mix.settle()
            by_shapes = self.profile.score.shapes and self._mix.shapes
            ask = replace(ask, mix=self._mix.current, shapes=by_shapes or UNSET)
        return m.RequestFleetBids(number, ask, self.terms())

    def terms(self) -> dict[str, RegionTerms]:
        """Demand over supply, by region."""
        return {
            region: RegionTerms(balance=held / self._supply[region])
            for region, held in self._held_in.items()
        }

    def decide(self, question: m.RequestFleetBids) -> Plan | None:
        """The answer of the fleet placer: the best plan over all regions, if there is one."""
        (send,) = self.machines.fleet_placer.handle(question, self.now_s).sends
        assert isinstance(send.message, m.FleetBids)
        return best_of(send.message)

    def commit(self, plan: Plan, spec: JobSpec) -> m.CommitPlan:
        """What the queue would send for a plan that won; `carry_out` lets the placer take it."""
        return m.CommitPlan(plan, 1, spec, spec.band)

    def carry_out(self, commit: m.CommitPlan) -> None:
        """The placer takes the slots, victims let go of theirs, and the job is launched."""
        plan = commit.plan
        handled = self._tell(ids.placer(plan.region), commit)
        assert not any(isinstance(send.message, m.PlanRefused) for send in handled.sends)
        self._enter(plan, commit.spec)
        for victim in plan.victims:
            self.end(plan.region, victim.job, Outcome.PREEMPTED)

    def _enter(self, plan: Plan, spec: JobSpec) -> None:
        gpus = plan.gpus_milli // MILLI
        self._specs[plan.job] = spec
        self._held_in[plan.region] += gpus
        self.held_gpus += gpus

    def end(self, region: str, job: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        """A job's cluster says that nothing of it runs any more."""
        held = self.machines.placers[region].state.allocations[job]
        gpus = held.plan.gpus_milli // MILLI
        ended = m.AttemptEnded(job, held.epoch, outcome, held.start_s, self.now_s, 0.0)
        self._tell(ids.placer(region), ended)
        del self._specs[job]
        self._held_in[region] -= gpus
        self.held_gpus -= gpus

    # --- filling ----------------------------------------------------------------------------------

    def fill_up(self, fraction: float, sizes_gpus: Sequence[int] = SIZES_GPUS) -> None:
        """Place seeded jobs until so much is held, or PATIENCE of them in a row find no place.

        They begin one after the other, and have kept their work up to some moment since.
        """
        begun_s, begun = self.now_s, self.held_gpus
        target = round(fraction * self.size.gpus)
        gpu_s = FILLED_S / self.size.gpus
        placed: list[tuple[Plan, float]] = []
        failed = 0
        while self.held_gpus < target and failed < PATIENCE:
            self.now_s = begun_s + (self.held_gpus - begun) * gpu_s
            spec = self._filling_job(sizes_gpus)
            plan = self.decide(self.question(spec))
            if plan is None:
                failed += 1
                continue
            failed = 0
            self.carry_out(self.commit(plan, spec))
            placed.append((plan, self.now_s))
        for plan, start_s in placed:
            self._run(plan, start_s + LAUNCH_S)

    def _filling_job(self, sizes_gpus: Sequence[int]) -> JobSpec:
        rng = self.rng
        limited = rng.random() < LIMITED_SHARE
        gpus, band = rng.choice(sizes_gpus), rng.choice(FILLING_BANDS)
        return job_of(gpus, self.size.gpus_per_host, band, limited=limited)

    def _run(self, plan: Plan, from_s: float) -> None:
        """The gang has been up since then, and its last checkpoint is of some moment since."""
        placer, now_s = ids.placer(plan.region), self.now_s
        self.now_s = min(from_s, now_s)
        self._tell(placer, m.AttemptRunning(plan.job, 1))
        kept_s = self.rng.uniform(self.now_s, now_s)
        self.now_s = now_s
        self._tell(placer, m.AttemptCheckpointed(plan.job, 1, 1, kept_s))


def best_of(offered: m.FleetBids) -> Plan | None:
    """The plan of an answer, if there is one."""
    return next((offer.plan for offer in offered.offers.values() if offer.plan), None)


def sizes_that_fit(size: FleetSize, sizes_gpus: Sequence[int]) -> Iterator[int]:
    """The gang sizes with tasks that fill whole hosts, or a part of one."""
    for gpus in sizes_gpus:
        if gpus <= size.gpus_per_host or gpus % size.gpus_per_host == 0:
            yield gpus
