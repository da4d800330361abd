"""The process of a runner that talks to home."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import struct
import threading
import time
import urllib.parse as urls
from typing import Any

from topmast.adapters.engines.far.runner.calls import (
    Home,
)
from topmast.adapters.engines.far.runner.processes import (
    BACKOFF_S,
    HUNG_UP,
    NO_HOME,
    OBEY_S,
    PAGE_BYTES,
    PATIENCE_S,
    REFUSED,
    RETRY_S,
    SHIP_S,
    TURN_S,
    Json,
    Wire,
    all_pids,
    marked,
    now_s,
    send,
    start_ticks,
    write_bytes,
)
from topmast.adapters.engines.far.runner.saving import (
    Saving,
)
from topmast.adapters.engines.far.runner.staging import (
    Staging,
)
from topmast.adapters.engines.far.runner.tasks import (
    folder_of,
)


class Caller:
    """The process that talks to home: this thread beats, one ships output and ends, one watches."""

    def __init__(self, keeper: Any, wire: Wire) -> None:
        self.keeper = keeper
        self.wire = wire
        self.ticket = keeper.ticket
        self.parent = os.getppid()
        self.me = {"host": keeper.host, "nonce": keeper.nonce}
        self.pids = {task.pid: start_ticks(task.pid) for task in keeper.alive()}
        self.ends = dict(keeper.ends)
        self.told = set(keeper.told)
        self.offsets: dict[str, int] = {}
        self.full: set[str] = set()
        """Files of which home keeps no more."""
        self.plan: Json = None
        self.alone = False
        """Whether the keeper is dead, and nothing of it is left."""
        self.saving: Saving | None = None
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
        if self.plan["data"] and self.plan["data"]["checkpoint"] is not None:
            self.saving = Saving(self)
        self._orders(answer)
        if self.alone:
            self._lose_ranks()  # it died before they were known
        threading.Thread(target=self._ship, daemon=True).start()
        if self.plan["data"] and not self.keeper.ready and not self.plan.get("error"):
            self.staging = Staging(self)
            threading.Thread(target=self.staging.run, daemon=True).start()
        elif self.saving is not None:
            self.saving.resume()
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
        os.makedirs(self.folder + "/work", 0o700, exist_ok=True)
        os.chmod(self.folder, 0o700)
        if self.plan["blob"] and not os.path.exists(self.folder + "/blob"):
            status, content = self._insist(home, lambda home: home.call("blob"))
            # An empty file is no archive: unpacking it fails, and the log has what home says.
            write_bytes(self.folder + "/blob", content if status == 200 else b"")
            if status != 200:
                ranks = sorted(self.plan["ranks"], key=int)
                write_bytes(self.folder + "/" + ranks[0] + ".log", content + b"\n")

    def _insist(self, home: Home, ask: Any) -> tuple[int, bytes]:
        """Ask until home gives an answer that counts; status 0: for too long it did not."""
        while now_s() - self.heard_s < 2 * self.patience_s or self._computes():
            turned_s = struct.unpack_from("d", self.keeper.turns, 0)[0]
            # A keeper that stands still obeys no order: then home is to hear nothing.
            if turned_s > now_s() - self.keeper.frozen_s or os.getppid() != self.parent:
                self.asked_s = now_s()
                try:
                    status, answer = ask(home)
                except OSError as error:
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
        body = {**self.me, "version": self.version, "prepared": bool(self.pids)}
        return home.call("beat", json.dumps(body).encode())

    def _orders(self, answer: bytes) -> None:
        orders = json.loads(answer)["orders"]
        self.version = orders["version"]
        if self.saving is not None:
            self.saving.want(orders.get("save", 0))
        self.wire.tell(op="orders", orders=orders, asked_s=self.asked_s)

    def say(self, why: str) -> None:
        """Tell people what tasks wait for, or what is at fault; that it arrives does not matter."""
        body = json.dumps({**self.me, "why": why}).encode()
        with contextlib.suppress(OSError):
            Home(self.ticket).call("preparing", body)

    # --- output and ends -------------------------------------------------------------------------

    def _ship(self) -> None:
        home = Home(self.ticket)
        while True:
            moved = False
            for rank in self.plan["ranks"]:
                try:
                    moved = self._ship_rank(home, rank) or moved
                except OSError:
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
        if self.saving is not None and self.saving.ready and self._is_last(rank):
            trouble = self.saving.save(0, final=True)
            end = {**end, "error": end["error"] or trouble}
        status, _ = home.call("end", json.dumps({**self.me, **end}).encode())
        if status == 200 or status in HUNG_UP:
            self.told.add(rank)
            self.wire.tell(op="told", rank=rank)
        return True

    def _is_last(self, rank: str) -> bool:
        """Whether all other ranks have ended and were told: nothing writes checkpoints any more."""
        return all(other in self.told for other in self.plan["ranks"] if other != rank)

    def _page(self, home: Home, rank: str, kind: str) -> bool:
        """Send what was written since; home says from where on it has none."""
        name = rank + "." + kind
        offset = self.offsets.get(name, 0)
        page = b"" if name in self.full else read_page(self.folder + "/" + name, offset)
        if not page:
            return False
        query = urls.urlencode({**self.me, "rank": rank, "kind": kind, "offset": offset})
        status, answer = home.call("log?" + query, page)
        if status == 200:
            told = json.loads(answer)
            self.offsets[name] = told["offset"]
            if told.get("full"):  # an earlier home does not say
                self.full.add(name)
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
            left = [pid for pid, ticks in self.pids.items() if ticks and start_ticks(pid) == ticks]
            ranks = self._living()
            send(ranks, signal.SIGKILL)
            if now_s() - began_s > OBEY_S:  # until then supervisors end what bears no mark
                send(left, signal.SIGKILL)
            if not left and not ranks:
                break
            time.sleep(RETRY_S)
        self.alone = True
        if self.plan is not None:
            self._lose_ranks()

    def _living(self) -> list[int]:
        """What may live of the ranks. If the keeper is the first process of a container that is all
        but it and this one: SIGKILL from within does nothing to it, so it may only stand still, and
        what loses its parent goes to it.
        """
        if not self.keeper.is_first:
            return marked(self.keeper.nonce)
        others = set(all_pids()) - {self.parent, os.getpid()}
        return [pid for pid in others if start_ticks(pid)]

    def _lose_ranks(self) -> None:
        """No rank will end any more but as lost."""
        for rank in self.plan["ranks"]:
            lost = {"rank": int(rank), "code": None, "at_s": time.time(), "evicted": False}
            self.ends.setdefault(rank, {**lost, "error": "its runner was killed"})
        self.news.set()


def read_page(file: str, offset: int) -> bytes:
    """A page of a file; a task may have put anything in its place."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        return os.pread(number, PAGE_BYTES, offset) if is_file else b""
    finally:
        os.close(number)
