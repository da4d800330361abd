"""`topmast up` with engines that run nothing, and on request with a slower network.

For benchmarks of decisions. All else is as in a server: the journal, HTTP, the links. After the
delay of a request, in seconds, come the options of `topmast up`:

    python -m topmast.bench.fake_engine 0.05 --role placer --region east --queue URL --state DIR

With ``--orders FILE`` before these, nothing starts: the file gets one `ORDER` for each gang that an
engine is told to start, in the order in which they are told. With ``--cpu-time`` the server times
machines and commits by the CPU time of their thread, so that other programs do not count.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NoReturn

import httpx

from topmast.app.process import Outside
from topmast.app.roles import serve
from topmast.cli import Root
from topmast.cli import main as cli_main
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.engines import PROCESSES, Capability
from topmast.model.fleet import HostSpec
from topmast.ports import Engine, LogPage, Post

ORDER = struct.Struct("<dI")
"""When an engine was ordered to start a job, in seconds, and the number of the job."""


class FakeEngine(Engine):
    """An engine of hosts that are not there: tasks run when they are told to, and until then."""

    capabilities = PROCESSES - {Capability.SUSPEND, Capability.EXEC}
    _gangs: dict[tuple[str, int], int]
    """How many tasks each attempt has that runs."""

    def open(self, post: Post) -> None:
        """Nothing runs yet."""
        self._gangs = {}
        self._post = post

    def start_gang(self, gang: m.StartGang) -> None:
        """Every task runs at once."""
        self._gangs[gang.job, gang.epoch] = len(gang.seats)
        for rank in range(len(gang.seats)):
            self._post(m.TaskStarted(gang.job, gang.epoch, rank, time.time()))

    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        """Every task ends at once."""
        for rank in range(self._gangs.pop((job, epoch), 0)):
            self._post(m.TaskExited(job, epoch, rank, 143, time.time()))

    def list_tasks(self) -> None:
        """What was started and not stopped runs."""
        tasks = tuple(
            m.TruthTask(job, epoch, rank, running=True)
            for (job, epoch), count in self._gangs.items() for rank in range(count)
        )  # fmt: skip
        self._post(m.TaskList(tasks))

    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        """Hosts that are not there come and go without a word."""

    def admits(self, leader: int) -> bool:
        """There is one leader."""
        return True

    def read_log(self, job: str, epoch: int, rank: int, offset: int, limit: int) -> LogPage | None:
        """Nothing is written."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""


class NotingEngine(FakeEngine):
    """One that starts nothing, and notes what it was told to start."""

    _file: ClassVar[int] = -1
    """Of all engines of the process; open for appending."""

    def start_gang(self, gang: m.StartGang) -> None:
        """Note when."""
        self.start_each(m.StartGangs((gang,)))

    def start_each(self, order: m.StartGangs) -> None:
        """Note when; of all at once, as they were told."""
        at_s = time.time()
        told = [ORDER.pack(at_s, ids.job_number(gang.job)) for gang in order.gangs]
        os.write(self._file, b"".join(told))

    @classmethod
    def writing(cls, orders: str) -> type[NotingEngine]:
        """Engines that note their orders in a file."""
        file = os.open(orders, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return type("NotingEngine", (cls,), {"_file": file})


class SlowTransport(httpx.HTTPTransport):
    """Requests that take longer by the way there and back."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Wait, then ask."""
        time.sleep(self._delay_s)
        return super().handle_request(request)


def main(delay_s: float, arguments: Sequence[str]) -> int:
    """Serve until a signal."""
    transport = SlowTransport(delay_s) if delay_s else None
    engine: type[FakeEngine] = FakeEngine
    if arguments[:1] == ["--orders"]:
        engine, arguments = NotingEngine.writing(arguments[1]), arguments[2:]
    stopwatch = time.perf_counter
    if arguments[:1] == ["--cpu-time"]:
        stopwatch, arguments = time.thread_time, arguments[1:]
    outside = Outside(engines={"local": engine}, transport=transport, stopwatch=stopwatch)
    root = Root(partial(serve, outside=outside), _no, _no, _no, _no, _no, _no, _no)
    return cli_main(root, ["up", *arguments])


def _no(*_: object) -> NoReturn:
    raise NotImplementedError("only `up` has fake engines")


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
