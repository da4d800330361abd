"""What a crash test has to show at its end, and whether it does. No processes here: only records."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from topmast.model.states import TERMINAL
from topmast.model.views import GpuView, HostView, JobView, TenantView

ENDS = ("done", "failed", "stopped", "alone")
"""The last words of a task."""
UNDESERVED = ("host_lost", "launch_failed")
"""Ends of attempts that no host and no engine gave cause for: only the server was killed."""


class Proof(msgspec.Struct, frozen=True):
    """One line that a task wrote; ``at_s`` by the monotonic clock, which all processes share."""

    kind: str
    name: str
    job: str
    epoch: int
    rank: int
    pid: int
    at_s: float

    @property
    def task(self) -> tuple[str, int]:
        """The lock it holds: job name and rank."""
        return self.name, self.rank

    @property
    def run(self) -> tuple[str, int, int]:
        """One task of one attempt."""
        return self.job, self.epoch, self.rank


@dataclass
class Submission:
    """A job as its client sent it: how it may end, and its id once that was acknowledged.

    ``steady``: nothing may stop it, so it must run through in one go, whatever is killed.
    """

    name: str
    key: str
    wants: tuple[str, ...] = ("SUCCEEDED",)
    tasks: int = 1
    steady: bool = False
    id: str | None = None


@dataclass
class Evidence:
    """All that is known at the end. ``incidents``: what went wrong on the way, in words."""

    submissions: list[Submission]
    proof: list[Proof]
    jobs: list[JobView]
    outcomes: dict[str, list[str]] = field(default_factory=dict)
    gpus: list[GpuView] = field(default_factory=list)
    tenants: list[TenantView] = field(default_factory=list)
    hosts: list[HostView] = field(default_factory=list)
    left_running: list[int] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    """Broken promises, in words."""

    lost: list[str]
    double_runs: list[str]
    others: list[str]

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.double_runs or self.others)


class ProofFile:
    """The file that tasks write to, in the order in which they wrote."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[Proof] = []
        self._read_bytes = 0

    def read(self) -> list[Proof]:
        """All whole lines so far. O(new ones)."""
        if not self.file.exists():
            return self.lines
        with self.file.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole_bytes = data.rfind(b"\n") + 1
        self._read_bytes += whole_bytes
        for line in data[:whole_bytes].splitlines():
            self.lines.append(msgspec.json.decode(line, type=Proof))
        return self.lines


def judge(evidence: Evidence) -> Verdict:
    """Hold the evidence against what Topmast promises."""
    return Verdict(
        lost=list(_lost(evidence)),
        double_runs=list(_double_runs(evidence)),
        others=[
            *evidence.incidents,
            *_partial_gangs(evidence),
            *_disturbed(evidence),
            *_left_behind(evidence),
        ],
    )


def _lost(evidence: Evidence) -> Iterator[str]:
    """Acknowledged jobs that are unknown, are another, did not end, or not as they should."""
    views = {view.id: view for view in evidence.jobs}
    done: dict[str, set[int]] = defaultdict(set)
    for proof in evidence.proof:
        if proof.kind == "done":
            done[proof.job].add(proof.rank)
    for sent in evidence.submissions:
        if sent.id is None:
            continue
        view = views.get(sent.id)
        what = f"{sent.id} ({sent.name})"
        if view is None:
            yield f"{what} was acknowledged and is not known"
        elif view.name != sent.name:
            yield f"{what} was acknowledged, and {sent.id} is the id of {view.name}"
        elif view.state not in TERMINAL:
            yield f"{what} does not end: it is {view.state} ({view.reason})"
        elif view.state not in sent.wants:
            yield f"{what} ended as {view.state} ({view.cause}), not as {' or '.join(sent.wants)}"
        elif view.state == "SUCCEEDED" and len(done[sent.id]) != sent.tasks:
            yield f"{what} is called SUCCEEDED, but only ranks {sorted(done[sent.id])} were done"


def _double_runs(evidence: Evidence) -> Iterator[str]:
    """Tasks that met their own copy, attempts that ran twice, submissions that became two jobs."""
    runs: set[tuple[str, int, int]] = set()
    alive: dict[tuple[str, int], Proof] = {}
    for proof in evidence.proof:
        what = f"{proof.job} ({proof.name}) rank {proof.rank}, epoch {proof.epoch}"
        if proof.kind == "double":
            yield f"{what} found its lock held by another process"
        elif proof.kind == "start":
            if proof.run in runs:
                yield f"{what} was started twice"
            if proof.task in alive:
                yield f"{what} was started while process {alive[proof.task].pid} still ran"
            runs.add(proof.run)
            alive[proof.task] = proof
        elif proof.kind in ENDS and proof.task in alive:
            alive.pop(proof.task)
    for name, count in Counter(view.name for view in evidence.jobs).items():
        if count > 1:
            yield f"{name} was submitted once, and there are {count} jobs of that name"


def _partial_gangs(evidence: Evidence) -> Iterator[str]:
    """Tasks whose gang never came, and gangs that were done without running together."""
    starts: dict[tuple[str, int], list[float]] = defaultdict(list)
    ends: dict[tuple[str, int], list[float]] = defaultdict(list)
    sizes = {sent.id: sent.tasks for sent in evidence.submissions if sent.id is not None}
    for proof in evidence.proof:
        attempt = (proof.job, proof.epoch)
        if proof.kind == "alone":
            yield f"{proof.job} ({proof.name}) rank {proof.rank} waited for its gang in vain"
        elif proof.kind == "start":
            starts[attempt].append(proof.at_s)
        elif proof.kind == "done":
            ends[attempt].append(proof.at_s)
    for attempt, done in ends.items():
        if len(done) != sizes.get(attempt[0], len(done)):
            continue
        if len(starts[attempt]) != len(done) or max(starts[attempt]) > min(done):
            yield f"the tasks of {attempt[0]}, epoch {attempt[1]}, did not run at the same time"


def _disturbed(evidence: Evidence) -> Iterator[str]:
    """Tasks that ended without a word, restarts without a reason, steady jobs that were stopped."""
    open_runs: dict[tuple[str, int, int], Proof] = {}
    starts: Counter[tuple[str, int]] = Counter()
    for proof in evidence.proof:
        if proof.kind == "damaged":
            yield f"{proof.job} ({proof.name}) was started on damaged data"
        elif proof.kind == "start":
            open_runs[proof.run] = proof
            starts[proof.task] += 1
        elif proof.kind in ENDS:
            open_runs.pop(proof.run, None)
    for proof in open_runs.values():
        yield f"{proof.job} ({proof.name}), process {proof.pid}, was killed without a warning"
    for job, outcomes in evidence.outcomes.items():
        for outcome in outcomes:
            if outcome in UNDESERVED:
                yield f"{job}: an attempt ended as {outcome}, and no host was ever lost"
    for sent in evidence.submissions:
        for rank in range(sent.tasks) if sent.steady and sent.id is not None else ():
            if starts[sent.name, rank] != 1:
                yield f"{sent.name} rank {rank} was started {starts[sent.name, rank]} times, not once"


def _left_behind(evidence: Evidence) -> Iterator[str]:
    """GPUs, quota, hosts and processes that are still held when every job has ended."""
    for gpus in evidence.gpus:
        if gpus.free != gpus.total:
            yield f"{gpus.free:g} of {gpus.total:g} {gpus.gpu_model} of {gpus.cluster} are free"
    for tenant in evidence.tenants:
        if tenant.used or tenant.borrowed or tenant.pending:
            yield (
                f"tenant {tenant.name} still uses {tenant.used:g}, borrows {tenant.borrowed:g} and "
                f"waits for {tenant.pending:g} {tenant.gpu_model}"
            )
    for host in evidence.hosts:
        if host.jobs or host.state != "healthy":
            yield f"host {host.name} is {host.state} and holds {', '.join(host.jobs) or 'nothing'}"
    if evidence.left_running:
        yield f"processes of tasks still run: {evidence.left_running}"
