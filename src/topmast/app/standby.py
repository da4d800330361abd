"""A hot standby: it follows the journal of the leader, and takes over when that does not lead."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Container
from typing import NoReturn

import msgspec
import structlog

from topmast.adapters.backoff import Backoff
from topmast.adapters.clock import elapsed_s
from topmast.adapters.engines.registry import Engines
from topmast.adapters.kernels import begin_with_kernels
from topmast.adapters.store import (
    Claim,
    Full,
    JournalFailure,
    Keeper,
    Leader,
    Retired,
    SqlJournal,
    Watch,
    WrittenByNewer,
    follow,
    open_journal,
)
from topmast.model.errors import InvalidInput, TopmastError, UnknownRecord
from topmast.model.fleet import Fleet
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower
from topmast.service.standby import Followed

log = structlog.get_logger(__name__)

LOOK_S = 0.25
"""How often the journal and the lease are looked at without a hint."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 0.4
"""Between attempts to reach the database."""
STAND_OFF_S = 60.0
"""Between looks at a database that a newer program wrote: it would have to be made anew."""
PAUSE_S = 5.0
"""Before this process begins again after an error that may come back at once."""
ROOM_S = 5.0
"""Between looks whether the disk of the database has room again."""
SAID_AGAIN_S = 60.0
"""Between lines of the log that say the same: a database may be away for days."""
Won = tuple[SqlJournal, Keeper]
Lead = Callable[[SqlJournal, Keeper, Follower], None]
Show = Callable[[Follower, SqlJournal], Followed]


class _Trouble:
    """Says in the log why a trial failed; while it fails for the same reason, now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._why = ""
        self._said_s = 0.0

    def say(self, error: JournalFailure) -> None:
        """It failed once more."""
        why, now_s = str(error), elapsed_s()
        if why != self._why or now_s - self._said_s >= SAID_AGAIN_S:
            self._why, self._said_s = why, now_s
            log.warning(self._what, why=why)

    def end(self) -> None:
        """It did not fail: what comes is said at once."""
        self._why = ""


class Standby:
    """Follows the leader on one thread, and waits on another one for the right to lead.

    ``build`` makes machines that follow, for what the leader decides by. ``check`` raises for a
    leader that this process could not follow, by the journal that is read then. ``lead`` begins to
    lead. What cannot be mended ends the process by ``fail``. ``show`` makes what answers from the
    machines that follow; it is asked with ``reads``, and while no process can lead as the disk of
    the database is full.
    """

    def __init__(
        self,
        store: str,
        claim: Claim,
        build: Callable[[SqlJournal], Machines],
        check: Callable[[SqlJournal, Follower, Leader], None],
        lead: Lead,
        fail: Callable[[BaseException], NoReturn],
        show: Show,
        *,
        reads: bool = False,
        full: str = "",
    ) -> None:
        self.leader: Leader | None = None
        """The leader, as last seen."""
        self.follower: Follower | None = None
        self.shown: Followed | None = None
        """What answers from it, once it has followed to the end."""
        self.lag_records = 0
        """Records that were new when it last looked."""
        self.looked_s = elapsed_s()
        """When the last look began that brought every record; of `elapsed_s`."""
        self.why = ""
        """Why it does not follow; empty: it does."""
        self.is_cut_off = False
        """Whether that is the database, which does not answer."""
        self.full = full
        """Why no process leads: the disk of the database is full. Empty: it has room."""
        self._store = store
        self._claim = msgspec.structs.replace(claim, waits=True)
        self._build = build
        self._check = check
        self._lead = lead
        self._fail = fail
        self._show = show
        self._reads = reads
        self._reading: SqlJournal | None = None
        """Where it looked before its start; what is shown reads on there."""
        self._won: queue.SimpleQueue[Won] = queue.SimpleQueue()

    def start(self) -> None:
        """Begin to follow, and to contend for the right to lead."""
        begin_with_kernels(log.info)  # it takes seconds, in which what it has seen would grow old
        for work in (self._contend, self._follow):
            threading.Thread(target=work, name=f"standby{work.__name__}", daemon=True).start()

    def look_once(self) -> None:
        """Follow to the end of the journal, before `start`; a database that fails is left to that.

        Raises TopmastError for a leader that this process could not follow.
        """
        watch = follow(self._store)
        try:
            self._reading = open_journal(self._store, read_only=True)
            self._look(self._reading, watch)
        except JournalFailure as error:
            log.warning("cannot follow the leader", why=str(error))
        finally:
            watch.close()

    def _contend(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        trouble = _Trouble("cannot become the leader yet")
        while True:
            try:
                journal = open_journal(self._store, claim=self._claim)
                self._won.put((journal, Keeper(journal, self._fail)))
                return
            except WrittenByNewer:
                time.sleep(STAND_OFF_S)  # the other thread says so
            except Full as error:
                self.full = str(error)
                log.error("no process can lead", why=self.full)
                time.sleep(ROOM_S)
            except JournalFailure as error:
                trouble.say(error)
                time.sleep(backoff.take())
            except TopmastError as error:
                self._fail(error)

    def _follow(self) -> None:
        try:
            won, keeper = self._look_until_won(follow(self._store))
            follower = self.follower or Follower(self._build(won))
            self._check(won, follower, won.before or won.leader())
            log.info("this process takes over", epoch=won.epoch)
            begun_s = elapsed_s()
            self._lead(won, keeper, follower)
            took_s = round(elapsed_s() - begun_s, 2)
            log.info("this process leads and answers from now on", epoch=won.epoch, took_s=took_s)
        except BaseException as error:
            self._fail(error)

    def _look_until_won(self, watch: Watch) -> Won:
        """Follow until it is this process's turn; the machines are as the leader has them then."""
        reading = self._reading
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        trouble = _Trouble("cannot follow the leader")
        won: Won | None = None
        while won is None:
            try:
                reading = reading or open_journal(self._store, read_only=True)
                self._look(reading, watch)
                backoff.reset()
                trouble.end()
                self.why, self.is_cut_off = "", False
                watch.wait(LOOK_S)
            except Retired:
                self._hide()
                self.follower = None  # it was stopped for so long that it begins anew
            except (WrittenByNewer, UnknownRecord) as error:
                self.why = str(error)
                log.error("this process stands off", why=self.why)
                self._hide()
                won = _taken(self._won, STAND_OFF_S)
            except JournalFailure as error:
                self.why, self.is_cut_off = str(error), True
                trouble.say(error)
                won = _taken(self._won, backoff.take())
            won = won or _taken(self._won)
        self._hide()
        watch.close()
        if reading is not None:
            reading.close()
        return won

    def _look(self, reading: SqlJournal, watch: Watch) -> None:
        began_s, before = elapsed_s(), self.leader
        self.leader = watch.leader()
        if before is not None and before.epoch != self.leader.epoch:
            self.full = ""  # another process found room
        if watch.end_expired():
            log.warning("the leader proved nothing for too long", leader=self.leader.holder)
        if self.follower is None:
            self.follower = Follower(self._build(reading))
        if self.shown is not None:
            self.lag_records = self.shown.follow()
        else:
            known = self.follower.rebuilt.seq
            self.lag_records = self.follower.follow(reading).seq - known
        if not self._reads and not self.full:
            self._hide()
        elif self.shown is None:
            self.shown = self._show(self.follower, reading)
        self.looked_s = began_s
        self._check(reading, self.follower, self.leader)

    def _hide(self) -> None:
        """Answer no more: the machines are about to lead, or to be given up."""
        if self.shown is not None:
            self.shown.close()
            self.shown = None

    @property
    def age_s(self) -> float:
        """How long ago it had every record."""
        return elapsed_s() - self.looked_s


def _taken(won: queue.SimpleQueue[Won], wait_s: float = 0.0) -> Won | None:
    try:
        return won.get(timeout=wait_s)
    except queue.Empty:
        return None


def step_down(error: BaseException, keep: Callable[[], None]) -> NoReturn:
    """Begin again as a candidate, in the same process but with none of its memory.

    Also where the log cannot be written, such as on a full disk. The right to lead is let go at
    once. ``keep`` has the ports stay open: what comes meanwhile is answered soon. An error that is
    not of the database may come back, so then it begins after a pause, and with closed ports.
    """
    if isinstance(error, InvalidInput):
        try:
            log.critical("this process cannot stand by", why=str(error))
        finally:
            os._exit(2)
    try:
        log.critical("this process does not lead any more: it begins again", why=str(error))
        sys.stderr.flush()
        sys.stdout.flush()
    finally:
        words = sys.orig_argv  # the same program and arguments
        if isinstance(error, JournalFailure):
            keep()
        else:
            words = [sys.executable, "-c", _AFTER_A_PAUSE, str(PAUSE_S), *words]
        os.execv(sys.executable, words)  # noqa: S606


_AFTER_A_PAUSE = """
import os, sys, time
time.sleep(float(sys.argv[1]))
os.execv(sys.executable, sys.argv[2:])
"""


def require_engines_here(
    fleet: Fleet, apart: Container[str], leader: Leader, folder: str, engines: Engines
) -> None:
    """Refuse to stand by where the tasks of the leader's own clusters could not be found.

    ``apart``: regions with processes of their own, which go on by themselves.
    """
    if not leader.folder or leader.folder == folder:
        return
    shared = leader.folder.partition("@")[0] == folder.partition("@")[0]
    for region in fleet.regions:
        if region.name in apart:
            continue
        for cluster in region.clusters:
            if shared and not engines[cluster.engine].needs_machine:
                continue
            needs = "on this machine" if engines[cluster.engine].needs_machine else "in that folder"
            raise InvalidInput(
                f"cluster '{cluster.name}' (engine {cluster.engine}) has its tasks {needs}: "
                f"the leader's, {leader.holder}, are not within reach",
                field="--standby",
                remedy="stand by on the leader's machine with the leader's --state, or give region"
                f" '{region.name}' a process of its own (--role placer)",
            )
