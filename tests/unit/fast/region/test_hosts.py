"""Hosts come and go: down and up, cordoned and drained, suspected, configured anew."""

from dataclasses import dataclass

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.fast.region.inventory.columns import Columns
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.fleet import Fleet
from topmast.model.job import Band
from topmast.model.states import HostState, JobState
from topmast.service import fleet as service_fleet

H = HostState


def _two_hosts(*, obedient: bool = True) -> World:
    return World(fleet(cluster("east-1")), profile(suspect_s=60.0), obedient=obedient)


def _without_the_first() -> Fleet:
    """The same, as its first host leaves."""
    whole = cluster("east-1")
    return fleet(replace(whole, hosts=whole.hosts[1:]))


# --- states -----------------------------------------------------------------------------------------------


@dataclass
class Signs:
    """What is known of a host; what it counts as."""

    story: str
    wanted: HostState | None
    down: bool
    suspect: bool
    want: HostState
    closed: bool = False


@pytest.mark.parametrize(
    "case",
    [
        Signs("nothing is known against it", None, False, False, H.HEALTHY),
        Signs("its cluster closed it", None, False, False, H.CLOSED, closed=True),
        Signs("its cluster beats suspicion", None, False, True, H.CLOSED, closed=True),
        Signs("an operator beats its cluster", H.DRAINING, False, False, H.DRAINING, closed=True),
        Signs("being down beats its cluster", None, True, False, H.DOWN, closed=True),
        Signs("it failed an attempt", None, False, True, H.SUSPECT),
        Signs("an operator cordoned it", H.CORDONED, False, False, H.CORDONED),
        Signs("an operator beats suspicion", H.DRAINING, False, True, H.DRAINING),
        Signs("being down beats an operator", H.CORDONED, True, False, H.DOWN),
        Signs("being down beats all", H.DRAINING, True, True, H.DOWN),
    ],
    ids=lambda case: case.story,
)
def test_what_a_host_counts_as(case: Signs) -> None:
    """Unreachable beats an operator's wish beats suspicion; each is remembered beneath the other."""
    placer = _two_hosts().placer("east")
    if case.wanted is not None:
        placer.handle(m.SetHost("east-1-0", case.wanted), 0.0)
    if case.suspect:
        placer.state.suspect["east-1-0"] = 60.0
    if case.closed:
        placer.handle(m.HostClosed("east-1-0", "drained"), 0.0)
    if case.down:
        placer.handle(m.HostChanged("east-1-0", up=False), 0.0)
    assert placer.host_state("east-1-0") is case.want


def test_a_cordoned_host_keeps_its_work_and_takes_no_more() -> None:
    """Cordoning is for later; what runs may end in peace."""
    world = _two_hosts()
    world.submit(job())
    (host,) = world.jobs["j1"].hosts
    world.set_host(host, H.CORDONED)
    assert world.state("j1") is JobState.RUNNING
    world.submit(job(gpus=7), job(gpus=7))
    assert [world.reason(j) for j in ("j2", "j3")] == [None, "InsufficientCapacity"]
    world.set_host(host, H.HEALTHY)
    assert world.state("j3") is JobState.RUNNING


def test_a_drained_host_gives_its_work_away() -> None:
    """What may be preempted moves; what may not stays to its end, and nothing new comes."""
    world = _two_hosts()
    world.submit(job("stays", gpus=3, preemptible=False), job("moves", gpus=3))
    (host,) = world.jobs["j1"].hosts
    assert world.jobs["j2"].hosts == (host,)
    world.set_host(host, H.DRAINING)
    assert world.state("j1") is JobState.RUNNING
    assert world.jobs["j2"].hosts != (host,)
    assert world.jobs["j2"].preemptions == 1
    assert "(drain)" in " ".join(row.text for row in world.journal.history("j2"))
    world.set_host(host, H.DRAINING)
    assert world.jobs["j2"].preemptions == 1


def test_a_gang_moves_whole_when_one_of_its_hosts_is_drained() -> None:
    """All its tasks stop, and all start elsewhere."""
    world = World(fleet(cluster("east-1", hosts=3)))
    world.submit(job(gpus=8, count=2))
    world.set_host("east-1-1", H.DRAINING)
    assert world.jobs["j1"].hosts == ("east-1-0", "east-1-2")


def test_the_hosts_of_others_are_not_set() -> None:
    """An unknown host is an error, and nothing changes."""
    world = _two_hosts()
    before = world.placer("east").snapshot()
    reply = world.tell(ids.placer("east"), m.SetHost("west-1-0", H.CORDONED, "ann"))
    assert isinstance(reply, NotFound)
    assert world.placer("east").snapshot() == before


# --- closed by the cluster --------------------------------------------------------------------------------


def test_a_closed_host_keeps_its_work_and_takes_no_more() -> None:
    """Who closed it lets what runs there end; what waits starts when it is open again."""
    world = _two_hosts()
    world.submit(job())
    (host,) = world.jobs["j1"].hosts
    world.close_host(host, "drained by the site")
    assert world.state("j1") is JobState.RUNNING
    world.submit(job(gpus=7), job(gpus=7))
    assert [world.reason(j) for j in ("j2", "j3")] == [None, "InsufficientCapacity"]
    world.close_host(host, "")
    assert world.state("j3") is JobState.RUNNING


def test_a_cluster_and_an_operator_do_not_open_the_host_of_the_other() -> None:
    """Each takes back its own wish alone."""
    world = _two_hosts()
    placer = world.placer("east")
    world.close_host("east-1-0", "drained")
    world.set_host("east-1-0", H.CORDONED)
    world.set_host("east-1-0", H.HEALTHY)
    assert placer.host_state("east-1-0") is H.CLOSED
    world.set_host("east-1-0", H.CORDONED)
    world.close_host("east-1-0", "")
    assert placer.host_state("east-1-0") is H.CORDONED
    world.set_host("east-1-0", H.HEALTHY)
    assert placer.host_state("east-1-0") is H.HEALTHY


def test_a_new_process_knows_closed_hosts_and_learns_of_those_that_were_opened() -> None:
    """Before the first truth it goes by its journal."""
    world = _two_hosts()
    world.close_host("east-1-0", "drained")
    world.close_host("east-1-1", "in use by others")
    world.crash()
    assert world.placer("east").state.closed == {
        "east-1-0": "drained", "east-1-1": "in use by others",
    }  # fmt: skip
    del world.engines["east-1"].closed["east-1-0"]
    world.recover()
    world.settle()
    assert world.placer("east").state.closed == {"east-1-1": "in use by others"}


def test_a_host_that_moves_to_another_cluster_is_not_closed_by_the_old_one() -> None:
    """The new one speaks for it."""
    world = World(fleet(cluster("east-1"), cluster("east-2")), profile())
    world.close_host("east-1-0", "drained")
    world.assign("east", east_1_0="east-2")
    assert world.cluster_of("east-1-0") == "east-2"
    assert world.placer("east").host_state("east-1-0") is H.HEALTHY


def test_another_reason_is_noted_and_voids_no_plan() -> None:
    """The host was closed before."""
    world = _two_hosts()
    placer = world.placer("east")
    world.close_host("east-1-0", "drained")
    version = placer.state.version
    world.close_host("east-1-0", "in use by others")
    assert placer.state.closed == {"east-1-0": "in use by others"}
    assert placer.state.version == version


def test_a_job_that_the_cluster_evicts_waits_again_and_is_not_blamed() -> None:
    """No retry is counted, no host is suspect, and what it kept is kept."""
    world = _two_hosts()
    world.submit(job(gpus=8, count=2))
    world.now = 50.0
    world.checkpoint("j1", 7)
    world.evict("j1", "preempted by another account", 1)
    record = world.jobs["j1"]
    assert world.state("j1") is JobState.RUNNING
    assert (record.epoch, record.preemptions, record.restarts, record.host_losses) == (2, 1, 0, 0)
    assert record.avoid_hosts == ()
    assert world.placer("east").state.suspect == {}
    told = [row.text for row in world.journal.history("j1")]
    assert any("task 1 was evicted: preempted by another account" in t for t in told)


def test_a_job_that_is_evicted_again_and_again_waits_longer_each_time() -> None:
    """Also elsewhere at first; an attempt that lasts ends the row, and the delay has a bound."""
    world = World(
        fleet(cluster("east-1", hosts=1), cluster("east-2", hosts=1)),
        profile(backoff_s=10.0, backoff_cap_s=60.0),
    )
    world.submit(job())
    delays, places = [], []
    for _ in range(6):
        world.advance(1.0)
        places.append(world.jobs["j1"].hosts)
        world.evict("j1", "preempted")
        delays.append(max(0.0, world.jobs["j1"].not_before_s - world.now))
        if delays[-1]:
            assert world.state("j1") is JobState.PENDING
            verdict = world.queue.verdict_on(world.jobs["j1"])
            want = f"evicted {len(delays)} times in a row, so it waits {delays[-1]:g} s"
            assert verdict is not None
            assert want in verdict.detail
        world.advance(delays[-1])
        assert world.state("j1") is JobState.RUNNING
    assert delays == [0.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert places[0] != places[1]
    world.advance(3_600.0)
    world.evict("j1", "preempted")
    assert world.state("j1") is JobState.RUNNING
    assert (world.jobs["j1"].evictions, world.jobs["j1"].host_losses) == (1, 0)


# --- down and up -------------------------------------------------------------------------------------------


def test_a_host_that_is_down_takes_nothing_until_it_is_up() -> None:
    """Then whoever waits is looked at again at once."""
    world = _two_hosts()
    world.lose("east-1-0")
    world.submit(job(gpus=8, count=2))
    assert world.state("j1") is JobState.PENDING
    world.revive("east-1-0")
    assert world.state("j1") is JobState.RUNNING


def test_repeated_news_of_a_host_changes_nothing() -> None:
    """Neither the version nor the journal moves."""
    world = _two_hosts()
    world.lose("east-1-0")
    before, written = world.placer("east").snapshot(), len(world.journal.written)
    world.tell(ids.cluster("east-1"), m.HostDown("east-1-0"))
    assert world.placer("east").snapshot() == before
    world.revive("east-1-0")
    after = world.placer("east").snapshot()
    world.tell(ids.cluster("east-1"), m.HostUp("east-1-0"))
    assert world.placer("east").snapshot() == after
    assert len(world.journal.written) == written + 1


def test_news_of_a_host_that_nobody_has_is_ignored() -> None:
    """An engine may know machines that the fleet file does not."""
    world = _two_hosts()
    before = world.placer("east").snapshot()
    world.tell(ids.cluster("east-1"), m.HostDown("stranger"))
    world.tell(ids.cluster("east-1"), m.HostUp("stranger"))
    assert world.placer("east").snapshot() == before


# --- suspects ------------------------------------------------------------------------------------------------


def _suspected() -> tuple[World, str]:
    world = _two_hosts(obedient=False)
    world.submit(job(gpus=8))
    (host,) = world.jobs["j1"].hosts
    world.finish("j1", None)
    assert world.placer("east").host_state(host) is H.SUSPECT
    return world, host


def test_a_suspect_is_trusted_again_after_a_while() -> None:
    """Suspicion that nothing confirms passes by itself."""
    world, host = _suspected()
    world.advance(59)
    assert world.placer("east").host_state(host) is H.SUSPECT
    world.advance(1)
    assert world.placer("east").host_state(host) is H.HEALTHY


def test_a_suspect_is_trusted_when_its_operator_says_so() -> None:
    """Returning it to service clears it, although nobody had taken it out."""
    world, host = _suspected()
    world.set_host(host, H.HEALTHY)
    assert world.placer("east").host_state(host) is H.HEALTHY


def test_a_suspect_is_trusted_when_it_comes_back() -> None:
    """A host that was down and is up again is a new one."""
    world, host = _suspected()
    world.lose(host)
    world.revive(host)
    assert world.placer("east").host_state(host) is H.HEALTHY


def test_suspicion_survives_a_new_process() -> None:
    """It is in the journal, with its end."""
    world, host = _suspected()
    world.crash()
    assert world.placer("east").host_state(host) is H.SUSPECT
    assert world.placer("east").next_wakeup_s() == 60.0


# --- another fleet file ----------------------------------------------------------------------------------------


@dataclass
class Change:
    """Two hosts of 8 H100 with a job of 8 on the first; another fleet file; what is so then."""

    story: str
    fleet: Fleet
    want_hosts: tuple[str, ...]
    want_free: float
    want_state: HostState = H.HEALTHY


CHANGES = [
    Change("nothing changed", fleet(cluster("east-1")), ("east-1-0", "east-1-1"), 8),
    Change("a host more", fleet(cluster("east-1", hosts=3)),
           ("east-1-0", "east-1-1", "east-1-2"), 16),
    Change("the free host left", fleet(cluster("east-1", hosts=1)), ("east-1-0",), 0),
    Change("the busy host left", fleet(cluster("east-1", hosts=0)), ("east-1-0",), 0, H.DRAINING),
    Change("its cluster left", fleet(cluster("east-2")),
           ("east-2-0", "east-2-1", "east-1-0"), 16, H.DRAINING),
    Change("the busy host grew", fleet(cluster("east-1", gpus=16)), ("east-1-0", "east-1-1"), 24),
    Change("the busy host shrank", fleet(cluster("east-1", gpus=4)), ("east-1-0", "east-1-1"), 4),
]  # fmt: skip


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.story)
def test_a_region_is_configured_anew_while_hosts_are_in_use(case: Change) -> None:
    """Work goes on where it is; a host that left takes no more, and is gone when its work is."""
    world = _two_hosts()
    world.submit(job(gpus=8, preemptible=False))
    assert world.jobs["j1"].hosts == ("east-1-0",)
    world.configure(case.fleet)
    placer = world.placer("east")
    assert tuple(host.name for host in placer.columns.hosts) == case.want_hosts
    assert placer.host_state("east-1-0") is case.want_state
    rows = range(len(placer.columns.hosts))
    free = placer.columns.free_by_host()[[r for r in rows if placer.columns.available[r]]]
    assert free.sum() / 1000 == case.want_free
    assert world.state("j1") is JobState.RUNNING
    world.finish("j1")
    assert world.state("j1") is JobState.SUCCEEDED
    assert (placer.columns.free_milli == 1000).all()
    listed = {h.name for c in case.fleet.regions[0].clusters for h in c.hosts}
    assert set(placer.columns.index) == listed
    assert not placer.state.leaving


def test_a_host_that_leaves_is_drained_and_by_nobodys_order() -> None:
    """Its job moves to where there is room; if it comes back meanwhile, nothing keeps work away."""
    world = _two_hosts(obedient=False)
    world.submit(job(gpus=8))
    world.start("j1")
    world.configure(_without_the_first())
    assert world.state("j1") is JobState.PREEMPTING
    world.configure(fleet(cluster("east-1")))
    placer = world.placer("east")
    assert placer.host_state("east-1-0") is H.HEALTHY
    assert not placer.state.wanted


def test_the_order_to_drain_a_host_outlasts_its_leaving() -> None:
    """An operator drained it before, and has not taken that back."""
    world = _two_hosts()
    world.submit(job(gpus=8, preemptible=False))
    world.set_host("east-1-0", H.DRAINING)
    world.configure(_without_the_first())
    world.configure(fleet(cluster("east-1")))
    assert world.placer("east").host_state("east-1-0") is H.DRAINING


@pytest.mark.parametrize("busy", [True, False])
def test_a_host_that_left_and_comes_back_takes_work_again(busy: bool) -> None:
    """It left the fleet file while it was in use; nobody drained it."""
    world = _two_hosts()
    world.submit(job(gpus=8, count=2))
    world.configure(fleet(cluster("east-1", hosts=1)))
    if not busy:
        world.finish("j1")
    world.configure(fleet(cluster("east-1")))
    assert world.placer("east").host_state("east-1-1") is H.HEALTHY


def test_a_region_that_left_is_emptied_when_its_work_is_done() -> None:
    """Its jobs go on; no job is ever asked about there again."""
    world = World(fleet(cluster("east-1"), cluster("west-1")))
    world.submit(*[job(gpus=8) for _ in range(4)])
    world.configure(fleet(cluster("east-1")))
    assert set(world.states().values()) == {"RUNNING"}
    west = [j for j, record in world.jobs.items() if record.region == "west"]
    for name in west:
        world.finish(name)
    world.submit(job(gpus=8))
    assert world.state("j5") is JobState.PENDING


def test_columns_are_the_same_after_a_restart_in_the_middle_of_a_change() -> None:
    """Leaving hosts, claims and suspicion are rebuilt from snapshot and journal alike."""
    world = _two_hosts(obedient=False)
    world.submit(job(gpus=4, band=Band.LOW), job(gpus=8))
    world.start("j1")
    world.configure(fleet(cluster("east-1", hosts=1)))
    world.submit(job(gpus=8, band=Band.HIGH))
    before = world.placer("east")
    for restored in (False, True):
        if restored:
            world.snapshot()
        world.crash()
        after = world.placer("east")
        assert _same(before.columns, after.columns)
        assert before.snapshot() == after.snapshot()


def _same(one: Columns, other: Columns) -> bool:
    return (
        one.hosts == other.hosts
        and one.states == other.states
        and all(
            (getattr(one, name) == getattr(other, name)).all()
            for name in ("free_milli", "free_cpus", "free_memory", "available", "domain")
        )
    )


def test_a_cordon_until_a_time_ends_by_itself() -> None:
    """Also after a crash; an order without a time is for good, and one that repeats it is none."""
    world = _two_hosts()
    placer = world.placer("east")
    until_s = world.now + 3600.0
    order = m.SetHost("east-1-0", H.CORDONED, "ann", until_s=until_s)
    world.tell(ids.placer("east"), order)
    assert placer.host_state("east-1-0") is H.CORDONED
    assert placer.next_wakeup_s() == until_s
    seq = len(world.journal.written)
    world.tell(ids.placer("east"), order)
    assert len(world.journal.written) == seq
    world.snapshot()
    world.crash()
    assert world.placer("east").host_state("east-1-0") is H.CORDONED
    world.advance(3600.0)
    placer = world.placer("east")
    assert placer.host_state("east-1-0") is H.HEALTHY
    assert placer.next_wakeup_s() is None
    world.tell(ids.placer("east"), order)
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.DRAINING, "ann"))
    assert placer.next_wakeup_s() is None
    world.advance(7200.0)
    assert placer.host_state("east-1-0") is H.DRAINING


def test_the_reason_of_a_cordon_is_kept_as_long_as_the_cordon() -> None:
    """With the host, over snapshots and a drain; a new reason takes its place, none does not."""
    world = _two_hosts()

    def says(host: str) -> str:
        seen = service_fleet.hosts({"east": world.placer("east")}, world.now)
        return next(view.closed for view in seen if view.name == host)

    both = m.SetHost("east-1-0", H.CORDONED, "ann", also=("east-1-1",), reason="new switch")
    world.tell(ids.placer("east"), both)
    world.snapshot()
    world.crash()
    assert says("east-1-0") == says("east-1-1") == "ann cordoned it: new switch"
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.CORDONED, "bob"))
    assert says("east-1-0") == "ann cordoned it: new switch"
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.CORDONED, "bob", reason="new fan"))
    assert says("east-1-0") == "bob cordoned it: new fan"
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.DRAINING, "bob"))
    assert says("east-1-0") == "bob drains it: new fan"
    world.crash()
    assert says("east-1-0") == "bob drains it: new fan"
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.CORDONED, "ann"))
    assert says("east-1-0") == "ann cordoned it: new fan"
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.HEALTHY, "bob", reason="it works"))
    assert (says("east-1-0"), says("east-1-1")) == ("", "ann cordoned it: new switch")
    world.tell(ids.placer("east"), m.SetHost("east-1-0", H.DRAINING, "bob"))
    assert says("east-1-0") == "bob drains it"
    odd = m.SetHost("east-1-1", H.CORDONED, "let it: go", reason="fans: it: hums")
    world.tell(ids.placer("east"), odd)
    world.tell(ids.placer("east"), m.SetHost("east-1-1", H.DRAINING, "ann"))
    assert says("east-1-1") == "ann drains it: fans: it: hums", "whatever the words are"


# --- closed by an operator --------------------------------------------------------------------------------


def closing(until_s: float | None = None, cluster: str = "east-1") -> m.SetClosure:
    """An order to close a cluster."""
    until = UNSET if until_s is None else until_s
    return m.SetClosure(
        cluster, m.Closure("ann closed it: switches", cluster, until_s=until), "ann"
    )


def test_a_closed_cluster_keeps_its_work_and_takes_no_more() -> None:
    """Not on hosts that come to it later either, and also after a crash."""
    world = _two_hosts()
    world.submit(job())
    world.tell(ids.placer("east"), closing())
    assert world.state("j1") is JobState.RUNNING
    world.submit(job(gpus=7))
    assert world.reason("j2") == "InsufficientCapacity"
    world.configure(fleet(cluster("east-1", hosts=3)))
    assert world.state("j2") is JobState.PENDING
    seq = len(world.journal.written)
    world.tell(ids.placer("east"), closing())
    assert len(world.journal.written) == seq
    world.snapshot()
    world.crash()
    placer = world.placer("east")
    assert {placer.host_state(f"east-1-{n}") for n in range(3)} == {H.CLOSED}
    assert placer.columns.closed["east-1-2"] == "ann closed it: switches"
    world.tell(ids.placer("east"), m.SetClosure("east-1", None, "ann"))
    assert world.state("j2") is JobState.RUNNING


def test_an_operator_and_a_cluster_open_what_they_closed_alone() -> None:
    """Opening the cluster leaves a host closed that its own people drained, and a cordon stands."""
    world = _two_hosts()
    world.close_host("east-1-0", "drained")
    world.set_host("east-1-1", H.CORDONED)
    world.tell(ids.placer("east"), closing())
    world.close_host("east-1-0", "")
    placer = world.placer("east")
    assert placer.host_state("east-1-0") is H.CLOSED
    world.close_host("east-1-0", "drained")
    world.tell(ids.placer("east"), m.SetClosure("east-1", None, "ann"))
    assert placer.host_state("east-1-0") is H.CLOSED
    assert placer.host_state("east-1-1") is H.CORDONED


def test_a_closure_until_a_time_ends_by_itself() -> None:
    """And what waited for it starts."""
    world = _two_hosts()
    world.tell(ids.placer("east"), closing(world.now + 600.0))
    world.submit(job())
    assert world.state("j1") is JobState.PENDING
    assert world.placer("east").next_wakeup_s() == world.now + 600.0
    world.advance(600.0)
    assert world.state("j1") is JobState.RUNNING
    assert world.placer("east").next_wakeup_s() is None


def test_a_cluster_that_is_not_there_is_not_closed() -> None:
    """An error, and nothing changes."""
    world = _two_hosts()
    before = world.placer("east").snapshot()
    reply = world.tell(ids.placer("east"), closing(cluster="west-1"))
    assert isinstance(reply, NotFound)
    assert world.placer("east").snapshot() == before
