"""Decisions a second with two regions in processes of their own, singly and in batches.

It compares them with one process. A queue and two placers run as they would (journals with fsync,
HTTP on loopback); their engines only obey. Time runs from the admission of all jobs, by the journal
of the queue, until the last one in the order is decided.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.adapters.store import open_journal
from topmast.bench.servers import Servers
from topmast.bench.setup import folder, machine, write
from topmast.fast.queue import facts as f
from topmast.model import ids
from topmast.model.errors import Unavailable
from topmast.runtime.codec import decode_facts

REGIONS = ("east", "west")
PATIENCE_S = 120.0
POLL_S = 0.01
FULL_HOSTS = 2
"""Hosts of each region that are full from the beginning, of a model of their own."""


class ApartOptions(Struct, frozen=True):
    """What to measure."""

    jobs: int = 1_000
    """Of each scenario."""
    hosts: int = 2_000
    delay_s: float = 0.0
    """Each request between processes takes so much longer than loopback does."""
    seed: int = 0


class Mode(Struct, frozen=True):
    """How the regions are asked."""

    name: str
    apart: bool
    settings: tuple[str, ...] = ()


MODES = (
    Mode("one process", apart=False),
    Mode("job by job", apart=True, settings=("ask_ahead=1",)),
    Mode("batches", apart=True),
)


def measure_apart(
    options: ApartOptions, state: Path | None = None, out: Path | None = None
) -> dict[str, Any]:
    """Every scenario in every mode, each mode in processes of its own."""
    rows = []
    for mode in MODES:
        with folder(state) as made:
            rows += _measure(mode, options, made / mode.name.replace(" ", "-"))
    document = {
        "scenarios": rows,
        "jobs": options.jobs,
        "hosts": options.hosts,
        "delay_s": options.delay_s,
        "seed": options.seed,
        "processes": "a queue and two placers, each with its own journal on one disk; "
        "loopback HTTP",
        "machine": machine(),
    }
    if out is not None:
        write(out, "apart", document)
    return document


def _measure(mode: Mode, options: ApartOptions, state: Path) -> list[dict[str, Any]]:
    """One set of processes, and one scenario after the other."""
    with ExitStack() as stack:
        office = Office(mode, options, state)
        stack.callback(office.servers.stop)
        office.fill()
        found = {name: office.run(jobs(options)) for name, jobs in SCENARIOS.items()}
        office.servers.stop()
        admitted_s = admitted_at_s(state / "queue")
        return [
            {
                "mode": mode.name,
                "scenario": name,
                "decisions": spent.decisions,
                "took_s": round(spent.seen_s - admitted_s[spent.first], 4),
                "decisions_per_s": spent.decisions / (spent.seen_s - admitted_s[spent.first]),
                "cpu_s": spent.cpu_s,
            }
            for name, spent in found.items()
        ]


class Spent(Struct, frozen=True):
    """One scenario."""

    first: str
    """Its first job."""
    decisions: int
    seen_s: float
    """When the last job was seen to be decided."""
    cpu_s: dict[str, float]
    """CPU time by process."""


def admitted_at_s(state: Path) -> dict[str, float]:
    """When each submission was written down, by its first job."""
    journal = open_journal(state / "journal.sqlite")
    try:
        return {
            ids.job_id(fact.first_number): record.at_s
            for record in journal.records()
            if record.machine == ids.QUEUE
            for fact in decode_facts(record.machine, record.facts)
            if isinstance(fact, f.Admitted)
        }
    finally:
        journal.close()


# --- scenarios ----------------------------------------------------------------------------------


def _job(model: str, gpus: int, priority: str = "normal", tasks: int = 1) -> dict[str, Any]:
    resources = {"accelerators": f"{model}:{gpus}"} if gpus else {"cpus": 1}
    return {
        "name": f"{model.lower()}-{gpus}", "priority": priority, "num_nodes": tasks,
        "resources": resources, "run": "true\n",
    }  # fmt: skip


def sweep(options: ApartOptions) -> list[dict[str, Any]]:
    """All alike, and room for all."""
    return [_job("H100", 1)] * options.jobs


def mixed(options: ApartOptions) -> list[dict[str, Any]]:
    """Sizes in random order, and room for all."""
    rng = random.Random(options.seed)
    return [_job("H100", rng.choice((1, 2, 4, 8))) for _ in range(options.jobs)]


def full(options: ApartOptions) -> list[dict[str, Any]]:
    """No room for any job; all requests differ, and no job may stop another.

    The last one is placed: that marks the end.
    """
    kinds = [
        _job("A100", gpus, priority, tasks)
        for tasks in range(1, 2 * FULL_HOSTS + 1)
        for gpus in range(1, 9)
        for priority in ("high", "normal", "low")
        if gpus * tasks <= 8 * FULL_HOSTS
    ]  # fmt: skip
    return [*kinds[: options.jobs - 1], _job("none", 0, "opportunistic")]


SCENARIOS: dict[str, Callable[[ApartOptions], list[dict[str, Any]]]] = {
    "sweep": sweep,
    "mixed": mixed,
    "full": full,
}


# --- processes ----------------------------------------------------------------------------------


class Office:
    """The processes of one mode."""

    def __init__(self, mode: Mode, options: ApartOptions, state: Path) -> None:
        self.mode = mode
        self.servers = Servers(
            _fleet(options), state, apart=REGIONS if mode.apart else (), settings=mode.settings,
            delay_s=options.delay_s,
        )  # fmt: skip
        self.client = self.servers.client

    def _wait(self, until: Callable[[], bool]) -> None:
        begun_s = time.monotonic()
        while not until():
            if time.monotonic() - begun_s > PATIENCE_S:
                raise Unavailable(f"{self.mode.name}: nothing was decided for {PATIENCE_S:g} s")
            time.sleep(POLL_S)

    def fill(self) -> None:
        """Wait until both regions are there, and hold all hosts of one model for good."""
        for region in REGIONS:
            probe = self.client.submit(_job(f"probe-{region}", 1)).id
            self._wait(partial(self._runs, probe))
        blocks = [_job("A100", 8, "critical") for _ in range(len(REGIONS) * FULL_HOSTS)]
        self.run([{**block, "preemptible": False} for block in blocks])

    def _runs(self, job: str) -> bool:
        return self.client.job(job).state == "RUNNING"

    def run(self, jobs: list[dict[str, Any]]) -> Spent:
        """Submit all at once, and wait until the last is decided."""
        before = self.servers.cpu_s()
        names = self.client.submit_many(jobs, key=str(time.time_ns())).ids
        self._wait(lambda: self.client.job(names[-1]).state != "PENDING")
        seen_s = time.time()
        spent_s = self.servers.cpu_s()
        cpu_s = {name: round(spent - before[name], 2) for name, spent in spent_s.items()}
        return Spent(names[0], len(names), seen_s, cpu_s)


def _fleet(options: ApartOptions) -> dict[str, Any]:
    """Two equal regions: H100 with room, A100 to be filled, and one host each that only it has."""
    each = options.hosts // len(REGIONS)
    hosts: dict[str, list[dict[str, Any]]] = {
        region: [
            {"count": each, "gpu": "H100", "gpus": 8},
            {"count": FULL_HOSTS, "gpu": "A100", "gpus": 8},
            {"count": 1, "gpu": f"probe-{region}", "gpus": 8},
        ]
        for region in REGIONS
    }
    regions = {r: {"clusters": {f"{r}-1": {"hosts": hosts[r]}}} for r in REGIONS}
    return {"regions": regions}
