"""Where the programs of the lab are, and what starts them and ends them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

BUILD = Path(__file__).parent / "build.sh"


def cache() -> Path:
    """The folder of what `build.sh` made: $TOPMAST_KUBERNETES, else below the user's cache."""
    if named := os.environ.get("TOPMAST_KUBERNETES"):
        return Path(named)
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(usual) / "topmast-kubernetes"


def missing(*, nodes: bool) -> str:
    """Why no lab can be started here; empty: it can."""
    if not (cache() / "ready").exists():
        return f"no Kubernetes in {cache()}: run `make kubernetes-tools`"
    if nodes and os.geteuid() != 0:
        return "the nodes of a real Kubernetes need root"
    if nodes and not (shutil.which("ip") and shutil.which("nsenter")):
        return "the nodes of a real Kubernetes need ip and nsenter (apt install iproute2)"
    return ""


def program(name: str) -> str:
    """The path of a program of the lab."""
    for folder in ("usr/bin", "usr/sbin"):
        if (found := cache() / "debian" / folder / name).exists():
            return str(found)
    raise FileNotFoundError(f"{name} is not in {cache()}: run `make kubernetes-tools`")


def environment() -> dict[str, str]:
    """What the programs get: their own folder first in the path, and no proxy."""
    root = cache() / "debian" / "usr"
    path = f"{root}/bin:{root}/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def run(*command: str, check: bool = True, given: bytes = b"") -> str:
    """What a command prints; an error shows what it said."""
    done = subprocess.run(command, env=environment(), capture_output=True, input=given, check=False)
    if check and done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    with socket.socket() as one:
        one.bind((address, 0))
        port: int = one.getsockname()[1]
        return port


def until(ask: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until something is so."""
    end_s = time.monotonic() + within_s
    while not ask():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(0.1)


class Daemon:
    """One server process, which can be killed, frozen and started again."""

    def __init__(
        self, name: str, command: list[str], log: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = command
        self._log = log
        self._environment = {**environment(), **(extra or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, for instance SIGSTOP."""
        if self.process is not None and self.runs:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self, within_s: float = 10.0) -> None:
        """End it as a site would."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(within_s)
                return
        self.kill()

    def tail(self, lines: int = 20) -> str:
        """The end of what it said, for error messages."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
