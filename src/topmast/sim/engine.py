"""The engine of a cluster that only reckons: gangs start, work, checkpoint, stop and fail on time.

It takes the orders of a real engine and posts the same news (see `ports.Engine`). A task starts when it is
told to; what it needs to start up counts as running. A checkpoint is reported when it matters: when an
attempt is stopped or lost, and before victims are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from topmast.model import messages as m
from topmast.model.ids import Address
from topmast.model.job import JobSpec
from topmast.model.plan import Seat
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority, instant
from topmast.sim.neighbours import Neighbours
from topmast.sim.progress import Progress
from topmast.sim.settings import Settings

SIGTERM_CODE = 143
FAILURE_CODE = 1


Speed = Callable[[JobSpec, tuple[Seat, ...]], float]
"""Work done per second by a gang on its seats, 1 on the reference GPU."""
Mortality = Callable[[int], float]
"""How long a gang of so many tasks goes well, drawn anew each time."""
Post = Callable[[Address, Sequence[m.Message]], object]


class Attempt(Struct):
    """A gang that runs. ``left``: the tasks that have not ended, by rank, and on which host each is.

    ``saves``: the work that its last checkpoint will hold once it has been stopped, and when.
    """

    gang: m.StartGang
    progress: Progress
    left: dict[int, str]
    stopping: bool = False
    broken: bool = False
    saves: tuple[float, float] | None = None
    reported_s: float = 0.0
    ends_s: float = 0.0


class Work(Struct):
    """By job: what is left of it, and what checkpoints hold, in seconds on the reference GPU.

    All engines share it, for a job may go on in another cluster.
    """

    left_s: dict[str, float] = {}
    kept_s: dict[str, float] = {}


class SimulatedEngine:
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
        hosts: dict[str, SimulatedEngine] | None = None,
    ) -> None:
        """``hosts``: by name, the engine that has each host of the world now; all engines share it."""
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
        self._hosts = {} if hosts is None else hosts
        self._news: list[m.Message] = []

    def order(self, message: m.Message) -> None:
        """Carry out what the cluster manager says."""
        if isinstance(message, m.StartGang):
            self._start(message)
        elif isinstance(message, m.StopTasks):
            self._stop(message)
        elif isinstance(message, m.EquipCluster):
            self._equip(message)
        else:
            assert isinstance(message, m.AskTruth), message
            self._news.append(self.truth())
        self._tell()

    def _tell(self) -> None:
        """Let out, together, what has become of things."""
        news, self._news = self._news, []
        self._post(self.manager, news)

    # --- starting -------------------------------------------------------------------------------

    def _start(self, gang: m.StartGang) -> None:
        job, epoch, now = gang.job, gang.epoch, self._clock.now_s
        here = {seat.rank: seat.host for seat in gang.seats}
        settings, spec = self._settings, gang.spec
        again = job in self._resumes
        begun_s = now + settings.startup_s + (settings.restore_s if again else 0.0)
        rate = self._speed(spec, gang.seats)
        interval_s = spec.checkpoint.interval_s
        progress = Progress(begun_s, self._work[job], rate, interval_s, settings.checkpoint_s)
        attempt = self.attempts[job] = Attempt(gang, progress, here)
        for rank, host in list(here.items()) if self.down else ():
            if host in self.down:
                attempt.broken = True
                del here[rank]
                self._news.append(m.TaskLost(job, epoch, rank, f"host {host} is down"))
        self._news += [m.TaskStarted(job, epoch, rank, now) for rank in here]
        if attempt.broken:
            self._clear(attempt)
            return
        if self._neighbours is not None:
            self._settle(self._neighbours, attempt)
        end_s = attempt.ends_s = instant(progress.end_s())
        self._heap.put(end_s, Priority.NEWS, self._finish, attempt)
        if self._fails_after_s is not None:
            fails_s = now + self._fails_after_s(len(here))
            if fails_s < end_s:
                self._heap.put(fails_s, Priority.NEWS, self._fail, attempt)

    def adopt(self, gang: m.StartGang, progress: Progress) -> None:
        """Go on with a gang that was started elsewhere."""
        here = {seat.rank: seat.host for seat in gang.seats}
        attempt = self.attempts[gang.job] = Attempt(gang, progress, here)
        end_s = attempt.ends_s = instant(max(self._clock.now_s, progress.end_s()))
        self._heap.put(end_s, Priority.NEWS, self._finish, attempt)

    def _finish(self, attempt: Attempt) -> None:
        if attempt.stopping or attempt.broken or self._clock.now_s != attempt.ends_s:
            return  # told to stop, or it goes at another speed since
        job = attempt.gang.job
        self._forget(attempt)
        self._work.pop(job, None)
        self._resumes.pop(job, None)
        self._exit(attempt, 0)
        self._tell()

    def _equip(self, order: m.EquipCluster) -> None:
        """Other hosts from now on: whoever breaks or repairs one will find it here."""
        for host in order.hosts:
            self._hosts[host.name] = self
        if self._neighbours is not None:
            self._neighbours.equip(order.hosts)

    # --- beside others --------------------------------------------------------------------------

    def _settle(self, beside: Neighbours, attempt: Attempt) -> None:
        """Go at the speed of these seats; those who sat there before may go slower."""
        gang, progress = attempt.gang, attempt.progress
        others = beside.sit(gang.spec, gang.job, gang.seats)
        progress.rate *= beside.factor(gang.spec, gang.job, gang.seats)
        self._change_speeds(beside, others)

    def _forget(self, attempt: Attempt) -> None:
        """Its seats are free; those who stay may go faster."""
        job = attempt.gang.job
        if self.attempts.pop(job, None) is not None and self._neighbours is not None:
            others = self._neighbours.leave(job, attempt.gang.seats)
            self._change_speeds(self._neighbours, others)

    def _change_speeds(self, beside: Neighbours, jobs: Sequence[str]) -> None:
        """O(neighbours)."""
        now = self._clock.now_s
        for attempt in [self.attempts[job] for job in jobs] if beside.interfere else ():
            gang, progress = attempt.gang, attempt.progress
            rate = self._speed(gang.spec, gang.seats) * beside.factor(
                gang.spec, gang.job, gang.seats
            )
            if attempt.stopping or attempt.broken or rate == progress.speed():
                continue
            progress.go(now, rate)
            attempt.ends_s = instant(max(now, progress.end_s()))
            self._heap.put(attempt.ends_s, Priority.NEWS, self._finish, attempt)

    def _exit(self, attempt: Attempt, code: int) -> None:
        """What is left of a gang ends."""
        job, epoch, now = attempt.gang.job, attempt.gang.epoch, self._clock.now_s
        ranks, attempt.left = list(attempt.left), {}
        self._news += [m.TaskExited(job, epoch, rank, code, now) for rank in ranks]

    # --- stopping -------------------------------------------------------------------------------

    def _stop(self, order: m.StopTasks) -> None:
        attempt = self.attempts.get(order.job)
        if attempt is None or attempt.gang.epoch != order.epoch or attempt.stopping:
            return
        attempt.stopping = True
        if attempt.broken:
            self._leave(attempt)
            return
        now, progress = self._clock.now_s, attempt.progress
        over_s = progress.saved_s(now)
        if over_s - now <= order.grace_s:
            attempt.saves = (progress.done_s(now), over_s)
        else:
            over_s = now + order.grace_s
            attempt.saves = progress.kept(over_s)
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

    # --- failures -------------------------------------------------------------------------------

    def _fail(self, attempt: Attempt) -> None:
        """A task of the gang dies by itself; the manager has the others stopped."""
        if attempt.stopping or attempt.broken or not attempt.left:
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
        self._keep(attempt, attempt.progress.kept(self._clock.now_s))

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
                self._exit(attempt, SIGTERM_CODE)  # the gang is broken: the others wait for nobody
            self._clear(attempt)
        self._tell()

    def host_up(self, host: str) -> None:
        """A host is back."""
        self.down.pop(host, None)
        self._news.append(m.HostUp(host))
        self._tell()

    def reports(self) -> list[m.Checkpointed]:
        """The last checkpoint of every attempt, if it has not been reported. O(attempts)."""
        news, now = [], self._clock.now_s
        for attempt in self.attempts.values():
            kept = None if attempt.stopping or attempt.broken else attempt.progress.kept(now)
            if kept is not None and kept[1] > attempt.reported_s:
                attempt.reported_s = kept[1]
                job = attempt.gang.job
                step = int(self._resumes.get(job, 0.0) + kept[0])
                news.append(m.Checkpointed(job, attempt.gang.epoch, step, kept[1]))
        return news

    def truth(self) -> m.EngineTruth:
        """Everything that runs, and the hosts that are down."""
        tasks = tuple(
            m.TruthTask(attempt.gang.job, attempt.gang.epoch, rank, running=True)
            for attempt in self.attempts.values()
            for rank in attempt.left
        )
        return m.EngineTruth(tasks, tuple(self.down))
