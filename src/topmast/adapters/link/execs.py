"""Commands beside tasks of a region that has a process of its own: asked for over the link."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from topmast.adapters.link.peer import Peer
from topmast.model.errors import NotFound
from topmast.model.exec_views import ExecPage, ExecSpec
from topmast.ports import Engine, Exec

PATH = "/exec"
LOOK_S = 0.1
MOST_KEPT = 1_000


class Begin(Struct, frozen=True, tag=True):
    """Begin a command beside a task of a cluster."""

    cluster: str
    spec: ExecSpec


class Read(Struct, frozen=True, tag=True):
    """What has it written?"""

    id: str
    stdout: int
    stderr: int
    most_bytes: int


class Write(Struct, frozen=True, tag=True):
    """Give it input."""

    id: str
    offset: int
    data: bytes
    last: bool


class End(Struct, frozen=True, tag=True):
    """Have it ended."""

    id: str


Call = Begin | Read | Write | End


class RemoteExec:
    """A command in the process of a region: `ports.Exec`, but each call waits for an answer."""

    look_s = LOOK_S

    def __init__(self, peer: Peer, cluster: str, spec: ExecSpec) -> None:
        """Begin it. Raises Unavailable, with what the other process says."""
        self._peer = peer
        self.id: str = msgspec.json.decode(self._ask(Begin(cluster, spec)), type=str)

    def _ask(self, call: Call) -> bytes:
        return self._peer.ask(PATH, msgspec.json.encode(call))

    def page(self, stdout: int, stderr: int, most_bytes: int) -> ExecPage:
        """What it has written."""
        answer = self._ask(Read(self.id, stdout, stderr, most_bytes))
        return msgspec.json.decode(answer, type=ExecPage)

    def write(self, offset: int, data: bytes, *, last: bool) -> int:
        """Give it input."""
        return msgspec.json.decode(self._ask(Write(self.id, offset, data, last)), type=int)

    def end(self) -> None:
        """Have it ended."""
        self._ask(End(self.id))

    def on_news(self, bell: Callable[[], None]) -> None:
        """No bell rings from there: it is looked at instead."""


class ExecDesk:
    """The other end: the commands of the engines of this process."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = engines
        self._known: dict[str, Exec] = {}

    def answer(self, body: bytes) -> bytes:
        """Answer one call. Raises NotFound, DecodeError."""
        return msgspec.json.encode(self._answer(msgspec.json.decode(body, type=Call)))

    def _answer(self, call: Call) -> str | int | ExecPage | None:
        if isinstance(call, Begin):
            return self._begin(call)
        known = self._of(call.id)
        if isinstance(call, Read):
            return known.page(call.stdout, call.stderr, call.most_bytes)
        if isinstance(call, Write):
            return known.write(call.offset, call.data, last=call.last)
        known.end()
        return None

    def _begin(self, call: Begin) -> str:
        engine = self._engines.get(call.cluster)
        if engine is None:
            raise NotFound(f"no cluster '{call.cluster}' is run here")
        made = engine.execute(call.spec)
        while len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[made.id] = made
        return made.id

    def _of(self, id: str) -> Exec:
        if id not in self._known:
            raise NotFound("there is no such command")
        known = self._known[id] = self._known.pop(id)  # the last to be forgotten
        return known
