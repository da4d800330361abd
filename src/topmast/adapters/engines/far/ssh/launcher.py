"""The launcher for plain hosts behind SSH: a part is a folder on its host, and then a runner."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from topmast.adapters.engines.far import runner
from topmast.adapters.engines.far.launcher import (
    Host,
    Launcher,
    Listed,
    Part,
    Refused,
    State,
    Unreachable,
)
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.errors import Unavailable
from topmast.model.fleet import ClusterSpec, HostSpec

if TYPE_CHECKING:
    from topmast.adapters.engines.far.ssh.lines import Line

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_UNIX = "unix:"
CLOSE_S = 5.0
CONNECTING_AT_ONCE = 32
"""As sshd begins to drop what is not logged in at ten, and hosts may share a jump host."""
T = TypeVar("T")


class SshLauncher(Launcher):
    """Asks each host of a cluster over a connection of its own. One host's silence is its own."""

    options_type: ClassVar = SshOptions
    many_hosts: ClassVar = False
    exact_gpus: ClassVar = True
    lists_by_host: ClassVar = True
    first_hand: ClassVar = True

    def __init__(self, cluster: ClusterSpec, fleet: str, options: SshOptions) -> None:
        super().__init__(cluster, fleet, options)
        self._options: SshOptions = options
        self._home = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"ssh {cluster.name}", daemon=True
        )
        self._slots = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self._lines: dict[str, tuple[Line, asyncio.Task[None]]] = {}

    # --- the calls, documented at `Launcher` ------------------------------------------------------

    def open(self, home: str) -> None:
        try:
            from topmast.adapters.engines.far.ssh import lines
        except ImportError:
            raise Unavailable(
                f"cluster {self._cluster.name}: hosts behind SSH need asyncssh; install it by "
                f"`pip install 'topmast[ssh]'`"
            ) from None
        self._home = lines.local_socket(home)
        self._thread.start()
        self._wait(self._connect(self._cluster.hosts))

    def set_hosts(self, hosts: tuple[HostSpec, ...]) -> None:
        self._wait(self._connect(hosts))

    def submit(self, part: Part) -> str:
        host = part.hosts[0]
        for word in (part.name, host):
            if not _WORD.fullmatch(word):
                raise Refused(f"{word!r} cannot be the name of a folder")
        self._wait(self._submit(self._line(host), part))
        return ""

    def release(self, listed: Sequence[Listed]) -> None:
        for one in listed:
            self._ask_about(one, op="release")

    def cancel(self, listed: Listed, grace_s: float) -> None:
        self._ask_about(listed, op="cancel", grace_s=grace_s)

    def forget(self, listed: Listed) -> None:
        self._ask_about(listed, op="forget")

    def list(self) -> tuple[Listed, ...]:
        """The parts on all hosts that answer: see ``lists_by_host``."""
        return self._wait(self._list())

    def hosts(self) -> tuple[Host, ...]:
        lines = [line for line, _ in tuple(self._lines.values())]
        return tuple(
            Host(line.name, not line.trouble, line.trouble or line.closed) for line in lines
        )

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join()
        self._loop.close()

    # --- in the loop's thread ---------------------------------------------------------------------

    async def _connect(self, hosts: tuple[HostSpec, ...]) -> None:
        """Have lines to these hosts and no others."""
        from topmast.adapters.engines.far.ssh.lines import Line

        names = [host.name for host in hosts]
        gone = [self._lines.pop(name)[1] for name in list(self._lines) if name not in names]
        for task in gone:
            task.cancel()
        for name in names:
            if name not in self._lines:
                line = Line(name, self._options, self._fleet, self._home)
                self._lines[name] = (line, asyncio.create_task(line.keep(self._slots)))

    async def _end(self) -> None:
        """End all tasks, calls of other threads among them, and then the loop."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=CLOSE_S) if tasks else None
        self._loop.stop()

    async def _submit(self, line: Line, part: Part) -> None:
        text = _runner()
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        ticket = msgspec.to_builtins(part.ticket)
        await line.ready()
        if self._home:
            ticket["url"] = f"{_UNIX}{line.home_there}"
        request = {"op": "submit", "name": part.name, "runner": digest, "ticket": ticket}
        reply = await line.ask(**request)
        if "missing" in reply:
            await line.ask(op="runner", digest=digest, text=text)
            await line.ask(**request)

    async def _list(self) -> tuple[Listed, ...]:
        lines = [line for line, _ in self._lines.values()]
        answers = await asyncio.gather(*(line.listed() for line in lines))
        return tuple(
            Listed(
                one["name"], f"{one['id']}@{line.name}", one["submitted_s"], State(one["state"]),
                one["why"], evicted=one.get("cancelled", False),
            )
            for line, found in zip(lines, answers, strict=True)
            for one in found
        )  # fmt: skip

    # --- between the threads ----------------------------------------------------------------------

    def _line(self, host: str) -> Line:
        if host not in self._lines:
            raise Refused(f"there is no host {host} in cluster {self._cluster.name}")
        return self._lines[host][0]

    def _ask_about(self, listed: Listed, **request: Any) -> None:
        id_, _, host = listed.id.partition("@")
        self._wait(self._line(host).ask(name=listed.name, id=id_, **request))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except (RuntimeError, CancelledError):
            work.close()
            raise Unreachable(f"cluster {self._cluster.name} is closed") from None


@cache
def _runner() -> str:
    return runner.text()
