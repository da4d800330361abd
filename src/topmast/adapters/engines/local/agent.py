"""A host of the local engine: a process that forks a supervisor for each task it is told of.

Its death is the death of the host. It outlives Topmast, and leaves when for some time it has had
neither tasks nor a Topmast. It talks JSON lines over a unix socket in its folder.

To an agent: ``{"op": "start", "attempt": A, "ranks": [...]}``, ``{"op": "poke", "attempt": A}``.
From it: first ``{"op": "tasks", "tasks": {TASK: started at or null}}``, then ``{"op": "started",
"task": T, "at_s": S}`` and ``{"op": "gone", "task": T, "error": E}``, the latter when nothing of it
is left; E says why its supervisor failed, and is empty if it did not.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.engines.local.supervisor import LOOK_AGAIN, Supervisor
from topmast.adapters.lines import Lines

LOCK_PATIENCE_S = 0.5
STRAY_RETRY_S = 0.02
REACH_RETRY_S = 1.0
BUFFER_MAX_BYTES = 16 << 20
ERROR_LONGEST = 300
"""A line of the pipe must not be torn."""
ALL_SIGNALS = signal.valid_signals()


class Client:
    """A connected Topmast."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = Lines()
        self.unsent = b""


class Agent:
    """The loop of one host."""

    def __init__(self, layout: Layout, host: str, linger_s: float) -> None:
        self.layout = layout
        self.host = host
        self.folder = layout.host(host)
        self.linger_s = linger_s
        self.supervisors: dict[int, str] = {}
        self.started: dict[str, float | None] = {}
        self.gone: list[str] = []
        self.failed: dict[str, str] = {}
        """Why the supervisors of which tasks failed."""
        self.clients: dict[int, Client] = {}
        self.poll = select.poll()
        self.heard = Lines()
        self.reachable = True
        """Whether a Topmast can find us, as far as we know."""

    def serve(self, ready: Callable[[], None]) -> None:
        """Be the host until killed, or idle for long."""
        self._open()
        ready()
        gc.collect()
        gc.freeze()  # so that forked supervisors share our memory
        idle_since_s = time.monotonic()
        while True:
            if self._needed():
                idle_since_s = time.monotonic()
            left_s = idle_since_s + self.linger_s - time.monotonic()
            if left_s <= 0:
                break
            self._turn(self._patience_s(left_s))
        # Without this record, our leave is not taken for a death.
        (self.folder / "agent.json").unlink(missing_ok=True)
        (self.folder / "agent.sock").unlink(missing_ok=True)

    def _patience_s(self, left_s: float) -> float | None:
        """How long nothing need be done if nothing happens."""
        if self.gone:
            return STRAY_RETRY_S
        if not self.reachable:
            return REACH_RETRY_S
        return None if self._needed() else left_s

    def _needed(self) -> bool:
        return bool(self.clients or self.started)

    def _open(self) -> None:
        processes.adopt_orphans()
        processes.set_name("topmast-agent")
        signal.set_wakeup_fd(self._pipe("wakeup"), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)  # a process cannot reach us
        # Ours until after the fork of a supervisor, which sleeps with them blocked.
        signal.pthread_sigmask(signal.SIG_BLOCK, [LOOK_AGAIN, signal.SIGUSR2])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.news = self._pipe("news")
        (self.folder / "agent.sock").unlink(missing_ok=True)
        self.listener = self._listen()
        self._record()

    def _record(self) -> None:
        files.write_json(self.folder / "agent.json", processes.identity(os.getpid()))

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            # A path of a socket has at most 107 bytes; from inside the folder it has ten.
            os.chdir(self.folder)
            listener.bind("agent.sock")
            Path("agent.sock").chmod(0o600)
            listener.listen(64)
        except OSError:
            listener.close()
            raise
        finally:
            os.chdir("/")
        self.poll.register(listener, select.POLLIN)
        return listener

    def _be_reachable(self) -> None:
        """Restore what lets a Topmast find us, if a task removed it: the folder, or files in it.

        A failure, on a full disk for example, is tried again soon; our tasks run meanwhile.
        """
        try:
            if not (self.folder / "agent.lock").exists():
                _lock(self.folder / "agent.lock")  # for as long as we live
            if not (self.folder / "agent.sock").exists():
                old, self.listener = self.listener, self._listen()
                self.poll.unregister(old)
                old.close()
            if not (self.folder / "agent.json").exists():
                self._record()
            self.reachable = True
        except OSError as error:
            if self.reachable:
                _complain(self.host, error)
            self.reachable = False

    def _pipe(self, name: str) -> int:
        """A pipe with its reading end polled here; returns the writing end."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        if name == "wakeup":
            os.set_blocking(writer, False)
        setattr(self, f"{name}_reader", reader)
        self.poll.register(reader, select.POLLIN)
        return writer

    wakeup_reader: int
    news_reader: int

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for something to happen, and see to it."""
        events = self.poll.poll(None if timeout_s is None else max(1, int(timeout_s * 1000)))
        ready = {fd for fd, _ in events}
        # Clients first: what one asked before it died is known to the next from the start.
        for fd in sorted(ready & self.clients.keys()):
            self._serve(self.clients[fd])
        if self.wakeup_reader in ready:
            os.read(self.wakeup_reader, 65536)
        if self.wakeup_reader in ready or not self.reachable:
            self._be_reachable()
        self._collect()
        if self.listener.fileno() in ready:
            self._accept()

    # --- clients --------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        client = Client(connection)
        self.clients[connection.fileno()] = client
        self._send(client, {"op": "tasks", "tasks": self.started})

    def _serve(self, client: Client) -> None:
        try:
            received = client.connection.recv(1 << 20)
        except BlockingIOError:
            self._flush(client)
            return
        except OSError:
            received = b""
        if not received:
            self._drop(client)
            return
        for line in client.lines.feed(received):
            self._obey(client, json.loads(line))

    def _obey(self, client: Client, order: Json) -> None:
        attempt: str = order["attempt"]
        if order["op"] == "poke":
            for pid, task in self.supervisors.items():
                if files.split_task(task)[0] == attempt:
                    os.kill(pid, LOOK_AGAIN)
            return
        plan = files.read_json(self.layout.plan(attempt))
        for rank in order["ranks"]:
            task = f"{attempt}.{rank}"
            at_s = self.started.get(task)
            if at_s is not None:
                self._send(client, {"op": "started", "task": task, "at_s": at_s})
            elif task in self.started:
                continue  # its supervisor has not come so far yet
            elif plan is None:
                self._send(client, {"op": "gone", "task": task})
            else:
                self._launch(plan, rank, task)

    def _send(self, client: Client, message: Json) -> None:
        client.unsent += json.dumps(message).encode() + b"\n"
        self._flush(client)

    def _flush(self, client: Client) -> None:
        try:
            while client.unsent:
                client.unsent = client.unsent[client.connection.send(client.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        if len(client.unsent) > BUFFER_MAX_BYTES:
            self._drop(client)  # it will connect again, and be told everything
            return
        wanted = select.POLLIN | (select.POLLOUT if client.unsent else 0)
        self.poll.register(client.connection, wanted)

    def _drop(self, client: Client) -> None:
        if self.clients.pop(client.connection.fileno(), None):
            self.poll.unregister(client.connection)
            client.connection.close()

    def _broadcast(self, message: Json) -> None:
        for client in list(self.clients.values()):
            self._send(client, message)

    # --- supervisors ----------------------------------------------------------------------------

    def _launch(self, plan: Json, rank: int, task: str) -> None:
        agent = os.getpid()
        # From its first instruction on, a supervisor keeps signals until it asks for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, [LOOK_AGAIN, signal.SIGUSR2])
            files.bury(self.layout, task, f"no process for it: {error}", time.time())
            self._broadcast({"op": "gone", "task": task})
            return
        if pid == 0:
            self._become_supervisor(plan, rank, agent)
        signal.pthread_sigmask(signal.SIG_SETMASK, [LOOK_AGAIN, signal.SIGUSR2])
        self.supervisors[pid] = task
        self.started[task] = None

    def _become_supervisor(self, plan: Json, rank: int, agent: int) -> None:
        """In the child: forget the agent, run the task, end."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            # The agent's lock and connections must end with the agent, so we may not hold them.
            for fd in processes.numbers(Path("/proc/self/fd")):
                if fd > 2 and fd != self.news:
                    with contextlib.suppress(OSError):
                        os.close(fd)
            Supervisor(self.layout, plan, rank, agent, self.news).run()
            status = 0
        except BaseException as error:
            task = f"{plan['attempt']}.{rank}"
            why = str(error)[:ERROR_LONGEST]
            failed = {"op": "failed", "task": task, "error": why}
            os.write(self.news, json.dumps(failed).encode() + b"\n")
            text = f"topmast: supervisor of {task}: {error!r}\n"
            files.write_all(2, text.encode(errors="replace"))
        finally:
            os._exit(status)

    def _collect(self) -> None:
        """See which supervisors ended, and tell it when nothing of their tasks is left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                task = self.supervisors.pop(pid, None)
                if task is not None:
                    self.gone.append(task)
        self._hear()
        if self.gone and self._strays():
            return
        for task in self.gone:
            self.started.pop(task, None)
            error = self.failed.pop(task, "")
            self._broadcast({"op": "gone", "task": task, "error": error})
        self.gone.clear()

    def _hear(self) -> None:
        """Pass on what supervisors said."""
        with contextlib.suppress(BlockingIOError):
            while said := os.read(self.news_reader, 65536):
                for line in self.heard.feed(said):
                    news = json.loads(line)
                    if news["op"] == "failed":
                        self.failed[news["task"]] = news["error"]
                        continue
                    self.started[news["task"]] = news["at_s"]
                    self._broadcast(news)

    def _strays(self) -> bool:
        """Kill children that are no supervisors: a supervisor was killed, and we inherited them."""
        if all(self.layout.end(task).exists() for task in self.gone):
            return False  # each cleared up before it wrote its record
        strays = [pid for pid in processes.all_children(os.getpid()) if pid not in self.supervisors]
        processes.send(strays, signal.SIGKILL)
        return bool(strays)


def main(arguments: list[str]) -> int:
    """Make agents for hosts, as daemons: ROOT LINGER_S HOST...; returns when all can be reached."""
    root, linger_s, *hosts = arguments
    layout = Layout(Path(root))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    for host in hosts:
        if os.fork() == 0:
            os.close(reader)
            _be_host(layout, host, float(linger_s), writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return 0 if len(pipe.read()) == len(hosts) else 1


def _be_host(layout: Layout, host: str, linger_s: float, ready: int) -> None:
    """In the child of `main`: take the host's lock and serve; end if another agent has it."""
    status = 1
    try:
        os.setsid()
        lock = _lock(layout.host(host) / "agent.lock")

        def tell() -> None:
            os.write(ready, b".")
            os.close(ready)

        if lock is None:
            tell()
        else:
            Agent(layout, host, linger_s).serve(tell)
        status = 0
    except Exception as error:
        _complain(host, error)
    finally:
        os._exit(status)


def _complain(host: str, error: Exception) -> None:
    """Say it in agents.log, which may be on a full disk."""
    with contextlib.suppress(OSError):
        files.write_all(2, f"topmast: agent of {host}: {error!r}\n".encode(errors="replace"))


def _lock(file: Path) -> int | None:
    files.make_folder(file.parent)
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    until_s = time.monotonic() + LOCK_PATIENCE_S
    while time.monotonic() < until_s:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)  # Topmast looks whether the lock is free by taking it
        else:
            return fd
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
