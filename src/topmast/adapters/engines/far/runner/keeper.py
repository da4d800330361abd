"""The process that the scheduler started: it keeps the tasks, and ends them in time."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time

from topmast.adapters.engines.far.runner.cache import (
    cache_of,
)
from topmast.adapters.engines.far.runner.caller import (
    Caller,
)
from topmast.adapters.engines.far.runner.execs import (
    attend,
)
from topmast.adapters.engines.far.runner.processes import (
    BACKOFF_S,
    FROZEN_S,
    NO_HOME,
    PATIENCE_S,
    REFUSED,
    RETRY_S,
    TURN_S,
    Json,
    adopt_orphans,
    all_pids,
    descendants,
    exit_code,
    fork,
    hold_folder,
    now_s,
    read_bytes,
    remove,
    remove_left,
    send,
    start_ticks,
    stat_fields,
    write_bytes,
)
from topmast.adapters.engines.far.runner.references import (
    CANNOT_BEGIN,
    missing,
    resolved,
)
from topmast.adapters.engines.far.runner.tasks import (
    OF_DISK,
    Task,
    environments,
    folder_of,
    script,
    unpack_work,
)


class Keeper:
    """The process that the scheduler started."""

    def __init__(self, ticket: Json, host: str) -> None:
        self.ticket = ticket
        self.host = host
        self.nonce = os.urandom(16).hex()
        self.is_first = os.getpid() == 1
        """Of a container: there is nothing else in it but what is ours."""
        self.frozen_s = min(FROZEN_S, (ticket["lease_s"] or PATIENCE_S) / 4)
        self.turns = mmap.mmap(-1, 16)
        """When the keeper and the caller turned last: shared with the caller."""
        self.plan: Json = None
        self.folder = ""
        self.orders: Json = None
        self.steps: list[tuple[str, list[str]]] = []
        self.step: tuple[Task, str, list[str]] | None = None
        self.tasks: dict[str, Task] = {}
        self.ends: dict[str, Json] = {}
        self.told: set[str] = set()
        self.stop_s = self.until_s = float("inf")
        self.heard_s = now_s()
        """When the last answer of home came, which may be long after it was asked for."""
        self.ready = False
        """Whether the data that the tasks read is on the host."""
        self.held: list[int] = []
        """Locks on that data in the cache, and on the folder of the attempt, which tasks have too:
        nothing deletes it meanwhile.
        """
        self.why = ""
        """Why we end what runs, if home had not ordered that before."""
        self.begun: set[str] = set()
        """The commands beside ranks that were begun, or came too late."""
        self.signalled = self.still = False
        self.left: int | None = None
        """The exit status of the caller, once home needs no other."""
        self.port = socket.socket()
        """Keeps a port free until rank 0 takes it."""

    def run(self) -> int:
        """Until home knows the end of everything; the exit status."""
        self.port.bind(("", 0))
        self.port_number = self.port.getsockname()[1]
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)
        self._call_home()
        adopt_orphans()  # now, as the caller asks for the claim meanwhile
        while True:
            self._turn(reader)
            if self.left is not None and not self.alive() and not self._strays():
                if self.plan is not None:
                    remove(self.folder)
                    remove_left(os.path.dirname(self.folder))
                return self.left

    def _signal(self, *_: object) -> None:
        self.signalled = True
        self._blame("the scheduler ended it")  # at once: peers give up, and home orders a stop

    def _blame(self, why: str) -> None:
        """Note why it ends, unless home ordered that before."""
        if self.orders is None or self.orders["grace_s"] is None:
            self.why = self.why or why

    def _turn(self, reader: int) -> None:
        struct.pack_into("d", self.turns, 0, now_s())
        poll = select.poll()
        # A wire that is over would be ready until its process is reaped, which may take a while
        # on a busy host: the keeper would turn without a pause, and take the core that it needs.
        wires = {task.wire.end.fileno(): task for task in self.alive() if not task.wire.over}
        for number in (reader, *wires):
            poll.register(number, select.POLLIN)
        if self.left is None and not self.wire.over:
            poll.register(self.wire.end, select.POLLIN)
        hurry = self.stop_s < float("inf") or any(t.code is not None for t in self.alive())
        ready = {number for number, _ in poll.poll(1000 * (RETRY_S if hurry else TURN_S))}
        if reader in ready:
            os.read(reader, 4096)
        for number, task in wires.items():
            if number in ready:
                task.hear()
        if self.left is None and self.wire.end.fileno() in ready:
            for message in self.wire.hear() or ():
                self._obey(message)
        self._reap()
        self._judge()
        for task in self.alive():
            task.step(self.stop_s)
        self._advance()

    def alive(self) -> list[Task]:
        """The ranks and the step before them that have not ended."""
        tasks = [*self.tasks.values(), *([self.step[0]] if self.step else [])]
        return [task for task in tasks if not task.done]

    # --- the caller -----------------------------------------------------------------------------

    def _call_home(self) -> None:
        # Both turn at this moment: a caller that sees no turn of the keeper waits before it asks.
        struct.pack_into("dd", self.turns, 0, now_s(), now_s())
        self.caller, self.wire = fork(lambda wire: Caller(self, wire).run())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for task in self.alive():
                if task.pid == pid:
                    task.done = True
                    task.hear()
                    task.wire.end.close()
            if pid == self.caller and self.left is None:
                self._caller_left(exit_code(status))

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
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False  # so the kernel says, without a look at all processes of the host
        known = {self.caller, *(task.pid for task in self.alive())}
        found = []
        for pid in all_pids():
            fields = stat_fields(pid)
            if fields and int(fields[1]) == os.getpid() and pid not in known:
                found.append(pid)
        send(found, signal.SIGKILL)
        return bool(found)

    def _obey(self, message: Json) -> None:
        if message["op"] == "told":
            self.told.add(message["rank"])
        elif message["op"] == "plan" and self.plan is None:
            self._take(message["plan"])
        elif message["op"] in ("ready", "unready"):
            self._get_ready(message)
        elif message["op"] == "orders":
            self.orders, self.heard_s = message["orders"], now_s()
            if self.ticket["lease_s"] is not None:
                self.until_s = message["asked_s"] + self.ticket["lease_s"]
            if self.orders["grace_s"] is not None and not self.left:
                self.stop_s = min(self.stop_s, now_s() + self.orders["grace_s"])
            elif self.stop_s == float("inf") and self.still != self.orders["still"]:
                self._suspend(self.orders["still"])
            for order in self.orders.get("execs", ()):
                self._execute(order)

    def _execute(self, order: Json) -> None:
        """Begin a command beside a rank that runs here, once."""
        task = self.tasks.get(str(order["rank"]))
        if task is None or task.done or order["id"] in self.begun:
            return
        self.begun.add(order["id"])
        task.begin(order)

    def _suspend(self, still: bool) -> None:
        self.still = still
        for task in self.alive():
            if still:
                task.halt()
            else:
                send(descendants(task.pid), signal.SIGCONT)

    def _judge(self) -> None:
        """Whether to end what runs without an order from home."""
        if (
            struct.unpack_from("d", self.turns, 8)[0] < now_s() - self.frozen_s
            and self.left is None
        ):
            send([self.caller], signal.SIGKILL)
        if self.signalled:
            self.signalled = False
            self.stop_s = min(self.stop_s, now_s() + self.ticket["grace_s"])
        if now_s() >= self.until_s - self.ticket["grace_s"] and self.stop_s > self.until_s:
            silent_s, left_s = now_s() - self.heard_s, max(0.0, self.until_s - now_s())
            why = "home was silent for %.0f s, and the lease of %g s ends in %.0f s"
            self._blame(why % (silent_s, self.ticket["lease_s"], left_s))
            self.stop_s = self.until_s

    # --- the ranks -------------------------------------------------------------------------------

    def _get_ready(self, message: Json) -> None:
        """The data is here, or cannot come."""
        if self.ready:
            return
        if message["op"] == "unready":
            for rank in self.plan["ranks"]:
                self._end(rank, None, message["error"], message["host_fault"])
            return
        self.ready = True
        self.plan["envs"].update(message["envs"])
        cache = cache_of(self.plan) if message["keys"] else None
        for key in message["keys"]:
            assert cache is not None
            self.held.append(cache.use(key))
            os.set_inheritable(self.held[-1], True)

    def _take(self, plan: Json) -> None:
        self.plan = plan
        self.ready = self.ready or not plan["data"]
        self.folder = folder_of(plan, self.ticket["part"], self.nonce)
        try:
            if not plan.get("error"):
                self.held += hold_folder(self.folder, self.nonce)
                for name, text in plan["scripts"].items():
                    write_bytes(self.folder + "/" + name, text.encode())
        except OSError as error:
            plan["error"] = str(error)
        for rank in plan["ranks"] if plan.get("error") else ():
            self._end(rank, None, "the host cannot be prepared: " + plan["error"], True)
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
                error = (
                    "its supervisor was killed" if task.code is None else self._missing(task, rank)
                )
                self._end(rank, task.code, error)
        if self.step is not None:
            self._finish_step(*self.step)
        if self.step is not None:
            return
        if self.stop_s < float("inf"):
            for rank in self.plan["ranks"]:
                if rank not in self.tasks:
                    self._end(rank, 128 + signal.SIGTERM, "stopped during setup")
        elif self.ready and self.orders and self.orders["address"] and not self.still:
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
        secrets = self.plan.get("secrets", {})
        body = (
            (lambda: unpack_work(folder)) if in_python
            else (lambda: script(folder, name, envs, secrets))
        )  # fmt: skip
        me, ticket = {"host": self.host, "nonce": self.nonce}, self.ticket

        def beside(order: Json) -> None:
            attend(order, lambda: {**envs, **resolved(secrets)}, folder + "/work", ticket, me)

        task = Task(body, folder + "/" + rank + ".log", self.held, beside)
        self.wire.tell(op="pid", pid=task.pid, ticks=start_ticks(task.pid))
        task.go()  # the caller hears of it, whatever becomes of us
        return task

    def _finish_step(self, task: Task, name: str, ranks: list[str]) -> None:
        if not task.done or (task.code is None and self._strays()):
            return
        self.step = None
        if task.code in OF_DISK and name not in self.plan["scripts"]:
            error = "the host cannot be prepared: the work folder: " + os.strerror(task.code or 0)
            for rank in ranks:
                self._end(rank, None, error, True)
        elif task.code != 0 and self.stop_s == float("inf"):
            what = "setup" if name in self.plan["scripts"] else name
            how = "was interrupted" if task.code is None else "exited with %d" % task.code  # noqa: UP031
            see = "topmast logs %s --task %s" % (self.plan["job"], ranks[0])  # noqa: UP031
            for rank in ranks:
                error = "task %s: %s %s; see `%s`" % (ranks[0], what, how, see)  # noqa: UP031
                self._end(rank, task.code or 1, self._missing(task, ranks[0]) or error)

    def _missing(self, task: Task, rank: str) -> str:
        """Which secret a script that could not begin lacks; empty: none."""
        why = missing(self.plan.get("secrets", {})) if task.code == CANNOT_BEGIN else ""
        return "task %s: %s" % (rank, why) if why else ""  # noqa: UP031

    def _end(self, rank: str, code: int | None, error: str, host_fault: bool = False) -> None:
        if rank in self.ends:
            return
        self.ends[rank] = {
            "rank": int(rank), "code": code, "at_s": time.time(), "error": error or self.why,
            "evicted": bool(self.why), "host_fault": host_fault,
        }  # fmt: skip
        self.wire.tell(op="end", rank=rank, end=self.ends[rank])


def main(arguments: list[str]) -> int:
    """``TICKET_FILE|- HOST``: HOST is its name, or the number of its place in the part."""
    source, host = arguments
    text = sys.stdin.read() if source == "-" else read_bytes(source).decode()
    return Keeper(json.loads(text), host).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
