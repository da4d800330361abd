"""A launcher whose hosts are names and whose runners are processes of this machine.

It runs the real runner, so that the whole of a far engine can be held to the contract of engines
without a cluster. What it knows is in a file for each part, as a scheduler's would be.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from topmast.adapters.engines.far import runner as runners
from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.launcher import Host, Launcher, Listed, Part, State
from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.local import processes

MARK = "PART_OF_RIG"
"""The variable by which processes of a part are known."""


class ProcessOptions(FarOptions, frozen=True):
    """Where it keeps its files."""

    folder: str = ""


class ProcessLauncher(Launcher):
    """Hosts are the cluster's; parts start held."""

    options_type: ClassVar[type[FarOptions]] = ProcessOptions
    many_hosts = True
    exact_gpus = True
    container: ClassVar[tuple[str, ...]] = ()
    """A command that starts a runner in a container, as its first process."""

    def __init__(self, cluster: Any, fleet: str, options: Any) -> None:
        super().__init__(cluster, fleet, options)
        self.folder = Path(options.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._runner = self.folder.parent / "runner.py"
        self._runner.write_text(runners.text())

    def submit(self, part: Part) -> str:
        with self._lock:
            number = len(list(self.folder.glob("*.json"))) + 1
            record = {
                "name": part.name, "id": str(number), "submitted_s": time.time(), "state": "held",
                "hosts": part.hosts, "ticket": msgspec.to_builtins(part.ticket), "runners": {},
            }  # fmt: skip
            self._write(record)
            return str(number)

    def release(self, listed: Sequence[Listed]) -> None:
        for one in listed:
            self._release(one)

    def _release(self, listed: Listed) -> None:
        with self._lock:
            record = self._read(listed)
            if record is None or record["state"] != "held":
                return
            record["state"] = "running"
            self._write(record)  # first: what is not known to run must not
            ticket = json.dumps(record["ticket"]).encode()
            for host in record["hosts"]:
                record["runners"][host] = self._start(ticket, host, record["name"])
            self._write(record)

    def _start(self, ticket: bytes, host: str, part: str) -> dict[str, object]:
        with (self.folder.parent / "runners.log").open("ab") as log:
            runner = subprocess.Popen(
                [*self.container, sys.executable, "-I", "-S", self._runner, "-", host],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env={"PATH": os.environ["PATH"], "RIG": str(self.folder), MARK: part},
            )  # fmt: skip
        assert runner.stdin
        runner.stdin.write(ticket)
        runner.stdin.close()
        return processes.identity(runner.pid)

    def cancel(self, listed: Listed, grace_s: float) -> None:
        with self._lock:
            record = self._read(listed)
            if record is None:
                return
            if record["state"] == "held":
                record["state"] = "ended"
                self._write(record)
            for runner in record["runners"].values():
                processes.send_if_same(runner, signal.SIGTERM)
                late = threading.Timer(grace_s + 1.0, processes.kill_if_same, [runner])
                late.daemon = True
                late.start()

    def list(self) -> tuple[Listed, ...]:
        with self._lock:
            records = [json.loads(file.read_text()) for file in sorted(self.folder.glob("*.json"))]
            for record in records:
                self._see(record)
        return tuple(
            Listed(record["name"], record["id"], record["submitted_s"], State(record["state"]))
            for record in records
        )

    def _see(self, record: dict[str, Any]) -> None:
        """A part has ended when nothing of it lives, as a scheduler's daemon would see it."""
        runners = record["runners"].values()
        if record["state"] != "running" or len(runners) < len(record["hosts"]):
            return
        ended = all(processes.has_ended(one["pid"], one["start_ticks"]) for one in runners)
        if ended and not lives(f"{MARK}={record['name']}"):
            record["state"] = "ended"
            self._write(record)

    def hosts(self) -> tuple[Host, ...]:
        return tuple(Host(host.name, answers=True) for host in self._cluster.hosts)

    def _read(self, listed: Listed) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.folder / f"{listed.id}.json").read_text())
            return found if found["submitted_s"] == listed.submitted_s else None
        return None

    def _write(self, record: dict[str, Any]) -> None:
        file = self.folder / f"{record['id']}.json"
        part = file.with_suffix(".part")
        part.write_text(json.dumps(record))
        part.replace(file)


def lives(mark: str) -> bool:
    """Whether any process has this in its environment."""
    for pid in processes.numbers(Path("/proc")):
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
    return False


class ProcessEngine(FarEngine):
    """A far engine without a cluster."""

    launcher_type = ProcessLauncher
