"""Places that regions apart offer before they are needed: for any job that asks for the same."""

import pytest
from msgspec.structs import replace

from tests.support.build import ask, job
from topmast.fast.queue.cycle.prefetch import (
    FIRST_JOBS,
    GOOD_FOR_S,
    MOST_JOBS,
    Prefetch,
    Wanted,
    offer_to,
)
from topmast.model.job import Level
from topmast.model.messages import Bid, OfferLease
from topmast.model.plan import PlacementRequest, Plan, Seat
from topmast.model.reason import PendingReason

NOW_S = 100.0


def kind(gpus: int = 1, *, preempt: bool = False) -> PlacementRequest:
    """What jobs of one task have in common."""
    return ask(job(gpus=gpus), preempt=preempt).kind()


def offer(lease: str, score: float = 0.25, gpus: int = 1) -> Bid:
    """A plan that is held, in a region that is half full."""
    seats = (Seat("main", 0, "h", tuple(range(gpus))),)
    terms = {"fragmentation": score - 0.25, "balance": 0.25}
    plan = Plan("j1", "east", "c", "H100", gpus * 1000, seats, Level.HOST, score, terms)
    return Bid("j1", plan, hold=OfferLease(lease, NOW_S + 2 * GOOD_FOR_S))


FULL = Bid("j1", None, PendingReason.INSUFFICIENT_CAPACITY)
SILENT = Bid("j1", None)


def heard(*answers: tuple[PlacementRequest, tuple[Bid, ...]], alone: bool = False) -> Prefetch:
    """East was asked for places of each kind, and has answered."""
    ahead = Prefetch(64)
    wanted = [Wanted(kind, "j1", len(bids)) for kind, bids in answers]
    ahead.ask("east", 1, wanted, NOW_S, alone=alone)
    counts = tuple(len(bids) for _, bids in answers)
    ahead.hear("east", 1, counts, tuple(bid for _, bids in answers for bid in bids))
    return ahead


def test_offers_of_a_kind_are_taken_in_their_order_whatever_becomes_of_others() -> None:
    """One that is not taken bars no other: it waits for the next job of its kind."""
    one, two = offer("1.1"), offer("1.2")
    ahead = heard((kind(1), (one, two)), (kind(2), (offer("1.3", gpus=2),)))
    east = ahead.of("east")
    assert east.answer(kind(2), NOW_S) == offer("1.3", gpus=2)
    ahead.take("east", "1.3")
    assert east.answer(kind(2), NOW_S) is None
    assert east.answer(kind(1), NOW_S) == one
    ahead.take("east", "1.1")
    assert east.answer(kind(1), NOW_S) == two


def test_a_refusal_counts_until_there_is_more_room() -> None:
    """For all jobs of its kind; one that is neither yes nor no is no answer."""
    ahead = heard((kind(1), (FULL,)), (kind(2), (SILENT,)))
    assert ahead.of("east").answer(kind(1), NOW_S) == FULL
    assert ahead.of("east").answer(kind(2), NOW_S) is None
    assert ahead.places("east", kind(1), 5, 1) == 0
    ahead.spoil("east")
    assert ahead.of("east").answer(kind(1), NOW_S) is None
    assert ahead.places("east", kind(1), 5, 1) == 5


def test_a_refusal_to_stop_jobs_ends_when_a_job_starts() -> None:
    """What may be stopped depends on what runs."""
    ahead = heard((kind(1), (offer("1.1"),)), (kind(2, preempt=True), (FULL,)), (kind(2), (FULL,)))
    ahead.take("east", "1.1")
    assert ahead.of("east").answer(kind(2, preempt=True), NOW_S) is None
    assert ahead.of("east").answer(kind(2), NOW_S) == FULL


def test_an_old_offer_is_let_go() -> None:
    """Its commit might come after the region has let go of it."""
    ahead = heard((kind(1), (offer("1.1"),)))
    assert ahead.of("east").answer(kind(1), NOW_S + GOOD_FOR_S + 1.0) is None
    assert ahead.ask("east", 2, [], NOW_S, alone=False) == ("1.1",)
    assert ahead.of("east").leases() == ()


def test_what_is_offered_to_one_job_alone_is_dropped_with_the_next_question() -> None:
    """Unless the job has taken it."""
    taken = heard((kind(1), (offer("1.1"),)), alone=True)
    taken.take("east", "1.1")
    assert taken.ask("east", 2, [], NOW_S, alone=True) == ()
    left = heard((kind(1), (offer("1.1"),)), alone=True)
    assert left.ask("east", 2, [], NOW_S, alone=True) == ("1.1",)


def test_an_answer_that_comes_too_late_is_let_go() -> None:
    """The region was forgotten, or no candidate was left."""
    ahead = heard((kind(1), (offer("1.1"),)))
    ahead.ask("east", 2, [Wanted(kind(2), "j2", 1)], NOW_S, alone=False)
    assert ahead.of("east").is_coming(kind(2))
    assert list(ahead.release()) == [("east", ("1.1",))]
    assert not ahead.of("east").is_coming(kind(2))
    assert ahead.hear("east", 2, (1,), (offer("2.1"),)) == ("2.1",)


def test_offers_that_made_way_are_no_more() -> None:
    """The region says which; of the others nothing changes."""
    ahead = heard((kind(1), (offer("1.1"), offer("1.2"))))
    ahead.lose("east", ("1.1", "0.7"))
    assert ahead.of("east").answer(kind(1), NOW_S) == offer("1.2")


def test_a_region_is_asked_for_its_share_and_for_what_is_not_there_yet() -> None:
    """A quarter more than is likely; shares follow the decisions, down to a limit."""
    ahead = heard((kind(1), (offer("1.1"), offer("1.2"))))
    assert ahead.places("east", kind(1), 16, 8) == 5 - 2
    assert ahead.places("west", kind(2), 16, 8) == 5
    for _ in range(8):
        ahead.take("east", "1.1")
    ahead.take("east", "1.2")
    assert ahead.places("east", kind(1), 16, 8) == 12
    assert ahead.places("west", kind(2), 16, 8) == 5
    assert ahead.places("west", kind(2), 1, 8) == 1
    assert ahead.places("west", kind(2), 16, 2) == 16


def test_places_that_no_job_ahead_has_use_for_are_let_go() -> None:
    """The last that were made of each kind: they go with the next question."""
    ahead = heard(
        (kind(1), (offer("1.1"), offer("1.2"), offer("1.3"))), (kind(2), (offer("1.4", gpus=2),))
    )
    ahead.of("east").keep({kind(1): 1})
    assert ahead.of("east").answer(kind(1), NOW_S) == offer("1.1")
    assert ahead.of("east").answer(kind(2), NOW_S) is None
    assert ahead.ask("east", 2, [], NOW_S, alone=False) == ("1.3", "1.2", "1.4")
    assert ahead.of("east").leases() == ("1.1",)


def test_a_region_may_ask_as_much_for_the_next_place_as_for_the_dearest_before() -> None:
    """Its last offer filled up a host: to wait for another as cheap as that would be in vain."""
    ahead = heard((kind(1), (offer("1.1", 0.75), offer("1.2", 0.5))))
    assert ahead.of("east").prices == {kind(1): 0.5}
    ahead.ask("east", 2, [Wanted(kind(1), "j2", 1)], NOW_S, alone=False)
    ahead.hear("east", 2, (1,), (offer("2.1", 0.375),))
    assert ahead.of("east").prices == {kind(1): 0.5}


@pytest.mark.parametrize("most_jobs", [64, MOST_JOBS + 1])
def test_more_is_looked_at_each_time_up_to_a_limit(most_jobs: int) -> None:
    """When half of what was looked at has come up; at once, if a region has no more."""
    ahead = Prefetch(most_jobs)
    assert ahead.to_look_at(at_once=False, is_due=False) == FIRST_JOBS
    ahead.looked_ahead(FIRST_JOBS)
    assert ahead.to_look_at(at_once=True, is_due=False) == 2 * FIRST_JOBS
    ahead.looked_ahead(2 * FIRST_JOBS)
    assert ahead.to_look_at(at_once=False, is_due=False) == 4 * FIRST_JOBS
    for _ in range(20):
        ahead.looked_ahead(MOST_JOBS)
    assert ahead.to_look_at(at_once=False, is_due=False) == 0
    assert ahead.to_look_at(at_once=True, is_due=False) == min(most_jobs, MOST_JOBS)
    ahead.ask("east", 1, [], NOW_S, alone=False)
    assert ahead.to_look_at(at_once=True, is_due=False) == 0


def test_what_is_behind_a_job_that_waits_is_asked_about_with_it() -> None:
    """Though a region is being asked: else the next job that asks for the same waits once more."""
    ahead = Prefetch(FIRST_JOBS)
    ahead.looked_ahead(FIRST_JOBS)
    ahead.ask("east", 1, [], NOW_S, alone=False)
    assert ahead.to_look_at(at_once=True, is_due=False) == 0
    assert ahead.to_look_at(at_once=True, is_due=True) == FIRST_JOBS


def test_the_last_candidates_are_looked_at_again_when_half_of_them_have_come_up() -> None:
    """Fewer are left than would be looked at: not each of them is a reason to ask again."""
    ahead = Prefetch(64)
    for _ in range(4):
        ahead.looked_ahead(64)
    ahead.looked_ahead(20)
    for _ in range(9):
        ahead.came_up()
        assert ahead.to_look_at(at_once=False, is_due=False) == 0
    ahead.came_up()
    assert ahead.to_look_at(at_once=False, is_due=False) == 64


def test_job_by_job_nothing_is_looked_at_ahead() -> None:
    """`ask_ahead=1`."""
    assert Prefetch(1).to_look_at(at_once=True, is_due=False) == 0


def test_an_offer_is_priced_as_its_region_is_now() -> None:
    """It was made when the region was less full. A place that was kept for a job keeps its price."""
    bid = offer_to("j2", offer("1.1", 0.5), 0.5, 0.75)
    assert bid.plan is not None
    assert (bid.job, bid.plan.job) == ("j2", "j2")
    assert bid.plan.terms == {"fragmentation": 0.25, "balance": 0.375}
    assert bid.plan.score == 0.625
    kept = offer_to("j2", replace(offer("1.1", 0.5), kept=True), 0.5, 0.75)
    assert kept.plan is not None
    assert kept.plan.score == 0.5
