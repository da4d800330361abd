"""Attempts from launch to end, and the hosts that are drained under them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

import msgspec

from topmast.fast.machine import Fact
from topmast.fast.region import facts as f
from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.hooks import Going
from topmast.fast.region.inventory.allocation import GOING, Allocation, AllocationPhase, to_external
from topmast.fast.region.preemption.shrinking import larger_place
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.columns import some
from topmast.model.job import MILLI
from topmast.model.owners import owners_of
from topmast.model.plan import Plan
from topmast.model.states import HostState, Outcome

KEPT_S = 60.0
"""How long a place is kept for a moved attempt after its grace, so that the queue can take it."""


def launch(placer: RegionAnswers, allocation: Allocation) -> None:
    """Start the gang: no attempt stands in its place any more."""
    placer.decide(f.Launched(allocation.job))
    placer.send(ids.QUEUE, m.AttemptStarting(allocation.job, allocation.epoch))
    plan = to_external(allocation.plan)
    order = m.LaunchGang(
        plan.job, allocation.epoch, allocation.spec, placer.region, plan.cluster, plan.seats,
        allocation.time_left_s, plan.colocated_with,
    )  # fmt: skip
    placer.send(ids.cluster(plan.cluster), order)


def launch_each(placer: RegionAnswers, event: m.CommitPlans) -> None:
    """Start several gangs that need not wait for others to stop. O(their slots)."""
    plans, region = event.plans, placer.region
    placer.send(ids.QUEUE, m.AttemptsStarting(plans.jobs, event.epochs))
    rows: dict[int, list[int]] = {}
    for row, cluster in enumerate(plans.cluster):
        rows.setdefault(cluster, []).append(row)
    for cluster, those in rows.items():
        gangs = m.LaunchGangs(
            region,
            plans.clusters[cluster][1],
            plans.seats.take(those),
            some(event.epochs, those),
            some(event.specs, those),
            some(event.time_left_s, those),
        )
        message: m.Message = gangs if len(those) > 1 else next(gangs.one_by_one())
        placer.send(ids.cluster(gangs.cluster), message)


def stop(
    placer: RegionAnswers, allocation: Allocation, why: Outcome, cause: str, to: Plan | None = None
) -> None:
    """Tell a launched attempt to stop, and the queue of it; keep the place it goes ``to``."""
    job, epoch = allocation.job, allocation.epoch
    if to is not None:
        grace_s = allocation.spec.checkpoint.grace_s
        placer.decide(f.PlaceBooked(job, to, placer.now + grace_s + KEPT_S))
    placer.decide(f.Stopping(job, why))
    cluster = ids.cluster(allocation.plan.cluster)
    placer.send(cluster, m.StopGang(job, epoch, why, cause))
    placer.send(ids.QUEUE, m.AttemptStopping(job, epoch, why, cause, moves=to is not None))


def stop_attempt(placer: RegionAnswers, event: m.StopAttempt) -> None:
    """End an attempt, as far as it has come."""
    allocation = placer.held(event.job, event.epoch)
    if allocation is None or allocation.hold is AllocationPhase.STOPPING:
        return
    if allocation.hold is AllocationPhase.CLAIMED:
        free(placer, allocation, event.why, event.cause)
    else:
        stop(placer, allocation, event.why, event.cause)
    announce(placer)


def enlarge(placer: RegionAnswers, event: m.ScaleUpAttempt) -> None:
    """Give an attempt more tasks, if there is room now and that is worth a restart."""
    allocation = placer.held(event.job, event.epoch)
    if allocation is None or not allocation.spec.preemptible:
        return
    if placer.sharing.in_turns:
        _go(placer, (placer.sharing.grows(allocation, event.tasks),))
        return
    to = larger_place(placer.search(placer.now), allocation, event.tasks)
    if to is not None:
        before, after = len(allocation.plan.seats), len(to.seats)
        cause = f"grows from {before} to {after} tasks"
        stop(placer, allocation, Outcome.PREEMPTED, cause, to)


def free(placer: RegionAnswers, allocation: Allocation, why: Outcome, cause: str) -> None:
    """Give back what was claimed but never used."""
    job, epoch, start_s = allocation.job, allocation.epoch, allocation.start_s
    placer.decide(f.SlotsFreed(job))
    ended = m.AttemptEnded(job, epoch, why, start_s, placer.now, 0.0, cause)
    placer.send(ids.QUEUE, ended)


def ended(placer: RegionAnswers, event: m.AttemptEnded) -> None:
    """Nothing of an attempt runs any more: free its slots, launch attempts that waited for it."""
    allocation = placer.held(event.job, event.epoch)
    if allocation is None:
        return
    placer.decide(f.SlotsFreed(event.job))
    if event.outcome is not Outcome.PREEMPTED and event.job in placer.state.places:
        placer.decide(f.PlaceGivenUp(event.job, used=False))
    if event.outcome in (Outcome.HOST_LOST, Outcome.LAUNCH_FAILED):
        for host in event.suspects:
            suspect(placer, host)
    placer.send(ids.QUEUE, msgspec.structs.replace(event, start_s=allocation.start_s))
    for waiting in list(placer.claims.values()):
        if not waiting.waiting_for:
            if placer.columns.take_work(waiting.plan.hosts, waiting.plan.in_slice):
                launch(placer, waiting)
            else:  # a host went away meanwhile
                free(placer, waiting, Outcome.PREEMPTED, "a host of the plan takes no more work")
            placer.columns.grown[waiting.plan.cluster] = None  # it may be stopped now
    announce(placer)


def announce(placer: RegionAnswers) -> None:
    """Tell the queue, once an event, that something came free; hosts that are drained go first."""
    if placer.freed and placer.state.leaving:
        _let_leave(placer)
    if placer.health_changed:
        _give_up_places(placer)
        tell_out_of_service(placer)
    if placer.freed:
        placer.freed = False
        drain(placer, placer.drained_hosts())
        _go(placer, placer.sharing.moves())
        if hand_over(placer):
            placer.freed = False  # the queue is told below
        clusters = tuple([c for c in placer.columns.grown if c in placer.columns.clusters])
        placer.columns.grown.clear()
        placer.send(ids.QUEUE, m.CapacityChanged(placer.region, placer.state.version, clusters))


def _give_up_places(placer: RegionAnswers) -> None:
    """A place on a host that takes no work is none: what else it has is free again. O(places)."""
    columns = placer.columns
    for job, place in list(placer.state.places.items()):
        if not columns.take_work(place.plan.hosts, place.plan.in_slice):
            placer.decide(f.PlaceGivenUp(job, used=False))


def _go(placer: RegionAnswers, moves: Iterable[Going | None]) -> None:
    """Move attempts that share their GPUs and had better be elsewhere, or of another size."""
    for going in moves:
        if going is not None:
            stop(placer, going.allocation, Outcome.PREEMPTED, going.why, going.to)


def tell_out_of_service(placer: RegionAnswers, *, again: bool = False) -> None:
    """Tell the queue which GPUs it cannot count on, if these changed, or ``again``. O(hosts)."""
    placer.health_changed = False
    found: dict[str, int] = {}
    for host in (host for cluster in placer.state.region.clusters for host in cluster.hosts):
        if host.gpus and placer.host_state(host.name) is not HostState.HEALTHY:
            found[host.model] = found.get(host.model, 0) + host.gpus
    if found != placer.out_of_service or (again and found):
        placer.out_of_service = found
        placer.send(ids.QUEUE, m.OutOfService(placer.region, found))


def hand_over(placer: RegionAnswers) -> bool:
    """Give empty hosts to the clusters that wait for them, and tell both; whether any goes.

    O(hosts that are assigned), and O(hosts + attempts) if any goes.
    """
    ready = {h: c for h, c in placer.state.assigned.items() if _is_empty(placer, h)}
    if not ready:
        return False
    owners = owners_of(placer.state.region)
    concerned = {owners[host] for host in ready} | set(ready.values())
    placer.decide(f.HostsHandedOver(ready))
    _configure_clusters(placer, concerned)
    placer.send(ids.QUEUE, m.HostsMoved(placer.region, ready))
    return True


def _configure_clusters(placer: RegionAnswers, names: Container[str]) -> None:
    """Tell clusters which hosts they have."""
    for cluster in placer.state.region.clusters:
        if cluster.name in names:
            order = m.ConfigureCluster(placer.region, cluster)
            placer.send(ids.cluster(cluster.name), order)


def _let_leave(placer: RegionAnswers) -> None:
    """Forget hosts that left the fleet once nothing is there any more. O(attempts)."""
    state = placer.state
    plans = [a.plan for a in state.allocations.values()] + [p.plan for p in state.places.values()]
    used = {host for plan in plans for host in plan.hosts}
    empty = tuple(host for host in state.leaving if host not in used)
    if not empty:
        return
    owners = owners_of(state.region)
    concerned = {owners[host] for host in empty if host in owners}
    placer.decide(f.HostsGone(empty))
    _configure_clusters(placer, concerned)


def _is_empty(placer: RegionAnswers, host: str) -> bool:
    """Whether a host has no tasks and no claims. A host that is down may still have tasks."""
    columns, state = placer.columns, placer.state
    rows = columns.rows_of((host,))
    if not rows or state.down.get(host):
        return False
    if any(bool((columns.slots(row) != MILLI).any()) for row in rows):
        return False
    plans = [a.plan for a in state.allocations.values()] + [p.plan for p in state.places.values()]
    return not any(host in plan.hosts for plan in plans)


def drain(placer: RegionAnswers, hosts: tuple[str, ...], at_once: bool = False) -> None:
    """Move away what has a place elsewhere; ``at_once``, stop also what has none."""
    if not hosts:
        return
    held = placer.state.allocations
    host_of = {
        a.job: next(host for host in a.plan.hosts if host in hosts)
        for a in held.values()
        if a.spec.preemptible and any(host in hosts for host in a.plan.hosts)
    }
    for job, host in host_of.items():
        if held[job].hold is AllocationPhase.CLAIMED:
            free(placer, held[job], Outcome.PREEMPTED, f"host {host} is drained")
    if not any(held[job].hold in GOING for job in host_of if job in held):
        return
    for leaving in placer.departures(hosts, placer.now):
        if leaving.to is not None or (at_once and leaving.may_stop):
            host = host_of[leaving.job]
            moved, stopped = f"migrated off host {host} (drain)", f"host {host} is drained"
            cause = moved if leaving.to is not None else stopped
            stop(placer, held[leaving.job], Outcome.PREEMPTED, cause, leaving.to)


FACT_OF: dict[type[m.Message], Callable[[Any], Fact]] = {
    m.AttemptRunning: lambda event: f.Up(event.job),
    m.AttemptCheckpointed: lambda event: f.Kept(event.job, event.at_s),
    m.AttemptStopping: lambda event: f.Stopping(event.job, event.why),
}
"""What news of an attempt change in the books; `AttemptResumed` changes nothing."""


def passed_on(placer: RegionAnswers, event: Any) -> None:
    """An attempt runs, has a checkpoint or went on from one, or stops: the queue is told."""
    if placer.held(event.job, event.epoch):
        if type(event) in FACT_OF:
            placer.decide(FACT_OF[type(event)](event))
        placer.send(ids.QUEUE, event)


def turned(placer: RegionAnswers, event: m.AttemptSuspended | m.AttemptContinued) -> None:
    """The gang stands still for others, or goes on; its place stays its own.

    Turns tell that time passes: a move that was not worth it may be by now.
    """
    if placer.held(event.job, event.epoch):
        placer.send(ids.QUEUE, event)
        if placer.sharing.is_due():
            _go(placer, placer.sharing.moves())
        _go(placer, placer.sharing.gives_way())


def packed(placer: RegionAnswers, event: m.AttemptPacked) -> None:
    """The gang runs beside another, or no more; two that go on apart do not go well together."""
    allocation = placer.held(event.job, event.epoch)
    if allocation is None:
        return
    placer.send(ids.QUEUE, event)
    other = placer.state.allocations.get(event.colocated_with or allocation.paired or "")
    gain = given(event.gain, None)
    if other is not None and gain is not None:
        placer.sharing.note_gain(allocation, other, gain)
    if not placer.sharing.in_turns or (allocation.paired or "") == event.colocated_with:
        return
    placer.decide(f.PairedWith(event.job, event.colocated_with))
    if not event.colocated_with and other is not None and other.hold is AllocationPhase.RUNNING:
        placer.sharing.note_parted(event.job, other.job)
        if not other.paired:  # both were told
            _go(placer, placer.sharing.moves())


def paced(placer: RegionAnswers, event: m.AttemptPaced) -> None:
    """The speed of a gang alone on its GPUs: a gang slower than before its move goes back."""
    _go(placer, (placer.sharing.note_rate(event),))


def suspect(placer: RegionAnswers, host: str) -> None:
    """Give a host no work for a while."""
    if host in placer.columns.index:
        placer.decide(f.HostSuspected(host, placer.now + placer.profile.suspect_s))
