"""What a crash test has to show at its end, and whether it does. No processes here: only records."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from topmast.model.states import TERMINAL
from topmast.model.views import GpuView, HostView, JobView, TenantView

ENDS = ("done", "failed", "stopped", "alone")
"""The last words of a task."""
UNDESERVED = ("host_lost", "launch_failed")
"""Ends of attempts that need a cause on a host: the death of a server is none."""
DOUBLES = {
    "double": "met its own copy",
    "again": "was started a second time in the same attempt",
    "crowded": "was given GPUs that another task holds",
}
"""What a task says that finds that it should not run."""
HURT_MARGIN_S = 3.0
"""So long after something was killed on a host its tasks may still end for that."""
NOTICED_S = 60.0
"""A host that died while no server was up may be found dead so late, when it is up again and given work."""
LIMIT_S = 1.0
"""The time limit of jobs that are to reach it."""
ENOUGH_ANSWERS = 15
"""A control plane that has answered so often, a third of a second apart, can have enforced a limit."""


class Proof(msgspec.Struct, frozen=True):
    """One line that a task wrote; ``at_s`` by the monotonic clock, which all processes share."""

    kind: str
    name: str
    job: str
    epoch: int
    rank: int
    pid: int
    at_s: float
    host: str = ""
    size: int = 1

    @property
    def task(self) -> tuple[str, int]:
        """The lock it holds: job name and rank."""
        return self.name, self.rank

    @property
    def run(self) -> tuple[str, int, int]:
        """One task of one attempt."""
        return self.job, self.epoch, self.rank


@dataclass(frozen=True)
class Hurt:
    """Something was killed on a host; its tasks may have ended without a word. Times are monotonic.

    ``disk``: it was no more than that nothing could be written. How a task ended waits for room then.
    """

    host: str
    at_s: float
    disk: bool = False


@dataclass
class Submission:
    """A job as its client sent it: how it may end, and its id once that was acknowledged.

    ``tasks``: of its gang, None where that may change. ``steady``: nothing may stop it, so it must run
    through in one go, whatever server is killed. ``limited``: it runs longer than it may. ``fetches``: it
    cannot be launched while its region cannot reach the queue.
    """

    name: str
    key: str
    wants: tuple[str, ...] = ("SUCCEEDED",)
    tasks: int | None = 1
    steady: bool = False
    limited: bool = False
    fetches: bool = False
    id: str | None = None


@dataclass
class Evidence:
    """All that is known at the end. ``incidents``: what went wrong on the way, in words.

    ``outcomes``: of the attempts of jobs with more than one, or a bad end, each with its epoch. ``hurts``:
    when something was killed on a host. ``answers``: when the control plane answered, with all of it up.
    """

    submissions: list[Submission]
    proof: list[Proof]
    jobs: list[JobView]
    outcomes: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    hurts: list[Hurt] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    apart: bool = False
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


class Excuses:
    """Which tasks and jobs something on their hosts was killed under."""

    def __init__(self, evidence: Evidence) -> None:
        self.hurts = evidence.hurts
        ends = {p.run: p.at_s for p in evidence.proof if p.kind in ENDS}
        self.runs = {
            p.run
            for p in evidence.proof
            if p.kind == "start" and self.is_hurt(p.host, p.at_s, ends.get(p.run, float("inf")))
        }
        self.preempted = {
            (job, epoch)
            for job, outcomes in evidence.outcomes.items()
            for epoch, outcome in outcomes
            if outcome == "preempted"
        }
        """Told to stop before their end was known: they run again, with whatever status they ended."""
        self.jobs = {job for job, _, _ in self.runs}
        self.unrecorded = {
            p.job
            for p in evidence.proof
            if p.kind == "done" and self.is_hurt(p.host, p.at_s, p.at_s, disk=False)
        }
        """Jobs of which a task may have been done, and its supervisor killed before it wrote that down."""

    def is_hurt(self, host: str, since_s: float, until_s: float, *, disk: bool = True) -> bool:
        """Whether something was killed on a host in a period, or right before or after it.

        After it, for the last word of a task comes before the record of its end.
        """
        return any(
            hurt.host == host
            and since_s - HURT_MARGIN_S <= hurt.at_s <= until_s + HURT_MARGIN_S
            and (disk or not hurt.disk)
            for hurt in self.hurts
        )


def judge(evidence: Evidence) -> Verdict:
    """Hold the evidence against what Topmast promises."""
    excuses = Excuses(evidence)
    return Verdict(
        lost=list(_lost(evidence)),
        double_runs=list(_double_runs(evidence, excuses)),
        others=[
            *evidence.incidents,
            *_partial_gangs(evidence, excuses),
            *_disturbed(evidence, excuses),
            *_left_behind(evidence),
        ],
    )


def _lost(evidence: Evidence) -> Iterator[str]:
    """Acknowledged jobs that are unknown, are another, did not end, or not as they should."""
    views = {view.id: view for view in evidence.jobs}
    done: dict[tuple[str, int], list[Proof]] = defaultdict(list)
    for proof in evidence.proof:
        if proof.kind == "done":
            done[proof.job, proof.epoch].append(proof)
    whole = {job for (job, _), p in done.items() if len({one.rank for one in p}) == p[0].size}
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
        elif view.state not in sent.wants and not (sent.limited and _was_spared(evidence, view)):
            yield f"{what} ended as {view.state} ({view.cause}), not as {' or '.join(sent.wants)}"
        elif view.state == "SUCCEEDED" and sent.id not in whole:
            yield f"{what} is called SUCCEEDED, but its tasks were not all done"


def _was_spared(evidence: Evidence, view: JobView) -> bool:
    """Whether a job may have passed its limit because nobody was there to stop it."""
    if view.state != "SUCCEEDED":
        return False
    own = [proof for proof in evidence.proof if proof.job == view.id]
    begun_s = max(proof.at_s for proof in own if proof.kind == "start")
    done_s = max(proof.at_s for proof in own if proof.kind == "done")
    answers = [at_s for at_s in evidence.answers if begun_s + LIMIT_S < at_s < done_s]
    return len(answers) < ENOUGH_ANSWERS


def _double_runs(evidence: Evidence, excuses: Excuses) -> Iterator[str]:
    """Tasks that met their own copy, attempts that ran twice, submissions that became two jobs."""
    runs: set[tuple[str, int, int]] = set()
    alive: dict[tuple[str, int], Proof] = {}
    left: dict[tuple[str, int], int] = {}
    """Of an attempt with a task that was done, the tasks that were not; an elastic job has its own size each time."""
    for proof in evidence.proof:
        what = f"{proof.job} ({proof.name}) rank {proof.rank}, epoch {proof.epoch}"
        if proof.kind in DOUBLES:
            yield f"{what} {DOUBLES[proof.kind]} on {proof.host}"
        elif proof.kind == "start":
            if proof.run in runs:
                yield f"{what} was started again"
            elif proof.task in alive and alive[proof.task].run not in excuses.runs:
                yield f"{what} was started while epoch {alive[proof.task].epoch} still ran"
            elif _was_done(proof, left, excuses):
                yield f"{what} was started though an earlier attempt was done"
            runs.add(proof.run)
            alive[proof.task] = proof
        elif proof.kind in ENDS:
            alive.pop(proof.task, None)
            attempt = (proof.job, proof.epoch)
            if proof.kind == "done":
                left[attempt] = left.get(attempt, proof.size) - 1
    for name, count in Counter(view.name for view in evidence.jobs).items():
        if count > 1:
            yield f"{name} was submitted once, and there are {count} jobs of that name"


def _was_done(start: Proof, left: Mapping[tuple[str, int], int], excuses: Excuses) -> bool:
    """Whether all tasks of an earlier attempt were done, and nothing kept that from being recorded."""
    return start.job not in excuses.unrecorded and any(
        left.get((start.job, epoch)) == 0 and (start.job, epoch) not in excuses.preempted
        for epoch in range(1, start.epoch)
    )


def _partial_gangs(evidence: Evidence, excuses: Excuses) -> Iterator[str]:
    """Tasks whose gang never came, and gangs that were done without running together."""
    starts: dict[tuple[str, int], list[float]] = defaultdict(list)
    ends: dict[tuple[str, int], list[Proof]] = defaultdict(list)
    for proof in evidence.proof:
        attempt = (proof.job, proof.epoch)
        if proof.kind == "alone" and not _is_gang_hurt(evidence, excuses, proof):
            yield f"{proof.job} ({proof.name}) rank {proof.rank} waited for its gang in vain"
        elif proof.kind == "start":
            starts[attempt].append(proof.at_s)
        elif proof.kind == "done":
            ends[attempt].append(proof)
    for attempt, done in ends.items():
        if len(done) != done[0].size:
            continue
        if len(starts[attempt]) != len(done) or max(starts[attempt]) > min(p.at_s for p in done):
            yield f"the tasks of {attempt[0]}, epoch {attempt[1]}, did not run at the same time"


def _is_gang_hurt(evidence: Evidence, excuses: Excuses, alone: Proof) -> bool:
    """Whether anything was killed on any host while a task waited for its gang."""
    begun_s = min(p.at_s for p in evidence.proof if p.run == alone.run)
    return any(begun_s - HURT_MARGIN_S <= hurt.at_s <= alone.at_s for hurt in excuses.hurts)


def _disturbed(evidence: Evidence, excuses: Excuses) -> Iterator[str]:
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
        if proof.run not in excuses.runs:
            yield f"{proof.job} ({proof.name}), process {proof.pid}, was killed without a warning"
    yield from _undeserved(evidence, excuses)
    for sent in evidence.submissions:
        if not sent.steady or sent.id is None or sent.id in excuses.jobs:
            continue
        for rank in range(sent.tasks or 0):
            if starts[sent.name, rank] != 1:
                yield f"{sent.name} rank {rank} was started {starts[sent.name, rank]} times, not once"


def _undeserved(evidence: Evidence, excuses: Excuses) -> Iterator[str]:
    """Attempts that ended for a host, though nothing was killed on a host of theirs.

    One whose tasks all said that they began is held to their hosts; of any other nobody knows where it was.
    """
    known: dict[tuple[str, int], list[Proof]] = defaultdict(list)
    for proof in evidence.proof:
        if proof.kind == "start":
            known[proof.job, proof.epoch].append(proof)
    fetches = {sent.id for sent in evidence.submissions if sent.fetches}
    sizes = {sent.id: sent.tasks for sent in evidence.submissions}
    for job, outcomes in evidence.outcomes.items():
        for epoch, outcome in outcomes:
            begun = known[job, epoch]
            hurt = any(run[:2] == (job, epoch) for run in excuses.runs) or any(
                excuses.is_hurt(p.host, p.at_s - NOTICED_S, p.at_s, disk=False) for p in begun
            )
            nowhere = bool(evidence.hurts) and len(begun) < (sizes.get(job) or 1)
            waits = outcome == "launch_failed" and evidence.apart and job in fetches
            if outcome in UNDESERVED and not (hurt or nowhere or waits):
                yield f"{job}: attempt {epoch} ended as {outcome}, and nothing was killed on its hosts"


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
