"""The supervisor of one task: claims it, runs it, obeys the orders on disk, records its end.

A supervisor is forked by the agent of its host, without exec, and is the parent in the last resort
of every process of its task: when `waitpid` knows no child any more, nothing of the task is left.

Orders are files in the attempt's folder; a signal only says that they changed. So an order also
reaches processes that were dead or asleep when it was given.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from topmast.adapters.engines.far.runner.references import CANNOT_BEGIN, missing, resolved
from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Json, Layout

LOOK_AGAIN = signal.SIGUSR1
"""The orders of the attempt may have changed."""
HOST_DIED = signal.SIGUSR2
"""Sent by the kernel when the agent ends."""
BLOCKED = frozenset({LOOK_AGAIN, HOST_DIED, signal.SIGTERM, signal.SIGCHLD})

LEFTOVER_GRACE_S = 2.0
LOCK_RETRY_S = 0.05
FIRST_PATIENCE_S = 2.0
KILL_RETRY_S = 0.02
RECORD_RETRY_S = 1.0
STOPPED_EARLY = "stopped before it started"


class StepFailed(Exception):
    """A step before the script ended badly, and the script will not run."""

    def __init__(self, code: int, error: str) -> None:
        super().__init__(error)
        self.code = code
        self.error = error


class Supervisor:
    """Runs the task `rank` of the attempt that `plan` describes."""

    def __init__(self, layout: Layout, plan: Json, rank: int, agent: int, news: int) -> None:
        self.layout = layout
        self.attempt: str = plan["attempt"]
        self.rank = rank
        self.task = f"{self.attempt}.{rank}"
        self.plan = plan
        self.seat: Json = plan["tasks"][str(rank)]
        self.agent = agent
        self.news = news
        self.work = layout.work(self.attempt, self.seat["host"])
        self.log = -1
        self.order: Json | None = None
        self.deadline_s: float | None = None
        self.suspended = False
        self.childless = True
        self.runs = False
        """Whether its script has begun, and has not ended."""
        self.execs: set[str] = set()
        """The commands beside it that were begun."""

    def run(self) -> None:
        """The whole life of the task. Signals in `BLOCKED` are blocked."""
        processes.signal_on_parent_death(HOST_DIED)
        self._check_host()
        os.setsid()
        processes.adopt_orphans()
        processes.set_name("topmast-task")
        note = {**processes.identity(os.getpid()), "host": self.seat["host"], "at_s": time.time()}
        lock = files.claim(self.layout.claim(self.task), note)
        if lock is None:
            return
        # The claim is written: a stop that is ordered after this look finds it and signals us.
        if files.read_json(self.layout.stop(self.attempt)) is not None:
            self._record(None, STOPPED_EARLY)
            return
        files.make_folder(self.work)
        self.log = os.open(
            self.layout.log(self.task), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._tell({"op": "started", "task": self.task, "at_s": note["at_s"]})
        code, error = self._steps()
        stopped = self._stopping()  # now: what the script left is told to end too
        self._clear()
        self._record(code, error, stopped=stopped)

    def _steps(self) -> tuple[int | None, str]:
        """Setup, then the script: its exit code, and what to add to it; None: the disk failed."""
        try:
            if self.plan["workdir"]:
                self._once("workdir", self._unpack, "unpacking the work folder")
            if self.seat["setup"]:
                self._once(self.seat["setup"], self._start_setup, "setup")
            if self._stopping():
                return 128 + signal.SIGTERM, "stopped during setup"
            self._check_host()
            child = self._fork(lambda: self._exec(self.seat["run"]))
            self.runs = True
            try:
                status = self._wait(child)
            finally:
                self.runs = False
            return status, self._missing(status, self.rank)
        except StepFailed as failed:
            return failed.code, failed.error
        except OSError as error:
            code = None if error.errno in files.UNWRITABLE else CANNOT_BEGIN
            return code, f"could not be started: {error}"

    def _record(self, code: int | None, error: str, *, stopped: bool = False) -> None:
        """Write how the task ended as soon as the disk allows: unrecorded, it would run again."""
        at_s = time.time()
        report = files.last_report(self.layout.progress(self.task))
        while True:
            try:
                files.record_end(self.layout, self.task, code, at_s, error, report, stopped=stopped)
            except OSError as failure:
                if failure.errno not in files.UNWRITABLE:
                    raise
                self._sleep(RECORD_RETRY_S)
                self._check_host()
            else:
                return

    def _tell(self, news: Json) -> None:
        os.write(self.news, json.dumps(news).encode() + b"\n")  # short: one write, not torn

    # --- steps that are done once for all tasks of the attempt on this host -----------------------

    def _once(self, name: str, start: Callable[[], None], what: str) -> None:
        """Do a step, or wait for another task to do it; its output is in the log of that task."""
        place = self.work.parent
        record = place / f"{self.work.name}.{name}.json"
        self._leave_to_first(name, record)
        lock = self._lock(place / f"{self.work.name}.{name}.lock")
        try:
            done = files.read_json(record)
            if done is None:
                done = {"code": None, "task": self.task}
                files.write_json(record, done, durable=False)
                done["code"] = self._wait(self._fork(start))
                files.write_json(record, done, durable=False)
        finally:
            os.close(lock)
        code = done["code"]
        fault = files.write_fault(self.work) if code == CANNOT_BEGIN and name == "workdir" else None
        if fault is not None:
            raise fault  # neither the archive nor the job is to blame
        if code != 0:
            attempt, rank = files.split_task(done["task"])
            how = "was interrupted" if code is None else f"exited with {code}"
            see = f"topmast logs {files.split_attempt(attempt)[0]} --task {rank}"
            why = self._missing(code, rank)
            raise StepFailed(code or 1, why or f"task {rank}: {what} {how}; see `{see}`")

    def _leave_to_first(self, name: str, record: Path) -> None:
        """The lowest rank on the host goes first, where people look; without it, any may go."""
        mine = [
            int(rank)
            for rank, seat in self.plan["tasks"].items()
            if seat["host"] == self.seat["host"] and name in ("workdir", seat["setup"])
        ]
        until_s = time.monotonic() + FIRST_PATIENCE_S
        while self.rank != min(mine) and not record.exists() and time.monotonic() < until_s:
            self._obey()
            if self._stopping():
                raise StepFailed(128 + signal.SIGTERM, "stopped during setup")
            self._sleep(LOCK_RETRY_S)

    def _lock(self, file: Path) -> int:
        while True:
            lock = files.try_lock(file)
            if lock is not None:
                return lock
            self._obey()
            if self._stopping():
                raise StepFailed(128 + signal.SIGTERM, "stopped during setup")
            self._sleep(LOCK_RETRY_S)

    def _unpack(self) -> None:
        # Imported here: it costs 10 ms, and few tasks need it.
        from topmast.adapters.archive import unpack_as_process

        unpack_as_process(self.plan["workdir"], str(self.work))

    def _start_setup(self) -> None:
        self._exec(self.seat["setup"])

    # --- children -------------------------------------------------------------------------------

    def _fork(self, body: Callable[[], None]) -> int:
        """A child that runs `body`, which does not return; its output goes to the task's log."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.childless = False
            return pid
        try:
            processes.signal_on_parent_death(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            os.setsid()  # so that `kill 0` in a script does not reach the supervisor
            os.dup2(self.log, 1)
            os.dup2(self.log, 2)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            body()
        except BaseException as error:
            files.write_all(2, f"topmast: {error}\n".encode(errors="replace"))
        finally:
            os._exit(CANNOT_BEGIN)

    def _exec(self, script: str) -> NoReturn:
        file = self.layout.attempt(self.attempt) / script
        os.chdir(self.work)
        environment = self._environment()
        # The script is a file, and secrets are in the environment: neither is in the arguments.
        arguments = ["bash", "-euo", "pipefail", os.fspath(file)]
        os.execve(self.plan["shell"], arguments, environment)  # noqa: S606

    def _environment(self) -> dict[str, str]:
        """What the script sees: only in its own process, as it has secrets in it."""
        secrets = resolved(self.plan.get("secrets", {}))
        return {**self.plan["envs"], **self.seat["envs"], **secrets}

    def _missing(self, code: int | None, rank: int) -> str:
        """Which secret a script that could not begin lacks; empty: none."""
        why = missing(self.plan.get("secrets", {})) if code == CANNOT_BEGIN else ""
        return f"task {rank}: {why}" if why else ""

    def _begin_execs(self) -> None:
        """Begin the commands that are ordered to run beside the script."""
        folder = self.layout.execs(self.attempt)
        for file in sorted(folder.glob(f"{self.rank}.*")) if self.runs else ():
            if file.name not in self.execs:
                self.execs.add(file.name)
                self._fork(partial(self._keep_exec, file))

    def _keep_exec(self, file: Path) -> None:
        """In a child: keep a command, as long as what ordered it listens."""
        # Imported here: few tasks need it.
        from topmast.adapters.engines.far.runner.execs import Beside
        from topmast.adapters.engines.far.runner.processes import Wire

        order = files.read_json(file)
        file.unlink(missing_ok=True)
        if order is None:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(self.layout.root)  # a path of a socket has at most 107 bytes
        connection.connect(self.layout.exec_socket.name)
        wire = Wire(connection)
        wire.tell(op="hello", id=order["id"])
        Beside(order, self._environment, os.fspath(self.work), wire).run()
        os._exit(0)

    def _wait(self, child: int) -> int:
        """Obey orders until a child has ended; its exit code, 128 + N for signal N."""
        while True:
            self._obey()
            code = self._reap(child)
            if code is not None:
                return code
            self._sleep(self._left_s())

    def _reap(self, child: int = 0) -> int | None:
        """Collect what has ended; the exit code of `child` if it is among that."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return code
            if pid == 0:
                return code
            if pid == child:
                exit_code = os.waitstatus_to_exitcode(status)
                code = exit_code if exit_code >= 0 else 128 - exit_code

    def _clear(self) -> None:
        """Return when no process of the task is left: those in a stop have what is left of it."""
        self._reap()
        if self.childless:
            return
        if self.deadline_s is None:
            self._terminate(LEFTOVER_GRACE_S)
        while not self.childless:
            self._obey()
            self._reap()
            if not self.childless:
                self._sleep(self._left_s())

    # --- orders ---------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Do what the files of the attempt say now."""
        self._check_host()
        order = files.read_json(self.layout.stop(self.attempt))
        if order is not None and order != self.order:
            self.order = order
            self._terminate(float(order["grace_s"]))
        if self.deadline_s is not None:
            if time.monotonic() >= self.deadline_s:
                processes.send(processes.descendants(os.getpid()), signal.SIGKILL)
            return
        suspended = self.layout.suspended(self.attempt).exists()
        if suspended:
            self._halt()
        elif self.suspended:
            processes.send(processes.descendants(os.getpid()), signal.SIGCONT)
        self.suspended = suspended
        if not suspended:
            self._begin_execs()

    def _terminate(self, grace_s: float) -> None:
        """SIGTERM to everything, now; SIGKILL later, but not later than said before."""
        deadline_s = time.monotonic() + grace_s
        self.deadline_s = min(deadline_s, self.deadline_s or deadline_s)
        tree = processes.descendants(os.getpid())
        processes.send(tree, signal.SIGTERM)
        processes.send(tree, signal.SIGCONT)
        self.suspended = False

    def _halt(self) -> None:
        """SIGSTOP to everything, until nothing new appears."""
        halted: set[int] = set()
        while True:
            new = set(processes.descendants(os.getpid())) - halted
            if not new:
                return
            processes.send(sorted(new), signal.SIGSTOP)
            halted |= new

    def _stopping(self) -> bool:
        return self.deadline_s is not None

    def _left_s(self) -> float:
        """How long to sleep when no signal comes."""
        if self.deadline_s is None:
            return 3600.0
        return max(KILL_RETRY_S, self.deadline_s - time.monotonic())

    def _sleep(self, at_most_s: float) -> None:
        """Until a signal, which stays pending while we do not sleep: none is missed."""
        received = signal.sigtimedwait(BLOCKED, at_most_s)
        if received is not None and received.si_signo == signal.SIGTERM:
            self._terminate(float(self.plan["grace_s"]))

    def _check_host(self) -> None:
        """With the agent the host is gone, and what ran on it: at once, and without a record."""
        if os.getppid() == self.agent:
            return
        while not self.childless:
            processes.send(processes.descendants(os.getpid()), signal.SIGKILL)
            signal.sigtimedwait(BLOCKED, KILL_RETRY_S)
            self._reap()
        os._exit(1)
