"""Offers over a network are kept for a while: from others, until a commit, a refusal or a time."""

from typing import Any

import numpy as np
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, profile
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import messages as m
from topmast.model.job import Band, JobSpec, Topology
from topmast.model.plan import GroupRequest, PlacementRequest, Preempt, RegionTerms
from topmast.policies.registry import policies_of

HOLD_S = 10.0


class Region:
    """A placer of one host with four GPUs, and a clock."""

    def __init__(self) -> None:
        options = profile(min_runtime_s=0.0)
        self.placer = RegionalPlacer("east", options, policies_of(options).score)
        self.now = 0.0
        self.batch = 0
        self.tell(m.ConfigureRegion(fleet(cluster("east-1", hosts=1, gpus=4)).regions[0]))

    def tell(self, message: m.Message) -> list[m.Message]:
        """Hand it a message; what it says."""
        return [send.message for send in self.placer.handle(message, self.now).sends]

    def ask(
        self, *wanted: tuple[str, int], hold_s: float = HOLD_S, due: bool = False, **more: Any
    ) -> list[m.Bid]:
        """Ask about jobs (name, GPUs), in one batch; the first may be due."""
        return list(self.answer(*wanted, hold_s=hold_s, due=due, **more).offers)

    def answer(
        self,
        *wanted: tuple[str, int],
        hold_s: float = HOLD_S,
        due: bool = False,
        counts: tuple[int, ...] = (),
        **more: Any,
    ) -> m.RegionBids:
        """The same, with all that is said."""
        self.batch += 1
        asks = tuple(question(name, gpus, **more) for name, gpus in wanted)
        question_ = m.RequestRegionBids(self.batch, asks, hold_s, counts, due)
        answer = self.tell(question_)[0]
        assert isinstance(answer, m.RegionBids)
        return answer

    def commit(self, offer: m.Bid, band: Band = Band.NORMAL, epoch: int = 1) -> m.Message:
        """Take an offer; what the queue hears of it first."""
        assert offer.plan is not None
        hold = offer.hold.id if offer.hold else ""
        spec = spec_of(offer.plan.gpus_milli // 1000)
        return self.tell(m.CommitPlan(offer.plan, epoch, spec, band, hold=hold))[0]

    def check(self) -> None:
        """With nothing held, the columns are those of the books."""
        assert not self.placer.holds
        fresh = Columns(self.placer.state.region)
        for allocation in self.placer.state.allocations.values():
            fresh.take(allocation.plan.seats, allocation.needs())
        assert np.array_equal(self.placer.columns.free_milli, fresh.free_milli)


def spec_of(gpus: int) -> JobSpec:
    """A job of one task."""
    return job(gpus=gpus)


def question(name: str, gpus: int, **more: Any) -> PlacementRequest:
    """What the queue asks about it."""
    groups = tuple(GroupRequest(g.name, g.count, g.resources) for g in spec_of(gpus).groups)
    given = {"band": Band.NORMAL, **more}
    return PlacementRequest(name, groups, Topology(), **given)


def test_held_seats_are_taken_for_others_and_not_for_the_books() -> None:
    """In one batch and in later ones; the version and the snapshot know nothing of it."""
    region = Region()
    before = region.placer.snapshot()
    first, second, third = region.ask(("j1", 3), ("j2", 1), ("j3", 1))
    assert first.hold == m.OfferLease("1.1", HOLD_S)
    assert first.plan
    assert second.plan
    assert {s.slots for s in first.plan.seats}.isdisjoint({s.slots for s in second.plan.seats})
    assert third.plan is None
    assert region.ask(("j4", 1))[0].plan is None
    assert region.placer.snapshot() == before


def test_in_one_process_nothing_is_held() -> None:
    """Without a time to hold for, the next question finds what the last one did."""
    region = Region()
    offers = [region.ask(("j1", 4), hold_s=0.0)[0], region.ask(("j2", 4), hold_s=0.0)[0]]
    assert [(o.plan is not None, o.hold) for o in offers] == [(True, None)] * 2
    region.check()


def test_a_commit_turns_a_hold_into_an_allocation() -> None:
    """What was offered is there, however many asked meanwhile."""
    region = Region()
    (offer,) = region.ask(("j1", 4))
    region.ask(("j2", 4))
    assert region.commit(offer) == m.AttemptStarting("j1", 1)
    region.check()
    assert region.placer.held_gpus() == 4


def test_an_expired_lease_is_let_go() -> None:
    """By the placer's own wake-up. No job was refused for it, so no job hears of it."""
    region = Region()
    region.ask(("j1", 4))
    assert region.placer.next_wakeup_s() == HOLD_S
    region.now = HOLD_S
    assert region.tell(m.Wake()) == []
    region.check()
    assert region.placer.next_wakeup_s() is None


def test_no_job_is_refused_for_what_is_only_offered() -> None:
    """One that is not due hears neither yes nor no; with all offers gone there would be room."""
    region = Region()
    region.ask(("j1", 4))
    (silent,) = region.ask(("j2", 1))
    assert (silent.plan, silent.reason) == (None, None)
    refused, silent = region.ask(("j3", 5), ("j2", 1))
    assert refused.reason is not None
    assert (silent.job, silent.plan, silent.reason) == ("j2", None, None)


def test_offers_make_way_for_the_job_that_is_due() -> None:
    """Those on its hosts, the last ones first, until it fits; the queue hears which."""
    region = Region()
    first, second = region.ask(("j1", 2), ("j2", 2))
    assert first.hold is not None
    assert second.hold is not None
    answer = region.answer(("j3", 3), due=True)
    assert answer.lost == (second.hold.id, first.hold.id)
    assert isinstance(region.commit(first), m.PlanRefused)
    assert isinstance(region.commit(answer.offers[0]), m.AttemptStarting)
    region.check()


def test_victims_of_an_offer_make_way_too() -> None:
    """Two that are due may want the same victim: the last that asked gets it."""
    region = Region()
    (low,) = region.ask(("low", 4))
    region.commit(low, Band.LOW)
    urgent: dict[str, Any] = {"band": Band.HIGH, "mode": Preempt()}
    (first,) = region.ask(("j1", 2), due=True, **urgent)
    answer = region.answer(("j2", 2), due=True, **urgent)
    assert first.hold is not None
    assert answer.lost == (first.hold.id,)
    assert region.commit(answer.offers[0], Band.HIGH) == m.PlanCommitted("j2", 1, waiting=True)
    region.check()


def test_several_places_are_offered_for_jobs_that_are_alike() -> None:
    """As many as were wanted, or as there are; then why there are no more."""
    region = Region()
    answer = region.answer(("j1", 1), ("j2", 2), counts=(2, 3))
    assert answer.counts == (2, 2)
    plans = [bid.plan for bid in answer.offers]
    slots = [slot for plan in plans if plan for seat in plan.seats for slot in seat.slots]
    assert sorted(slots) == [0, 1, 2, 3]
    assert plans[3] is None


def test_a_commit_after_expiry_is_looked_at_again() -> None:
    """It may still fit; if another took the place, it is refused, and told why."""
    region = Region()
    (early,) = region.ask(("j1", 2))
    region.now = 2 * HOLD_S
    region.tell(m.Wake())
    assert isinstance(region.commit(early), m.AttemptStarting)
    (late,) = region.ask(("j2", 2))
    region.now = 4 * HOLD_S
    region.tell(m.Wake())
    (other,) = region.ask(("j3", 2))
    assert isinstance(region.commit(other), m.AttemptStarting)
    refusal = region.commit(late)
    assert isinstance(refusal, m.PlanRefused)
    assert "not enough free, and its hold had expired" in refusal.why
    region.check()


def test_a_commit_does_not_take_what_is_held_for_another() -> None:
    """Whose hold expired may not push out whose has not."""
    region = Region()
    (late,) = region.ask(("j1", 4))
    region.now = HOLD_S
    region.tell(m.Wake())
    (good,) = region.ask(("j2", 4))
    assert isinstance(region.commit(late), m.PlanRefused)
    assert isinstance(region.commit(good), m.AttemptStarting)
    region.check()


def test_a_lease_that_is_not_wanted_is_dropped() -> None:
    """The auction was won elsewhere."""
    region = Region()
    (offer,) = region.ask(("j1", 4))
    assert offer.hold is not None
    assert region.tell(m.DropLeases(leases=(offer.hold.id, "9.9"))) == []
    region.check()
    assert region.ask(("j2", 4))[0].plan is not None


def test_nobody_counts_on_victims_that_another_may_stop() -> None:
    """Two urgent jobs are not offered the same victim; both may be offered one each."""
    region = Region()
    for name in ("low1", "low2"):
        (offer,) = region.ask((name, 2))
        region.commit(offer, Band.LOW)
    jobs = (("j1", 2), ("j2", 2), ("j3", 2))
    offers = region.ask(*jobs, band=Band.HIGH, mode=Preempt())
    victims = [[v.job for v in o.plan.victims] if o.plan else None for o in offers]
    assert victims[2] is None
    assert sorted(victims[:2], key=str) == [["low1"], ["low2"]]
    assert region.commit(offers[0], Band.HIGH) == m.PlanCommitted("j1", 1, waiting=True)
    assert offers[1].hold is not None
    region.tell(m.DropLeases(leases=(offers[1].hold.id,)))
    region.check()


def test_a_job_with_a_plan_is_not_looked_into_again() -> None:
    """Its second question, about victims, is for when the first found nothing."""
    region = Region()
    asks = (question("j1", 2), question("j1", 2, mode=Preempt()), question("j2", 5))
    (answer,) = region.tell(m.RequestRegionBids(1, asks, HOLD_S))
    assert isinstance(answer, m.RegionBids)
    assert answer.counts == (1, 0, 1)
    first, second = answer.offers
    assert first.plan is not None
    assert second.reason is not None


def test_a_commit_takes_the_hold_that_it_names() -> None:
    """An offer may have been passed on to another job, whose own hold stays."""
    region = Region()
    first, second = region.ask(("j1", 2), ("j2", 2))
    assert first.plan is not None
    assert second.hold is not None
    passed_on = m.Bid("j2", replace(first.plan, job="j2"), hold=first.hold)
    assert isinstance(region.commit(passed_on), m.AttemptStarting)
    assert second.plan is not None
    to_third = m.Bid("j3", replace(second.plan, job="j3"), hold=second.hold)
    assert isinstance(region.commit(to_third), m.AttemptStarting)
    region.check()
    assert region.placer.held_gpus() == 4


def test_nothing_is_held_for_a_job_whose_data_must_come_first() -> None:
    """A copy takes longer than any hold."""
    region = Region()
    (offer,) = region.ask(("j1", 4), terms=RegionTerms(10, 1.0))
    assert (offer.plan is not None, offer.hold) == (True, None)
    region.check()


def test_a_new_configuration_forgets_what_was_held() -> None:
    """The hosts may be others; a commit is looked at again anyhow."""
    region = Region()
    (offer,) = region.ask(("j1", 4))
    region.tell(m.ConfigureRegion(fleet(cluster("east-1", hosts=2, gpus=4)).regions[0]))
    region.check()
    assert isinstance(region.commit(offer), m.AttemptStarting)
