"""`topmast up` with engines that run nothing, and on request with a slower network.

For benchmarks of decisions. All else is as in a server: the journal, HTTP, the links.

    python -m topmast.bench.fake_engine --role placer --region east --queue URL --state DIR
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from topmast.app.process import Outside
from topmast.app.roles import serve_placer, serve_queue
from topmast.cli import ServeOptions
from topmast.cli.output import say
from topmast.model import messages as m
from topmast.model.fleet import HostSpec
from topmast.ports import Engine, Post


class FakeEngine(Engine):
    """An engine of hosts that are not there: tasks run when they are told to, and until then."""

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

    def ask_pace(self, job: str, epoch: int) -> None:
        """No task reports a step."""

    def ask_truth(self) -> None:
        """What was started and not stopped runs."""
        tasks = tuple(
            m.TruthTask(job, epoch, rank, running=True)
            for (job, epoch), count in self._gangs.items() for rank in range(count)
        )  # fmt: skip
        self._post(m.TaskList(tasks))

    def equip(self, hosts: Sequence[HostSpec]) -> None:
        """Hosts that are not there come and go without a word."""

    def log_path(self, job: str, epoch: int, rank: int) -> Path | None:
        """Nothing is written."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""


class SlowTransport(httpx.HTTPTransport):
    """Requests that take longer by the way there and back."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Wait, then ask."""
        time.sleep(self._delay_s)
        return super().handle_request(request)


def main(arguments: list[str]) -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", default="queue", choices=("queue", "placer"))
    parser.add_argument("--fleet", type=Path)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--placer", action="append", default=[])
    parser.add_argument("--region")
    parser.add_argument("--queue")
    parser.add_argument("--delay-s", type=float, default=0.0)
    given = parser.parse_args(arguments)
    options = ServeOptions(
        fleet=given.fleet, state=given.state, host="127.0.0.1", port=given.port, json=True,
        profile=None, settings=dict(pair.split("=", 1) for pair in given.set),
        role=given.role, placers=dict(pair.split("=", 1) for pair in given.placer),
        region=given.region, queue=given.queue,
    )  # fmt: skip
    transport = SlowTransport(given.delay_s) if given.delay_s else None
    outside = Outside(engines={"local": FakeEngine}, transport=transport)
    if given.role == "placer":
        serve_placer(options, _ready, outside)
    else:
        serve_queue(options, lambda url, system, as_json: _ready(url), outside)


def _ready(url: str) -> None:
    say(json.dumps({"url": url}))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
