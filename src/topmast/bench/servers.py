"""Real servers under test: a queue, placers of regions apart, and engines that start nothing."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from topmast.adapters.kernels import load_kernels
from topmast.client import Client
from topmast.model.errors import Unavailable

QUEUE = "queue"


class Servers:
    """The processes of one fleet: loopback, a journal with fsync each, `fake_engine` for engines.

    ``apart``: regions with a process of their own. ``delay_s``: each request between processes
    takes so much longer. ``orders``: a file for what the engines are ordered to start, which then
    never runs. Raises Unavailable.
    """

    def __init__(
        self,
        fleet: dict[str, Any],
        state: Path,
        *,
        apart: Sequence[str] = (),
        settings: Sequence[str] = (),
        delay_s: float = 0.0,
        orders: Path | None = None,
    ) -> None:
        self.processes: dict[str, subprocess.Popen[str]] = {}
        state.mkdir(parents=True, exist_ok=True)
        file = state / "fleet.yaml"
        file.write_text(json.dumps(fleet), encoding="utf-8")
        names = (QUEUE, *apart)
        load_kernels()  # a server that is still compiling decides more slowly
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self.url = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        noting = ["--orders", str(orders)] if orders is not None else []
        first = [str(delay_s), *noting, "--json"]
        try:
            for name in names:
                command = [*first, "--state", str(state / name), "--port", str(ports[name])]
                command += [f"--set={setting}" for setting in settings]
                if name == QUEUE:
                    placers = [f"--placer={region}={self.url[region]}" for region in apart]
                    role = "queue" if apart else "all"
                    command += ["--role", role, "--fleet", str(file), *placers]
                else:
                    command += ["--role", "placer", "--region", name, "--queue", self.url[QUEUE]]
                self.processes[name] = _process(command)
        except Unavailable:
            self.stop()
            raise
        self.client = Client(self.url[QUEUE], user="bench")

    def cpu_s(self) -> dict[str, float]:
        """CPU time of each process so far."""
        spent = {n: psutil.Process(p.pid).cpu_times() for n, p in self.processes.items()}
        return {name: times.user + times.system for name, times in spent.items()}

    def peak_rss_bytes(self) -> int:
        """The most memory that each process has held (VmHWM), added up."""
        return sum(peak_rss_bytes(process.pid) for process in self.processes.values())

    def stop(self) -> None:
        """SIGTERM to all; they save what they have."""
        processes, self.processes = self.processes, {}
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for process in processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def peak_rss_bytes(pid: int) -> int:
    """The most memory that a process has held (VmHWM); where there is no /proc, what it holds."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process(pid).memory_info().rss)


def _process(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "topmast.bench.fake_engine", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        raise Unavailable("a process under test did not start; see its log")
    return process


def _free_ports(count: int) -> Iterator[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        yield from [int(probe.getsockname()[1]) for probe in probes]
