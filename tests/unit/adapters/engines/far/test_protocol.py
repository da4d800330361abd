"""The steps of the protocol, one at a time. Its promises as a whole: tests/properties."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.launcher import Host, Listed, State
from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.far.plan import make_parts
from topmast.adapters.engines.far.protocol import Protocol, Terms
from topmast.adapters.engines.far.terms import terms_of
from topmast.model import messages as m
from topmast.model.job import JobSpec, Resources, TaskGroup
from topmast.model.plan import Seat

LEASE_S = 600.0
HOSTS = ("h0", "h1")
PART = "tm-f-j1-1-0"
A = TypeVar("A")


def gang(tasks: int = 1, hosts: tuple[str, ...] = HOSTS) -> m.StartGang:
    spec = JobSpec("a job", (TaskGroup("trainer", tasks, Resources(), "true"),))
    seats = tuple(Seat("trainer", n, hosts[n % len(hosts)], (n,)) for n in range(tasks))
    return m.StartGang("j1", 1, spec, "east", "east-1", seats)


@dataclass
class Story:
    """A protocol, and what it said so far."""

    protocol: Protocol = field(
        default_factory=lambda: Protocol(Terms(LEASE_S, 15.0, 30.0, 60.0), HOSTS)
    )
    now_s: float = 100.0
    ahead_s: float = 0.0
    """Of our wall clock before the monotonic one."""
    facts: list[e.Fact] = field(default_factory=list)

    def does(self, event: Any, after_s: float = 1.0) -> e.Outcome:
        self.now_s += after_s
        outcome = self.protocol.handle(event, e.Moment(self.now_s, self.now_s + self.ahead_s))
        self.facts += outcome.facts
        return outcome

    def start(self, tasks: int = 1) -> e.Outcome:
        order = gang(tasks)
        return self.does(e.Start(order, make_parts(order, "f", many_hosts=True), {}))

    def looks(
        self, *listed: Listed, silent: tuple[str, ...] = (), began_s: float = 0.0,
        closed: str = "",
    ) -> e.Outcome:  # fmt: skip
        """``closed``: why the scheduler gives h0 no new work."""
        hosts = tuple(Host(host, host not in silent, closed * (host == "h0")) for host in HOSTS)
        self.now_s += 1.0
        return self.does(e.Looked(began_s or self.now_s, listed, hosts))

    def claims(self, host: str = "h0", nonce: str = "n1") -> e.Answer:
        answer: e.Answer = self.does(e.Claim(PART, host, nonce, "a", 1)).answer
        return answer

    def submitted(self) -> "Story":
        self.start()
        self.looks()
        self.does(e.Submitted(PART))
        return self

    def claims_first(self, number: int, image: Any = UNSET) -> e.Beat:
        """The runner of a job of its own claims on h0; how it beats."""
        spec = replace(gang().spec, image=image)
        other = replace(gang(), job=f"one-{number}", spec=spec)
        part = PART.replace("j1", other.job)
        self.does(e.Start(other, make_parts(other, "f", many_hosts=True), {}))
        self.does(e.Claim(part, "h0", f"n{number}", "a", 1))
        return e.Beat(part, "h0", f"n{number}")

    def ends_first(
        self, number: int, *, code: int | None, image: Any = UNSET, **more: Any
    ) -> e.Outcome:
        """The same, and its task ends."""
        beat = self.claims_first(number, image)
        return self.does(e.RankEnded(beat.part, "h0", beat.nonce, 0, code, 1.0, **more))

    def released(self) -> "Story":
        self.submitted().looks(held())
        return self

    def restarted(self) -> "Story":
        """Another process with what was recorded."""
        other = Story(now_s=5.0, facts=list(self.facts))
        for fact in self.facts:
            other.protocol.attempts.apply(fact)
        return other


def held(id: str = "1", submitted_s: float = 1.0) -> Listed:
    return Listed(PART, id, submitted_s, State.HELD)


def listed(state: State, **more: Any) -> Listed:
    return Listed(PART, "1", 1.0, state, **more)


def only(outcome: e.Outcome, kind: type[A]) -> list[A]:
    return [action for action in outcome.actions if isinstance(action, kind)]


def news(outcome: e.Outcome, kind: type[A]) -> list[A]:
    return [
        a.message for a in outcome.actions if isinstance(a, e.Post) and isinstance(a.message, kind)
    ]


def test_nothing_is_submitted_before_a_look_that_began_later() -> None:
    """A crash may have come after a submission: only a look after the intent shows what is there."""
    story = Story()
    assert not only(story.start(), e.Submit)
    assert not only(story.looks(began_s=story.now_s - 0.5), e.Submit)
    (submit,) = only(story.looks(), e.Submit)
    assert (submit.plan.name, submit.hold) == (PART, True), "the one of before may arrive late"


def test_what_the_last_look_did_not_show_is_submitted_at_once() -> None:
    """Only this process submits what it intended just now: no look is needed, and no release."""
    story = Story()
    story.looks()
    (submit,) = only(story.start(), e.Submit)
    assert (submit.plan.name, submit.hold) == (PART, False)
    assert not only(story.looks(), e.Submit)
    story.does(e.Submitted(PART))
    waiting = story.looks(listed(State.WAITING))
    assert waiting.facts == (e.Recorded(PART, "1", 1.0),)
    assert not only(waiting, e.Release)


def test_what_runs_before_it_was_listed_is_recorded_by_the_next_look() -> None:
    """It was submitted to run at once: its runner may claim before the submission is answered."""
    story = Story()
    story.looks()
    story.start()
    assert story.claims().status == e.GRANTED
    story.does(e.Submitted(PART))
    assert story.looks(listed(State.RUNNING)).facts == (e.Recorded(PART, "1", 1.0),)


@pytest.mark.parametrize("state", [State.HELD, State.WAITING, State.RUNNING])
def test_what_had_the_name_of_a_part_before_goes_before_it_is_submitted(state: State) -> None:
    """A task of another job may have made it; or a process of which the facts are lost."""
    story = Story()
    story.looks(listed(state))
    assert not only(story.start(), e.Submit)
    seen = story.looks(listed(state))
    assert [one.listed.id for one in only(seen, e.Cancel)] == ["1"]
    assert not seen.facts
    assert not only(seen, e.Submit)
    (submit,) = only(story.looks(listed(State.ENDED)), e.Submit)
    assert submit.hold
    story.does(e.Submitted(PART, id="2"))
    assert story.looks(listed(State.ENDED), held("2", 2.0)).facts == (e.Recorded(PART, "2", 2.0),)


def test_what_ended_under_the_name_of_a_part_before_is_not_its_end() -> None:
    """As many as a task of another job likes to submit; also if they come while it is submitted."""
    story = Story()
    story.looks(listed(State.ENDED))
    story.start()
    ended = listed(State.ENDED, why="COMPLETED")
    (submit,) = only(story.looks(ended), e.Submit)
    assert submit.hold
    story.does(e.Submitted(PART, id="3"))
    later = replace(ended, id="2", submitted_s=2.0)
    seen = story.looks(ended, later, held("3", 2.0))
    assert seen.facts == (e.Recorded(PART, "3", 2.0),)
    assert not news(seen, m.TaskLost)


def test_a_submission_without_an_answer_goes_by_its_name() -> None:
    """Its id is not known; neither after the answer to a second one."""
    story = Story()
    story.start()
    story.looks()
    story.does(e.Submitted(PART, unsure="no answer"))
    story.looks()
    story.looks()
    story.does(e.Submitted(PART, id="2"))
    assert story.looks(held("1", 1.0), held("2", 2.0)).facts == (e.Recorded(PART, "1", 1.0),)


def test_nothing_is_submitted_at_once_to_a_host_that_the_last_look_lacked() -> None:
    """It may have the part."""
    story = Story()
    hosts = tuple(Host(host, host != "h0") for host in HOSTS)
    story.does(e.Looked(story.now_s, (), hosts, ("h0",)))
    story.does(e.Looked(story.now_s, (), tuple(Host(host, True) for host in HOSTS), ("h0",)))
    assert not only(story.start(), e.Submit)


def test_a_part_is_recorded_before_it_is_released() -> None:
    """Both are of one outcome, whose facts are durable before its actions are done."""
    outcome = Story().submitted().looks(held())
    assert outcome.facts == (e.Recorded(PART, "1", 1.0),)
    assert only(outcome, e.Release) == [e.Release(held())]


def test_of_two_the_first_is_released_and_the_other_cancelled() -> None:
    """A submission that timed out arrived after all."""
    outcome = Story().submitted().looks(held("2", 2.0), held())
    assert only(outcome, e.Release) == [e.Release(held())]
    assert only(outcome, e.Cancel) == [e.Cancel(held("2", 2.0), 0.0)]


def test_a_release_that_was_lost_is_repeated() -> None:
    """As long as looks show the part held."""
    assert only(Story().released().looks(held()), e.Release) == [e.Release(held())]


def test_a_vanished_submission_is_repeated_after_two_looks() -> None:
    """One listing may be wrong."""
    story = Story().submitted()
    assert not only(story.looks(), e.Submit)
    (again,) = only(story.looks(), e.Submit)
    assert again.hold, "the first one may arrive late"


def test_a_recorded_part_is_lost_after_two_looks_without_it() -> None:
    """One empty listing is not the end of a part; two are, as no runner can claim it any more."""
    story = Story().released()
    assert not news(story.looks(), m.TaskLost)
    assert [lost.blameless for lost in news(story.looks(), m.TaskLost)] == [True]
    assert story.claims().status == e.OVER


def test_a_part_that_lost_a_host_before_all_claimed_is_lost_there() -> None:
    """Slurm lets it go on without a host that was set down: no runner would ever claim there."""
    story = Story()
    story.start(2)
    story.looks()
    story.does(e.Submitted(PART))
    story.looks(held())
    assert story.claims("h0").status == e.GRANTED
    assert not news(story.looks(listed(State.RUNNING, hosts=2)), m.TaskLost)
    lost = news(story.looks(listed(State.RUNNING, hosts=1)), m.TaskLost)
    assert [(one.rank, one.blameless) for one in lost] == [(1, True)]
    assert story.claims("h1", "n2").status == e.OVER


def test_a_runner_that_does_not_start_with_the_others_is_lost() -> None:
    """It was killed before it claimed, and its scheduler sees the part run: others wait for it."""
    story = Story()
    story.start(2)
    story.looks()
    story.does(e.Submitted(PART))
    story.looks(held())
    assert story.claims("h0").status == e.GRANTED
    story.does(e.Beat(PART, "h0", "n1"), LEASE_S - 10.0)
    assert not news(story.does(e.Tick()), m.TaskLost)
    lost = news(story.does(e.Tick(), 20.0), m.TaskLost)
    assert [(one.rank, one.blameless) for one in lost] == [(1, True)]
    assert story.claims("h1", "n2").status == e.OVER


def test_a_wall_clock_that_is_set_loses_nothing_and_keeps_nothing() -> None:
    """By a day, ahead or back, between two claims: what does not start is told after a lease."""
    for ahead_s in (86400.0, -86400.0):
        story = Story()
        story.start(2)
        story.looks()
        story.does(e.Submitted(PART))
        story.looks(held())
        story.claims("h0")
        story.ahead_s = ahead_s
        assert not news(story.does(e.Tick()), m.TaskLost), ahead_s
        story.does(e.Beat(PART, "h0", "n1"), LEASE_S - 10.0)
        lost = news(story.does(e.Tick(), 20.0), m.TaskLost)
        assert [one.rank for one in lost] == [1], ahead_s


def test_a_refused_submission_is_lost_with_the_reason() -> None:
    """The scheduler's own words reach the job."""
    story = Story()
    story.start()
    story.looks()
    (lost,) = news(story.does(e.Submitted(PART, refused="no such partition")), m.TaskLost)
    assert lost.error == "no such partition"


def test_what_waits_for_what_never_comes_is_given_up() -> None:
    """With the reason; what is left of it at the scheduler is cancelled, and no runner may claim it."""
    story = Story().released()
    hopeless = listed(State.WAITING, why="BadConstraints: compare GPU types", never=True)
    (lost,) = news(story.looks(hopeless), m.TaskLost)
    assert (lost.error, lost.blameless) == (hopeless.why, True)
    assert story.claims().status == e.OVER
    assert only(story.looks(hopeless), e.Cancel)


def test_what_waits_for_a_host_that_was_drained_is_given_back_and_cancelled() -> None:
    """A drain that the last look did not show yet: the job starts elsewhere, not after minutes."""
    story = Story()
    story.looks()
    story.start(2)
    story.does(e.Submitted(PART))
    look = story.looks(listed(State.WAITING, why="ReqNodeNotAvail"), closed="is drained: fan")
    why = "host h0 was closed before it started: is drained: fan"
    ends = [(lost.rank, lost.error, lost.blameless) for lost in news(look, m.TaskLost)]
    assert ends == [(0, why, True), (1, why, True)], "of all its hosts"
    posts = [a.message for a in look.actions if isinstance(a, e.Post)]
    assert isinstance(posts[0], m.HostClosed), "told first, or it would be placed there again"
    (cancel,) = only(look, e.Cancel)
    assert cancel.listed.id == "1"
    assert story.claims().status == e.OVER, "one that starts before it is cancelled"


def test_what_runs_or_was_claimed_on_a_host_that_is_drained_goes_on() -> None:
    story = Story()
    story.looks()
    story.start()
    story.does(e.Submitted(PART))
    look = story.looks(listed(State.RUNNING), closed="is drained")
    assert not news(look, m.TaskLost)
    assert story.claims().status == e.GRANTED
    look = story.looks(listed(State.WAITING), closed="is drained")  # requeued, perhaps
    assert not news(look, m.TaskLost)
    assert not only(look, e.Cancel)


def test_a_scheduler_that_refuses_everything_gets_no_work_for_a_while() -> None:
    """Each time for longer; the first that it takes ends that."""
    story = Story()
    story.start()
    story.looks()
    closed_s = []
    for _ in range(6):
        refused = e.Submitted(PART, refused="no such partition", everyone=True)
        news_ = news(story.does(refused), m.HostClosed)
        assert [one.host for one in news_] == list(HOSTS)
        assert "refuses whatever is submitted: no such partition" in news_[0].why
        began_s = story.now_s
        while not news(story.looks(), m.HostOpened):
            assert story.now_s - began_s < 1000.0
        closed_s.append(round((story.now_s - began_s) / 60) * 60)
    assert closed_s == [60, 120, 240, 480, 960, 960]
    story.does(e.Submitted(PART, refused="no such partition", everyone=True))
    other = replace(gang(), job="j2")
    name = PART.replace("j1", "j2")
    story.does(e.Start(other, make_parts(other, "f", many_hosts=True), {}))
    story.does(e.Submitted(name))
    assert not news(story.looks(Listed(name, "2", 2.0, State.WAITING)), m.HostOpened)
    story.looks(Listed(name, "2", 2.0, State.RUNNING))
    assert len(news(story.looks(), m.HostOpened)) == 2


def test_a_host_that_cannot_be_prepared_gets_no_work_for_a_while() -> None:
    """It alone, each time for longer, until a runner that claimed later prepares it."""
    closed_s, story, why = [], Story(), "the host cannot be prepared: no space"
    story.looks()
    for number in range(6):
        outcome = story.ends_first(number, code=None, error=why, host_fault=True)
        (lost,) = news(outcome, m.TaskLost)
        assert (lost.unprepared, lost.blameless) == (True, True)
        (closed,) = news(outcome, m.HostClosed)
        assert (closed.host, closed.why.startswith(why)) == ("h0", True)
        began_s = story.now_s
        while not (opened := news(story.looks(), m.HostOpened)):
            assert story.now_s - began_s < 1000.0
        assert [one.host for one in opened] == ["h0"]
        closed_s.append(round((story.now_s - began_s) / 60) * 60)
    assert closed_s == [60, 120, 240, 480, 960, 960]
    story.ends_first(6, code=0)
    (closed,) = news(story.ends_first(7, code=None, error=why, host_fault=True), m.HostClosed)
    assert "after 60 s" in closed.why


def test_what_was_claimed_before_a_host_could_not_be_prepared_opens_it_not() -> None:
    """A task that runs there says nothing of the disk now; one that begins later does."""
    story = Story()
    story.looks()
    before, after = story.claims_first(1), story.claims_first(2)
    story.ends_first(0, code=None, error="the host cannot be prepared: full", host_fault=True)
    story.does(replace(before, prepared=True))
    assert not news(story.looks(), m.HostOpened)
    assert not news(story.does(e.RankEnded(after.part, "h0", after.nonce, 0, 0, 1.0)), m.HostOpened)
    assert not news(story.looks(), m.HostOpened)
    later = story.claims_first(3)
    story.does(later)
    assert not news(story.looks(), m.HostOpened)
    story.does(replace(later, prepared=True))
    assert [one.host for one in news(story.looks(), m.HostOpened)] == ["h0"]


def test_what_a_job_brings_closes_no_host() -> None:
    """A dataset that is missing is missing everywhere, and so is room in an image of its own."""
    for image, host_fault in ((UNSET, False), ("ubuntu", True)):
        story = Story()
        story.looks()
        why = "the host cannot be prepared: it is not there"
        outcome = story.ends_first(0, code=None, image=image, error=why, host_fault=host_fault)
        assert news(outcome, m.TaskLost)[0].unprepared
        assert not news(outcome, m.HostClosed)


def test_what_waits_for_what_no_job_gets_closes_the_cluster() -> None:
    """An account that may not use the partition; a tenant with options of its own says nothing."""
    for but, closed in (((), 2), (("vision",), 2), (("default",), 0), (None, 0)):
        story = Story().released()
        hopeless = listed(State.WAITING, why="AccountNotAllowed", never=True, everyone_but=but)
        outcome = story.looks(hopeless)
        assert len(news(outcome, m.TaskLost)) == 1
        assert len(news(outcome, m.HostClosed)) == closed, but


def test_what_was_submitted_before_a_refusal_ends_it_not() -> None:
    """It runs on, and says nothing of what comes now."""
    story = Story().released()
    story.claims()
    other = replace(gang(), job="j2")
    story.does(e.Start(other, make_parts(other, "f", many_hosts=True), {}))
    refused = e.Submitted(PART.replace("j1", "j2"), refused="no partition", everyone=True)
    assert len(news(story.does(refused), m.HostClosed)) == 2
    for _ in range(3):
        assert not news(story.looks(listed(State.RUNNING)), m.HostOpened)


def test_a_scheduler_that_gives_no_answer_for_a_while_gets_no_work() -> None:
    """From the first failure on, or the end of the patience; a submission without answer is a failure."""
    for failure in (e.LookFailed("it hangs"), e.Submitted(PART, unsure="it hangs")):
        story = Story().released()
        looked_s = story.now_s
        assert not news(story.does(e.Tick(), 30.0), m.HostClosed), "nothing was asked"
        assert not news(story.does(failure, 10.0), m.HostClosed)
        while not (closed := news(story.does(e.Tick()), m.HostClosed)):
            assert story.now_s - looked_s < 100.0
        assert round(story.now_s - looked_s) == 61
        assert [one.host for one in closed] == list(HOSTS)
        assert closed[0].why == "the scheduler gives no complete answer: it hangs"
        assert not news(story.does(e.Tick()), m.HostClosed), "it is told once"
        assert len(news(story.looks(listed(State.RUNNING)), m.HostOpened)) == 2
        assert not news(story.does(e.Tick(), 100.0), m.HostClosed)


def test_patience_with_a_scheduler_is_longer_than_its_restart_and_than_idle_looks_apart() -> None:
    """A quarter of a minute, unless it is asked less often."""
    assert terms_of(FarOptions()).distrust_s == 15.0
    assert terms_of(FarOptions(poll_s=60.0)).distrust_s == 300.0


def test_a_scheduler_that_never_answered_is_not_trusted() -> None:
    """Its hosts are closed by the first failure, and open at the first complete look."""
    story = Story()
    story.protocol.recover(e.Moment(story.now_s, story.now_s))
    closed = news(story.does(e.LookFailed("munge")), m.HostClosed)
    assert [one.host for one in closed] == list(HOSTS)
    assert story.protocol.busy, "it is looked at often, though nothing is there"
    assert len(news(story.looks(), m.HostOpened)) == 2
    assert not story.protocol.busy


def test_a_refusal_of_one_job_closes_nothing() -> None:
    """Others may be taken."""
    story = Story()
    story.start()
    story.looks()
    assert not news(story.does(e.Submitted(PART, refused="too much memory")), m.HostClosed)


def test_what_a_start_waits_for_is_not_told_at_every_look() -> None:
    """When it changes, and now and then."""
    story = Story().released()
    told = []
    for why in ["Resources"] * 40 + ["Priority"]:
        told += [
            one.why for one in news(story.looks(listed(State.WAITING, why=why)), m.TaskPreparing)
        ]
    assert told == ["Resources", "Resources", "Resources", "Priority"]


def test_a_claim_is_recorded_and_tells_the_start() -> None:
    """The answer goes out after the fact is durable."""
    story = Story().released()
    outcome = story.does(e.Claim(PART, "h0", "n1", "10.0.0.1", 4000))
    assert [type(fact) for fact in outcome.facts] == [e.Claimed]
    assert [started.rank for started in news(outcome, m.TaskStarted)] == [0]
    assert (outcome.answer.orders.address, outcome.answer.orders.port) == ("10.0.0.1", 4000)


def test_a_claim_whose_answer_was_lost_is_repeated() -> None:
    """The same runner gets the same answer, also from the next process; another one does not."""
    story = Story().released()
    assert story.claims().status == e.GRANTED
    after = story.restarted()
    assert [after.claims().status, after.claims(nonce="n2").status] == [e.GRANTED, e.TAKEN]


def test_a_stop_fences_what_is_unclaimed_at_once() -> None:
    """Its end is told without waiting for the scheduler, and its runner comes too late."""
    story = Story().released()
    assert news(story.does(e.Stop("j1", 1, 30.0)), m.TaskLost)
    assert story.claims().status == e.OVER
    assert only(story.looks(held()), e.Cancel)


def test_a_stop_reaches_the_runner_with_the_shortest_grace() -> None:
    """The grace can be cut, not stretched."""
    story = Story().released()
    before = story.claims().orders
    for grace_s in (30.0, 5.0, 60.0):
        story.does(e.Stop("j1", 1, grace_s))
    orders = story.does(e.Beat(PART, "h0", "n1")).answer.orders
    assert before is not None
    assert orders.grace_s == 5.0
    assert orders.version > before.version


def test_a_stop_is_remembered_over_a_restart() -> None:
    """Whether its task runs, or has not come yet: the next process may not be told to stop it."""
    story = Story().released()
    story.claims()
    story.does(e.Stop("j1", 1, 5.0))
    orders = story.restarted().does(e.Beat(PART, "h0", "n1")).answer.orders
    assert orders.grace_s == 5.0
    early = Story()
    early.does(e.Stop("j1", 1, 5.0))
    after = early.restarted()
    after.start()
    assert not only(after.looks(), e.Submit)


def test_a_runner_that_does_not_obey_is_ended_by_the_scheduler() -> None:
    """After the grace and some time; a runner that cannot be heard, at the next look."""
    story = Story().released()
    story.claims()
    story.does(e.Stop("j1", 1, 20.0))
    assert not only(story.looks(listed(State.RUNNING)), e.Cancel)
    story.does(e.Beat(PART, "h0", "n1"), after_s=29.0)
    assert only(story.looks(listed(State.RUNNING)), e.Cancel)
    assert not only(story.looks(listed(State.RUNNING)), e.Cancel), "not at every look"


def test_the_scheduler_is_believed_when_the_runner_is_silent_and_the_daemon_answers() -> None:
    """Each of the three is needed, and that no other run is meant."""
    ended = listed(State.ENDED, why="NODE_FAIL", run="r1")
    for story_of, is_heard, silent, before, run, want_lost in (
        ("all is so", False, (), (), "r1", True),
        ("the runner was just heard", True, (), (), "r1", False),
        ("the daemon is silent", False, ("h0",), (), "r1", False),
        ("the daemon was silent until now", False, (), ("h0",), "r1", False),
        ("the daemon may have been silent until now", False, (), None, "r1", False),
        ("it is another run", False, (), (), "r0", False),
        ("the runner does not know which run it is of", False, (), (), "", False),
    ):
        story = Story().released()
        story.does(e.Claim(PART, "h0", "n1", run=run))
        story.looks(listed(State.RUNNING, run="r1"), silent=before or ())
        story.now_s += 40.0
        if before is None:
            story.does(e.LookFailed("timed out"))
        if is_heard:
            story.does(e.Beat(PART, "h0", "n1"))
        lost = news(story.looks(ended, silent=silent), m.TaskLost)
        assert bool(lost) is want_lost, story_of
        assert all(one.blameless is True for one in lost), "its host is well: it answered"


def test_what_took_more_memory_than_it_asked_for_has_failed_itself() -> None:
    """No host is at fault, and the restarts of the job count; not what others ended meanwhile."""
    ended = listed(State.ENDED, why="OOMKilled (exit code 137)", run="r1", code=137)
    for evicted in (False, True):
        story = Story().released()
        story.does(e.Claim(PART, "h0", "n1", run="r1"))
        story.looks(listed(State.RUNNING, run="r1"))
        story.now_s += 40.0
        look = story.looks(replace(ended, evicted=evicted))
        assert [one.code for one in news(look, m.TaskExited)] == [137] * (not evicted)
        assert len(news(look, m.TaskEvicted)) == evicted


def test_what_was_evicted_is_told_as_such_though_its_runner_was_killed() -> None:
    """The kubelet evicts with SIGKILL what fills its disk, and says nothing of its containers until
    the pod is deleted: the lease is not waited for.
    """
    evicted = listed(State.RUNNING, why="Evicted: it uses too much", run="r1", evicted=True)
    story = Story().released()
    story.does(e.Claim(PART, "h0", "n1", run="r1"))
    story.looks(listed(State.RUNNING, run="r1"))
    assert not only(story.looks(evicted), e.Cancel), "its runner has the time to tell"
    story.now_s += 30.0
    assert len(only(story.looks(evicted), e.Cancel)) == 1
    (told,) = news(story.looks(replace(evicted, state=State.ENDED)), m.TaskEvicted)
    assert told.why == "the scheduler ended it: Evicted: it uses too much"


def first_hand() -> Story:
    """Hosts tell themselves what runs there."""
    return Story(Protocol(Terms(LEASE_S, 15.0, 30.0, 60.0, first_hand=True), HOSTS))


@pytest.mark.parametrize("wait_s", [4.0, 20.0], ids=["within the margin", "after it"])
def test_what_its_host_says_runs_is_ended_there_before_it_is_told_dead(wait_s: float) -> None:
    """Somebody ended its runner, which would have ended it with the lease."""
    story = first_hand().released()
    story.does(e.Claim(PART, "h0", "n1", run="r1"))
    running = listed(State.RUNNING, run="r1")
    story.now_s += LEASE_S
    assert not only(story.looks(running), e.Cancel), "half of the margin is not over"
    story.now_s += wait_s
    look = story.looks(running)
    (cancel,) = only(look, e.Cancel)
    assert cancel.grace_s == 0.0
    assert not news(look, m.TaskLost)
    assert not news(story.does(e.Tick()), m.TaskLost), "it lives"
    assert not only(story.looks(running), e.Cancel), "not at every look"
    (lost,) = news(story.looks(listed(State.ENDED, run="r1", evicted=True)), m.TaskLost)
    assert lost.error == f"its runner was silent for {LEASE_S:g} s"


def test_a_lease_is_the_end_where_the_host_does_not_say_what_runs() -> None:
    """A scheduler may not know, and what a host said a while ago may not be so any more."""
    running = listed(State.RUNNING, run="r1")
    for story, wait_s in ((Story(), 1.0), (first_hand(), 70.0)):
        story.released()
        story.does(e.Claim(PART, "h0", "n1", run="r1"))
        story.looks(running)
        story.now_s += LEASE_S + 16.0
        story.looks(running)
        assert news(story.does(e.Tick(), after_s=wait_s), m.TaskLost)


def test_what_is_silent_is_ended_by_its_scheduler_before_it_is_told_dead() -> None:
    """A runner that was halted keeps to no lease; what the scheduler ends, or wakes for that, does."""
    story = Story().released()
    story.claims()
    assert not only(story.looks(listed(State.RUNNING)), e.Cancel)
    story.now_s += LEASE_S + 2.0
    assert not only(story.does(e.Tick()), e.Cancel), "its runner may have ended it a moment ago"
    story.now_s += 3.0
    tick = story.does(e.Tick())
    assert only(tick, e.Cancel) == [e.Cancel(listed(State.RUNNING), 0.0)]
    assert not news(tick, m.TaskLost)
    assert not only(story.does(e.Tick()), e.Cancel), "not at every tick"
    story.now_s += 7.0
    assert news(story.does(e.Tick()), m.TaskLost)


def test_where_another_host_of_its_part_speaks_its_tasks_keep_their_grace() -> None:
    """The scheduler can end the part as a whole only."""
    story = Story()
    story.start(2)
    story.looks()
    story.does(e.Submitted(PART))
    story.looks(held())
    for host, nonce in (("h0", "n1"), ("h1", "n2")):
        story.claims(host, nonce)
    story.looks(listed(State.RUNNING))
    story.does(e.Beat(PART, "h1", "n2"), after_s=LEASE_S - 10.0)
    story.now_s += 20.0
    (cancel,) = only(story.does(e.Tick()), e.Cancel)
    assert cancel.grace_s == gang().spec.checkpoint.grace_s > 0


def test_after_a_second_claim_the_scheduler_is_not_believed() -> None:
    """What ended may be the second run; that is remembered over a restart."""
    for nonces, want_lost in ((("n1", "n1"), True), (("n1", "n2"), False)):
        story = Story().released()
        for nonce in nonces:
            story.does(e.Claim(PART, "h0", nonce, run="r1"))
        after = story.restarted()
        after.protocol.recover(e.Moment(after.now_s, after.now_s))
        after.looks(listed(State.RUNNING, run="r1"))
        after.now_s += 40.0
        lost = news(after.looks(listed(State.ENDED, run="r1")), m.TaskLost)
        assert bool(lost) is want_lost, nonces


def test_what_is_over_and_gone_is_forgotten_once() -> None:
    """Others deleted it by force: what was made for it is still there. One look alone may lack it."""
    story = Story().released()
    story.claims()
    story.looks(listed(State.RUNNING))
    assert not only(story.looks(), e.Forget), "its runner may live"
    story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 1.0))
    forgotten = [bool(only(story.looks(), e.Forget)) for _ in range(4)]
    assert forgotten.count(True) == 1
    assert forgotten.index(True) < 2


def test_what_is_over_and_listed_is_forgotten_as_it_is_listed() -> None:
    """And not again when its scheduler has done that."""
    story = Story().released()
    story.claims()
    story.looks(listed(State.RUNNING))
    story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 1.0))
    story.looks()
    assert not only(story.looks(listed(State.RUNNING)), e.Forget)
    ended = listed(State.ENDED)
    assert only(story.looks(ended), e.Forget) == [e.Forget(ended)]
    assert not any(only(story.looks(), e.Forget) for _ in range(4))


def test_what_is_over_on_a_host_that_was_not_listed_is_not_gone() -> None:
    """Of such a host a look tells nothing."""
    story = Story().released()
    story.claims()
    story.looks(listed(State.RUNNING))
    story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 1.0))
    hosts = tuple(Host(host, True) for host in HOSTS)
    for _ in range(4):
        story.now_s += 1.0
        outcome = story.does(e.Looked(story.now_s, (), hosts, unlisted=("h0",)))
        assert not only(outcome, e.Forget)


def test_what_could_not_start_does_not_start_after_a_restart() -> None:
    """It was told to be lost: the same order again has the same answer, whatever is there now."""
    story, order = Story(), gang()
    parts = make_parts(order, "f", many_hosts=True)
    refused = story.does(e.Start(order, parts, {}, cannot="no such image"))
    assert [lost.error for lost in news(refused, m.TaskLost)] == ["no such image"]
    again = story.restarted().does(e.Start(order, parts, {}))
    assert [lost.error for lost in news(again, m.TaskLost)] == ["no such image"]
    assert not [fact for fact in again.facts if isinstance(fact, e.Intended)]


def test_a_claimed_part_that_is_not_listed_is_waited_for() -> None:
    """Until its runner speaks, or the lease and the margin are over."""
    story = Story().released()
    story.claims()
    for _ in range(5):
        assert not news(story.looks(), m.TaskLost)
    assert not news(story.does(e.Tick(), after_s=LEASE_S), m.TaskLost)
    assert news(story.does(e.Tick(), after_s=15.0), m.TaskLost)


def without_a_lease() -> Story:
    """A part with a claim, of a cluster with ``lease_s: none``."""
    story = Story(Protocol(terms_of(FarOptions(lease_s="none")), HOSTS)).released()
    story.does(e.Claim(PART, "h0", "n1", run="r1"))
    story.looks(listed(State.RUNNING, run="r1"))
    return story


def test_without_a_lease_silence_is_no_end() -> None:
    """Not after days, nor after a restart: a host that is cut off may compute on."""
    story = without_a_lease()
    day_s = 86400.0
    assert not story.does(e.Tick(), after_s=7 * day_s).actions
    after = story.restarted()
    after.protocol.recover(e.Moment(after.now_s, after.now_s))
    assert not after.does(e.Tick(), after_s=7 * day_s).actions
    assert not news(after.looks(listed(State.RUNNING, run="r1")), m.TaskLost)
    assert after.does(e.Beat(PART, "h0", "n1")).answer.status == e.GRANTED


def test_without_a_lease_the_scheduler_is_believed_without_the_daemon() -> None:
    """Its word is all there is, once the runner is silent; also that it knows nothing of a part."""
    ended = (listed(State.ENDED, why="NODE_FAIL", run="r1"),)
    for story_of, shown, is_heard, want_lost in (
        ("it says ended", ended, False, True),
        ("it does not know it any more", (), False, True),
        ("the runner was just heard", ended, True, False),
    ):
        story = without_a_lease()
        story.now_s += 3600.0
        if is_heard:
            story.does(e.Beat(PART, "h0", "n1"))
        story.looks(*shown, silent=("h0",))
        lost = news(story.looks(*shown, silent=("h0",)), m.TaskLost)
        assert bool(lost or story.protocol.attempts.known["j1", 1].over) is want_lost, story_of


def test_leases_count_anew_after_a_restart() -> None:
    """What was answered just before is not known."""
    story = Story().released()
    story.claims()
    after = story.restarted()
    outcome = after.protocol.recover(e.Moment(after.now_s, after.now_s))
    assert news(outcome, m.TaskStarted)
    assert not news(after.does(e.Tick(), after_s=LEASE_S), m.TaskLost)


def test_ends_are_told_again_after_a_restart() -> None:
    """They may not have been delivered."""
    story = Story().released()
    story.claims()
    story.does(e.RankEnded(PART, "h0", "n1", 0, 7, 5.0))
    after = story.restarted()
    outcome = after.protocol.recover(e.Moment(after.now_s, after.now_s))
    assert [ended.code for ended in news(outcome, m.TaskExited)] == [7]


def test_a_host_is_closed_first_and_down_when_nothing_lives_there() -> None:
    """Silence of a daemon says nothing about what runs."""
    story = Story()
    story.start(tasks=2)
    story.looks()
    story.does(e.Submitted(PART))
    story.looks(held())
    story.claims("h0")
    story.looks(listed(State.RUNNING), silent=HOSTS)
    outcome = story.looks(listed(State.RUNNING), silent=HOSTS)
    assert [closed.host for closed in news(outcome, m.HostClosed)] == ["h0", "h1"]
    assert [down.host for down in news(outcome, m.HostDown)] == ["h1"]
    assert [lost.rank for lost in news(outcome, m.TaskLost)] == [1]
    assert story.claims("h1").status == e.OVER
    story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 1.0))
    down = news(story.looks(listed(State.RUNNING), silent=HOSTS), m.HostDown)
    assert [one.host for one in down] == ["h0"]
    back = story.looks()
    assert [up.host for up in news(back, m.HostUp)] == ["h0", "h1"]
    assert [opened.host for opened in news(back, m.HostOpened)] == ["h0", "h1"]


def test_the_truth_waits_for_a_complete_look() -> None:
    """One that began after the question; a failed one tells nothing."""
    story = Story().released()
    story.claims()
    assert not news(story.does(e.ListTasks()), m.TaskList)
    assert not news(story.looks(began_s=story.now_s - 1.0), m.TaskList)
    assert not news(story.does(e.LookFailed("no answer")), m.TaskList)
    (truth,) = news(story.looks(listed(State.RUNNING)), m.TaskList)
    assert [(task.rank, task.running) for task in truth.tasks] == [(0, True)]


def test_a_scheduler_that_cannot_be_asked_closes_its_hosts() -> None:
    """No new work, with the reason; the next complete look opens them."""
    story = Story()
    story.looks()
    assert not news(story.does(e.LookFailed("it hangs")), m.HostClosed)
    closed = news(story.does(e.LookFailed("it hangs"), after_s=90.0), m.HostClosed)
    assert [(one.host, "it hangs" in one.why) for one in closed] == [("h0", True), ("h1", True)]
    assert len(news(story.looks(), m.HostOpened)) == 2


def test_nothing_is_submitted_or_released_beside_a_running_one() -> None:
    """A runner claimed before any look showed its part; later it is listed as held, and cancelled."""
    story = Story().submitted()
    story.claims()
    for _ in range(3):
        assert not only(story.looks(), e.Submit)
    outcome = story.looks(held())
    assert not only(outcome, e.Release)
    assert only(outcome, e.Cancel)


def test_an_eviction_is_told_as_one() -> None:
    """Also after a stop: a peer that gave up because of it may have been told before."""
    for stops in (False, True):
        story = Story().released()
        story.claims()
        if stops:
            story.does(e.Stop("j1", 1, 5.0))
        ended = e.RankEnded(PART, "h0", "n1", 0, 143, 5.0, "preempted", evicted=True)
        assert [one.why for one in news(story.does(ended), m.TaskEvicted)] == ["preempted"]


@pytest.mark.parametrize("by_runner", [True, False], ids=["its runner says it", "a look shows it"])
@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "by itself"])
def test_an_end_after_a_stop_says_so(by_runner: bool, stops: bool) -> None:
    """Also after a restart, and whatever was ordered since it ended."""
    story = Story().released()
    story.does(e.Claim(PART, "h0", "n1", run="r1"))
    story.looks(listed(State.RUNNING, run="r1"))
    if stops:
        story.does(e.Stop("j1", 1, 5.0))
    if by_runner:
        ended = story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 5.0))
    else:
        story.now_s += 40.0
        ended = story.looks(listed(State.ENDED, run="r1", code=0))
    story.does(e.Stop("j1", 1, 1.0))
    other = story.restarted()
    for outcome in (ended, other.protocol.recover(e.Moment(other.now_s, other.now_s))):
        ends = [(end.code, end.stopped) for end in news(outcome, m.TaskExited)]
        assert ends == [(0, True if stops else UNSET)]


def test_what_we_have_the_scheduler_end_is_not_evicted() -> None:
    """Nor what a process before this one may have had it end."""
    story = Story().released()
    story.claims()
    story.does(e.Stop("j1", 1, 5.0))
    other = story.restarted()
    story.now_s += 100.0
    assert only(story.looks(listed(State.RUNNING)), e.Cancel)
    other.protocol.recover(e.Moment(other.now_s, other.now_s))
    for one in (story, other):
        ended = one.does(e.RankEnded(PART, "h0", "n1", 0, 143, 5.0, "", evicted=True))
        assert [end.code for end in news(ended, m.TaskExited)] == [143]


def test_what_was_forgotten_does_not_start_again() -> None:
    """Nor is what the scheduler still has of it left there."""
    story = Story().released()
    story.claims()
    story.does(e.RankEnded(PART, "h0", "n1", 0, 0, 5.0))
    outcome = story.protocol.forget(0, e.Moment(story.now_s, story.now_s))
    assert outcome.facts == (e.Forgotten("j1", 1),)
    (lost,) = news(story.start(), m.TaskLost)
    assert "not run twice" in lost.error
    assert only(story.looks(held()), e.Cancel)


def test_what_is_of_no_part_of_ours_is_left_alone() -> None:
    """Its runner is refused; the part may be of a copy of this folder."""
    story = Story()
    assert not only(story.looks(held()), e.Cancel)
    assert story.claims().status == e.OVER


def test_a_part_that_took_the_name_of_another_ends_its_own_alone() -> None:
    """A task may rename its job: what was recorded tells whose it is, after a restart, too."""
    story = Story().submitted()
    mine = Listed(PART, "7", 50.0, State.RUNNING)
    story.looks(mine)
    other, name = replace(gang(), job="j2"), PART.replace("j1", "j2")
    renamed, theirs = replace(mine, name=name), Listed(name, "8", 51.0, State.HELD)
    ended = replace(renamed, state=State.ENDED, why="CANCELLED", evicted=True)
    story = story.restarted()
    story.does(e.Start(other, make_parts(other, "f", many_hosts=True), {}))
    (submit,) = only(story.looks(renamed), e.Submit)
    assert submit.plan.name == name
    story.does(e.Submitted(name))
    released = story.looks(renamed, theirs)
    assert released.facts == (e.Recorded(name, "8", 51.0),)
    assert only(released, e.Release) == [e.Release(theirs)]
    assert not only(released, e.Cancel)
    (lost,) = news(story.looks(ended, theirs), m.TaskEvicted)
    assert lost.job == "j1"
