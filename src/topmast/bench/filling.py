"""How many GPUs stay idle on an overloaded fleet: Topmast's placement and simpler ones.

Jobs of a trace come in random order and never end, until they have requested ``asked`` times the
GPUs of the fleet. Counted are the GPUs that no job could use by then: on hosts without CPUs or
memory left, and parts of GPUs that are too small. This measures fragmentation as *Beware of
Fragmentation* does (Weng et al., ATC '23).

Topmast's answers come from the fleet placer and are committed by the region's placer, as in a
server. Its rivals: `random`, any host with room, and `best_fit`, the host with least left over.
They place the tasks of a gang one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import UNSET

from topmast.adapters.kernels import load_kernels
from topmast.bench.fleet import best_of
from topmast.bench.options import FillingOptions
from topmast.fast.queue import Entitlements, Ledger, Mix, takes_any
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import Fleet, HostSpec
from topmast.model.job import MILLI, JobSpec, Resources
from topmast.model.plan import PlacementRequest, RegionTerms
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.runtime.machines import Machines
from topmast.sim.workload import Workload
from topmast.traces.reading import read
from topmast.traces.trace import Trace

PEERS = ("random", "best_fit")


def measure_filling(options: FillingOptions) -> dict[str, Any]:
    """The part of the GPUs that stays idle, by seed and in the mean."""
    trace, fleet = read(options.trace, options.format), read_fleet(options.fleet)
    profile = load_profile(options.profile, options.settings)
    load_kernels()
    begun_s = time.perf_counter()
    found = filled(
        trace, fleet, profile, options.asked, range(options.seed, options.seed + options.seeds)
    )
    rows = [
        {"seed": options.seed + number, **dict(zip(found, row, strict=True))}
        for number, row in enumerate(zip(*found.values(), strict=True))
    ]
    means = {f"{name}_percent": float(np.mean(values)) for name, values in found.items()}
    return {
        "unallocated_pct": means["topmast_unallocated_percent"],
        "at_100_pct": means.pop("topmast_at_100_percent"),
        **means,
        "runs": rows,
        "profile": options.profile,
        "asked": options.asked,
        "orders": options.seeds,
        "seeds": options.seeds,
        "seed": options.seed,
        "trace": options.trace.name,
        "gpus": sum(fleet.gpus().values()),
        "took_s": time.perf_counter() - begun_s,
    }


def filled(
    trace: Trace, fleet: Fleet, profile: Profile, asked: float, seeds: range
) -> dict[str, list[float]]:
    """Percent of the GPUs that stay idle, for each seed: by ``profile``, and by each rival.

    ``topmast_at_100`` is what was idle when the jobs had requested as many GPUs as there are.
    """
    names = ("topmast_unallocated", "topmast_at_100", *(f"{name}_unallocated" for name in PEERS))
    found: dict[str, list[float]] = {name: [] for name in names}
    for seed in seeds:
        specs = drawn(trace, fleet, asked, seed)
        idle = idle_after(specs, fleet, profile)
        found["topmast_unallocated"].append(100 * idle[-1])
        found["topmast_at_100"].append(100 * idle[_all_asked(specs, fleet)])
        for name in PEERS:
            found[f"{name}_unallocated"].append(100 * idle_beside(name, specs, fleet, seed))
    return found


def drawn(trace: Trace, fleet: Fleet, asked: float, seed: int) -> list[JobSpec]:
    """Jobs in random order that request so many times the fleet's GPUs; a short trace repeats."""
    rng = np.random.default_rng((seed, 0xF111))
    wanted = asked * sum(fleet.gpus().values())
    by_row = {a.row: a.spec for a in Workload(trace, fleet).arrivals()}
    specs: list[JobSpec] = []
    gpus = 0.0
    if not (wanted and trace.total_gpus().sum() > 0):
        raise InvalidInput("the jobs or the hosts have no GPUs", field="trace, fleet")
    while gpus < wanted:
        for row in rng.permutation(len(trace)).tolist():
            specs.append(by_row[row])
            gpus += by_row[row].gpus_milli() / MILLI
            if gpus >= wanted:
                break
    return specs


def _all_asked(specs: list[JobSpec], fleet: Fleet) -> int:
    """The first job with which as many GPUs are requested as there are; else the last."""
    asked = np.cumsum([spec.gpus_milli() for spec in specs])
    enough = asked >= MILLI * sum(fleet.gpus().values())
    return int(np.argmax(enough)) if enough.any() else len(specs) - 1


# --- by Topmast ---------------------------------------------------------------------------------


def idle_after(specs: list[JobSpec], fleet: Fleet, profile: Profile) -> list[float]:
    """The part of the GPUs that is idle after each of these jobs, placed by Topmast in turn."""
    machines, mix, by_shapes = Machines(profile), Mix(gpus=fleet.gpus()), profile.score.shapes
    named = Entitlements(Ledger(()))
    named.configure(fleet)
    for region in fleet.regions:
        _at(machines, ids.placer(region.name), m.ConfigureRegion(region))
    terms = {region.name: RegionTerms() for region in fleet.regions}
    free_milli = all_milli = MILLI * sum(fleet.gpus().values())
    idle: list[float] = []
    for number, spec in enumerate(specs, 1):
        mix.saw([spec])
        mix.settle()
        ask = PlacementRequest(
            f"j{number}", named.asked_for(spec.groups), spec.topology, spec.band, mix=mix.current,
            shapes=(by_shapes and mix.shapes) or UNSET,
            scarcity=mix.scarcity if by_shapes and takes_any(spec.groups) else UNSET,
        )  # fmt: skip
        (send,) = machines.fleet_placer.handle(m.RequestFleetBids(number, ask, terms), 0.0).sends
        assert isinstance(send.message, m.FleetBids)
        plan = best_of(send.message)
        if plan is not None:
            _at(machines, ids.placer(plan.region), m.CommitPlan(plan, 1, spec, spec.band))
            free_milli -= plan.gpus_milli
        idle.append(free_milli / all_milli)
    return idle


def _at(machines: Machines, address: str, message: m.Message) -> None:
    machine = machines.at(address)
    assert machine is not None
    machine.handle(message, 0.0)


# --- by simpler rules ---------------------------------------------------------------------------


class _Hosts:
    """What is free on each host: thousandths of each GPU (H x widest), CPUs and bytes (H)."""

    def __init__(self, fleet: Fleet) -> None:
        hosts = [h for r in fleet.regions for c in r.clusters for h in c.hosts]
        widest = max(h.gpus for h in hosts)
        self.models = np.array([h.model for h in hosts])
        self.free_milli = np.array(
            [[MILLI if i < h.gpus else 0 for i in range(widest)] for h in hosts]
        )
        self.cpus = np.array([h.cpus or np.inf for h in hosts])
        self.memory_bytes = np.array([h.memory_bytes or np.inf for h in hosts])
        self.most = [max(1.0, _largest(hosts, of)) for of in (_gpus, _cpus, _memory)]

    def place(self, task: Resources, choose: Callable[[np.ndarray, np.ndarray], int]) -> bool:
        """Place a task on one of the hosts with room; whether there was one."""
        milli = task.accelerators[0].gpus_milli if task.accelerators else 0
        fits = (self.cpus >= task.cpus) & (self.memory_bytes >= task.memory_bytes)
        if milli:
            names = [a.model for a in task.accelerators if a.model is not None]
            if len(names) == len(task.accelerators):
                fits &= np.isin(self.models, names)
            each = min(milli, MILLI)
            fits &= (self.free_milli >= each).sum(axis=1) >= max(1, milli // MILLI)
        rows = np.flatnonzero(fits)
        if not len(rows):
            return False
        row = int(rows[choose(rows, self._left(rows, task, milli))])
        self.cpus[row] -= task.cpus
        self.memory_bytes[row] -= task.memory_bytes
        if milli:
            self._take(row, milli)
        return True

    def _take(self, row: int, milli: int) -> None:
        free, each = self.free_milli[row], min(milli, MILLI)
        able = np.flatnonzero(free >= each)
        tightest = able[np.argsort(free[able], kind="stable")]
        free[tightest[: max(1, milli // MILLI)]] -= each

    def _left(self, rows: np.ndarray, task: Resources, milli: int) -> np.ndarray:
        """What would be left of each host: GPUs, CPUs, memory, each over the most of any host."""
        amounts = (
            (self.free_milli[rows].sum(axis=1) - milli) / MILLI,
            self.cpus[rows] - task.cpus,
            self.memory_bytes[rows] - task.memory_bytes,
        )
        gpus, cpus, memory = (a / most for a, most in zip(amounts, self.most, strict=True))
        return np.asarray(gpus + cpus + memory)


def _gpus(host: HostSpec) -> float:
    return host.gpus


def _cpus(host: HostSpec) -> float:
    return host.cpus


def _memory(host: HostSpec) -> float:
    return host.memory_bytes


def _largest(hosts: list[HostSpec], amount: Callable[[HostSpec], float]) -> float:
    return max(amount(host) for host in hosts)


def idle_beside(name: str, specs: list[JobSpec], fleet: Fleet, seed: int) -> float:
    """The part of the GPUs that stays idle when hosts are chosen by one of the `PEERS`."""
    rng = np.random.default_rng((seed, 0xBE51))
    hosts = _Hosts(fleet)
    rules: dict[str, Callable[[np.ndarray, np.ndarray], int]] = {
        "random": lambda rows, left: int(rng.integers(len(rows))),
        "best_fit": lambda rows, left: int(np.argmin(left)),
    }
    for spec in specs:
        for group in spec.groups:
            for _ in range(group.count):
                hosts.place(group.resources, rules[name])
    return float(hosts.free_milli.sum()) / MILLI / sum(fleet.gpus().values())
