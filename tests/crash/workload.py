"""The jobs of the crash test, and the clients that submit them and never take a no for an answer."""

import hashlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.crash import probe
from tests.crash.verdict import LIMIT_S, Submission
from topmast import Client
from topmast.model.errors import Conflict, TopmastError, Unavailable
from topmast.model.states import TERMINAL
from topmast.model.views import JobView

T = TypeVar("T")
MAX_ACTIVE = 40
"""Clients hold back while so many jobs have not ended: the machine is small."""
RETRY_S = 0.03

FLEET = """
links: [{from: east, to: west, gbps: 0.005}]
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 2, gpu: H100, gpus: 4}]}
      east-b: {hosts: [{count: 1, gpu: H100, gpus: 4}]}
  west:
    clusters:
      west-a: {hosts: [{count: 2, gpu: A100, gpus: 4}]}
tenants:
  red: {quota: {H100: 6, A100: 4}}
  blue: {quota: {H100: 4, A100: 2}, borrow_limit: {H100: 4, A100: 4}}
  green:
"""
SETTINGS = {
    "min_runtime_s": "0.3", "restart_cost_s": "1", "backoff_s": "0.2", "backoff_cap_s": "2",
    "suspect_s": "1", "elastic.every_s": "0.5", "elastic.settle_s": "1", "elastic.gain": "0.1",
}  # fmt: skip
MAX_RESTARTS = 20
"""Tasks are killed too, and that counts as their own failure."""

TENANTS = ("red", "blue", "green")


@dataclass(frozen=True)
class Kind:
    """A kind of job. ``steps``: between how many, of a twentieth of a second; ``share`` of all jobs."""

    name: str
    share: int
    steps: tuple[int, int]
    accelerators: tuple[Any, ...] = ("H100:1", "A100:1", {"H100": 1, "A100": 1})
    bands: tuple[str, ...] = ("low", "normal", "high")
    mode: str = "work"
    wants: tuple[str, ...] = ("SUCCEEDED",)
    tasks: int = 1
    steady: bool = False
    cancel: bool = False
    limited: bool = False
    elastic: bool = False
    data: bool = False
    packed: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


KINDS = (
    Kind("short", 30, (1, 8)),
    Kind("gang", 16, (2, 10), ("H100:1", "H100:2", "A100:1"), tasks=2),
    Kind("near", 4, (2, 10), tasks=2, more={"topology": {"required": "host"}}),
    # Preempts whatever stands in its way.
    Kind("urgent", 12, (1, 6), ("H100:4", "H100:2", "A100:4"), ("critical", "high")),
    # Gives way, and resumes.
    Kind("patient", 12, (20, 50), bands=("opportunistic", "low")),
    # Runs through, whatever happens to the server.
    Kind("steady", 6, (60, 110), bands=("high",), steady=True, more={"preemptible": False}),
    Kind("fail-once", 8, (1, 6), mode="fail-once"),
    Kind("fail", 3, (1, 4), mode="fail", wants=("FAILED",), more={"max_restarts": 1}),
    Kind("cancelled", 8, (10, 60), wants=("CANCELLED", "SUCCEEDED"), cancel=True),
    Kind("limited", 2, (600, 600), wants=("FAILED",), limited=True, more={"time_limit": LIMIT_S}),
    # Leaves a process behind that holds on to all it has.
    Kind("daemon", 6, (1, 6), mode="daemon"),
    # Has one to three tasks, now so many and now so many.
    Kind(
        "elastic",
        6,
        (10, 40),
        ("H100:1", "A100:1"),
        tasks=2,
        elastic=True,
        more={"min_nodes": 1, "max_nodes": 3},
    ),
    Kind("share", 4, (2, 20), ("H100:0.5", "A100:0.25")),
    Kind("cpu", 4, (1, 10), ({},)),
    # Reads a dataset of its own, which is in another region.
    Kind("data", 4, (1, 4), ("A100:1",), data=True),
    # Runs in a snapshot of a work folder.
    Kind("packed", 4, (1, 4), packed=True),
)
DATA_BYTES = (1, 100_000, 300_000)
"""Sizes of the files of a dataset."""


def document(kind: Kind, name: str, folder: Path, rng: random.Random) -> dict[str, Any]:
    """The job file of one more job of a kind."""
    steps = rng.randint(*kind.steps)
    accelerators = rng.choice(kind.accelerators)
    share = _share(accelerators)
    run = f"exec {sys.executable} -I -S {probe.__file__} {folder} {name} {kind.mode} {steps} {share:g}"
    found = {
        "name": name,
        "tenant": rng.choice(TENANTS),
        "num_nodes": kind.tasks,
        "priority": rng.choice(kind.bands),
        "checkpoint": {"grace": 20},
        "max_restarts": MAX_RESTARTS,
        "run": run,
        **kind.more,
    }
    if accelerators:
        found["resources"] = {"accelerators": accelerators}
    if kind.data:
        found["datasets"] = [name]
    if kind.packed:
        found["run"] = f"grep -qx {name} packed\n{run}"
        found["workdir"] = str(pack(name, folder))
    return found


def _share(accelerators: Any) -> float:
    """How much a task has of each GPU that it is given."""
    if not isinstance(accelerators, str):
        return 1.0
    return min(1.0, float(accelerators.partition(":")[2]))


def make_dataset(name: str, folder: Path, rng: random.Random) -> Path:
    """A folder with the files of a dataset, and a note of what they are for whoever reads them."""
    place = folder / "data" / name
    place.mkdir(parents=True)
    digests = {}
    for number, size_bytes in enumerate(DATA_BYTES):
        content = rng.randbytes(size_bytes)
        (place / f"part-{number}").write_bytes(content)
        digests[f"part-{number}"] = hashlib.sha256(content).hexdigest()
    (place / probe.DIGESTS).write_text(json.dumps(digests), encoding="utf-8")
    return place


def pack(name: str, folder: Path) -> Path:
    """A work folder with one file in it."""
    place = folder / "work" / name
    place.mkdir(parents=True)
    (place / "packed").write_text(f"{name}\n", encoding="utf-8")
    return place


class Load:
    """What all clients share: where the server is, what they sent, and what went wrong."""

    def __init__(
        self, state: Path, folder: Path, seed: int, is_rough: Callable[[], bool] = lambda: False
    ) -> None:
        """``is_rough``: whether a server may refuse what it would take otherwise."""
        self.is_rough = is_rough
        self.state = state
        self.folder = folder
        self.seed = seed
        self.sent: list[Submission] = []
        self.incidents: list[str] = []
        self.acknowledged = 0
        self.active = 0
        """Jobs that had not ended when somebody looked last."""
        self.at_next_ack: Callable[[], None] | None = None
        """Done once, at once, by the client that gets the next acknowledgement: a kill, say."""
        self.over = threading.Event()

    def patiently(self, ask: Callable[[], T]) -> T:
        """The answer of a server that may be killed any time, asked again for as long as it takes."""
        while True:
            try:
                return ask()
            except Unavailable:
                time.sleep(RETRY_S)

    def note_refusal(self, who: str, error: TopmastError) -> None:
        """Nothing that clients ask for should be refused, but while a disk is full."""
        if not self.is_rough():
            self.incidents.append(f"{who}: {error}")

    def note_ack(self, sent: Submission, job: str) -> None:
        """A client holds the id of its job in its hands."""
        act, self.at_next_ack = self.at_next_ack, None
        if act is not None:
            act()
        if sent.id is None:
            sent.id = job
            self.acknowledged += 1
        elif sent.id != job:
            self.incidents.append(f"key {sent.key} was answered with {sent.id} and with {job}")


class Worker(threading.Thread):
    """A thread whose failure does not go unnoticed."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.load = load

    def run(self) -> None:
        """Work; an error is an incident."""
        try:
            self.work()
        except Exception as error:
            self.load.incidents.append(f"{self.name} gave up: {error!r}")

    def work(self) -> None:
        """What the thread is for."""
        raise NotImplementedError


class Submitter(Worker):
    """A client with its own seeded will; ends when the load is over and its retries are answered."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(load, f"client {number}")
        self.number = number
        self.rng = random.Random(f"{load.seed}/{number}")
        self.count = 0
        self.to_cancel: list[tuple[float, str]] = []

    def work(self) -> None:
        """Submit until the load is over."""
        self.client = self.load.patiently(
            lambda: Client(state=self.load.state, timeout_s=10.0, user=self.name)
        )
        with self.client:
            while not self.load.over.is_set():
                try:
                    self.cancel_due()
                    if self.load.active < MAX_ACTIVE:
                        self.submit()
                except TopmastError as error:
                    self.load.note_refusal(self.name, error)
                time.sleep(self.rng.uniform(0.0, 0.3))
            self.cancel_due(everything=True)

    def submit(self) -> None:
        """One job, or a few at once; some are given up at the first failure, some are sent twice."""
        kinds = self.rng.choices(KINDS, [kind.share for kind in KINDS], k=1)
        bulk = self.rng.random() < 0.05
        if bulk:
            kinds *= 3
        batch = [self.prepare(kind) for kind in kinds]
        sent, documents = [one for one, _ in batch], [one for _, one in batch]
        key = sent[0].key

        def ask() -> tuple[str, ...]:
            if bulk:
                return self.client.submit_many(documents, key=key).ids
            return (self.client.submit(documents[0], key=key).id,)

        times = 2 if self.rng.random() < 0.1 else 1
        patient = self.rng.random() < 0.9
        for _ in range(times):
            try:
                found = self.load.patiently(ask) if patient else ask()
            except Unavailable:
                return  # whether it was admitted this client will never know
            for one, job in zip(sent, found, strict=True):
                self.load.note_ack(one, job)
        for kind, job in zip(kinds, found, strict=True):
            if kind.cancel:
                self.to_cancel.append((time.monotonic() + self.rng.uniform(0.0, 2.0), job))

    def prepare(self, kind: Kind) -> tuple[Submission, dict[str, Any]]:
        """A job with a name of its own, and the note of it."""
        self.count += 1
        name = f"{kind.name}-{self.number}-{self.count}"
        sent = Submission(
            name, f"key-{name}", kind.wants, None if kind.elastic else kind.tasks,
            kind.steady, kind.limited, fetches=kind.data or kind.packed,
        )  # fmt: skip
        self.load.sent.append(sent)
        if kind.data:
            self.add_dataset(name)
        return sent, document(kind, name, self.load.folder, self.rng)

    def add_dataset(self, name: str) -> None:
        """Bring a dataset to the first region; one that is there already was added by a try before."""
        source = make_dataset(name, self.load.folder, self.rng)
        with suppress(Conflict):
            self.load.patiently(lambda: self.client.add_dataset(name, "east", source=source))

    def cancel_due(self, everything: bool = False) -> None:
        """Cancel what it is time to cancel."""
        now_s = time.monotonic()
        for due_s, job in list(self.to_cancel):
            if everything or due_s <= now_s:
                self.to_cancel.remove((due_s, job))
                self.load.patiently(lambda job=job: self.client.cancel(job))  # type: ignore[misc]


class Watcher(Worker):
    """Looks at the jobs again and again: what has ended once must never look different.

    ``is_whole`` tells whether all of the control plane is up.
    """

    def __init__(self, load: Load, is_whole: Callable[[], bool]) -> None:
        super().__init__(load, "watcher")
        self.is_whole = is_whole
        self.ended: dict[str, str] = {}
        self.answers: list[float] = []
        """When it got an answer of all of the control plane, by the monotonic clock."""

    def work(self) -> None:
        """Sample until the load is over."""
        client = self.load.patiently(lambda: Client(state=self.load.state, timeout_s=10.0))
        with client:
            while not self.load.over.wait(0.3):
                try:
                    page = client.job_page(limit=400)
                except Unavailable:
                    continue
                except TopmastError as error:
                    self.load.note_refusal(self.name, error)
                    continue
                self.load.active = sum(
                    count for state, count in page.counts.items() if state not in TERMINAL
                )
                if self.is_whole():
                    self.answers.append(time.monotonic())
                for view in page.jobs:
                    self.compare(view)

    def compare(self, view: JobView) -> None:
        """Hold a job against what was seen before."""
        before = self.ended.get(view.id)
        if before is not None and before != view.state:
            self.load.incidents.append(f"{view.id} was {before} and became {view.state}")
        if view.state in TERMINAL:
            self.ended[view.id] = view.state
