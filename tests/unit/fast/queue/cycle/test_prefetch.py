"""Answers about candidates whose turn has not come: good while all that they count on is so, and no longer."""

from collections.abc import Callable

import pytest

from tests.support.build import ask, job
from topmast.fast.queue.cycle.liveness import HOLD_S
from topmast.fast.queue.cycle.prefetch import FIRST_JOBS, Prefetch
from topmast.model.job import Level
from topmast.model.messages import Bid, OfferLease
from topmast.model.plan import PlacementRequest, Plan, RegionTerms, Seat, Victim
from topmast.model.reason import PendingReason

NOW_S = 100.0
HELD_MILLI = 4_000


def question(
    name: str, gpus: int = 1, *, preempt: bool = False, balance: float = 0.0
) -> PlacementRequest:
    """What is asked about a job of one task."""
    plain = ask(job(gpus=gpus), preempt=preempt, terms=RegionTerms(balance=balance))
    return PlacementRequest(
        **{f: getattr(plain, f) for f in plain.__struct_fields__} | {"job": name}
    )


def offer(name: str, gpus: int = 1, *victims: str) -> Bid:
    """A plan that is held."""
    seats = (Seat("main", 0, "h", tuple(range(gpus))),)
    stopped = tuple(Victim(victim, 1, 0.0) for victim in victims)
    plan = Plan(name, "east", "c", "H100", gpus * 1000, seats, Level.HOST, 0.0, {}, stopped)
    return Bid(name, plan, hold=OfferLease(f"1.{name}", NOW_S + HOLD_S))


def refusal(name: str) -> Bid:
    """No room."""
    return Bid(name, None, PendingReason.INSUFFICIENT_CAPACITY)


def asked(*answers: tuple[PlacementRequest, Bid]) -> Prefetch:
    """East has been asked and has answered."""
    ahead = Prefetch(64)
    ahead.ask("east", 1, tuple(question for question, _ in answers), HELD_MILLI, NOW_S)
    ahead.hear("east", 1, tuple(offer for _, offer in answers))
    return ahead


def test_each_offer_counts_on_those_before_it() -> None:
    """The second is there once the first is taken; a lost one bars what follows."""
    ahead = asked((question("j1"), offer("j1")), (question("j2", 2), offer("j2", 2)))
    assert ahead.answer("east", question("j2", 2), HELD_MILLI, NOW_S) is None
    ahead.take("east", "1.j1", 1000)
    assert ahead.answer("east", question("j2", 2), HELD_MILLI + 1000, NOW_S) == offer("j2", 2)


def test_a_lost_offer_is_good_for_the_next_alike() -> None:
    """In its own name, whatever the balance; the hold is still the first one's."""
    ahead = asked((question("j1"), offer("j1")), (question("j2"), offer("j2")))
    found = ahead.answer("east", question("j2", balance=0.5), HELD_MILLI, NOW_S)
    assert found is not None
    assert found.plan is not None
    assert (found.job, found.plan.job, found.hold) == ("j2", "j2", offer("j1").hold)


def test_a_refusal_bars_nobody() -> None:
    """Nothing is held for it."""
    ahead = asked((question("j1", 8), refusal("j1")), (question("j2"), offer("j2")))
    assert ahead.answer("east", question("j2"), HELD_MILLI, NOW_S) == offer("j2")
    assert ahead.answer("east", question("j3", 8), HELD_MILLI, NOW_S) == refusal("j3")


def test_what_was_not_looked_into_is_no_answer() -> None:
    """Neither a plan nor a reason."""
    later = question("j1", 2, preempt=True)
    ahead = asked((question("j1", 2), refusal("j1")), (later, Bid("j1", None)))
    assert ahead.answer("east", later, HELD_MILLI, NOW_S) is None


def _asked_anew(ahead: Prefetch) -> None:
    ahead.ask("east", 2, (), HELD_MILLI, NOW_S)


def _nobody_left(ahead: Prefetch) -> None:
    assert dict(ahead.release())


HAPPENS: dict[str, Callable[[Prefetch], None]] = {
    "news of room": lambda ahead: ahead.spoil("east"),
    "a commit without a hold": lambda ahead: ahead.take("east", "", 1000),
    "out of reach": lambda ahead: ahead.forget("east"),
    "asked anew": _asked_anew,
    "nobody left": _nobody_left,
}


@pytest.mark.parametrize("what", HAPPENS)
def test_whatever_else_happens_it_is_asked_anew(what: str) -> None:
    """No answer outlives what it counts on."""
    ahead = asked((question("j1"), offer("j1")))
    assert ahead.answer("east", question("j1"), HELD_MILLI, NOW_S) is not None
    HAPPENS[what](ahead)
    assert ahead.answer("east", question("j1"), HELD_MILLI, NOW_S) is None


def test_other_books_and_time_make_an_answer_old() -> None:
    """Something ended there, or the hold may be gone before a commit arrives."""
    ahead = asked((question("j1"), offer("j1")))
    assert ahead.answer("east", question("j1"), HELD_MILLI - 1000, NOW_S) is None
    assert ahead.answer("east", question("j1"), HELD_MILLI, NOW_S + HOLD_S) is None


def test_who_runs_decides_who_may_be_stopped() -> None:
    """After a commit no answer about victims is good; after one that stops somebody, none at all."""
    urgent = question("j2", 2, preempt=True)
    ahead = asked((question("j1"), offer("j1")), (urgent, offer("j2", 2, "low")))
    ahead.take("east", "1.j1", 1000)
    assert ahead.answer("east", urgent, HELD_MILLI + 1000, NOW_S) is None
    ahead = asked((urgent, offer("j2", 2, "low")), (question("j3"), offer("j3")))
    ahead.take("east", "1.j2", 2000)
    assert ahead.answer("east", question("j3"), HELD_MILLI + 2000, NOW_S) is None


def test_what_is_not_needed_is_named_once() -> None:
    """When it is asked anew, and when nobody waits any more; a late answer is no answer."""
    ahead = asked((question("j1"), offer("j1")), (question("j2"), offer("j2")))
    assert ahead.ask("east", 2, (question("j3"),), HELD_MILLI, NOW_S) == ("j1", "j2")
    ahead.hear("east", 1, (offer("j1"),))
    ahead.hear("east", 2, (offer("j3"),))
    assert list(ahead.release()) == [("east", ("j3",))]
    assert list(ahead.release()) == []


def test_batches_grow_while_they_are_used_and_shrink_when_they_are_not() -> None:
    """Work that nobody needs is not asked for again and again."""
    ahead = asked((question("j1"), offer("j1")))
    ahead.take("east", "1.j1", 1000)
    assert ahead.answer("east", question("j2"), HELD_MILLI + 1000, NOW_S) is None
    assert ahead.jobs("east") == 2 * FIRST_JOBS
    ahead = asked((question("j1"), offer("j1")), (question("j2"), offer("j2")))
    assert ahead.answer("east", question("j3", 4), HELD_MILLI, NOW_S) is None
    assert ahead.jobs("east") == 1
