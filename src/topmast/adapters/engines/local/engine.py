"""`LocalEngine`: runs the gangs of a cluster as processes of this machine.

One thread owns everything below; the methods of the port only hand it commands. Nothing that
matters is in memory alone: agents know what lives, files know what was ordered and how it ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import structlog
from msgspec import UNSET

from topmast.adapters.engines.closings import Closings
from topmast.adapters.engines.execs import LiveExec
from topmast.adapters.engines.leader import UNLED_S, LeaderFence
from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.agents import Agents
from topmast.adapters.engines.local.execs import GONE, LocalExecs
from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.engines.local.halts import Halts
from topmast.adapters.engines.local.hosts import AgentState, Host
from topmast.adapters.engines.local.memory import Memory
from topmast.adapters.engines.local.options import LocalOptions
from topmast.adapters.engines.local.plan import SAFE_NAME, CannotStart, make_plan
from topmast.adapters.engines.local.room import Room
from topmast.adapters.engines.local.stops import Stops
from topmast.adapters.engines.local.supervisor import STOPPED_EARLY
from topmast.adapters.engines.local.tasks import Task, Tasks
from topmast.adapters.engines.pages import read_page
from topmast.model.engines import PROCESSES
from topmast.model.errors import NotFound
from topmast.model.exec_views import ExecSpec
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.ids import attempt_name
from topmast.model.messages import ProgressReport, StartGang, TaskList, TaskLost
from topmast.ports import Engine, Exec, LogPage, Post, Site

TRUTH_PATIENCE_S = 5.0

log = structlog.get_logger(__name__)


class LocalEngine(Engine):
    """An engine with processes as hosts and as tasks. See docs/internals."""

    capabilities = PROCESSES
    needs_machine = True
    options_type = LocalOptions

    _options: LocalOptions

    def __init__(
        self, cluster: ClusterSpec, folder: Path, site: Site, options: LocalOptions
    ) -> None:
        for host in cluster.hosts:
            if not SAFE_NAME.fullmatch(host.name):
                raise ValueError(f"host {host.name!r}: the name cannot be that of a folder")
        super().__init__(cluster, folder, site, options)
        self._layout = Layout(folder.absolute())
        self._fence = LeaderFence(self._layout.root)
        self._execs = LocalExecs(self._layout)
        self._commands: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unwritten: dict[Path, Callable[[], None]] = {}
        """Orders that the disk did not take, by their files."""
        self._selector = selectors.DefaultSelector()
        self._truth_until_s: float | None = None
        self._progress_at_s = 0.0

    # --- the port, documented at `Engine`: any thread ---------------------------------

    def open(self, post: Post) -> None:
        for folder in (self._layout.tasks, self._layout.attempts, self._layout.hosts):
            files.make_folder(folder)
        self._fence.take_over(self._site.leader)
        self._post = post
        closings = Closings(self._cluster.name, self._hosts, post)
        self._room = Room((self._layout.root, self._site.checkpoints), self._hosts, closings)
        self._tasks = Tasks(self._layout, self._site.clock, post, self._room)
        self._stops = Stops(self._layout, self._tasks)
        self._memory = Memory(self._layout, self._options.keep_attempts)
        self._agents = Agents(
            self._layout, self._options, self._site.clock, post,
            self._selector, self._tasks, self._stops, self._memory, self._room,
        )  # fmt: skip
        self._halts = Halts(
            lambda: self._agents.hosts.values(), closings, lambda: bool(self._room.why)
        )
        self._adopt()  # here, so that a folder that cannot be read is an error of the start
        self._thread = threading.Thread(
            target=self._run, name=f"engine {self._cluster.name}", daemon=True
        )
        self._thread.start()

    def start_gang(self, gang: StartGang) -> None:
        self._do(partial(self._start_gang, gang))

    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        """SIGTERM to all processes, SIGKILL after the grace; the attempt starts nothing later."""
        self._do(partial(self._stop, attempt_name(job, epoch), grace_s))

    def suspend(self, job: str, epoch: int) -> None:
        self._do(partial(self._suspend, attempt_name(job, epoch), True))

    def resume(self, job: str, epoch: int) -> None:
        self._do(partial(self._suspend, attempt_name(job, epoch), False))

    def read_progress(self, job: str, epoch: int) -> None:
        self._do(partial(self._read_progress, attempt_name(job, epoch)))

    def list_tasks(self) -> None:
        """Post a `TaskList` once all running hosts have reported."""
        self._do(self._list_tasks)

    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        """Have these hosts and no others from now on; nothing runs on those that go."""
        names = [host.name for host in hosts]
        self._do(partial(self._set_hosts, names))

    def admits(self, leader: int) -> bool:
        return self._fence.admits(leader)

    def read_log(self, job: str, epoch: int, rank: int, offset: int, limit: int) -> LogPage | None:
        return self.read_stored_log(self._layout.root, job, epoch, rank, offset, limit)

    def execute(self, spec: ExecSpec) -> Exec:
        task = f"{attempt_name(spec.job, spec.epoch)}.{spec.rank}"
        claimed = files.read_json(self._layout.claim(task)) is not None
        if not claimed or self._layout.end(task).exists():
            raise NotFound(f"task {spec.rank} of job '{spec.job}' does not run")
        made = self._execs.begin(spec)
        self._do(partial(self._execute, made))
        return made

    @classmethod
    def read_stored_log(
        cls, folder: Path, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        return read_page(Layout(folder).log(f"{job}.{epoch}.{rank}"), offset, limit)

    @classmethod
    def stored_epochs(cls, folder: Path) -> dict[str, int]:
        return files.epochs_in(Layout(folder))

    def host_process(self, host: str) -> tuple[int, bool] | None:
        """The process that stands for a host while it is up, and whether it was halted.

        Killing it is losing the host; halted, it starts nothing and tells nothing.
        """
        return Host(host, self._layout).process

    def close(self) -> None:
        with self._gate:
            if self._closed:
                return
            self._closed = True
            os.eventfd_write(self._bell, 1)
        if self._thread is not None:
            self._thread.join()
        self._execs.close()
        os.close(self._bell)

    def _adopt(self) -> None:
        """Find what earlier runs left."""
        self._tasks.load()
        self._memory.forget_old(self._tasks)
        self._agents.adopt([host.name for host in self._cluster.hosts])

    def _do(self, command: Callable[[], None]) -> None:
        """Have the thread do it, in order; after `close` nothing is done any more."""
        with self._gate:
            if not self._closed:
                self._commands.append(command)
                os.eventfd_write(self._bell, 1)

    # --- the loop: the engine's thread from here on --------------------------------------------

    def _run(self) -> None:
        self._selector.register(self._bell, selectors.EVENT_READ, self._ring)
        self._guard(self._tick)
        while not self._closed:
            ready = self._selector.select(self._sleep_s())
            if not self._site.leads():
                time.sleep(UNLED_S)
                continue
            for key, _ in ready:
                self._guard(key.data)
            while self._commands and not self._closed:
                self._carry_out(self._commands.popleft())
            self._guard(self._tick)
        self._agents.disconnect()
        self._selector.close()
        self._fence.close()

    def _carry_out(self, command: Callable[[], None]) -> None:
        """One order, unless its leader was replaced since it was given."""
        with self._fence.held() as leads:
            if leads:
                self._guard(command)
            else:
                log.error("an order of a leader that was replaced", cluster=self._cluster.name)

    def _guard(self, step: Callable[[], None]) -> None:
        """One step that fails must not end the watch over all the others."""
        try:
            step()
        except Exception:
            log.exception("local engine", cluster=self._cluster.name)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def _sleep_s(self) -> float | None:
        wake_s = self._agents.next_s
        times = [] if wake_s is None else [wake_s]
        if self._truth_until_s is not None:
            times.append(self._truth_until_s)
        if self._tasks.running:
            times.append(self._progress_at_s)
        others = (self._stops.next_s, self._room.next_s, self._halts.next_s)
        times += [at_s for at_s in others if at_s is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _tick(self) -> None:
        """Whatever its time has come for."""
        now_s = time.monotonic()
        if self._room.tick():
            self._halts.tell()
            for order in self._unwritten.values():
                self._do(order)
        self._agents.tick()
        self._halts.tick()
        if self._tasks.running and self._progress_at_s <= now_s:
            self._progress_at_s = now_s + self._options.progress_s
            self._tasks.poll()
        self._stops.enforce()
        self._execs.look(self._is_over)
        self._tell_truth()

    def _is_over(self, spec: ExecSpec) -> bool:
        task = self._tasks.get(f"{attempt_name(spec.job, spec.epoch)}.{spec.rank}")
        return task is None or task.end is not None

    def _hosts(self) -> Iterable[str]:
        """Those of the cluster as it is now."""
        return sorted(self._agents.configured)

    def _set_hosts(self, names: Sequence[str]) -> None:
        self._agents.set_hosts(names)
        self._room.tell()
        self._halts.tell()

    # --- orders --------------------------------------------------------------------------------

    def _start_gang(self, gang: StartGang) -> None:
        attempt = attempt_name(gang.job, gang.epoch)
        strange = [seat.host for seat in gang.seats if seat.host not in self._agents.hosts]
        try:
            if self._memory.is_forgotten(attempt):
                raise CannotStart("it ran long ago, and is not run twice")
            if strange:
                raise CannotStart(f"this cluster has no host {strange[0]!r}")
            plan = make_plan(gang, self._layout, self._site, self._cluster)
        except (CannotStart, OSError, ValueError) as error:
            # This process makes plans: if that fails, no host is at fault but an absent one.
            if isinstance(error, OSError):
                self._room.failed(error)
            text, blameless = files.clean_text(str(error)), not strange
            for seat in gang.seats:
                self._post(TaskLost(gang.job, gang.epoch, seat.rank, text, blameless))
            return
        stopped = files.read_json(self._layout.stop(attempt)) is not None
        wanted: dict[str, list[int]] = {}
        for rank, seat_plan in plan["tasks"].items():
            task = self._tasks.know(f"{attempt}.{rank}", seat_plan["host"])
            if self._may_start(task, stopped):
                wanted.setdefault(task.host, []).append(int(rank))
        for name, ranks in wanted.items():
            self._agents.ask_when_up(self._agents.hosts[name], attempt, ranks)

    def _may_start(self, task: Task, stopped: bool) -> bool:
        """Answer at once for a task that ended, runs, or cannot run; True for the others."""
        if task.end is not None:
            self._tasks.post_end(task)
            return False
        if task.started_s is not None:
            self._tasks.started(task, task.started_s)
            return False
        host = self._agents.hosts[task.host]
        if stopped and not self._tasks.claimed(task):
            self._tasks.finish(task, STOPPED_EARLY)
        elif host.state == AgentState.DOWN:
            self._tasks.finish(task, f"host {host.name} is down: {host.error}")
        return task.end is None

    def _stop(self, attempt: str, grace_s: float) -> None:
        if self._memory.is_forgotten(attempt):
            return
        order = {"grace_s": max(0.0, grace_s), "at_s": self._site.clock.now()}
        file = self._layout.stop(attempt)
        is_written = self._write(file, order, partial(self._stop, attempt, grace_s))
        plan = files.read_json(self._layout.plan(attempt)) or {"tasks": {}}
        for rank, seat_plan in plan["tasks"].items():
            self._tasks.know(f"{attempt}.{rank}", seat_plan["host"])
        self._stops.ordered(attempt, max(0.0, grace_s))
        self._poke(attempt)
        if not is_written:
            self._stops.terminate(attempt)
        for task in self._tasks.of_attempt(attempt):
            if task.end is not None:
                self._tasks.post_end(task)  # an ordered stop waits for the ends
            elif task.started_s is None and not self._tasks.claimed(task):
                # If a supervisor claims it before we do, it finds the order.
                self._tasks.finish(task, STOPPED_EARLY)

    def _suspend(self, attempt: str, still: bool) -> None:
        file = self._layout.suspended(attempt)
        if still:
            self._write(file, {}, partial(self._suspend, attempt, True))
        else:
            self._unwritten.pop(file, None)
            file.unlink(missing_ok=True)
        self._poke(attempt)

    def _write(self, file: Path, order: Json, again: Callable[[], None]) -> bool:
        """Write an order; one that the disk does not take is given again when it does."""
        try:
            files.make_folder(file.parent)
            files.write_json(file, order)
        except OSError as error:
            self._room.failed(error)
            if not self._room.why:
                raise
            self._unwritten[file] = again
            return False
        self._unwritten.pop(file, None)
        return True

    def _execute(self, made: LiveExec) -> None:
        """Have a command begun beside a task, unless that has ended meanwhile."""
        try:
            self._execs.order(made)
        except OSError as error:
            self._room.failed(error)
            made.finish(GONE, f"it cannot be begun: {error}")
            return
        self._poke(attempt_name(made.spec.job, made.spec.epoch))

    def _read_progress(self, attempt: str) -> None:
        now = self._site.clock.now()
        steps = [step for t in self._tasks.of_attempt(attempt) if (step := self._tasks.step_of(t))]
        if steps:
            job, epoch = files.split_attempt(attempt)
            self._post(ProgressReport(job, epoch, max(steps), now))

    def _poke(self, attempt: str) -> None:
        self._stops.wake(attempt)
        hosts = sorted({task.host for task in self._tasks.of_attempt(attempt)})
        self._agents.poke(hosts, attempt)

    def _list_tasks(self) -> None:
        self._truth_until_s = time.monotonic() + TRUTH_PATIENCE_S

    def _tell_truth(self) -> None:
        """Answer when every host has reported: a task in doubt would count as running."""
        if self._truth_until_s is None:
            return
        if self._agents.in_doubt and time.monotonic() < self._truth_until_s:
            return
        self._truth_until_s = None
        closed = self._halts.closed | self._room.closed or UNSET
        self._post(TaskList(self._tasks.truth(), self._agents.down, closed))
