"""Runs the ranks of one attempt on one host, and answers for their ends: TICKET_FILE|- HOST.

One file, standard library only, Python 3.8 or newer, no import of Topmast: schedulers carry it to
their hosts. Three kinds of processes, so that neither a frozen nor a killed one leaves tasks alive
beyond the lease:

- the *keeper* is what the scheduler started. It is the parent of all, obeys, and never waits for
  the network. At the end of a lease it kills what runs, whatever the caller does;
- the *caller* talks to home: it claims, beats, and carries orders in, output and ends out. When the
  keeper dies or stands still, the caller ends everything;
- a *supervisor* for each task is the parent in the last resort of its processes: when it has no
  child, nothing of the task is left. When the keeper dies, it ends them.

Exit status 0: home knows every end. 3: refused, because another runner has the claim or the attempt
is over. 75: home could not be reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import mmap
import os
import secrets
import select
import shutil
import signal
import socket
import ssl
import stat
import struct
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

MARK = "TOPMAST_TASK"
"""The variable by which processes of a task are known that lost their supervisor."""
ADDRESS = "TOPMAST_ADDRESS"
"""The variable in which a launcher may say how other hosts reach this one."""
TURN_S = 0.5
"""How often keeper and caller look at each other at least."""
RETRY_S = 0.05
LEFTOVER_GRACE_S = 2.0
OBEY_S = 2.0
"""How long after SIGKILL a supervisor may need to see that nothing is left."""
FROZEN_S = 15.0
"""A process that did not turn for so long stands still; with a short lease, for a quarter of it."""
PAGE_BYTES = 256 * 1024
SHIP_S = 0.1
CALL_S = 30.0
BACKOFF_S = 0.2
PATIENCE_S = 3600.0
"""How long home may be silent when there is no lease."""
REFUSED, NO_HOME = 3, 75
HUNG_UP = (401, 404, 409, 410)
"""What home says to a runner that has no business here."""

Json = Any
_libc = ctypes.CDLL(None, use_errno=True)


def now_s() -> float:
    """A clock that runs on while the machine sleeps, and that is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- processes ----------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent: none can leave the tree."""
    if _libc.prctl(36, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; none without the process."""
    try:
        text = Path("/proc/%d/stat" % pid).read_bytes()  # noqa: UP031
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def _ticks(pid: int) -> int:
    """When a living process began, which tells it from a later one of its number; 0: it is dead."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in b"ZX" else 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def descendants(root: int) -> list[int]:
    """Processes below one; one that is forked meanwhile may be missing."""
    below: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields and fields[0] not in b"ZX":
            below.setdefault(int(fields[1]), []).append(pid)
    found, queue = [], list(below.get(root, ()))
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += below.get(pid, ())
    return found


def marked(nonce: str) -> list[int]:
    """Processes that bear the mark of this runner's tasks in their environment."""
    mark = ("%s=%s." % (MARK, nonce)).encode()  # noqa: UP031
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if mark in Path("/proc/%d/environ" % pid).read_bytes():  # noqa: UP031
                found.append(pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Wire:
    """JSON lines over a socket to another process of ours."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._rest = b""
        self._lock = threading.Lock()

    def tell(self, **message: Json) -> None:
        """Send; a reader that is gone is noticed elsewhere."""
        with self._lock, contextlib.suppress(OSError):
            self.end.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> list[Json] | None:
        """What came; None when the other process is gone."""
        try:
            got = self.end.recv(1 << 20)
        except OSError:
            got = b""
        *lines, self._rest = (self._rest + got).split(b"\n")
        return [json.loads(line) for line in lines] if got else None


def fork(body: Any) -> tuple[int, Wire]:
    """A child that runs ``body(wire)`` and ends, and our end of the wire to it.

    It keeps none of our descriptors but the first three: our death must end each wire.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Wire(ours)
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(name) > 2 and int(name) != theirs.fileno():
                with contextlib.suppress(OSError):
                    os.close(int(name))
        status = body(Wire(theirs)) or 0
    except BaseException as error:
        os.write(2, ("topmast runner: %r\n" % error).encode(errors="replace"))  # noqa: UP031
    finally:
        os._exit(status)


# --- the supervisor of a task -------------------------------------------------------------------


def supervise(wire: Wire, body: Any, log: Path) -> None:
    """Run ``body`` in a child; tell its exit code, and end when nothing is left of it."""
    os.setsid()
    adopt_orphans()
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        _become(body, log)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(wire.end, select.POLLIN)
    orphaned = False
    while True:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    wire.tell(code=_exit_code(status))
        except ChildProcessError:
            return
        if orphaned:
            send(descendants(os.getpid()), signal.SIGKILL)
        ready = dict(poll.poll(20 if orphaned else 1000))
        if reader in ready:
            os.read(reader, 4096)
        if wire.end.fileno() in ready and wire.hear() is None:
            orphaned = True  # the keeper is gone, and with it whatever ran here
            poll.unregister(wire.end)


def _become(body: Any, log: Path) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        out = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        body()
    except BaseException as error:
        os.write(2, ("topmast: %s\n" % error).encode(errors="replace"))  # noqa: UP031
    finally:
        os._exit(126)


class Task:
    """A rank, or a step before the ranks, as the keeper sees it."""

    def __init__(self, body: Any, log: Path) -> None:
        self.pid, self.wire = fork(lambda wire: supervise(wire, body, log))
        self.code: int | None = None
        self.done = False
        self.asked = False
        """Whether SIGTERM was sent."""
        self.kill_s = float("inf")

    def step(self, stop_s: float) -> None:
        """SIGTERM when a stop was ordered or its script has ended, SIGKILL when the time is up."""
        over_s = now_s() + LEFTOVER_GRACE_S if self.code is not None else float("inf")
        self.kill_s = min(self.kill_s, stop_s, over_s)
        if self.kill_s == float("inf") or self.done:
            return
        tree = descendants(self.pid)
        if not self.asked:
            self.asked = True
            send(tree, signal.SIGTERM)
            send(tree, signal.SIGCONT)
        if now_s() >= self.kill_s:
            send(tree, signal.SIGKILL)
        if now_s() >= self.kill_s + OBEY_S:
            send([self.pid], signal.SIGKILL)  # it stands still; what it leaves comes to us

    def halt(self) -> None:
        """SIGSTOP to everything, until nothing new appears."""
        halted: set[int] = set()
        while True:
            new = [pid for pid in descendants(self.pid) if pid not in halted]
            if not new:
                return
            send(new, signal.SIGSTOP)
            halted.update(new)


# --- steps before the ranks, and the ranks --------------------------------------------------------


def unpack(folder: Path) -> NoReturn:
    """Extract the archive of the work folder, which home has checked; links come last."""
    with tarfile.open(str(folder / "blob")) as archive:
        chosen = sorted(archive.getmembers(), key=lambda member: member.issym())
        options: Json = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(str(folder / "work"), chosen, **options)  # noqa: S202
    os._exit(0)


def script(folder: Path, name: str, envs: dict[str, str]) -> NoReturn:
    """Become a script. It is a file, and secrets are in the environment: not in the arguments."""
    os.chdir(str(folder / "work"))
    bash = shutil.which("bash")
    shell = [bash, "-euo", "pipefail"] if bash else ["/bin/sh", "-eu"]
    os.execve(shell[0], [*shell, str(folder / name)], envs)  # noqa: S606


def folder_of(plan: Json, part: str, nonce: str) -> Path:
    """Where the attempt lives on this host."""
    return Path(plan["work"] or tempfile.gettempdir()) / ("topmast-%s-%s" % (part, nonce[:8]))  # noqa: UP031


def environments(plan: Json, orders: Json, folder: Path, nonce: str) -> dict[str, dict[str, str]]:
    """Of each rank: what the scheduler gave, then the job's own, then ours."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = sum(seat["gpus"] for seat in plan["ranks"].values())
    given = [gpu for gpu in visible.split(",") if gpu] if visible else list(map(str, range(count)))
    found = {}
    for rank, seat in sorted(plan["ranks"].items(), key=lambda item: int(item[0])):
        own, given = given[: seat["gpus"]], given[seat["gpus"] :]
        found[rank] = {
            **os.environ, **plan["envs"], **seat["envs"],
            "CUDA_VISIBLE_DEVICES": ",".join(own if seat["slots"] is None else seat["slots"]),
            "MASTER_ADDR": orders["address"],
            "MASTER_PORT": str(orders["port"]),
            "TOPMAST_PYTHON": sys.executable,
            "TOPMAST_PROGRESS_FILE": str(folder / (rank + ".progress")),
            MARK: nonce + "." + rank,
        }  # fmt: skip
    return found


class Keeper:
    """The process that the scheduler started."""

    def __init__(self, ticket: Json, host: str) -> None:
        self.ticket = ticket
        self.host = host
        self.nonce = secrets.token_hex(16)
        self.frozen_s = min(FROZEN_S, (ticket["lease_s"] or PATIENCE_S) / 4)
        self.turns = mmap.mmap(-1, 16)
        """When the keeper and the caller turned last: shared with the caller."""
        self.plan: Json = None
        self.folder = Path()
        self.orders: Json = None
        self.steps: list[tuple[str, list[str]]] = []
        self.step: tuple[Task, str, list[str]] | None = None
        self.tasks: dict[str, Task] = {}
        self.ends: dict[str, Json] = {}
        self.told: set[str] = set()
        self.stop_s = self.until_s = float("inf")
        self.why = ""
        """Why we end what runs, if home did not order it."""
        self.signalled = self.still = False
        self.left: int | None = None
        """The exit status of the caller, once home needs no other."""
        self.port = socket.socket()
        """Keeps a port free until rank 0 takes it."""

    def run(self) -> int:
        """Until home knows the end of everything; the exit status."""
        adopt_orphans()
        self.port.bind(("", 0))
        self.port_number = self.port.getsockname()[1]
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)
        self._call_home()
        while True:
            self._turn(reader)
            if self.left is not None and not self._alive() and not self._strays():
                if self.plan is not None:
                    shutil.rmtree(str(self.folder), ignore_errors=True)
                return self.left

    def _signal(self, *_: object) -> None:
        self.signalled = True

    def _turn(self, reader: int) -> None:
        struct.pack_into("d", self.turns, 0, now_s())
        poll = select.poll()
        wires = {task.wire.end.fileno(): task for task in self._alive()}
        for number in (reader, *wires):
            poll.register(number, select.POLLIN)
        if self.left is None:
            poll.register(self.wire.end, select.POLLIN)
        hurry = self.stop_s < float("inf") or any(t.code is not None for t in self._alive())
        ready = {number for number, _ in poll.poll(1000 * (RETRY_S if hurry else TURN_S))}
        if reader in ready:
            os.read(reader, 4096)
        for number, task in wires.items():
            for message in (task.wire.hear() or ()) if number in ready else ():
                task.code = message["code"]
        if self.left is None and self.wire.end.fileno() in ready:
            for message in self.wire.hear() or ():
                self._obey(message)
        self._reap()
        self._judge()
        for task in self._alive():
            task.step(self.stop_s)
        self._advance()

    def _alive(self) -> list[Task]:
        tasks = [*self.tasks.values(), *([self.step[0]] if self.step else [])]
        return [task for task in tasks if not task.done]

    # --- the caller -----------------------------------------------------------------------------

    def _call_home(self) -> None:
        struct.pack_into("d", self.turns, 8, now_s())
        self.caller, self.wire = fork(lambda wire: Caller(self, wire).run())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for task in self._alive():
                if task.pid == pid:
                    task.done = True
                    for message in task.wire.hear() or ():
                        task.code = message["code"]
                    task.wire.end.close()
            if pid == self.caller and self.left is None:
                self._caller_left(_exit_code(status))

    def _caller_left(self, status: int) -> None:
        self.wire.end.close()
        if status in (0, REFUSED, NO_HOME):
            self.left = status
            self.stop_s = min(self.stop_s, now_s())
        else:
            time.sleep(BACKOFF_S)
            self._call_home()  # it was killed: another goes on from what we know

    def _strays(self) -> bool:
        """Kill what a supervisor left that was killed; True while anything is there."""
        known = {self.caller, *(task.pid for task in self._alive())}
        found = []
        for pid in _pids():
            fields = _stat(pid)
            if fields and int(fields[1]) == os.getpid() and pid not in known:
                found.append(pid)
        send(found, signal.SIGKILL)
        return bool(found)

    def _obey(self, message: Json) -> None:
        if message["op"] == "told":
            self.told.add(message["rank"])
        elif message["op"] == "plan" and self.plan is None:
            self._take(message["plan"])
        elif message["op"] == "orders":
            self.orders = message["orders"]
            if self.ticket["lease_s"] is not None:
                self.until_s = message["asked_s"] + self.ticket["lease_s"]
            if self.orders["grace_s"] is not None and not self.left:
                self.stop_s = min(self.stop_s, now_s() + self.orders["grace_s"])
            elif self.stop_s == float("inf") and self.still != self.orders["still"]:
                self._suspend(self.orders["still"])

    def _suspend(self, still: bool) -> None:
        self.still = still
        for task in self._alive():
            if still:
                task.halt()
            else:
                send(descendants(task.pid), signal.SIGCONT)

    def _judge(self) -> None:
        """Whether to end what runs without an order from home."""
        if (
            struct.unpack_from("d", self.turns, 8)[0] < now_s() - 2 * self.frozen_s
            and self.left is None
        ):
            send([self.caller], signal.SIGKILL)
        if self.signalled:
            self.signalled = False
            self.why = self.why or "the scheduler ended it"
            self.stop_s = min(self.stop_s, now_s() + self.ticket["grace_s"])
        if now_s() >= self.until_s - self.ticket["grace_s"] and self.stop_s > self.until_s:
            self.why = self.why or "home was silent for %g s" % self.ticket["lease_s"]  # noqa: UP031
            self.stop_s = self.until_s

    # --- the ranks -------------------------------------------------------------------------------

    def _take(self, plan: Json) -> None:
        self.plan = plan
        self.folder = folder_of(plan, self.ticket["part"], self.nonce)
        try:
            for name, text in plan["scripts"].items() if not plan.get("error") else ():
                (self.folder / name).write_text(text)
        except OSError as error:
            plan["error"] = str(error)
        for rank in plan["ranks"] if plan.get("error") else ():
            self._end(rank, None, "the host cannot be prepared: " + plan["error"])
        ranks = sorted(plan["ranks"], key=int)
        if plan["blob"]:
            self.steps.append(("unpacking the work folder", ranks))
        for name in dict.fromkeys(plan["ranks"][rank]["setup"] for rank in ranks):
            if name:
                self.steps.append((name, [r for r in ranks if plan["ranks"][r]["setup"] == name]))

    def _advance(self) -> None:
        """Begin the next step, or the ranks; note what has ended."""
        if self.plan is None:
            return
        for rank, task in self.tasks.items():
            if task.done and rank not in self.ends and not (task.code is None and self._strays()):
                error = "" if task.code is not None else "its supervisor was killed"
                self._end(rank, task.code, error)
        if self.step is not None:
            self._finish_step(*self.step)
        if self.step is not None:
            return
        if self.stop_s < float("inf"):
            for rank in self.plan["ranks"]:
                if rank not in self.tasks:
                    self._end(rank, 128 + signal.SIGTERM, "stopped during setup")
        elif self.orders and self.orders["address"] and not self.still:
            self._start_next()

    def _start_next(self) -> None:
        if self.steps:
            name, ranks = self.steps.pop(0)
            self.step = (self._begin(ranks[0], name), name, ranks)
        elif not self.tasks:
            self.port.close()
            for rank in self.plan["ranks"]:
                if rank not in self.ends:
                    self.tasks[rank] = self._begin(rank, self.plan["ranks"][rank]["run"])

    def _begin(self, rank: str, name: str) -> Task:
        folder = self.folder
        envs = environments(self.plan, self.orders, folder, self.nonce)[rank]
        in_python = name not in self.plan["scripts"]
        body = (lambda: unpack(folder)) if in_python else (lambda: script(folder, name, envs))
        task = Task(body, folder / (rank + ".log"))
        self.wire.tell(op="pid", pid=task.pid, ticks=_ticks(task.pid))
        return task

    def _finish_step(self, task: Task, name: str, ranks: list[str]) -> None:
        if not task.done or (task.code is None and self._strays()):
            return
        self.step = None
        if task.code != 0 and self.stop_s == float("inf"):
            what = "setup" if name in self.plan["scripts"] else name
            how = "was interrupted" if task.code is None else "exited with %d" % task.code  # noqa: UP031
            see = "topmast logs %s --task %s" % (self.plan["job"], ranks[0])  # noqa: UP031
            for rank in ranks:
                error = "task %s: %s %s; see `%s`" % (ranks[0], what, how, see)  # noqa: UP031
                self._end(rank, task.code or 1, error)

    def _end(self, rank: str, code: int | None, error: str) -> None:
        if rank in self.ends:
            return
        ordered = self.orders is not None and self.orders["grace_s"] is not None
        why = "" if ordered else self.why
        self.ends[rank] = {
            "rank": int(rank), "code": code, "at_s": time.time(), "error": error or why,
            "evicted": bool(why),
        }  # fmt: skip
        self.wire.tell(op="end", rank=rank, end=self.ends[rank])


# --- the caller -----------------------------------------------------------------------------------


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class Home:
    """Requests to the engine. Each thread has one of its own."""

    def __init__(self, ticket: Json) -> None:
        self.ticket = ticket
        self.line: http.client.HTTPConnection | None = None

    def _connect(self) -> http.client.HTTPConnection:
        url = self.ticket["url"]
        if url.startswith("unix:"):
            return _Unix(url[len("unix:") :], timeout=CALL_S)
        # Exactly this certificate is trusted, so that its name does not matter.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.ticket["ca"])
        where = urllib.parse.urlsplit(url)
        host = where.hostname or ""
        return http.client.HTTPSConnection(host, where.port, timeout=CALL_S, context=context)

    def call(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One request; raises OSError or HTTPException when there is no answer."""
        kept = self.line is not None
        try:
            return self._call(path, body)
        except (OSError, http.client.HTTPException):
            self.hang_up()
            if not kept:
                raise
        return self._call(path, body)  # home closes a connection that was idle

    def _call(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.line = self.line or self._connect()
        headers = {"Authorization": "Bearer " + self.ticket["token"]}
        method = "GET" if body is None else "POST"
        self.line.request(method, "/%s/%s" % (self.ticket["part"], path), body, headers)  # noqa: UP031
        answer = self.line.getresponse()
        return answer.status, answer.read()

    def hang_up(self) -> None:
        """The next request makes a connection of its own."""
        if self.line is not None:
            self.line.close()
        self.line = None

    def address(self) -> str:
        """Ours, on the way to home."""
        if self.ticket["url"].startswith("unix:"):
            return os.environ.get(ADDRESS, "127.0.0.1")
        self.line = self.line or self._connect()
        if self.line.sock is None:
            self.line.connect()
        address: str = self.line.sock.getsockname()[0]
        return address


class Caller:
    """The process that talks to home: this thread beats, one ships output and ends, one watches."""

    def __init__(self, keeper: Keeper, wire: Wire) -> None:
        self.keeper = keeper
        self.wire = wire
        self.ticket = keeper.ticket
        self.parent = os.getppid()
        self.me = {"host": keeper.host, "nonce": keeper.nonce}
        self.pids = {task.pid: _ticks(task.pid) for task in keeper.tasks.values()}
        self.ends = dict(keeper.ends)
        self.told = set(keeper.told)
        self.offsets: dict[str, int] = {}
        self.plan: Json = None
        self.heard_s = self.leased_s = now_s()
        self.patience_s = self.ticket["lease_s"] or PATIENCE_S
        self.news = threading.Event()
        self.trouble = b""

    def run(self) -> int:
        """Until home knows all, or wants no more; the exit status."""
        threading.Thread(target=self._watch, daemon=True).start()
        home = Home(self.ticket)
        status, answer = self._insist(home, self._claim)
        if status != 200:
            return REFUSED if status else NO_HOME
        self.plan = json.loads(answer)["plan"]
        try:
            self._prepare(home)
        except OSError as error:
            self.plan["error"] = str(error)
        self.wire.tell(op="plan", plan=self.plan)
        self._orders(answer)
        threading.Thread(target=self._ship, daemon=True).start()
        while True:
            status, answer = self._insist(home, self._beat)
            if status == 200:
                self._orders(answer)
            elif len(self.ends) < len(self.plan["ranks"]):
                return REFUSED if status else NO_HOME
            else:
                time.sleep(BACKOFF_S)  # it is over; the other thread tells home the last of it

    def _prepare(self, home: Home) -> None:
        """Make the folder of the attempt, and fetch the archive of the work folder into it."""
        self.folder = folder_of(self.plan, self.ticket["part"], self.keeper.nonce)
        (self.folder / "work").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if self.plan["blob"] and not (self.folder / "blob").exists():
            status, content = self._insist(home, lambda home: home.call("blob"))
            # What is no archive fails when it is unpacked, and its text is in the log.
            (self.folder / "blob").write_bytes(content if status == 200 else b"")
            if status != 200:
                ranks = sorted(self.plan["ranks"], key=int)
                (self.folder / (ranks[0] + ".log")).write_bytes(content + b"\n")

    def _insist(self, home: Home, ask: Any) -> tuple[int, bytes]:
        """Ask until home gives an answer that counts; status 0: for too long it did not."""
        while now_s() - self.heard_s < 2 * self.patience_s or self._computes():
            turned_s = struct.unpack_from("d", self.keeper.turns, 0)[0]
            # A keeper that stands still obeys no order: then home is to hear nothing.
            if turned_s > now_s() - self.keeper.frozen_s or os.getppid() != self.parent:
                self.asked_s = now_s()
                try:
                    status, answer = ask(home)
                except (OSError, http.client.HTTPException) as error:
                    status, answer = 0, repr(error).encode()
                self._complain(status, answer)
                if status in (200, 422) or status in HUNG_UP:
                    self.heard_s, self.leased_s = now_s(), self.asked_s
                    return status, answer
            time.sleep(BACKOFF_S)
        return 0, b""

    def _computes(self) -> bool:
        """Whether ranks may run: without a lease they do so for as long as home is silent."""
        return self.plan is not None and len(self.ends) < len(self.plan["ranks"])

    def _complain(self, status: int, answer: bytes) -> None:
        """Say once what home has against us: it is in the scheduler's output of the job."""
        over = status == 410 and self.ends
        trouble = b"" if status == 200 or over else b"home: %d %s" % (status, answer[:500])
        if trouble and trouble != self.trouble:
            os.write(2, b"topmast runner: " + trouble + b"\n")
        self.trouble = trouble

    def _claim(self, home: Home) -> tuple[int, bytes]:
        body = {**self.me, "address": home.address(), "port": self.keeper.port_number}
        body["run"] = os.environ.get("TOPMAST_RUN", "")
        return home.call("claim", json.dumps(body).encode())

    def _beat(self, home: Home) -> tuple[int, bytes]:
        return home.call("beat", json.dumps({**self.me, "version": self.version}).encode())

    def _orders(self, answer: bytes) -> None:
        orders = json.loads(answer)["orders"]
        self.version = orders["version"]
        self.wire.tell(op="orders", orders=orders, asked_s=self.asked_s)

    # --- output and ends -------------------------------------------------------------------------

    def _ship(self) -> None:
        home = Home(self.ticket)
        while True:
            moved = False
            for rank in self.plan["ranks"]:
                try:
                    moved = self._ship_rank(home, rank) or moved
                except (OSError, http.client.HTTPException):
                    time.sleep(BACKOFF_S)
            if len(self.told) == len(self.plan["ranks"]):
                os._exit(0)
            if not moved:
                self.news.wait(SHIP_S)
                self.news.clear()

    def _ship_rank(self, home: Home, rank: str) -> bool:
        end = self.ends.get(rank)  # before its output is read: nothing comes after
        moved = [self._page(home, rank, kind) for kind in ("log", "progress")]
        if end is None or rank in self.told or any(moved):
            return any(moved)
        status, _ = home.call("end", json.dumps({**self.me, **end}).encode())
        if status == 200 or status in HUNG_UP:
            self.told.add(rank)
            self.wire.tell(op="told", rank=rank)
        return True

    def _page(self, home: Home, rank: str, kind: str) -> bool:
        """Send what was written since; home says from where on it has none."""
        name = rank + "." + kind
        offset = self.offsets.get(name, 0)
        page = _read(self.folder / name, offset)
        if not page:
            return False
        query = urllib.parse.urlencode({**self.me, "rank": rank, "kind": kind, "offset": offset})
        status, answer = home.call("log?" + query, page)
        if status == 200:
            self.offsets[name] = json.loads(answer)["offset"]
        elif status not in HUNG_UP:
            raise OSError(status)
        return status == 200

    # --- the keeper ------------------------------------------------------------------------------

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self.wire.end, select.POLLIN)
        while True:
            struct.pack_into("d", self.keeper.turns, 8, now_s())
            if poll.poll(1000 * TURN_S):
                messages = self.wire.hear()
                if messages is None:
                    break
                for message in messages:
                    if message["op"] == "pid":
                        self.pids[message["pid"]] = message["ticks"]
                    elif message["op"] == "end":
                        self.ends[message["rank"]] = message["end"]
                        self.news.set()
            lease_s = self.ticket["lease_s"]
            turned_s = struct.unpack_from("d", self.keeper.turns, 0)[0]
            if (
                lease_s
                and turned_s < now_s() - self.keeper.frozen_s
                and now_s() - self.leased_s > lease_s
            ):
                os.kill(self.parent, signal.SIGKILL)
                break
        self._replace_keeper()

    def _replace_keeper(self) -> None:
        """The keeper is dead: so is all that ran below it, and here that is made sure."""
        began_s = now_s()
        while True:
            left = [pid for pid, ticks in self.pids.items() if ticks and _ticks(pid) == ticks]
            ranks = marked(self.keeper.nonce)
            send(ranks, signal.SIGKILL)
            if now_s() - began_s > OBEY_S:  # until then supervisors end what bears no mark
                send(left, signal.SIGKILL)
            if not left and not ranks:
                break
            time.sleep(RETRY_S)
        for rank in self.plan["ranks"] if self.plan else ():
            lost = {"rank": int(rank), "code": None, "at_s": time.time(), "evicted": False}
            self.ends.setdefault(rank, {**lost, "error": "its runner was killed"})
        self.news.set()


def _read(file: Path, offset: int) -> bytes:
    """A page of a file; a task may have put anything in its place."""
    try:
        number = os.open(str(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        return os.pread(number, PAGE_BYTES, offset) if is_file else b""
    finally:
        os.close(number)


def main(arguments: list[str]) -> int:
    """``TICKET_FILE|- HOST``: HOST is its name, or the number of its place in the part."""
    source, host = arguments
    text = sys.stdin.read() if source == "-" else Path(source).read_text()
    return Keeper(json.loads(text), host).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
