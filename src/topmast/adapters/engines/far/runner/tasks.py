"""One task, from its supervisor on: how it begins, how it is ended, and what it sees."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from topmast.adapters.archive import (
    unpack_as_process,
)
from topmast.adapters.engines.far.runner.processes import (
    LEFTOVER_GRACE_S,
    MARK,
    OBEY_S,
    Json,
    Wire,
    adopt_orphans,
    descendants,
    exit_code,
    fork,
    now_s,
    send,
    temporary,
)
from topmast.adapters.engines.far.runner.references import (
    CANNOT_BEGIN,
    resolved,
    without_handed,
)


def supervise(wire: Wire, body: Any, log: str, beside: Any) -> None:
    """Run ``body`` in a child; tell its exit code, and end when nothing is left of it.

    ``beside`` runs a command that is ordered meanwhile, in a child too. Nothing runs before the
    keeper says so: the caller knows of this process by then, and would miss it at its death.
    """
    os.setsid()
    adopt_orphans()
    orders: list[Json] = []
    while not any(order["op"] == "go" for order in orders):
        told = wire.hear()
        if told is None:
            return
        orders += told
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        become_task(body, log)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(wire.end, select.POLLIN)
    orphaned = False
    while reap(child, wire):
        for order in orders:
            if order["op"] == "beside" and os.fork() == 0:
                begin_beside(wire, beside, order["order"])
        orders = []
        if orphaned:
            send(descendants(os.getpid()), signal.SIGKILL)
        ready = dict(poll.poll(20 if orphaned else 1000))
        if reader in ready:
            os.read(reader, 4096)
        if wire.end.fileno() in ready:
            told = wire.hear()
            if told is None:
                orphaned = True  # the keeper is gone, and with it whatever ran here
                poll.unregister(wire.end)
            orders = told or []


def reap(child: int, wire: Wire) -> bool:
    """Collect what has ended, and tell how the child did; whether anything is left."""
    ended, pid = None, -1
    while pid:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        ended = status if pid == child else ended
    left = pid == 0
    if ended is not None:
        wire.tell(code=exit_code(ended), left=left)
    return left


def begin_beside(wire: Wire, beside: Any, order: Json) -> NoReturn:
    """In the child of a supervisor: keep a command, as long as the task lives at most."""
    try:
        wire.end.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        beside(order)
    except BaseException as error:
        os.write(2, ("topmast runner: %r\n" % error).encode(errors="replace"))  # noqa: UP031
    finally:
        os._exit(1)


def become_task(body: Any, log: str) -> NoReturn:
    """In the child of a supervisor: the output goes to the log, and signals do what they do."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
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
        os._exit(CANNOT_BEGIN)


class Task:
    """A rank, or a step before the ranks, as the keeper sees it."""

    def __init__(self, body: Any, log: str, keep: Iterable[int], beside: Any = None) -> None:
        """``beside`` keeps a command that runs beside it, as `begin` orders."""
        self.pid, self.wire = fork(lambda wire: supervise(wire, body, log, beside), keep)
        self.code: int | None = None
        self.left = True
        """Whether anything of it may live besides its supervisor."""
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
        late_s = now_s() - self.kill_s
        # A look at all processes of a host takes tens of milliseconds where there are thousands,
        # which the tasks need for their checkpoints: no more of them than signals to send.
        if self.left and (late_s >= 0 or not self.asked):
            tree = descendants(self.pid)
            if not self.asked:
                self.asked = True
                send(tree, signal.SIGTERM)
                send(tree, signal.SIGCONT)
            if late_s >= 0:
                send(tree, signal.SIGKILL)
        if late_s >= OBEY_S:
            send([self.pid], signal.SIGKILL)  # it stands still; what it leaves comes to us

    def hear(self) -> None:
        """Take what its supervisor tells of its end."""
        for message in self.wire.hear() or ():
            self.code, self.left = message["code"], message["left"]

    def go(self) -> None:
        """Let it begin; what must know of it does."""
        self.wire.tell(op="go")

    def begin(self, order: Json) -> None:
        """Have a command run beside it."""
        self.wire.tell(op="beside", order=order)

    def halt(self) -> None:
        """SIGSTOP to everything, until nothing new appears."""
        halted: set[int] = set()
        while True:
            new = [pid for pid in descendants(self.pid) if pid not in halted]
            if not new:
                return
            send(new, signal.SIGSTOP)
            halted.update(new)


OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What a disk says that takes no file of anybody."""


def unpack_work(folder: str) -> NoReturn:
    """Extract the archive of the work folder.

    Where the disk of the host is at fault, what it says is the exit code.
    """
    try:
        unpack_as_process(folder + "/blob", folder + "/work")
    except OSError as error:
        if error.errno in OF_DISK:
            os._exit(error.errno)
        raise


def script(folder: str, name: str, envs: dict[str, str], secrets: dict[str, str]) -> NoReturn:
    """Become a script. It is a file, and secrets are in the environment: not in the arguments.

    ``secrets`` are references: no process but the task has the values.
    """
    envs = {**envs, **resolved(secrets)}
    os.chdir(folder + "/work")
    named = (os.path.join(place, "bash") for place in os.get_exec_path())
    bash = next((path for path in named if os.access(path, os.X_OK)), None)
    shell = [bash, "-euo", "pipefail"] if bash else ["/bin/sh", "-eu"]
    os.execve(shell[0], [*shell, folder + "/" + name], envs)  # noqa: S606


def folder_of(plan: Json, part: str, nonce: str) -> str:
    """Where the attempt lives on this host."""
    return os.path.join(plan["work"] or temporary(), "topmast-%s-%s" % (part, nonce[:8]))  # noqa: UP031


def environments(plan: Json, orders: Json, folder: str, nonce: str) -> dict[str, dict[str, str]]:
    """Of each rank: what the scheduler gave, then the job's own, then ours."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = sum(seat["gpus"] for seat in plan["ranks"].values())
    given = [gpu for gpu in visible.split(",") if gpu] if visible else list(map(str, range(count)))
    found = {}
    for rank, seat in sorted(plan["ranks"].items(), key=lambda item: int(item[0])):
        own, given = given[: seat["gpus"]], given[seat["gpus"] :]
        found[rank] = {
            **without_handed(os.environ), **plan["envs"], **seat["envs"],
            "CUDA_VISIBLE_DEVICES": ",".join(own if seat["slots"] is None else seat["slots"]),
            "MASTER_ADDR": orders["address"],
            "MASTER_PORT": str(orders["port"]),
            "TOPMAST_PYTHON": sys.executable,
            "TOPMAST_PROGRESS_FILE": folder + "/" + rank + ".progress",
            MARK: nonce + "." + rank,
        }  # fmt: skip
    return found
