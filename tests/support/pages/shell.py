"""The shell in which a page is run: a folder, a home and servers of its own."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.live import end_agents
from tests.support.pages.script import REPO

DEFAULT_ADDRESS = "127.0.0.1:6278"
USER = "ada"
COMMAND_LIMIT_S = 300.0
START_LIMIT_S = 240.0

_SERVER = re.compile(r"topmast (--state \S+ )?up\b")
_COMMENT = re.compile(r"\s#.*")
_ANSWERS = "stop with Ctrl-C"


class Shell:
    """A bash that keeps its folder and variables from command to command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self._logs = folder / "logs"
        self._home = folder / "home"
        self._address = DEFAULT_ADDRESS
        self._servers: list[int] = []
        self._count = 0
        for made in (self.folder, self._logs, self._home):
            made.mkdir(parents=True)
        shutil.copytree(REPO / "examples", self.folder / "examples")
        (self.folder / ".venv").symlink_to(REPO / ".venv")
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder, env=self._environment(), stdin=subprocess.PIPE, text=True,
            stdout=(self._logs / "bash.out").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = f"{REPO / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {
            "PATH": path, "HOME": str(self._home), "USER": USER, "LOGNAME": USER,
            "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "dumb",
            "PYTHONUNBUFFERED": "1",  # results and warnings come in the order in which people see them
        }  # fmt: skip

    def run(self, command: str) -> tuple[int, list[str]]:
        """Run a command: its exit status, and the lines that it printed."""
        if _SERVER.match(command):
            return self._serve(command)
        output, status = self._paths()
        command = command.replace(DEFAULT_ADDRESS, self._address)
        self._tell(f"{{ {command}\n}} >{output} 2>&1 </dev/null; echo $? >{status}")
        self._await(status, command)
        return int(status.read_text()), self._lines(output)

    def _serve(self, command: str) -> tuple[int, list[str]]:
        """Start a server in the background; return when it answers, or has ended."""
        # What is added to the line must not become part of a comment.
        command = _COMMENT.sub("", command).strip().removesuffix("&").strip()
        port = "" if "--port" in command else "--port 0"
        output, status = self._paths()
        log, pid = output.with_suffix(".log"), output.with_suffix(".pid")
        output.touch()
        self._tell(f"{command} {port} >{output} 2>{log} </dev/null & echo $! >{pid}")
        self._await(pid, command)
        number = int(pid.read_text())
        self._servers.append(number)
        deadline_s = time.monotonic() + START_LIMIT_S
        while _ANSWERS not in (said := output.read_text()):
            if not Path(f"/proc/{number}").exists():
                self._tell(f"wait {number}; echo $? >{status}")
                self._await(status, command)
                return int(status.read_text()), self._lines(output) + self._lines(log)
            assert time.monotonic() < deadline_s, f"{command} does not answer: {log.read_text()}"
            time.sleep(0.05)
        self._tell(f"SERVER={number}")
        self._address = re.findall(r"127\.0\.0\.1:\d+", said)[0]
        return 0, self._lines(output)

    def _paths(self) -> tuple[Path, Path]:
        self._count += 1
        return self._logs / f"{self._count}.out", self._logs / f"{self._count}.status"

    def _tell(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line + "\n")
        self._bash.stdin.flush()

    def _await(self, file: Path, command: str) -> None:
        deadline_s = time.monotonic() + COMMAND_LIMIT_S
        while not (file.exists() and file.read_text().endswith("\n")):
            assert self._bash.poll() is None, f"the shell ended at: {command}"
            assert time.monotonic() < deadline_s, f"it does not end: {command}"
            time.sleep(0.01)

    def _lines(self, output: Path) -> list[str]:
        """What was printed, without the names of folders of this run."""
        text = output.read_text("utf-8", errors="replace")
        text = text.replace(f"{self.folder}/", "").replace(str(self._home), "~")
        text = text.replace(self._address, DEFAULT_ADDRESS)
        return [line.rstrip() for line in text.splitlines()]

    def end(self) -> None:
        """End every process that was started, and the shell."""
        for pid in self._servers:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._bash.kill()
        self._bash.communicate()
        for journal in sorted(self.folder.parent.rglob("engines")):
            end_agents(journal.parent)


@contextmanager
def opened(folder: Path) -> Iterator[Shell]:
    """A shell in a folder; afterwards nothing that it started is left."""
    shell = Shell(folder)
    try:
        yield shell
    finally:
        shell.end()
