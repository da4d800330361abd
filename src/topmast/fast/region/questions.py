"""Questions from the queue, in order; what is offered over a network is held for a while."""

from __future__ import annotations

from msgspec.structs import replace

from topmast.fast.region import facts as f
from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.attempts import announce
from topmast.fast.region.inventory.allocation import bid_to_external
from topmast.fast.region.search import many
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.columns import PlanColumns
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest, RegionTerms, needs_of


def ask(placer: RegionAnswers, event: m.RequestRegionBids) -> None:
    """Answer a batch of questions, in their order."""
    answers = _Answers(placer, event) if event.hold_s else None
    wanted = event.wanted or (1,) * len(event.asks)
    offers = [
        [placer.offer(ask)] if answers is None else answers.to(ask, count)
        for ask, count in zip(event.asks, wanted, strict=True)
    ]
    if answers is not None:
        answers.refuse()
    told = tuple(bid_to_external(bid) for bids in offers for bid in bids)
    placer.send(
        ids.QUEUE,
        m.RegionBids(
            event.batch, placer.region, placer.state.version, told,
            tuple(len(bids) for bids in offers), () if answers is None else tuple(answers.lost),
        ),
    )  # fmt: skip
    announce(placer)


class _Answers:
    """The answers to one batch. Each knows what earlier ones hold."""

    def __init__(self, placer: RegionAnswers, event: m.RequestRegionBids) -> None:
        self.placer, self.event = placer, event
        self.expires_s = placer.now + event.hold_s
        self.lost: list[str] = []
        """Leases that made way for the job that is due."""
        self._placed: dict[str, None] = {}
        """Jobs with an offer."""
        self._held = 0
        self._open: list[tuple[PlacementRequest, list[m.Bid]]] = []
        """Requests without a place beside the leases, and the bids for each."""

    def to(self, ask: PlacementRequest, count: int) -> list[m.Bid]:
        """Up to so many places, best first; why there is none, or no more. O(searches)."""
        bids: list[m.Bid] = []
        if ask.job in self._placed:
            return bids
        is_due = self.event.due and ask is self.event.asks[0]
        while len(bids) < count:
            bid = self.placer.offer(ask)
            if bid.plan is None and len(self.placer.holds):
                if not is_due or bids:
                    self._open.append((ask, bids))
                    break
                bid = self._make_way(ask)
            bids.append(self._held_under_lease(ask, bid))
            if bid.plan is None:
                break
            self._placed[ask.job] = None
        return bids

    def _held_under_lease(self, ask: PlacementRequest, bid: m.Bid) -> m.Bid:
        """An offer that is kept for a while; not if data must come first: that takes longer."""
        if bid.plan is None or ask.terms.data_bytes or ask.terms.data_s:
            return bid
        self._held += 1
        lease = m.OfferLease(f"{self.event.batch}.{self._held}", self.expires_s)
        self.placer.holds.take(self.placer.columns, lease.id, ask, bid.plan, self.expires_s)
        return replace(bid, hold=lease)

    def _make_way(self, ask: PlacementRequest) -> m.Bid:
        """No job is refused for what is only offered: the job that is due gets the place."""
        placer = self.placer
        with placer.holds.aside(placer.columns):
            bid = placer.offer(ask)
        if bid.plan is not None:
            self.lost += placer.holds.yield_to(placer.columns, bid.plan, needs_of(ask.groups))
        return bid

    def refuse(self) -> None:
        """Complete the answers to requests that found no place, or no more of them.

        Those that are kept from one only by what is offered are answered neither yes nor no, and
        asked about again when they are due. All leases are put aside once, for all of them.
        """
        if not self._open:
            return
        placer = self.placer
        with placer.holds.aside(placer.columns):
            for ask, bids in self._open:
                bid = placer.offer(ask)
                bids.append(bid if bid.plan is None else m.Bid(ask.job, None))


def plan_each(placer: RegionAnswers, event: m.RequestRegionPlans) -> None:
    """Find places for many jobs, each once those before it run; a kind without room is left out.

    A request stands for jobs of all bands: one that another band would pay more for is left out.
    O(kinds without room) times a kernel call.
    """
    index, weights = placer.pool.index(), placer.score.weights(event.kinds[0])
    fit = [
        all(placer.score.weights(replace(kind, band=band)) == weights for band in Band)
        and many.applies(kind, weights)
        for kind in event.kinds
    ]
    answer = m.RegionPlans(event.batch, placer.region)
    if not many.may_place(index) or not any(fit):
        placer.send(ids.QUEUE, replace(answer, able=False))
        return
    number = {kind: at for at, kind in enumerate(k for k, fits in enumerate(fit) if fits)}
    asks = [event.kinds[kind] for kind in number]
    order = [kind for kind in event.order if fit[kind]]
    while order:
        plans = many.plans_of(
            index, asks, ("",) * len(order), [number[kind] for kind in order],
            {placer.region: RegionTerms()}, many.Supply({}, {}), weights,
            {placer.region: placer.state.version},
        )  # fmt: skip
        found = len(plans)
        if found == len(order):
            answer = replace(
                answer, kinds=tuple(order), plans=plans,
                free=_free_on(placer, plans), stranded=many.prices_of(index, asks[0], weights),
            )  # fmt: skip
            break
        lacking = order[found]
        order = order[:found] + [kind for kind in order[found:] if kind != lacking]
    placer.send(ids.QUEUE, answer)


def _free_on(placer: RegionAnswers, plans: PlanColumns) -> tuple[int, ...]:
    """For each host of some plans, its wholly free GPUs. O(hosts of the region)."""
    columns = placer.columns
    whole = columns.whole_free()
    return tuple(whole[columns.rows_of(plans.seats.hosts)].tolist())


def drop_leases(placer: RegionAnswers, event: m.DropLeases) -> None:
    """Hold nothing under these leases any more, and keep no place for these jobs."""
    for job in event.jobs:
        if event.places and job in placer.state.places:
            placer.decide(f.PlaceGivenUp(job, used=False))
    for lease in event.leases or ():
        placer.holds.drop(placer.columns, lease)
    announce(placer)
