"""Any history: counters stay right, nobody waits in vain, and the journal tells the whole story."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support import invariants
from tests.support.build import cluster, dataset, fleet, profile, tenant
from tests.support.deeds import act_on
from tests.support.engine import Life
from tests.support.strategies import bounded, jobs, small_fleets
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.states import TERMINAL, HostState
from topmast.model.timed_quota import TimedQuota

Deed = tuple[Any, ...]

deeds = st.one_of(
    st.tuples(st.just("submit"), st.lists(jobs(), min_size=1, max_size=3)),
    st.tuples(st.just("submit"), st.lists(jobs(), min_size=1, max_size=3)),
    st.tuples(st.just("start"), st.integers(0, 9)),
    st.tuples(st.just("start"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([0, 1, 143, None])),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([0, 1, 143, None])),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 5.0, 20.0, 61.0, 130.0])),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("act"), st.integers(0, 9), st.integers(0, 8)),
    st.tuples(st.just("lose"), st.integers(0, 9)),
    st.tuples(st.just("revive"), st.integers(0, 9)),
    st.tuples(st.just("set"), st.integers(0, 9), st.sampled_from(list(HostState)[:4])),
    st.tuples(
        st.just("copy"), st.sampled_from(["here", "both"]), st.sampled_from(["east", "west"])
    ),
    st.tuples(
        st.just("drop"), st.sampled_from(["here", "both"]), st.sampled_from(["east", "west"])
    ),
    st.tuples(st.just("arrive"), st.booleans()),
    st.tuples(st.just("configure"), st.integers(0, 3)),
    st.tuples(st.just("quota"), st.sampled_from("ab"), st.none() | st.integers(0, 4)),
    st.tuples(st.just("tenants"), st.integers(0, 4), st.integers(0, 3)),
    st.tuples(st.just("crash")),
)
histories = st.lists(deeds, min_size=5, max_size=30)


class History:
    """A world to which deeds are done; numbers in deeds pick among what is there."""

    def __init__(self, system: Fleet) -> None:
        options = profile(min_runtime_s=10.0, suspect_s=30.0, backoff_s=1.0)
        self.world = World(system, options, obedient=False)

    def do(self, deed: Deed) -> None:
        """Carry out one deed, if there is anything to do it to."""
        name, *arguments = deed
        getattr(self, f"_{name}")(*arguments)

    @staticmethod
    def _pick(things: list[Any], number: int) -> Any:
        return things[number % len(things)] if things else None

    def _submit(self, specs: list[Any]) -> None:
        self.world.submit(*specs)

    def _tasks(self, life: Life) -> list[tuple[str, Any]]:
        found = []
        for name, engine in sorted(self.world.engines.items()):
            found += [(name, key) for key, task in engine.tasks.items() if task.life is life]
        return found

    def _start(self, number: int) -> None:
        picked = self._pick(self._tasks(Life.ORDERED), number)
        if picked is not None:
            cluster, key = picked
            engine = self.world.engines[cluster]
            self.world.post(ids.cluster(cluster), engine.start(key, self.world.now))
            self.world.settle()

    def _end(self, number: int, code: int | None) -> None:
        picked = self._pick(self._tasks(Life.ALIVE), number)
        if picked is not None:
            cluster, key = picked
            engine = self.world.engines[cluster]
            self.world.post(ids.cluster(cluster), engine.end(key, code, self.world.now))
            self.world.settle()

    def _wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _cancel(self, number: int) -> None:
        going = [job for job, r in self.world.jobs.items() if r.state not in TERMINAL]
        job = self._pick(going, number)
        if job is not None:
            self.world.cancel(job)

    def _act(self, number: int, act: int) -> None:
        job = self._pick(list(self.world.jobs), number)
        if job is not None:
            self.world.tell(ids.QUEUE, act_on(job, act))

    def _hosts(self, *, down: bool) -> list[str]:
        engines = sorted(self.world.engines.items())
        return [h for _, e in engines for h in e.hosts if (h in e.down) is down]

    def _lose(self, number: int) -> None:
        host = self._pick(self._hosts(down=False), number)
        if host is not None:
            self.world.lose(host)

    def _revive(self, number: int) -> None:
        host = self._pick(self._hosts(down=True), number)
        if host is not None:
            self.world.revive(host)

    def _set(self, number: int, state: HostState) -> None:
        if state is HostState.SUSPECT:
            state = HostState.HEALTHY
        placers = self.world.machines.placers
        hosts = [host for name in sorted(placers) for host in placers[name].columns.index]
        self.world.set_host(self._pick(hosts, number), state)

    def _copy(self, name: str, region: str) -> None:
        self.world.tell(ids.QUEUE, m.RequestReplica(name, region, "ann"))

    def _drop(self, name: str, region: str) -> None:
        self.world.tell(ids.QUEUE, m.DropReplica(name, region))

    def _arrive(self, well: bool) -> None:
        moving = sorted(self.world.mover.moving)
        if moving and well:
            self.world.arrive(moving[0])
        elif moving:
            self.world.spoil(moving[0])

    def _configure(self, count: int) -> None:
        """Another fleet file: the cluster that every fleet has gets more hosts, or fewer."""
        old, spare = self.world.fleet, cluster("east-9", hosts=count, gpus=2)
        kept = [c for r in old.regions for c in r.clusters if c.name != spare.name]
        self.world.configure(fleet(*kept, spare, tenants=old.tenants, datasets=old.datasets))

    def _quota(self, name: str, count: int | None) -> None:
        """A tenant has another quota for a while, or that of the fleet again."""
        now = self.world.now
        if count is None:
            self.world.tell(ids.QUEUE, m.EndQuota(name, "ann"))
        else:
            timed = TimedQuota(name, {"H100": count}, now, now + 60.0, "ann")
            self.world.tell(ids.QUEUE, m.SetQuota(timed))

    def _tenants(self, quota: int, borrow: int) -> None:
        """Another fleet file, with other quotas and limits to borrowing, perhaps below what is held."""
        tenants = (tenant("a", borrow=borrow, H100=quota, A100=2), tenant("b", A100=quota))
        self.world.configure(replace(self.world.fleet, tenants=tenants))

    def _crash(self) -> None:
        self.world.restart()


@bounded(120)
@given(small_fleets(), histories)
def test_after_any_history_the_books_are_right(system: Fleet, deeds_done: list[Deed]) -> None:
    """After each deed: counters, columns and index as counted anew, no slot overfilled, books agree,
    the audit trail matches, and no job waits that could start."""
    history = History(system)
    for deed in deeds_done:
        note(str(deed)[:200])
        history.do(deed)
        invariants.check_rest(history.world)
    invariants.check_rebuilds(history.world)


@bounded(60)
@given(small_fleets(), histories, st.integers(0, 29), st.integers(0, 29), histories)
def test_a_snapshot_and_the_whole_journal_lead_to_the_same_place(
    system: Fleet, before: list[Deed], saved_at: int, died_at: int, after: list[Deed]
) -> None:
    """Two processes recover, one from a snapshot and what follows, one from the first record on: they
    are the same, and go on alike whatever comes."""
    worlds = []
    for with_snapshot in (True, False):
        history = History(system)
        for number, deed in enumerate(before):
            history.do(deed)
            if number == died_at % len(before):
                history.world.restart()
            if with_snapshot and number == saved_at % len(before):
                history.world.snapshot()
        history.world.crash()
        worlds.append(history)
    saved, whole = worlds
    assert saved.world.blobs() == whole.world.blobs()
    for history in worlds:
        history.world.recover()
        history.world.settle()
    for deed in after:
        saved.do(deed)
        whole.do(deed)
        assert saved.world.blobs() == whole.world.blobs()
    assert saved.world.journal.written == whole.world.journal.written


@bounded(40)
@given(small_fleets(), histories)
def test_any_moment_of_the_past_can_be_rebuilt(system: Fleet, deeds_done: list[Deed]) -> None:
    """The journal up to a record is the state after that record, at every record."""
    history = History(system)
    moments = {}
    for deed in deeds_done:
        history.do(deed)
        written = history.world.journal.written
        moments[len(written)] = history.world.blobs()
    full = list(history.world.journal.written)
    for count, blobs in moments.items():
        history.world.journal.written = full[:count]
        again = {a: machine.snapshot() for a, machine in history.world.rebuilt().addressed()}
        assert again == blobs


def test_a_dataset_of_any_size_is_priced() -> None:
    """Sizes beyond what 64 bits hold do not stop the queue."""
    world = World(fleet(datasets=(dataset("d", size_bytes=1 << 80),)))
    assert world.queue.data.catalogue.cost(["d"], "east", 0.0).barred is not None


@pytest.mark.parametrize(
    "deed", ["submit", "start", "end", "wait", "cancel", "act", "lose", "quota", "tenants"]
)
def test_every_deed_is_done(deed: str) -> None:
    """The strategies name deeds that exist."""
    assert callable(getattr(History, f"_{deed}"))
