"""Questions from the queue, in order; what is offered over a network is held for a while."""

from __future__ import annotations

from msgspec.structs import replace

from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.attempts import announce
from topmast.fast.region.facts import PlaceGivenUp
from topmast.fast.region.inventory.pair_seats import bid_to_external
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import MILLI
from topmast.model.plan import PlacementRequest


def ask(placer: RegionAnswers, event: m.RequestRegionBids) -> None:
    """Answer a batch of questions, in their order."""
    if event.hold_s:
        offers = _in_order(placer, event)
    else:
        offers = tuple(placer.offer(ask) for ask in event.asks)
    told = tuple(bid_to_external(offer) for offer in offers)
    placer.send(ids.QUEUE, m.RegionBids(event.batch, placer.region, placer.state.version, told))
    announce(placer)


def _in_order(placer: RegionAnswers, event: m.RequestRegionBids) -> tuple[m.Bid, ...]:
    """Each answer knows what earlier ones hold. O(searches); repeated refusals O(1)."""
    offers: list[m.Bid] = []
    planned: dict[str, bool] = {}
    refused: dict[PlacementRequest, m.Bid] = {}
    held_milli = event.held_milli
    for ask in event.asks:
        if ask.job in planned:
            offers.append(m.Bid(ask.job, None))
            continue
        if event.gpus:
            terms = replace(ask.terms, balance=held_milli / MILLI / event.gpus)
            ask = replace(ask, terms=terms)
        # A reservation, or a place that is kept, is that of one job.
        own = ask.reserve or ask.job in placer.state.places
        kind = ask.kind()
        known = None if own else refused.get(kind)
        offer = _offer_held(placer, event, ask) if known is None else replace(known, job=ask.job)
        offers.append(offer)
        if offer.plan is None:
            refused[kind] = offer
            continue
        planned[ask.job] = True
        if offer.hold is not None:
            held_milli += offer.plan.gpus_milli
            refused.clear()
    return tuple(offers)


def _offer_held(placer: RegionAnswers, event: m.RequestRegionBids, ask: PlacementRequest) -> m.Bid:
    """An offer that is kept for a while; not if data must come first, for that takes longer."""
    _let_go(placer, ask.job)
    offer = placer.offer(ask)
    if offer.plan is None:
        placer.holds.denied = placer.holds.denied or len(placer.holds) > 0
    elif not ask.terms.data_bytes and not ask.terms.data_s:
        ticket = m.OfferLease(f"{event.batch}.{ask.job}", placer.now + event.hold_s)
        placer.holds.take(placer.columns, ticket.id, ask, offer.plan, ticket.expires_s)
        offer = replace(offer, hold=ticket)
    return offer


def drop_holds(placer: RegionAnswers, event: m.DropLeases) -> None:
    """Hold nothing for these jobs any more; jobs that found no place meanwhile may find one now."""
    for job in event.jobs:
        if event.places and job in placer.state.places:
            placer.decide(PlaceGivenUp(job, used=False))
    dropped = [placer.holds.drop(placer.columns, job) for job in event.jobs]
    if not event.quiet:
        if any(dropped):
            placer.note_room()
    elif not placer.holds:
        placer.holds.denied = False
    announce(placer)


def _let_go(placer: RegionAnswers, job: str) -> None:
    """Hold nothing for a job any more."""
    if placer.holds.drop(placer.columns, job):
        placer.note_room()
