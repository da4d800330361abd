"""Checkpoints of attempts that are kept in a bucket: when hosts save, and when it counts.

Hosts save in *rounds*, so that a checkpoint is of one moment: a task reports one, all hosts of the
attempt bring what their folders hold then, and when the last has, the checkpoint is published, and
told. When the tasks of a host have ended, it brings its folder a last time, for all rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from topmast.adapters.engines.far.attempts import Attempt, Key
from topmast.adapters.objects.checkpoints import (
    JobCheckpoints,
    Piece,
    SavedCheckpoint,
    job_store,
)
from topmast.model.messages import Checkpointed
from topmast.ports import Post

Table = tuple[Piece, ...]
MISSING_TOLD = 1000
"""Of the pieces that a host believes to be in the bucket, and that are not."""
KEPT = 1000
"""Attempts of which it is known how far their hosts have come."""


@dataclass
class _Rounds:
    """One attempt."""

    hosts: tuple[str, ...]
    """That of rank 0 first."""
    tables: dict[str, tuple[int, Table]] = field(default_factory=dict)
    """The last round in which a host saved, and what."""
    final: dict[str, Table] = field(default_factory=dict)
    """What a host brought after its tasks had ended."""
    asked: int = 0
    """The round that is under way; 0: none."""
    due: Checkpointed | None = None
    """To be told when the round is published."""
    later: Checkpointed | None = None
    """Reported since the round began."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def whole(self) -> tuple[Table, ...]:
        """The tables of the round under way, or of the end; empty while one is missing."""
        found = []
        for host in self.hosts:
            number, table = self.tables.get(host, (0, ()))
            if host in self.final and not (self.asked and number >= self.asked):
                found.append(self.final[host])
            elif self.asked and number >= self.asked:
                found.append(table)
            else:
                return ()
        return tuple(found)


class Saves:
    """Rounds of all attempts. ``ask`` makes the hosts of an attempt save; returns the round."""

    def __init__(self, root: str, ask: Callable[[Key], int], post: Post) -> None:
        self._root = root
        self._ask = ask
        self._post = post
        self._lock = threading.Lock()
        self._jobs: dict[str, JobCheckpoints] = {}
        self._rounds: dict[Key, _Rounds] = {}

    def of_job(self, job: str) -> JobCheckpoints:
        """The checkpoints of a job."""
        with self._lock:
            found = self._jobs.pop(job, None) or JobCheckpoints(job_store(self._root, job))
            self._jobs[job] = found
            while len(self._jobs) > KEPT:
                del self._jobs[next(iter(self._jobs))]
            return found

    def _of(self, attempt: Attempt) -> _Rounds:
        with self._lock:
            if attempt.key not in self._rounds:
                seats = sorted(attempt.gang.seats, key=lambda seat: seat.rank)
                hosts = tuple(dict.fromkeys(seat.host for seat in seats))
                self._rounds[attempt.key] = _Rounds(hosts)
                while len(self._rounds) > KEPT:
                    del self._rounds[next(iter(self._rounds))]
            return self._rounds[attempt.key]

    def reported(self, attempt: Attempt, message: Checkpointed) -> None:
        """A task says that it has a checkpoint; it is told when it is in the bucket."""
        rounds = self._of(attempt)
        with rounds.lock:
            if rounds.asked:
                rounds.later = message
            else:
                rounds.due, rounds.asked = message, self._ask(attempt.key)

    def saved(
        self, attempt: Attempt, host: str, number: int, table: Table, *, final: bool
    ) -> list[str]:
        """A host has brought everything; returns pieces that are missing. Raises `StoreError`."""
        job = self.of_job(attempt.gang.job)
        missing = job.missing(table)
        if missing:
            return missing[:MISSING_TOLD]
        rounds = self._of(attempt)
        with rounds.lock:
            if final:
                rounds.final[host] = table
            else:
                rounds.tables[host] = (number, table)
            tables = rounds.whole()
            if not tables:
                return []
            job.publish(SavedCheckpoint(attempt.gang.epoch, tables))
            ended = len(rounds.final) == len(rounds.hosts)
            told = (rounds.later if ended else None) or rounds.due
            rounds.due, rounds.asked = rounds.later, 0
            rounds.later = None
            if ended:
                rounds.due = None
            if rounds.due is not None:
                rounds.asked = self._ask(attempt.key)
        if told is not None:
            self._post(told)
        return []
