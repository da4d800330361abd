"""`LocalEngine`: runs the gangs of a cluster as processes of this machine.

One thread owns everything below; the methods of the port only hand it commands. Nothing that
matters is in memory alone: agents know what lives, files know what was ordered and how it ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import structlog
from msgspec import Meta, Struct

from topmast.adapters.engines.leader import UNLED_S, LeaderFence
from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.engines.local.hosts import AgentState, Host, launch_agents
from topmast.adapters.engines.local.memory import Memory
from topmast.adapters.engines.local.plan import SAFE_NAME, CannotStart, make_plan
from topmast.adapters.engines.local.stops import Stops
from topmast.adapters.engines.local.supervisor import STOPPED_EARLY
from topmast.adapters.engines.local.tasks import Task, Tasks
from topmast.adapters.engines.pages import read_page
from topmast.model.engines import PROCESSES
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.ids import attempt_name
from topmast.model.messages import HostDown, HostUp, ProgressReport, StartGang, TaskList, TaskLost
from topmast.ports import Engine, LogPage, Post, Site

LOOK_S = 0.05
REAP_S = 0.02
TRUTH_PATIENCE_S = 5.0
FORGET_EVERY = 100
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=0)]

log = structlog.get_logger(__name__)


class LocalOptions(Struct, frozen=True):
    """What a fleet file may say below ``options`` of a cluster of this engine."""

    host_return_s: Seconds = 10.0
    """How long a host stays down after its agent died."""
    progress_s: Seconds = 0.2
    """How often what tasks report is read."""
    linger_s: Seconds = 30.0
    """How long an agent waits for a Topmast when it has no task."""
    eager_hosts: Count = 32
    """In a cluster of up to so many hosts all agents start at once, else when one is needed."""
    keep_attempts: Count = 1000
    """Of how many ended attempts the files are kept."""


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
        self._python = sys.executable
        self._commands: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._hosts: dict[str, Host] = {}
        self._to_launch: list[Host] = []
        self._truth_until_s: float | None = None
        self._progress_at_s = 0.0
        self._ends = 0

    # --- the port, documented at `Engine`: any thread ---------------------------------

    def open(self, post: Post) -> None:
        for folder in (self._layout.tasks, self._layout.attempts, self._layout.hosts):
            files.make_folder(folder)
        self._fence.open()
        self._post = post
        self._tasks = Tasks(self._layout, self._site.clock, post)
        self._stops = Stops(self._layout, self._tasks)
        self._memory = Memory(self._layout, self._options.keep_attempts)
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
        self._do(partial(self._set_hosts, tuple(host.name for host in hosts)))

    def admits(self, leader: int) -> bool:
        return self._fence.admits(leader)

    def read_log(self, job: str, epoch: int, rank: int, offset: int, limit: int) -> LogPage | None:
        return self.read_stored_log(self._layout.root, job, epoch, rank, offset, limit)

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
        os.close(self._bell)

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
        for host in self._hosts.values():
            host.disconnect()
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
        times = [host.wake_s for host in self._hosts.values() if host.wake_s is not None]
        if self._truth_until_s is not None:
            times.append(self._truth_until_s)
        if self._tasks.running:
            times.append(self._progress_at_s)
        if self._stops.next_s is not None:
            times.append(self._stops.next_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _tick(self) -> None:
        """Whatever its time has come for."""
        now_s = time.monotonic()
        for host in self._hosts.values():
            if host.wake_s is not None and host.wake_s <= now_s:
                host.wake_s = None
                self._attend(host)
        if self._tasks.running and self._progress_at_s <= now_s:
            self._progress_at_s = now_s + self._options.progress_s
            self._tasks.poll()
        self._stops.enforce()
        self._launch()
        self._tell_truth()

    # --- hosts ---------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Find the agents and tasks of earlier runs; start agents if the cluster is small."""
        names = [host.name for host in self._cluster.hosts]
        left = sorted(folder.name for folder in self._layout.hosts.iterdir())
        self._configured = frozenset(names)
        self._hosts = {name: Host(name, self._layout) for name in (*names, *left)}
        self._tasks.load()
        self._memory.forget_old(self._tasks)
        eager = len(names) <= self._options.eager_hosts
        for host in self._hosts.values():
            if host.recorded or host.alive:
                self._set(host, AgentState.CONNECTING, 0.0)
            elif self._tasks.alive_on(host.name):
                self._reap(host, "its agent was gone")
            elif eager and host.name in self._configured:
                self._want(host)
            elif host.name in self._configured:
                self._post(HostUp(host.name))

    def _set_hosts(self, names: tuple[str, ...]) -> None:
        """Agents of hosts that went end by themselves, for want of work."""
        new = [name for name in names if name not in self._configured]
        self._configured = frozenset(names)
        for host in self._hosts.values():
            if host.name not in self._configured and host.state is AgentState.DOWN:
                self._set(host, AgentState.IDLE, None)
        for name in new:
            host = self._hosts.setdefault(name, Host(name, self._layout))
            if host.state is AgentState.UP:
                self._post(HostUp(name))
            elif host.state is AgentState.IDLE and len(names) <= self._options.eager_hosts:
                self._want(host)
            elif host.state is AgentState.IDLE:
                self._post(HostUp(name))

    def _set(self, host: Host, state: AgentState, wake_in_s: float | None) -> None:
        host.state = state
        host.wake_s = None if wake_in_s is None else time.monotonic() + wake_in_s

    def _want(self, host: Host) -> None:
        """Have an agent launched at the end of this turn, together with others."""
        self._set(host, AgentState.CONNECTING, None)
        self._to_launch.append(host)

    def _launch(self) -> None:
        hosts, self._to_launch = self._to_launch, []
        if not hosts:
            return
        names = [host.name for host in hosts]
        try:
            launcher = launch_agents(self._layout, names, self._python, self._options.linger_s)
            fd = os.pidfd_open(launcher.pid)
        except OSError as error:
            for host in hosts:
                self._set_down(host, f"its agent cannot be started: {error}")
            return
        self._selector.register(
            fd, selectors.EVENT_READ, partial(self._launched, fd, launcher, hosts)
        )

    def _launched(self, fd: int, launcher: subprocess.Popen[bytes], hosts: list[Host]) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        failed = launcher.wait() != 0
        for host in hosts:
            if self._connect(host):
                continue
            if failed and not host.alive:
                self._set_down(host, "its agent cannot be started; agents.log says why")
            else:
                self._attend(host)

    def _connect(self, host: Host) -> bool:
        if not host.connect():
            return False
        assert host.connection is not None
        self._set(host, AgentState.CONNECTING, None)
        self._selector.register(host.connection, selectors.EVENT_READ, partial(self._hear, host))
        return True

    def _attend(self, host: Host) -> None:
        """Take the next step with a host that is not up."""
        match host.state:
            case AgentState.CONNECTING if not self._connect(host):
                if host.alive:
                    host.ring()
                    host.wake_s = time.monotonic() + LOOK_S  # it is about to listen, or to end
                elif host.recorded:
                    self._reap(host, "its agent died")
                elif self._tasks.alive_on(host.name):
                    self._want(host)  # it left for want of work just when work came
                else:
                    self._set(host, AgentState.IDLE, None)
            case AgentState.REAPING:
                self._reap_step(host)
            case AgentState.DOWN:
                self._want(host)

    def _hear(self, host: Host) -> None:
        news = host.receive()
        if news is None:
            assert host.connection is not None
            self._selector.unregister(host.connection)
            host.disconnect()
            self._set(host, AgentState.CONNECTING, 0.0)
            return
        for message in news:
            self._learn(host, message)

    def _learn(self, host: Host, message: Json) -> None:
        if message["op"] == "tasks":
            self._meet(host, message["tasks"])
            return
        task = self._tasks.know(message["task"], host.name)
        if message["op"] == "started":
            self._tasks.started(task, message["at_s"])
        elif message["op"] == "gone":
            self._tasks.finish(task, "its supervisor ended without a record")
            self._ends += 1
            if self._ends % FORGET_EVERY == 0:
                self._memory.forget_old(self._tasks)

    def _meet(self, host: Host, alive: dict[str, float | None]) -> None:
        """An agent reported its tasks: note them, and launch those that it lacks."""
        self._set(host, AgentState.UP, None)
        host.return_s = self._options.host_return_s
        if host.name in self._configured:
            self._post(HostUp(host.name))
        for name, started_s in alive.items():
            task = self._tasks.know(name, host.name)
            if started_s is not None:
                self._tasks.started(task, started_s)
        missing: dict[str, list[int]] = {}
        for task in self._tasks.alive_on(host.name):
            if task.name in alive:
                missing.setdefault(task.attempt, [])
            elif self._claimed(task):
                self._tasks.finish(task, "it ended without a record")
            else:
                missing.setdefault(task.attempt, []).append(task.key[2])
        for attempt, ranks in missing.items():
            self._ask(host, attempt, ranks)
            host.tell({"op": "poke", "attempt": attempt})  # orders given while the agent slept

    def _ask(self, host: Host, attempt: str, ranks: list[int]) -> None:
        if ranks:
            host.tell({"op": "start", "attempt": attempt, "ranks": ranks})

    # --- the death of a host -------------------------------------------------------------------

    def _reap(self, host: Host, error: str) -> None:
        host.error = error
        host.since_s = time.monotonic()
        self._set(host, AgentState.REAPING, 0.0)

    def _reap_step(self, host: Host) -> None:
        if self._stops.none_left(host, self._site.clock.now()):
            self._set_down(host, host.error)
        else:
            host.wake_s = time.monotonic() + REAP_S

    def _set_down(self, host: Host, error: str) -> None:
        host.error = error
        if host.name in self._configured:
            self._set(host, AgentState.DOWN, host.return_s)
            self._post(HostDown(host.name, error))
        else:
            self._set(host, AgentState.IDLE, None)
        for task in self._tasks.alive_on(host.name):
            self._tasks.finish(task, error)

    # --- orders --------------------------------------------------------------------------------

    def _start_gang(self, gang: StartGang) -> None:
        attempt = attempt_name(gang.job, gang.epoch)
        strange = [seat.host for seat in gang.seats if seat.host not in self._hosts]
        try:
            if self._memory.is_forgotten(attempt):
                raise CannotStart("it ran long ago, and is not run twice")
            if strange:
                raise CannotStart(f"this cluster has no host {strange[0]!r}")
            plan = make_plan(gang, self._layout, self._site, self._cluster)
        except (CannotStart, OSError, ValueError) as error:
            # This process makes plans: if that fails, no host is at fault but an absent one.
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
            self._ask_when_up(self._hosts[name], attempt, ranks)

    def _may_start(self, task: Task, stopped: bool) -> bool:
        """Answer at once for a task that ended, runs, or cannot run; True for the others."""
        if task.end is not None:
            self._tasks.post_end(task)
            return False
        if task.started_s is not None:
            self._tasks.started(task, task.started_s)
            return False
        host = self._hosts[task.host]
        if stopped and not self._claimed(task):
            self._tasks.finish(task, STOPPED_EARLY)
        elif host.state == AgentState.DOWN:
            self._tasks.finish(task, f"host {host.name} is down: {host.error}")
        return task.end is None

    def _ask_when_up(self, host: Host, attempt: str, ranks: list[int]) -> None:
        """Now if the agent is there; otherwise `_meet` asks for what lacks."""
        if host.state == AgentState.UP:
            self._ask(host, attempt, ranks)
        elif host.state == AgentState.IDLE:
            self._want(host)

    def _stop(self, attempt: str, grace_s: float) -> None:
        if self._memory.is_forgotten(attempt):
            return
        files.make_folder(self._layout.attempt(attempt))
        order = {"grace_s": max(0.0, grace_s), "at_s": self._site.clock.now()}
        files.write_json(self._layout.stop(attempt), order)
        plan = files.read_json(self._layout.plan(attempt)) or {"tasks": {}}
        for rank, seat_plan in plan["tasks"].items():
            self._tasks.know(f"{attempt}.{rank}", seat_plan["host"])
        self._stops.ordered(attempt, max(0.0, grace_s))
        self._poke(attempt)
        for task in self._tasks.of_attempt(attempt):
            if task.end is not None:
                self._tasks.post_end(task)  # an ordered stop waits for the ends
            elif task.started_s is None and not self._claimed(task):
                # If a supervisor claims it before we do, it finds the order.
                self._tasks.finish(task, STOPPED_EARLY)

    def _claimed(self, task: Task) -> bool:
        return files.read_json(self._layout.claim(task.name)) is not None

    def _suspend(self, attempt: str, still: bool) -> None:
        file = self._layout.suspended(attempt)
        if still:
            files.make_folder(file.parent)
            files.write_file(file, b"")
        else:
            file.unlink(missing_ok=True)
        self._poke(attempt)

    def _read_progress(self, attempt: str) -> None:
        now = self._site.clock.now()
        steps = [step for t in self._tasks.of_attempt(attempt) if (step := self._tasks.step_of(t))]
        if steps:
            job, epoch = files.split_attempt(attempt)
            self._post(ProgressReport(job, epoch, max(steps), now))

    def _poke(self, attempt: str) -> None:
        self._stops.wake(attempt)
        for host in sorted({task.host for task in self._tasks.of_attempt(attempt)}):
            if host in self._hosts:
                self._hosts[host].tell({"op": "poke", "attempt": attempt})

    def _list_tasks(self) -> None:
        self._truth_until_s = time.monotonic() + TRUTH_PATIENCE_S

    def _tell_truth(self) -> None:
        """Answer when every host has reported: a task in doubt would count as running."""
        if self._truth_until_s is None:
            return
        unsettled = (AgentState.CONNECTING, AgentState.REAPING)
        in_doubt = any(host.state in unsettled for host in self._hosts.values())
        if in_doubt and time.monotonic() < self._truth_until_s:
            return
        self._truth_until_s = None
        down = [
            host.name
            for host in self._hosts.values()
            if host.name in self._configured and host.state is AgentState.DOWN
        ]
        self._post(TaskList(self._tasks.truth(), tuple(down)))
