"""`FarEngine`: gangs on other machines, whatever starts processes there.

One thread owns the protocol: it takes events, records the facts, and only then has the actions done
and the answers given. Looks, other calls of the launcher and requests of runners each have threads
of their own, which hand it events.
"""

from __future__ import annotations

import datetime
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import structlog
from msgspec import Struct

from topmast.adapters.connections import MOST_CONNECTIONS
from topmast.adapters.engines.closings import Closings
from topmast.adapters.engines.execs import Execs
from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far import plan as plans
from topmast.adapters.engines.far.attempts import Attempt
from topmast.adapters.engines.far.attempts import Part as AttemptPart
from topmast.adapters.engines.far.certificate import Certificate
from topmast.adapters.engines.far.data import HostData
from topmast.adapters.engines.far.home import Home
from topmast.adapters.engines.far.launcher import (
    Launcher,
    Listed,
    Part,
    Refused,
    Ticket,
    Unreachable,
)
from topmast.adapters.engines.far.listener import Listener, bind, url_of
from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.far.protocol import Protocol
from topmast.adapters.engines.far.reports import Reports
from topmast.adapters.engines.far.saves import Saves
from topmast.adapters.engines.far.store import FactLog, Identity, Outputs, file_of
from topmast.adapters.engines.far.terms import IDLE_POLLS, hold_s, terms_of
from topmast.adapters.engines.leader import UNLED_S, LeaderFence
from topmast.adapters.engines.local import files
from topmast.adapters.engines.pages import read_page
from topmast.adapters.handing import handed
from topmast.model.engines import PROCESSES, Capability
from topmast.model.errors import NotFound, Unavailable
from topmast.model.exec_views import ExecSpec
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import in_kubernetes
from topmast.model.messages import Checkpointed, Message, StartGang
from topmast.ports import Engine, Exec, LogPage, Post, Site

TICK_S = 1.0
LOOKS_APART_S = 0.2
"""At least, as two looks count more than one; and as long as the last one took: a scheduler that
is slow is not asked more than half of the time."""
CALLS = 8
"""Of a launcher, at a time, beside the look."""
RETRY_S = 1.0
FORGET_EVERY_S = 5.0
log = structlog.get_logger(__name__)


class FarEngine(Engine):
    """The engine of every launcher: a subclass names its own. See docs/internals."""

    launcher_type: ClassVar[type[Launcher]]
    options_type: ClassVar[type[Struct]] = FarOptions
    keeps_in_buckets: ClassVar[bool] = True
    outlives_folder: ClassVar[bool] = True
    _options: FarOptions

    def __init_subclass__(cls) -> None:
        """What an engine can do, and its options, are its launcher's."""
        super().__init_subclass__()
        if "launcher_type" in cls.__dict__:
            cls.options_type = cls.launcher_type.options_type
            images = {Capability.IMAGES} if cls.launcher_type.images else frozenset()
            processes = PROCESSES if cls.launcher_type.exact_gpus else frozenset()
            cls.capabilities = processes | images | {Capability.EXEC, Capability.ENV}

    def __init__(self, cluster: ClusterSpec, folder: Path, site: Site, options: FarOptions) -> None:
        super().__init__(cluster, folder.absolute(), site, options)
        self._leaders = LeaderFence(self._folder)
        self._hosts = {host.name: host for host in cluster.hosts}
        self._events: queue.SimpleQueue[tuple[Any, Future[Any] | None]] = queue.SimpleQueue()
        self._look_now = threading.Event()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._under_way: set[tuple[str, ...]] = set()
        self._held: list[Listed] = []
        """What is to be released when the facts of this turn are recorded."""
        self._execs = Execs()
        self._listener: Listener | None = None
        self._launcher: Launcher | None = None

    # --- the port, documented at `Engine`: any thread -------------------------------------------

    def open(self, post: Post) -> None:
        self._post = Closings(self._cluster.name, lambda: self._hosts, post).post
        files.make_folder(self._folder)
        self._leaders.take_over(self._site.leader)
        self._identity = Identity(self._folder)
        self._facts = FactLog(self._folder / "facts")
        self._outputs = Outputs(self._folder / "attempts", self._options.log_max_bytes)
        self._reports = Reports(self._outputs.file, self._hear_report)
        self._protocol = Protocol(terms_of(self._options, self.launcher_type), tuple(self._hosts))
        for fact in self._facts.load():
            self._protocol.attempts.apply(fact)
        self._facts.rewrite(self._protocol.attempts.facts())
        self._listen()
        self._launcher = self.launcher_type(self._cluster, self._identity.fleet, self._options)
        self._launcher.is_recorded = self._protocol.attempts.is_recorded
        self._launcher.open(self._url)
        self._pool = ThreadPoolExecutor(CALLS, thread_name_prefix=f"calls of {self._cluster.name}")
        self._carry_out(self._protocol.recover(self._now()))
        for work in (self._run, self._look):
            thread = threading.Thread(target=work, name=f"engine {self._cluster.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _listen(self) -> None:
        options = self._options
        try:
            sock = bind(options.listen, self._folder)
        except Unavailable as error:
            raise Unavailable(f"cluster {self._cluster.name}: {error}") from None
        self._url = url_of(sock, options.advertise)
        today = datetime.datetime.fromtimestamp(self._site.clock.now(), datetime.UTC)
        certificate = None if self._url.startswith("unix:") else Certificate(self._folder, today)
        self._ca = "" if certificate is None else certificate.pem
        root = self._site.checkpoint_store
        self._saves = Saves(root, self._ask_save, self._post) if root else None
        self._data = HostData(self._site, self._saves, through_home=options.data == "home")
        self._home = Home(
            self._ask, self._protocol.attempts.part, self._runner_plan, self._outputs, self._site,
            self._data, self._execs, hold_s(options),
        )  # fmt: skip
        self._listener = Listener(
            sock, None if certificate is None else certificate.context, self._identity.token,
            self._home.answer, MOST_CONNECTIONS,
        )  # fmt: skip
        self._listener.open()

    def start_gang(self, gang: StartGang) -> None:
        self._pool.submit(self._prepare, gang)

    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        self._tell(e.Stop(job, epoch, grace_s))

    def suspend(self, job: str, epoch: int) -> None:
        self._tell(e.Suspend(job, epoch, still=True))

    def resume(self, job: str, epoch: int) -> None:
        self._tell(e.Suspend(job, epoch, still=False))

    def read_progress(self, job: str, epoch: int) -> None:
        self._tell(lambda: self._reports.progress(job, epoch, self._site.clock.now()))

    def list_tasks(self) -> None:
        """Post a `TaskList` after the next complete look at the scheduler."""
        self._tell(e.ListTasks())

    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._launcher_().set_hosts(tuple(hosts))
        self._tell(e.SetHosts(tuple(self._hosts)))

    def admits(self, leader: int) -> bool:
        return self._leaders.admits(leader)

    def read_log(self, job: str, epoch: int, rank: int, offset: int, limit: int) -> LogPage | None:
        return self.read_stored_log(self._folder, job, epoch, rank, offset, limit)

    @classmethod
    def read_stored_log(
        cls, folder: Path, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        return read_page(file_of(folder / "attempts", job, epoch, rank), offset, limit)

    @classmethod
    def stored_epochs(cls, folder: Path) -> dict[str, int]:
        found: dict[str, int] = {}
        for fact in FactLog(folder / "facts").load() if (folder / "facts").exists() else ():
            gang = fact.gang if isinstance(fact, e.Intended) else fact
            if isinstance(gang, StartGang | e.Stopped | e.Forgotten):
                found[gang.job] = max(gang.epoch, found.get(gang.job, 0))
        return found

    def execute(self, spec: ExecSpec) -> Exec:
        attempt = self._protocol.attempts.known.get((spec.job, spec.epoch))
        place = attempt.place_of_rank(spec.rank) if attempt is not None else None
        if attempt is None or place is None or not place.nonce or spec.rank in attempt.ends:
            raise NotFound(f"task {spec.rank} of job '{spec.job}' does not run")
        made = self._execs.begin(spec)
        self._tell(partial(self._order_execs, attempt))
        return made

    def _order_execs(self, attempt: Attempt) -> None:
        """Tell the runners of an attempt which commands there are now."""
        running = self._execs.of_attempt(*attempt.key)
        attempt.set_execs(tuple(
            e.ExecOrder(x.id, x.spec.rank, x.spec.command, x.spec.tty, x.spec.rows, x.spec.columns)
            for x in running
        ))  # fmt: skip
        if self._listener is not None and not self._closed.is_set():
            parts = [part.name for part in attempt.parts]
            self._listener.loop.call_soon_threadsafe(self._home.changed, parts)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._execs.close()
        self._look_now.set()
        self._tell(e.Tick())
        if self._listener is not None:
            self._listener.close()
            self._data.close()
        for thread in self._threads:
            thread.join()
        if self._launcher is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._launcher.close()
            self._facts.close()
        self._leaders.close()

    # --- the thread of the protocol -------------------------------------------------------------

    def _tell(self, event: Struct | Callable[[], e.Outcome | None]) -> None:
        self._events.put((event, None))

    async def _ask(self, event: Struct) -> Any:
        """An event that is to be answered, from the listener's thread."""
        answer: Future[Any] = Future()
        self._events.put((event, answer))
        return await handed(answer)

    def _now(self) -> e.Moment:
        return e.Moment(time.monotonic(), self._site.clock.now())

    def _run(self) -> None:
        tick_s = min(TICK_S, (self._protocol.terms.lease_s or TICK_S) / 10)
        ticked_s = forgot_s = time.monotonic()
        while not self._closed.is_set():
            if not self._site.leads():
                self._closed.wait(UNLED_S)
                continue
            with suppress(queue.Empty):
                self._turn(self._events.get(timeout=tick_s))
            now_s = time.monotonic()
            if now_s - ticked_s >= tick_s:
                ticked_s = now_s
                self._turn((e.Tick(), None))
                self._reports.poll(self._site.clock.now())
            if now_s - forgot_s >= FORGET_EVERY_S:
                forgot_s = now_s
                self._turn((self._forget, None))

    def _forget(self) -> e.Outcome:
        return self._protocol.forget(self._options.keep_attempts, self._now())

    def _turn(self, first: tuple[Any, Future[Any] | None]) -> None:
        """Handle what has come, with one write for all of it."""
        batch = [first]
        with suppress(queue.Empty):
            while len(batch) < 1000:
                batch.append(self._events.get_nowait())
        with self._leaders.held() as leads:
            if leads:
                self._handle(batch)
            else:
                self._drop(batch)

    def _drop(self, batch: Sequence[tuple[Any, Future[Any] | None]]) -> None:
        """Runners are told to ask again: what is granted now, the next leader cannot know."""
        log.error("a leader that was replaced does nothing more", cluster=self._cluster.name)
        for _, answer in batch:
            if answer is not None:
                answer.cancel()

    def _handle(self, batch: Sequence[tuple[Any, Future[Any] | None]]) -> None:
        outcomes = []
        for event, answer in batch:
            try:
                outcome = event() if callable(event) else self._protocol.handle(event, self._now())
                if outcome is not None:
                    outcomes.append((outcome, answer))
            except Exception as error:
                log.exception("far engine", cluster=self._cluster.name)
                if answer is not None:
                    answer.set_exception(error)
        self._commit(outcomes)

    def _commit(self, outcomes: list[tuple[e.Outcome, Future[Any] | None]]) -> None:
        facts = [fact for outcome, _ in outcomes for fact in outcome.facts]
        while facts and not self._record(facts):
            if self._closed.wait(RETRY_S):
                return  # nothing of it was recorded, so nothing of it happened
        for outcome, answer in outcomes:
            self._carry_out(outcome)
            if answer is not None and not answer.cancelled():
                answer.set_result(outcome.answer)
        self._release()
        if facts and self._listener is not None and not self._closed.is_set():
            changed = self._protocol.attempts.parts_of(facts)
            self._listener.loop.call_soon_threadsafe(self._home.changed, changed)
        if self._facts.is_long:
            self._facts.rewrite(self._protocol.attempts.facts())
        if self._protocol.urgent:
            self._look_now.set()

    def _record(self, facts: list[e.Fact]) -> bool:
        try:
            self._facts.append(facts)
        except OSError as error:
            log.error("nothing starts or ends until it is recorded", why=str(error))
            return False
        return True

    def _carry_out(self, outcome: e.Outcome) -> None:
        for action in outcome.actions:
            match action:
                case e.Post(message=message):
                    self._reports.hear(message, self._site.clock.now())
                    self._post(message)
                case e.Submit():
                    self._call([("submit", action.plan.name)], partial(self._submit, action))
                case e.Release(listed=one):
                    self._held.append(one)
                case e.Cancel(listed=one, grace_s=grace_s):
                    cancel = partial(self._launcher_().cancel, one, grace_s)
                    self._call([("cancel", one.name, one.id)], cancel)
                case e.Forget(listed=one):
                    if type(self._launcher_()).forget is not Launcher.forget:
                        forget = partial(self._launcher_().forget, one)
                        self._call([("forget", one.name, one.id)], forget)
                case e.Delete(job=job, epoch=epoch):
                    self._pool.submit(self._outputs.delete, job, epoch)

    def _release(self) -> None:
        """Let run what was recorded: together, as far as the scheduler takes it."""
        held, self._held = self._held, []
        # Looks go on meanwhile, and show what is being released as held.
        held = [one for one in held if ("release", one.name, one.id) not in self._under_way]
        most = self.launcher_type.releases_at_once
        for at in range(0, len(held), most):
            some = held[at : at + most]
            names = [("release", one.name, one.id) for one in some]
            self._call(names, partial(self._launcher_().release, some))

    def _launcher_(self) -> Launcher:
        assert self._launcher is not None
        return self._launcher

    # --- checkpoints in a bucket ----------------------------------------------------------------

    def _hear_report(self, message: Message) -> None:
        """A checkpoint counts when it is in the bucket; anything else is told at once."""
        if self._saves is not None and isinstance(message, Checkpointed):
            attempt = self._protocol.attempts.known.get((message.job, message.epoch))
            if attempt is not None and attempt.carried.checkpoint is not None:
                self._saves.reported(attempt, message)
                return
        self._post(message)

    def _ask_save(self, key: tuple[str, int]) -> int:
        """Have the hosts of an attempt save; from any thread. Returns the round."""
        attempt = self._protocol.attempts.known[key]
        number = attempt.ask_save(self._site.clock.now())
        if self._listener is not None and not self._closed.is_set():
            parts = [part.name for part in attempt.parts]
            self._listener.loop.call_soon_threadsafe(self._home.changed, parts)
        return number

    # --- calls of the launcher ------------------------------------------------------------------

    def _call(self, what: Sequence[tuple[str, ...]], call: Callable[[], None]) -> None:
        """In the background, and not twice at a time: looks ask for it again."""
        if self._under_way.intersection(what):
            return
        self._under_way.update(what)

        def work() -> None:
            try:
                if self._leaders.leads():  # if not any more since, the next leader's looks find it
                    call()
            except (Refused, Unreachable) as error:
                log.warning("the scheduler did not do it", what=what, why=str(error))
            except Exception:
                log.exception("launcher", what=what)
            finally:
                self._under_way.difference_update(what)

        with suppress(RuntimeError):  # closed
            self._pool.submit(work)

    def _submit(self, action: e.Submit) -> None:
        name = action.plan.name
        try:
            id = self._launcher_().submit(self._part(action))
        except Refused as error:
            why = str(error) or "the scheduler refused it"
            self._tell(e.Submitted(name, refused=why, everyone=error.everyone))
        except Unreachable as error:
            self._tell(e.Submitted(name, unsure=str(error) or "the scheduler did not answer"))
        except Exception as error:
            log.exception("launcher", part=name)
            self._tell(e.Submitted(name, unsure=repr(error)))
        else:
            self._tell(e.Submitted(name, id=id))

    def _part(self, action: e.Submit) -> Part:
        gang, name = action.gang, action.plan.name
        needs = plans.Needs(gang, action.plan, self._hosts)
        grace_s = gang.spec.checkpoint.grace_s
        if action.lease_s is not None:
            grace_s = min(grace_s, action.lease_s / 2)
        ticket = Ticket(
            self._url, self._ca, self._identity.token(name), name, action.lease_s, grace_s
        )
        return Part(
            name, needs.hosts, needs.tasks, needs.gpus, needs.model, needs.cpus,
            needs.memory_bytes, needs.limit_s, gang.spec.tenant,
            plans.image_of(gang, self._cluster), ticket, in_kubernetes(gang.spec), action.hold,
        )  # fmt: skip

    def _look(self) -> None:
        """The thread of looks: one at a time, soon when something waits for it."""
        launcher = self._launcher_()
        while not self._closed.is_set():
            poll_s = self._options.poll_s * (1 if self._protocol.busy else IDLE_POLLS)
            self._look_now.wait(poll_s)
            self._look_now.clear()
            if self._closed.is_set():
                return
            began_s = time.monotonic()
            try:
                listed, hosts = launcher.list(), launcher.hosts()
                silent = [host.name for host in hosts if not host.answers]
                unlisted = tuple(silent) if launcher.lists_by_host else ()
                self._tell(e.Looked(began_s, listed, hosts, unlisted))
            except Exception as error:
                if not isinstance(error, Unreachable | Refused):
                    log.exception("launcher", cluster=self._cluster.name)
                self._tell(e.LookFailed(str(error) or repr(error)))
                self._closed.wait(min(poll_s, self._options.poll_s))
            self._closed.wait(max(LOOKS_APART_S, time.monotonic() - began_s))

    # --- starting -------------------------------------------------------------------------------

    def _prepare(self, gang: StartGang) -> None:
        """What takes time or can fail before an attempt is intended; on a thread of the pool."""
        try:
            plans.check(gang, self._site, images=self.launcher_type.images)
            envs, carried = plans.environment(gang, self._cluster, self._site, self._options)
        except Exception as error:
            if not isinstance(error, plans.CannotStart | OSError | ValueError):
                log.exception("an attempt cannot be prepared", job=gang.job, epoch=gang.epoch)
            why = files.clean_text(str(error)) or repr(error)
            self._tell(e.Start(gang, (), {}, cannot=why))
            return
        fleet, many = self._identity.fleet, self.launcher_type.many_hosts
        parts = plans.make_parts(gang, fleet, many_hosts=many)
        self._tell(e.Start(gang, parts, envs, carried=carried))

    def _runner_plan(self, attempt: Attempt, part: AttemptPart, host: str) -> dict[str, Any]:
        """What the runner on a host is told to run; from the listener's thread."""
        return plans.runner_plan(
            attempt, part.places[host].ranks, self._options,
            exact_gpus=self.launcher_type.exact_gpus,
        )  # fmt: skip
