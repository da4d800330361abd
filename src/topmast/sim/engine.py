"""The engine of a cluster that only reckons: gangs start, work, checkpoint, stop and fail on time.

It takes the orders of a real engine and posts the same news (see `ports.Engine`). A task starts
when it is told to; what it needs to start up counts as running. A checkpoint is reported when it
matters: when an attempt is stopped or lost, and before victims are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct

from topmast.model import messages as m
from topmast.model.fleet import HostSpec
from topmast.model.ids import Address
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import Seat
from topmast.ports import EngineOrders
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority, instant
from topmast.sim.marks import Marks
from topmast.sim.neighbours import Neighbours
from topmast.sim.progress import Progress
from topmast.sim.settings import Settings
from topmast.sim.sharing import Beside, Sharing

SIGTERM_CODE = 143
FAILURE_CODE = 1
NEVER_S = float("inf")

Speed = Callable[[JobSpec, tuple[Seat, ...]], float]
"""Work done per second by a gang on its seats, 1 on the reference GPU."""
Mortality = Callable[[int], float]
"""How long a gang of so many tasks goes well, drawn anew each time."""
Post = Callable[[Address, Sequence[m.Message]], object]


class Attempt(Struct):
    """A gang that runs."""

    gang: m.StartGang
    progress: Progress
    left: dict[int, str]
    """The tasks that have not ended, by rank, with their hosts."""
    stopping: bool = False
    """It was ordered to stop."""
    broken: bool = False
    """A task or a host of it has failed."""
    saves: tuple[float, float] | None = None
    """The work that its last checkpoint will hold once it has been stopped, and when."""
    reported_s: float = 0.0
    """Time of the last checkpoint that was reported."""
    ends_s: float = 0.0
    """When its work ends, as it goes now."""
    still_s: float | None = None
    """Since when others have its GPUs."""
    still_sum_s: float = 0.0
    """How long others had them before, in all."""
    floor_s: float = 0.0
    """Its own time when it got its GPUs again: own time never goes back."""
    pauses: list[tuple[float, float]] = []
    """When others had its GPUs before, in its own time, and for how long."""
    fails: bool = False
    """A task fails as soon as it has its GPUs again."""

    def own_s(self, now: float) -> float:
        """The time as the gang knows it, which stands still when the gang does."""
        at_s = now if self.still_s is None else self.still_s
        return max(self.floor_s, at_s - self.still_sum_s) if self.pauses else at_s

    def wall_s(self, own_s: float) -> float:
        """When that was, or will be if it goes on. O(pauses)."""
        return own_s + sum([length_s for at_s, length_s in self.pauses if at_s < own_s])

    def goes_on(self, now: float, switch_s: float) -> None:
        """It has its GPUs again, and needs a while to be back at work."""
        assert self.still_s is not None
        own_s, length_s = self.own_s(now), now - self.still_s + switch_s
        self.pauses.append((own_s, length_s))
        self.still_sum_s += length_s
        self.still_s, self.floor_s = None, own_s


class Work(Struct):
    """By job: what is left of it, what checkpoints hold, and marks on its way, in seconds on the
    reference GPU.

    All engines share it, for a job may go on in another cluster.
    """

    left_s: dict[str, float] = {}
    kept_s: dict[str, float] = {}
    marks: Marks = msgspec.field(default_factory=Marks)
    engine_of: dict[str, SimulatedEngine] = {}
    """Where it ran last."""


class SimulatedEngine(EngineOrders):
    """One cluster."""

    def __init__(
        self,
        manager: Address,
        settings: Settings,
        clock: VirtualClock,
        heap: EventHeap,
        post: Post,
        speed: Speed,
        fails_after_s: Mortality | None,
        world: Work,
        neighbours: Neighbours | None = None,
        sharing: Sharing | Beside | None = None,
        model_of: Callable[[str], str] = str,
        hosts: dict[str, SimulatedEngine] | None = None,
    ) -> None:
        """``hosts``: by name, the engine that has each host of the world now; all engines share
        it.
        """
        self.manager = manager
        self.attempts: dict[str, Attempt] = {}
        self.down: dict[str, bool] = {}
        self._settings = settings
        self._clock = clock
        self._heap = heap
        self._post = post
        self._speed = speed
        self._fails_after_s = fails_after_s
        self._work = world.left_s
        self._resumes = world.kept_s
        self._neighbours = neighbours
        self._sharing = sharing
        self._is_shared = neighbours is not None or sharing is not None
        """Whether the speed of a gang depends on others."""
        self._model_of = model_of
        self._on: dict[tuple[str, int], list[str]] = {}
        """The jobs on each GPU; kept where gangs may share GPUs."""
        self._marks = world.marks
        self._engine_of = world.engine_of
        self._hosts = {} if hosts is None else hosts
        self._news: list[m.Message] = []

    def order(self, message: m.Message) -> None:
        """Carry out what the cluster manager says."""
        if type(message) is m.StartGang:
            self.start_gang(message)  # nearly all orders
        else:
            super().order(message)
        self._tell()

    def _tell(self) -> None:
        """Let out, together, what has become of things."""
        if self._news:
            news, self._news = self._news, []
            self._post(self.manager, news)

    # --- starting -------------------------------------------------------------------------------

    def start_gang(self, gang: m.StartGang) -> None:
        """Every task starts at once, but those on hosts that are down."""
        job, epoch, now = gang.job, gang.epoch, self._clock.now_s
        here = {seat.rank: seat.host for seat in gang.seats}
        settings, spec = self._settings, gang.spec
        again = job in self._resumes
        begun_s = now + settings.startup_s + (settings.restore_s if again else 0.0)
        rate = self._speed(spec, gang.seats)
        interval_s = spec.checkpoint.interval_s
        progress = Progress(begun_s, self._work[job], rate, interval_s, settings.checkpoint_s)
        attempt = self.attempts[job] = Attempt(gang, progress, here)
        self._engine_of[job] = self
        for rank, host in list(here.items()) if self.down else ():
            if host in self.down:
                attempt.broken = True
                del here[rank]
                self._news.append(m.TaskLost(job, epoch, rank, f"host {host} is down"))
        self._news += [m.TaskStarted(job, epoch, rank, now) for rank in here]
        if attempt.broken:
            self._clear(attempt)
            return
        if self._is_shared:
            self._settle(attempt)
            self._await_end(attempt)
        else:  # as `_await_end`, for one that nothing makes faster or slower
            attempt.ends_s = instant(max(now, progress.end_s()))
            self._heap.put(attempt.ends_s, Priority.NEWS, self._finish, attempt)
            self._await_mark(attempt)
        end_s = attempt.ends_s
        if self._fails_after_s is not None:
            fails_s = now + self._fails_after_s(len(here))
            if fails_s < end_s:
                self._heap.put(fails_s, Priority.NEWS, self._fail, attempt)

    def adopt(self, gang: m.StartGang, ended: frozenset[int], progress: Progress) -> None:
        """Go on with a gang that was started elsewhere, at the speed that it has; some ranks have
        ended.
        """
        here = {seat.rank: seat.host for seat in gang.seats if seat.rank not in ended}
        attempt = self.attempts[gang.job] = Attempt(gang, progress, here)
        self._engine_of[gang.job] = self
        for key in _slots(gang) if self._sharing is not None else ():
            self._on.setdefault(key, []).append(gang.job)
        end_s = attempt.ends_s = instant(max(self._clock.now_s, progress.end_s()))
        self._heap.put(end_s, Priority.NEWS, self._finish, attempt)

    def _finish(self, attempt: Attempt) -> None:
        if attempt.stopping or attempt.broken or self._clock.now_s != attempt.ends_s:
            return  # told to stop, or it goes at another speed since
        job = attempt.gang.job
        self._forget(attempt)
        self._work.pop(job, None)
        self._marks.done(job, NEVER_S, self._clock.now_s)
        self._resumes.pop(job, None)
        self._engine_of.pop(job, None)
        self._exit(attempt, 0)
        self._tell()

    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        """Other hosts from now on: what breaks or repairs one will find it here."""
        for host in hosts:
            self._hosts[host.name] = self
        if self._neighbours is not None:
            self._neighbours.equip(hosts)

    def list_tasks(self) -> None:
        """Nothing is ever lost, but a manager may ask."""
        self._news.append(self.truth())

    # --- beside others --------------------------------------------------------------------------

    def _settle(self, attempt: Attempt) -> None:
        """Go at the speed of these seats; gangs that sit there may go slower."""
        gang = attempt.gang
        if self._neighbours is not None:
            others = self._neighbours.sit(gang.spec, gang.job, gang.seats)
            self._change_speeds(others if self._neighbours.interfere else ())
        if self._sharing is not None:
            partners = self._partners(gang)
            for key in _slots(gang):
                self._on.setdefault(key, []).append(gang.job)
            self._change_speeds(partners)
        if self._neighbours is not None or self._sharing is not None:
            rate = self._rate(gang)
            if rate != attempt.progress.speed():
                attempt.progress.go(attempt.own_s(self._clock.now_s), rate)

    def _rise(self, attempt: Attempt) -> None:
        """Its seats are free; gangs that stay may go faster."""
        gang = attempt.gang
        if self._neighbours is not None:
            others = self._neighbours.leave(gang.job, gang.seats)
            self._change_speeds(others if self._neighbours.interfere else ())
        if self._sharing is not None and gang.job in self._on.get(next(_slots(gang), ("", 0)), ()):
            for key in _slots(gang):
                self._on[key].remove(gang.job)
            self._change_speeds(self._partners(gang))

    def _forget(self, attempt: Attempt) -> None:
        """It is over."""
        known = self.attempts.pop(attempt.gang.job, None)
        if self._is_shared and known is not None and attempt.still_s is None:
            self._rise(attempt)

    def _partners(self, gang: m.StartGang) -> list[str]:
        """The other jobs on the whole GPUs of a gang. O(slots)."""
        found: dict[str, None] = {}
        for seat in gang.seats if gang.seats[0].slot_milli == MILLI else ():
            for slot in seat.slots:
                found.update(dict.fromkeys(self._on.get((seat.host, slot), ())))
        found.pop(gang.job, None)
        return list(found)

    def _rate(self, gang: m.StartGang) -> float:
        """Work per second as things are."""
        rate = self._speed(gang.spec, gang.seats)
        if self._neighbours is not None:
            rate *= self._neighbours.factor(gang.spec, gang.job, gang.seats)
        if self._sharing is not None and (partners := self._partners(gang)):
            model = self._model_of(gang.seats[0].host)
            rate *= min(self._sharing.factor(gang.job, other, model) for other in partners)
        return rate

    def _change_speeds(self, jobs: Sequence[str]) -> None:
        """O(neighbours)."""
        now = self._clock.now_s
        for attempt in [self.attempts[job] for job in jobs if job in self.attempts]:
            progress, rate = attempt.progress, self._rate(attempt.gang)
            if attempt.stopping or attempt.broken or rate == progress.speed():
                continue
            progress.go(attempt.own_s(now), rate)
            self._await_end(attempt)

    def _await_end(self, attempt: Attempt) -> None:
        """Be told when it has done its work, as it goes now; and when it passes its next mark."""
        now, progress = self._clock.now_s, attempt.progress
        attempt.ends_s = instant(max(now, attempt.wall_s(progress.end_s())))
        self._heap.put(attempt.ends_s, Priority.NEWS, self._finish, attempt)
        self._await_mark(attempt)

    def _await_mark(self, attempt: Attempt) -> None:
        job, now, progress = attempt.gang.job, self._clock.now_s, attempt.progress
        mark_s = self._marks.next_s(job)
        if mark_s is not None:
            work_s = min(mark_s - self._resumes.get(job, 0.0), progress.work_s)
            at_s = instant(max(now, attempt.wall_s(progress.when_s(work_s))))
            self._heap.put(at_s, Priority.NEWS, self._pass_mark, attempt)

    def _pass_mark(self, attempt: Attempt) -> None:
        """The work up to a mark is done, unless it went slower than was thought."""
        job, now = attempt.gang.job, self._clock.now_s
        if self.attempts.get(job) is not attempt or attempt.still_s is not None:
            return  # it is awaited anew when it goes on
        before_s = self._marks.next_s(job)
        done_s = self._resumes.get(job, 0.0) + attempt.progress.done_s(attempt.own_s(now))
        self._marks.done(job, done_s, now)
        if self._marks.next_s(job) != before_s:
            self._await_mark(attempt)

    # --- turns ----------------------------------------------------------------------------------

    def suspend(self, job: str, epoch: int) -> None:
        """Its work stands still, and its neighbours may go faster."""
        attempt = self._ordered(job, epoch)
        if attempt is None or attempt.still_s is not None or attempt.stopping or attempt.broken:
            return
        attempt.still_s, attempt.ends_s = self._clock.now_s, NEVER_S
        self._rise(attempt)

    def resume(self, job: str, epoch: int) -> None:
        """Its work goes on after the switch."""
        attempt = self._ordered(job, epoch)
        if attempt is None or attempt.still_s is None:
            return
        attempt.goes_on(self._clock.now_s, self._settings.switch_s)
        if attempt.broken:
            return
        self._settle(attempt)
        self._await_end(attempt)
        if attempt.fails:
            self._heap.put(self._clock.now_s, Priority.NEWS, self._fail, attempt)

    def read_progress(self, job: str, epoch: int) -> None:
        """The steps that its work is worth."""
        attempt = self._ordered(job, epoch)
        if attempt is None or self._sharing is None:
            return
        now = self._clock.now_s
        done_s = self._resumes.get(job, 0.0) + attempt.progress.done_s(attempt.own_s(now))
        step = int(done_s * self._sharing.steps_per_s(job))
        if step:
            self._news.append(m.ProgressReport(job, epoch, step, now))

    def _ordered(self, job: str, epoch: int) -> Attempt | None:
        attempt = self.attempts.get(job)
        return attempt if attempt is not None and attempt.gang.epoch == epoch else None

    def _exit(self, attempt: Attempt, code: int) -> None:
        """What is left of a gang ends."""
        job, epoch, now = attempt.gang.job, attempt.gang.epoch, self._clock.now_s
        ranks, attempt.left = list(attempt.left), {}
        self._news += [m.TaskExited(job, epoch, rank, code, now) for rank in ranks]

    # --- stopping -------------------------------------------------------------------------------

    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        """A last checkpoint is written if the grace is long enough."""
        attempt = self._ordered(job, epoch)
        if attempt is None or attempt.stopping:
            return
        attempt.stopping = True
        if attempt.broken:
            self._leave(attempt)
            return
        now, progress = self._clock.now_s, attempt.progress
        own_s = attempt.own_s(now)
        over_s = attempt.wall_s(progress.saved_s(own_s))
        if over_s - now <= grace_s:
            attempt.saves = (progress.done_s(own_s), over_s)
        else:
            over_s = now + grace_s
            attempt.saves = self._kept(attempt, over_s)
        if over_s > now:
            self._heap.put(over_s, Priority.NEWS, self._over, attempt)
        else:
            self._leave(attempt)

    def _over(self, attempt: Attempt) -> None:
        if self.attempts.get(attempt.gang.job) is attempt and not attempt.broken:
            self._leave(attempt)
            self._tell()

    def _leave(self, attempt: Attempt) -> None:
        """The last checkpoint is written, or the grace is over."""
        self._forget(attempt)
        self._keep(attempt, attempt.saves)
        self._exit(attempt, SIGTERM_CODE)

    def _keep(self, attempt: Attempt, saved: tuple[float, float] | None) -> None:
        """What is saved need not be done again."""
        if saved is None or saved[0] <= 0:
            return
        job = attempt.gang.job
        self._work[job] = max(0.0, attempt.progress.work_s - saved[0])
        self._resumes[job] = self._resumes.get(job, 0.0) + saved[0]
        step = int(self._resumes[job])
        self._news.append(m.Checkpointed(job, attempt.gang.epoch, step, saved[1]))

    def _kept(self, attempt: Attempt, now: float) -> tuple[float, float] | None:
        """The work of the last complete checkpoint, and when that was."""
        kept = attempt.progress.kept(attempt.own_s(now))
        return None if kept is None else (kept[0], attempt.wall_s(kept[1]))

    # --- failures -------------------------------------------------------------------------------

    def _fail(self, attempt: Attempt) -> None:
        """A task of the gang dies by itself; the manager has the others stopped."""
        if attempt.stopping or attempt.broken or not attempt.left:
            return
        if attempt.still_s is not None:
            attempt.fails = True  # nothing of it runs now
            return
        self._break(attempt)
        rank = next(iter(attempt.left))
        del attempt.left[rank]
        gang = attempt.gang
        self._news.append(m.TaskExited(gang.job, gang.epoch, rank, FAILURE_CODE, self._clock.now_s))
        self._clear(attempt)
        self._tell()

    def _break(self, attempt: Attempt) -> None:
        attempt.broken = True
        self._keep(attempt, self._kept(attempt, self._clock.now_s))

    def _clear(self, attempt: Attempt) -> None:
        """Forget an attempt of which nothing is left; what is left waits to be told to stop."""
        if not attempt.left:
            self._forget(attempt)

    def host_down(self, host: str) -> None:
        """A host goes, and every task on it."""
        self.down[host] = True
        self._news.append(m.HostDown(host, "it failed"))
        for attempt in list(self.attempts.values()):
            ranks = [rank for rank, at in attempt.left.items() if at == host]
            if not ranks:
                continue
            if not attempt.broken:
                self._break(attempt)
            gang = attempt.gang
            for rank in ranks:
                del attempt.left[rank]
                lost = m.TaskLost(gang.job, gang.epoch, rank, f"host {host} was lost")
                self._news.append(lost)
            if attempt.stopping:
                self._exit(attempt, SIGTERM_CODE)  # the gang is broken: the other tasks do not wait
            self._clear(attempt)
        self._tell()

    def host_up(self, host: str) -> None:
        """A host is back."""
        self.down.pop(host, None)
        self._news.append(m.HostUp(host))
        self._tell()

    def left_s(self) -> Iterator[tuple[str, float]]:
        """By job that runs or stands still, what is left of its work. O(attempts)."""
        now = self._clock.now_s
        for job, attempt in self.attempts.items():
            progress = attempt.progress
            yield job, progress.work_s - progress.done_s(attempt.own_s(now))

    def report(self, job: str, as_of_s: float) -> m.Checkpointed | None:
        """The last checkpoint of a job's attempt by a time, if it has not been reported. O(1).

        The time may be past, but for attempts that stood still since.
        """
        attempt = self.attempts.get(job)
        if attempt is None or attempt.stopping or attempt.broken:
            return None
        kept = self._kept(attempt, as_of_s)
        if kept is None or kept[1] <= attempt.reported_s:
            return None
        attempt.reported_s = kept[1]
        step = int(self._resumes.get(job, 0.0) + kept[0])
        return m.Checkpointed(job, attempt.gang.epoch, step, kept[1])

    def truth(self) -> m.TaskList:
        """Everything that runs, and the hosts that are down."""
        tasks = tuple(
            m.TruthTask(attempt.gang.job, attempt.gang.epoch, rank, running=True)
            for attempt in self.attempts.values()
            for rank in attempt.left
        )
        return m.TaskList(tasks, tuple(self.down))


def _slots(gang: m.StartGang) -> Iterator[tuple[str, int]]:
    """The GPUs of a gang."""
    return ((seat.host, slot) for seat in gang.seats for slot in seat.slots)
