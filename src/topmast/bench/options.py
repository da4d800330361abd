"""What the benchmarks of large fleets are told; None takes what a benchmark does by default."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from topmast.bench.fleet import FleetSize


class FleetOptions(Struct, frozen=True, kw_only=True):
    """The fleet, and what to do with it."""

    regions: int | None = None
    clusters: int | None = None
    hosts: int | None = None
    gpus_per_host: int | None = None
    fill: float | None = None
    sizes_gpus: tuple[int, ...] | None = None
    rate: float | None = None
    load: float | None = None
    profile: str | None = None
    delay_s: float | None = None
    apart: bool = False
    mix: bool = False
    """Of `search`."""
    settings: dict[str, str] = {}
    """Of `search` and `burst`."""
    scaling: bool = False
    first_use: bool = True
    out: Path | None = None

    def size(self, usual: FleetSize | None = None) -> FleetSize:
        """How large the fleet is; ``usual`` where it is not said."""
        usual = usual or FleetSize()
        return FleetSize(
            self.regions or usual.regions,
            self.clusters or usual.clusters,
            self.hosts or usual.hosts,
            self.gpus_per_host or usual.gpus_per_host,
        ).checked()


class PlanDataOptions(Struct, frozen=True, kw_only=True):
    """What to measure: the cases (by number, None: all), the seed, HiGHS beside it or not."""

    cases: tuple[int, ...] | None = None
    seed: int = 0
    peer: bool = True
    limit_s: float | None = None
    out: Path | None = None


class FillingOptions(Struct, frozen=True, kw_only=True):
    """What to place where."""

    trace: Path
    fleet: Path
    format: str = "topmast"
    profile: str = "mast"
    settings: dict[str, str] = {}
    asked: float = 1.3
    """The GPUs that all jobs request, over those there are."""
    seeds: int = 3
    seed: int = 0


class SlowPathOptions(Struct, frozen=True, kw_only=True):
    """Of `mover`: bytes and files; of `plan-capacity`: fault domains and the time for one plan."""

    size_bytes: int | None = None
    files: int | None = None
    domains: int | None = None
    limit_s: float | None = None


class EnginesOptions(Struct, frozen=True, kw_only=True):
    """What to measure."""

    fleet: Path
    names: tuple[str, ...] = ()
    """Of clusters; empty: all of the file."""
    starts: int = 10
    """Gangs of which the latency is taken, one after the other."""
    gangs: int = 50
    """Gangs that are ordered at once."""
    tasks: int = 2
    """Of each gang, one on a host; fewer where the cluster has fewer hosts."""
    jobs: int = 1000
    """That the scheduler knows when it is listed."""
    home: str = ""
    """Where hosts reach this machine; empty: where runners do."""


class ClosedLoopOptions(Struct, frozen=True, kw_only=True):
    """Real jobs, foretold by the simulator."""

    engine: str = "local"
    """Or `slurm`: a cluster of its own on this machine, with a controller and daemons."""
    jobs: int = 200
    seed: int = 0
    profiles: tuple[str, ...] = ("fifo", "easy", "srtf")
    out: Path | None = None
