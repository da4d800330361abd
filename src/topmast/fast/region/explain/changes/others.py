"""What others would have to let go of for a gang to have a place in a region; each tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.region.explain.changes.trials import Spot, Trials, listed, when_over
from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Leaving
from topmast.fast.region.preemption.price import old_enough_s
from topmast.fast.region.reservation.first_starts import ends_of
from topmast.fast.region.search.domains import Space
from topmast.model.bisection import fewest_that
from topmast.model.plan import PlacementRequest
from topmast.model.reason import Change, ChangeKind
from topmast.model.units import format_duration

ENDS_TRIED = 1_000
"""Of the attempts that run, so many are thought away, the first to end first."""
HOSTS_NAMED = 64
JOBS_NAMED = 12
"""Of so many that have to end, those that need not are found out."""


def others_gone(trials: Trials) -> Iterator[Change]:
    """Kept room, avoided hosts, jobs that end or grow old enough. O(log A) trials."""
    yield from _without_reservation(trials)
    yield from _on_avoided_hosts(trials)
    yield from _on_reserved_hosts(trials)
    yield from _when_old_enough(trials)
    yield from _when_jobs_end(trials)


def _without_reservation(trials: Trials) -> Iterator[Change]:
    """What is kept for another gang would do. O(H)."""
    held = trials.ask.held
    if held is None or trials.unheld is None:
        return
    place = trials.spot(Space(trials.unheld, trials.unheld.excluded(trials.ask)))
    if place is not None:
        wait_s = max(0.0, held.from_s - trials.search.now)
        run_time = f"a run time of at most {format_duration(wait_s)}"
        text = f"the GPUs that are kept for {held.job}, or {run_time}"
        yield trials.change(
            ChangeKind.KEPT, text, wait_s / 3600.0, place, jobs=(held.job,), at_s=held.from_s
        )


def _on_avoided_hosts(trials: Trials) -> Iterator[Change]:
    """The hosts on which the job failed would do. O(H)."""
    here, place = _without(trials, trials.ask.avoid_hosts, avoid_hosts=())
    if place is not None:
        text = f"the hosts that it avoids because an attempt was lost there ({listed(here)})"
        yield trials.change(ChangeKind.AVOIDED, text, 0.5, place, hosts=here)


def _on_reserved_hosts(trials: Trials) -> Iterator[Change]:
    """Hosts that are reserved before it would have ended would do, for a shorter run. O(H)."""
    here, place = _without(trials, trials.ask.reserved or (), reserved=UNSET)
    if place is not None:
        text = f"hosts that are reserved before it would have ended ({listed(here)})"
        yield trials.change(ChangeKind.RESERVED, text, 0.5, place, hosts=here[:HOSTS_NAMED])


def _without(
    trials: Trials, barred: tuple[str, ...], **changes: object
) -> tuple[tuple[str, ...], Spot | None]:
    """Of the hosts that are barred those that are here, and the place that there is with them."""
    columns = trials.search.columns
    here = tuple(host for host in barred if host in columns.index)
    ask: PlacementRequest = replace(trials.ask, **changes)
    return here, trials.spot(Space(columns, columns.excluded(ask)), ask) if here else None


def _when_old_enough(trials: Trials) -> Iterator[Change]:
    """Attempts too young to be stopped will be old enough soon. O(A + log A x H)."""
    if not trials.preempt:
        return
    now, profile = trials.search.now, trials.search.profile
    young = [a for a in trials.victims(math.inf) if old_enough_s(a, profile) > now]
    young.sort(key=lambda a: (old_enough_s(a, profile), a.job))
    base = trials.without_victims.columns
    count = _fewest_gone(trials, base, young[:ENDS_TRIED])
    if count is None:
        return
    place = trials.holds(base.without(young[:count]), preempting=True)
    if place is not None:
        at_s = old_enough_s(young[count - 1], profile)
        patience = format_duration(profile.min_runtime_s)
        text = (
            f"a wait of {format_duration(at_s - now)}, because jobs that have run for less than "
            f"{patience} may not be preempted"
        )
        jobs = tuple(a.job for a in young[:count])
        size = (at_s - now) / 3600.0
        yield trials.change(ChangeKind.PATIENCE, text, size, place, jobs=jobs, at_s=at_s)


def _when_jobs_end(trials: Trials) -> Iterator[Change]:
    """Jobs that are to end, the first expected first; of a few, the needed. O(A + log A x H)."""
    now, default_s = trials.search.now, trials.search.profile.default_duration_s
    ends = ends_of(trials.search.allocations, default_s, now)[:ENDS_TRIED]
    order = [trials.search.allocations[job] for _, job in ends]
    columns = trials.search.columns
    count = _fewest_gone(trials, columns, order)
    if count is None:
        return
    gone = _needed(trials, order[:count])
    place = trials.holds(columns.without(gone))
    if place is not None:
        jobs, size = tuple(a.job for a in gone), max(0.0, ends[count - 1][0] - now) / 3600.0
        when, at_s = when_over(jobs, ends[count - 1][0], now, trials.ends)
        text = f"the end of {listed(jobs)}{when}"
        yield trials.change(ChangeKind.ENDS, text, size, place, jobs=jobs, at_s=at_s)


def _fewest_gone(trials: Trials, columns: Columns, order: Sequence[Allocation]) -> int | None:
    """How many attempts must go, from the first on, for a place; None if all are too few.

    O(attempts) givings back, O(log attempts) trials.
    """
    leaving = Leaving(columns, order)
    return fewest_that(lambda n: trials.holds(leaving.after(n)) is not None, len(order))


def _needed(trials: Trials, gone: list[Allocation]) -> list[Allocation]:
    """Those of a few without which the gang would not fit; a long list stays as it is."""
    if len(gone) > JOBS_NAMED:
        return gone
    for allocation in gone[:-1]:
        others = [a for a in gone if a is not allocation]
        if trials.holds(trials.search.columns.without(others)) is not None:
            gone = others
    return gone
