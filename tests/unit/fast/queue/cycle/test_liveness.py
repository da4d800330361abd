"""Regions apart, as the queue sees them: there, gone, silent; and news that crosses its orders."""

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.fast.queue.cycle.liveness import FIRST_SILENCE_S, HOLD_S, SILENCE_S
from topmast.fast.queue.cycle.requests import ASK_TIMEOUT_S
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Level
from topmast.model.plan import Plan, Seat
from topmast.model.reason import PendingReason
from topmast.model.states import JobState, Outcome
from topmast.service.explain import explain_job


class Apart(World):
    """East is elsewhere, and answers what a test says; west is here. Only east has A100."""

    def __init__(self) -> None:
        regions = fleet(cluster("east-1", hosts=1, model="A100"), cluster("west-1", hosts=1))
        super().__init__(regions, profile(), elsewhere={ids.placer("east"): ids.relay("east")})
        self.tell(ids.relay("east"), m.Recovered())
        self.tell(ids.QUEUE, m.LinkUp("east"))

    def told(self, kind: type[m.Message]) -> list[m.Message]:
        """What was said to east."""
        return [x.message for x in self.orders(m.Forward) if isinstance(x.message, kind)]

    def answer(self, job_id: str, *, fits: bool = True, hold: str = "h") -> None:
        """East offers its host, at a price better than any, or tells that it is full."""
        asked = self.told(m.RequestRegionBids)[-1]
        assert isinstance(asked, m.RequestRegionBids)
        seats = (Seat("main", 0, "east-1-0", (0,)),)
        plan = Plan(job_id, "east", "east-1", "A100", 1000, seats, Level.HOST, -9.0, {})
        full = m.Bid(job_id, None, PendingReason.INSUFFICIENT_CAPACITY)
        offer = m.Bid(job_id, plan, hold=m.OfferLease(hold, 99.0)) if fits else full
        self.tell(ids.QUEUE, m.RegionBids(asked.batch, "east", 1, (offer,)))

    def only_in_east(self) -> str:
        """A job that needs what only east has."""
        return str(self.submit(job(gpus=1, model="A100"))[0])

    def anywhere(self) -> str:
        """A job that west could take as well."""
        return str(self.submit(job(gpus=1, model=None))[0])

    def commit_in_east(self) -> str:
        """A job that was committed there, and of which nothing was heard since."""
        name = self.only_in_east()
        self.answer(name)
        assert self.jobs[name].plan is not None
        return name


def test_an_offer_from_elsewhere_is_held_and_committed_with_its_hold() -> None:
    """The question says for how long; the commit names the hold."""
    world = Apart()
    world.commit_in_east()
    (asked,) = world.told(m.RequestRegionBids)
    assert isinstance(asked, m.RequestRegionBids)
    assert asked.hold_s == HOLD_S
    (commit,) = world.told(m.CommitPlan)
    assert isinstance(commit, m.CommitPlan)
    assert commit.hold == "h"


def test_whoever_loses_the_auction_is_told_to_hold_no_longer() -> None:
    """A job that is gone before the answer is there needs no seats either."""
    world = Apart()
    name = world.anywhere()
    world.cancel(name)
    world.answer(name)
    assert world.told(m.DropLeases) == [m.DropLeases(leases=("h",))]
    assert world.told(m.CommitPlan) == []


def test_a_region_that_goes_away_under_a_question_holds_up_nobody() -> None:
    """The auction goes on without it at once, and it is asked no more."""
    world = Apart()
    first = world.anywhere()
    assert world.state(first) is JobState.PENDING
    world.tell(ids.QUEUE, m.LinkDown("east", "cut"))
    assert (world.now, world.jobs[first].region) == (0.0, "west")
    second = world.anywhere()
    assert (world.now, world.jobs[second].region) == (0.0, "west")
    assert len(world.told(m.RequestRegionBids)) == 1


def test_an_offer_of_a_region_that_is_gone_is_not_taken() -> None:
    """Nobody would carry it out."""
    world = Apart()
    name = world.only_in_east()
    world.tell(ids.QUEUE, m.LinkDown("east", "cut"))
    world.answer(name)
    assert world.jobs[name].plan is None


def test_silence_costs_its_time_once() -> None:
    """A region that does not answer is left out for a while, or until it says something."""
    world = Apart()
    names = [world.anywhere(), world.anywhere()]
    world.advance(ASK_TIMEOUT_S)
    assert [world.jobs[n].region for n in names] == ["west", "west"]
    assert len(world.told(m.RequestRegionBids)) == 1
    waits = world.only_in_east()
    assert len(world.told(m.RequestRegionBids)) == 1
    world.advance(FIRST_SILENCE_S)
    assert len(world.told(m.RequestRegionBids)) == 2
    world.answer(waits)
    assert world.jobs[waits].region == "east"


def test_each_silence_in_a_row_is_longer_up_to_a_bound() -> None:
    """One answer may have been lost; a region that says nothing at all must not hold up the others."""
    world = Apart()
    waits = world.only_in_east()
    for silence_s in (2.0, 4.0, 8.0, 16.0, SILENCE_S, SILENCE_S):
        asked = len(world.told(m.RequestRegionBids))
        world.advance(ASK_TIMEOUT_S)
        world.advance(silence_s - 0.001)
        assert len(world.told(m.RequestRegionBids)) == asked
        world.advance(0.001)
        assert len(world.told(m.RequestRegionBids)) == asked + 1
    world.answer(waits)
    assert world.jobs[waits].region == "east"
    world.only_in_east()
    asked = len(world.told(m.RequestRegionBids))
    world.advance(ASK_TIMEOUT_S)
    world.advance(FIRST_SILENCE_S)
    assert len(world.told(m.RequestRegionBids)) == asked + 1


def test_a_late_answer_ends_the_silence() -> None:
    """It is too late for its question, but tells that somebody is there."""
    world = Apart()
    name = world.only_in_east()
    world.advance(ASK_TIMEOUT_S)
    assert "no answer within 5 s" in world.queue.cycle.reach.absent["east"].why
    world.answer(name)
    assert world.jobs[name].plan is None
    assert world.queue.cycle.reach.absent == {}
    world.answer(name)
    assert world.jobs[name].region == "east"


def test_who_can_only_run_out_of_reach_waits_and_is_told_so() -> None:
    """Not "no such hardware": that is what the others say. Its return opens the line again."""
    world = Apart()
    world.tell(ids.QUEUE, m.LinkDown("east", "the cable is cut"))
    world.now = 100.0
    name = world.only_in_east()
    assert world.reason(name) == "InsufficientCapacity"
    told = explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)
    row = next(r for r in told.regions if r.region == "east")
    assert (row.reachable, row.clusters) == (False, ())
    want = "RegionUnreachable (unreachable since 1970-01-01T00:00:00Z: the cable is cut)"
    assert row.barred == want
    assert "out of reach: east" in told.summary
    assert next(r for r in told.regions if r.region == "west").reachable
    world.tell(ids.QUEUE, m.LinkUp("east"))
    world.answer(name)
    assert world.jobs[name].region == "east"


def test_a_job_on_its_way_to_a_region_that_is_gone_waits_for_it() -> None:
    """It may run there: it is not placed elsewhere, and people are told why."""
    world = Apart()
    name = world.commit_in_east()
    world.tell(ids.QUEUE, m.LinkDown("east", "cut"))
    world.advance(3_600.0)
    assert world.jobs[name].epoch == 1
    told = explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)
    assert "east/east-1 was told to start j1 and has not answered yet" in told.summary
    assert "out of reach: east" in told.summary


def test_a_refusal_that_crosses_a_cancellation_ends_the_job() -> None:
    """The order to stop finds nothing there; the job must not go back to the queue for good."""
    world = Apart()
    name = world.commit_in_east()
    world.cancel(name)
    world.tell(ids.QUEUE, m.PlanRefused(name, 1, "full"))
    assert world.state(name) is JobState.CANCELLED
    world.advance(60.0)
    assert world.jobs[name].epoch == 1


def test_a_start_that_crosses_a_cancellation_is_one_of_a_job_being_cancelled() -> None:
    """It starts, for the order was late; then it stops, and is cancelled."""
    world = Apart()
    name = world.commit_in_east()
    world.cancel(name)
    world.tell(ids.QUEUE, m.AttemptStarting(name, 1))
    world.tell(ids.QUEUE, m.AttemptRunning(name, 1))
    assert world.state(name) is JobState.CANCELLING
    ended = m.AttemptEnded(name, 1, Outcome.CANCELLED, 0.0, 1.0, 0.0)
    world.tell(ids.QUEUE, ended)
    assert world.state(name) is JobState.CANCELLED


class BothApart(World):
    """East and west are elsewhere, and answer what a test says; west is out of reach at first."""

    def __init__(self) -> None:
        regions = fleet(cluster("east-1", hosts=1, model="A100"), cluster("west-1", hosts=1))
        places = {ids.placer(name): ids.relay(name) for name in ("east", "west")}
        super().__init__(regions, profile(), elsewhere=places)
        for name in ("east", "west"):
            self.tell(ids.relay(name), m.Recovered())
        self.tell(ids.QUEUE, m.LinkUp("east"))
        self.tell(ids.QUEUE, m.LinkDown("west", "not reached yet"))

    def asked(self) -> list[tuple[str, m.RequestRegionBids]]:
        """Each question so far: the region, and what it was asked."""
        return [
            (send.to.partition("/")[2], send.message.message)
            for send in self.sent
            if isinstance(send.message, m.Forward)
            and isinstance(send.message.message, m.RequestRegionBids)
        ]

    def refuse(self, job_id: str, region: str, reason: PendingReason) -> None:
        """A region has no place."""
        question = next(one for name, one in reversed(self.asked()) if name == region)
        bid = m.Bid(job_id, None, reason)
        self.tell(ids.QUEUE, m.RegionBids(question.batch, region, 1, (bid,)))


def test_a_region_that_comes_while_others_are_asked_is_asked_after_them() -> None:
    """What they say in the phases that follow is no verdict: the job would wait for ever."""
    world = BothApart()
    (name,) = world.submit(job(gpus=1))
    world.tell(ids.QUEUE, m.LinkUp("west"))
    for _ in range(2):  # for free GPUs, and for those of others
        assert [region for region, _ in world.asked()][-1] == "east"
        world.refuse(name, "east", PendingReason.NO_MATCHING_HARDWARE)
    assert [region for region, _ in world.asked()][-2:] == ["east", "west"]
