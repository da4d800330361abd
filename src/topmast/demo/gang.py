"""Data-parallel training over plain sockets: the tasks of a gang average their gradients.

The first task listens where MASTER_ADDR and MASTER_PORT say, and the others connect; the first to
start waits. In each round every task sends a vector of the same length, and all get their mean.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

MEETING_S = 60.0
"""How long tasks wait for one another at the start: their hosts may be busy."""
SILENCE_S = 60.0
"""How long a peer may take for a step."""
LOOK_S = 0.1


class PeerLost(Exception):
    """Another task of the gang is gone, or never came."""


class Gang:
    """The tasks that train together, as one of them sees it. ``peers``: the others of the first
    task by rank, the first of another; none of a task that is alone.
    """

    def __init__(self, rank: int, size: int, peers: list[socket.socket]) -> None:
        self.rank = rank
        self.size = size
        self._peers = peers
        for peer in peers:
            peer.settimeout(SILENCE_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for peer in self._peers:
            peer.close()

    @property
    def first(self) -> bool:
        """Whether this is the task that speaks for the gang."""
        return self.rank == 0

    def share(self, vector: Floats) -> Floats:
        """The first task's vector."""
        if self.first:
            for peer in self._peers:
                _send(peer, vector, False)
            return vector
        return _receive(self._peers[0], len(vector))[0]

    def average(self, vector: Floats, stopping: bool) -> tuple[Floats, bool]:
        """The mean of all vectors, and whether any task wants to stop: the same for all."""
        if not self.first:
            _send(self._peers[0], vector, stopping)
            return _receive(self._peers[0], len(vector))
        total = vector.copy()
        for peer in self._peers:
            theirs, also = _receive(peer, len(vector))
            total += theirs
            stopping = stopping or also
        total /= np.float32(self.size)
        for peer in self._peers:
            _send(peer, total, stopping)
        return total, stopping


def join(environment: Mapping[str, str], stopped: Callable[[], bool]) -> Gang:
    """The gang that the environment describes, once all its tasks have met."""
    rank, size = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    if size == 1:
        return Gang(0, 1, [])
    place = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    meeting = _Meeting(stopped)
    peers = meeting.gather(place, size) if rank == 0 else [meeting.find(place, rank)]
    return Gang(rank, size, peers)


class _Meeting:
    """The first minute of a gang."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._until_s = time.monotonic() + MEETING_S

    def gather(self, place: tuple[str, int], size: int) -> list[socket.socket]:
        """Wait for all the others; each sends its rank."""
        found: dict[int, socket.socket] = {}
        with self._listen(place) as listener:
            while len(found) < size - 1:
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    self._check(f"{len(found)} of {size - 1} tasks came")
                    continue
                peer.settimeout(SILENCE_S)
                rank = _receive(peer, 1)[0]
                found[int(rank[0])] = peer
        return [found[rank] for rank in sorted(found)]

    def _listen(self, place: tuple[str, int]) -> socket.socket:
        while True:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.settimeout(LOOK_S)
            try:
                listener.bind(place)
                listener.listen()
            except OSError as error:
                listener.close()
                self._check(f"cannot listen: {error}")
                time.sleep(LOOK_S)
            else:
                return listener

    def find(self, place: tuple[str, int], rank: int) -> socket.socket:
        """Connect to the first task, as soon as it listens."""
        while True:
            try:
                peer = socket.create_connection(place, timeout=SILENCE_S)
            except OSError as error:
                self._check(f"the first task cannot be reached: {error}")
                time.sleep(LOOK_S)
                continue
            _send(peer, np.array([rank], dtype=np.float32), False)
            return peer

    def _check(self, trouble: str) -> None:
        if self._stopped() or time.monotonic() > self._until_s:
            raise PeerLost(trouble)


def _send(peer: socket.socket, vector: Floats, stopping: bool) -> None:
    try:
        peer.sendall(bytes([stopping]) + vector.astype("<f4").tobytes())
    except OSError as error:
        raise PeerLost(f"a task of the gang is gone: {error}") from error


def _receive(peer: socket.socket, length: int) -> tuple[Floats, bool]:
    wanted = 1 + 4 * length
    received = bytearray()
    while len(received) < wanted:
        try:
            piece = peer.recv(wanted - len(received))
        except OSError as error:
            raise PeerLost(f"a task of the gang is gone: {error}") from error
        if not piece:
            raise PeerLost("a task of the gang is gone")
        received += piece
    return np.frombuffer(bytes(received), dtype="<f4", offset=1).astype(np.float32), bool(
        received[0]
    )
