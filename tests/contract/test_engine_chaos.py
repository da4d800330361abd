"""Everything that can be killed is killed, at random moments; the promises hold all the same.

Slow on purpose: marked `crash`, so that it runs when asked for. A seed repeats the orders and kills,
if not the moments at which the machine comes to them.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contract.engines import HOSTS, Rig, eventually, local, of_folder, opened, order
from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Layout
from topmast.model.messages import HostDown, Message, StartGang, TaskExited, TaskLost

REPO = Path(__file__).resolve().parents[2]
CHAOS_S = 20.0

OWNER = """
import sys, time
from pathlib import Path
from tests.contract.engines import Rig, local, order
rig = Rig(Path(sys.argv[1]), local)
rig.open()
print("open", flush=True)
rig.engine.start_gang(order("j1", sys.argv[2], tasks=8, setup="true"))
time.sleep(1000)
"""
RUN_ONCE = "echo ran >> $TOPMAST_CHECKPOINT_DIR/$RANK"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing is left running."""
    yield tmp_path
    for process in of_folder(tmp_path):
        process.kill()


@pytest.mark.parametrize("after_ms", [0, 5, 15, 25, 40, 60])
def test_a_start_may_be_cut_anywhere(folder: Path, after_ms: int) -> None:
    """SIGKILL while a gang starts: the repetition completes it, and no task runs twice."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder, RUN_ONCE],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
    )
    assert owner.stdout
    with owner:
        assert owner.stdout.readline() == b"open\n"
        time.sleep(after_ms / 1000)
        owner.kill()
    with opened(local, folder) as rig:
        rig.engine.start_gang(order("j1", RUN_ONCE, tasks=8, setup="true"))
        for rank in range(8):
            assert rig.end_of("j1", rank).code == 0
            ran = folder / "checkpoints" / "j1" / str(rank)
            assert ran.read_text() == "ran\n"


ESCAPING = """
echo ran >> $TOPMAST_CHECKPOINT_DIR/$RANK
(setsid sleep 3 &)
setsid sleep 1.5 &
sleep 0.$((RANDOM % 9))
exit $((RANDOM % 2))
"""


@dataclass
class Chaos:
    """Gives orders and kills at random, and looks at every piece of news the moment it is posted."""

    rig: Rig
    dice: random.Random
    gangs: dict[str, StartGang] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        return Layout(self.rig.folder / "engine")

    def hosts(self) -> dict[str, str]:
        """The host of every task."""
        return {
            f"{job}.1.{seat.rank}": seat.host
            for job, gang in self.gangs.items()
            for seat in gang.seats
        }

    def open(self) -> None:
        """Open the engine with us between it and the news."""
        self.rig.open()
        self.rig.engine.close()
        news = self.rig.news

        def post(message: Message) -> None:
            self.look(message)
            news.post(message)

        self.rig.engine = self.rig.make(self.rig)
        self.rig.engine.open(post)

    def look(self, message: Message) -> None:
        """No end is posted while anything of the task lives."""
        tasks: list[str] = []
        if isinstance(message, TaskExited | TaskLost):
            tasks = [f"{message.job}.{message.epoch}.{message.rank}"]
        elif isinstance(message, HostDown):
            hosts = self.hosts()
            tasks = [task for task, host in hosts.items() if host == message.host]
        for task in tasks:
            alive = processes.marked({str(self.layout.claim(task))})
            if alive:
                self.broken.append(f"{message}, but {alive} of {task} live")

    def act(self) -> None:
        """One random order or kill."""
        deeds: list[tuple[int, Callable[[], None]]] = [
            (40, self.start),
            (10, self.repeat),
            (10, self.stop),
            (10, self.suspend),
            (10, self.kill_supervisor),
            (7, self.kill_agent),
            (6, self.reopen),
        ]
        (deed,) = self.dice.choices([d for _, d in deeds], weights=[w for w, _ in deeds])
        if self.gangs or deed == self.start:
            deed()

    def start(self) -> None:
        job = f"j{len(self.gangs) + 1}"
        tasks, setup = self.dice.choice([1, 2, 4]), self.dice.choice(["", "sleep 0.1"])
        self.gangs[job] = order(job, ESCAPING, tasks=tasks, setup=setup)
        self.rig.engine.start_gang(self.gangs[job])

    def repeat(self) -> None:
        self.rig.engine.start_gang(self.gangs[self.job()])

    def stop(self) -> None:
        self.rig.engine.stop(self.job(), 1, self.dice.choice([0.0, 0.1]))

    def suspend(self) -> None:
        job = self.job()
        self.rig.engine.suspend(job, 1)
        if self.dice.random() < 0.5:
            self.rig.engine.resume(job, 1)

    def kill_supervisor(self) -> None:
        task = self.dice.choice(sorted(self.hosts()))
        if not self.layout.end(task).exists():
            processes.kill_if_same(files.read_json(self.layout.claim(task)) or {})

    def kill_agent(self) -> None:
        record = self.layout.host(self.dice.choice(HOSTS)) / "agent.json"
        processes.kill_if_same(files.read_json(record) or {})

    def reopen(self) -> None:
        self.rig.engine.close()
        self.open()

    def job(self) -> str:
        return self.dice.choice(list(self.gangs))

    def all_ended(self) -> bool:
        """Whether this engine has told the end of every task there ever was."""
        news: list[TaskExited | TaskLost] = []
        news += self.rig.news.all(TaskExited)
        news += self.rig.news.all(TaskLost)
        return {f"{m.job}.{m.epoch}.{m.rank}" for m in news} >= self.hosts().keys()


@pytest.mark.crash
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_promises_hold_in_chaos(folder: Path, seed: int) -> None:
    """No end while anything lives, no second start, and an end for every task."""
    chaos = Chaos(Rig(folder, local), random.Random(seed))
    chaos.open()
    until_s = time.monotonic() + CHAOS_S
    while time.monotonic() < until_s:
        chaos.act()
        time.sleep(chaos.dice.random() * 0.15)
    chaos.reopen()
    for job, gang in chaos.gangs.items():
        chaos.rig.engine.start_gang(gang)
        chaos.rig.engine.stop(job, 1, 0.0)
    eventually(chaos.all_ended, "every task has an end")
    chaos.rig.engine.close()
    assert not chaos.broken
    for ran in (folder / "checkpoints").glob("*/*"):
        assert ran.read_text() == "ran\n"
