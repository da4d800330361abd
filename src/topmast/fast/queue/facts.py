"""The facts of the global queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct, UnsetType, field

from topmast.fast.machine import Fact, JobFact
from topmast.model.columns import PlanColumns
from topmast.model.dataset import Copy, Deletion
from topmast.model.decided import AS_FORESEEN, Decided
from topmast.model.messages import FleetBids, Message
from topmast.model.plan import Binding, Plan
from topmast.model.states import JobState


class FleetSet(Fact, frozen=True):
    """The fleet was taken from the event."""


class HostsMoved(Fact, frozen=True):
    """Hosts of the event's region belong to other clusters."""


class AttemptsSkipped(Fact, frozen=True):
    """The names in the event are taken."""


class Admitted(Fact, frozen=True):
    """The jobs of the event were admitted, numbered from ``first_number``.

    ``places``: where each was bound to, where the profile binds jobs; empty elsewhere.
    """

    first_number: int
    places: tuple[Binding | None, ...] = ()


class Bound(JobFact, frozen=True):
    """A waiting job was sent to another place, or told to stay; None: it may run anywhere."""

    place: Binding | None


class Planned(JobFact, frozen=True):
    """A plan won the auction: the job's next attempt. ``over_quota`` fixes the attempt's class.

    ``decided``: why this plan won; older journals do not tell.
    """

    epoch: int
    plan: Plan
    over_quota: bool
    decided: Decided | UnsetType = UNSET


class AllPlanned(Fact, frozen=True):
    """Plans of the event won as they were foreseen, each for the next job in order."""

    first: int
    """Which of the event's plans is the first of them."""
    epochs: tuple[int, ...]
    """As in `Planned`, one for each."""
    over_quota: tuple[bool, ...]
    plans: PlanColumns | UnsetType = UNSET
    """The plans, where they are chosen of those of several regions; absent: those of the event."""

    def columns(self, event: Message) -> PlanColumns:
        """The plans of which these are some."""
        plans = self.plans or (event.plans if isinstance(event, FleetBids) else UNSET)
        assert plans
        return plans


class Unplanned(JobFact, frozen=True):
    """The region refused the plan."""

    why: str


class AvoidHostsCleared(JobFact, frozen=True, tag="Forgiven"):
    """No other place was found: a job may run again on the hosts that it avoided."""


class Promoted(JobFact, frozen=True):
    """A starved job rose to the top of an order by attained service: older service is left out."""


class Moved(JobFact, frozen=True):
    """A job changed its state."""

    to: JobState
    cause: str = ""


class AllStarting(Fact, frozen=True):
    """All jobs of the event are starting."""


class Migrates(JobFact, frozen=True):
    """A job that was told to stop has a place kept for it, where it goes on."""


class CancelWanted(JobFact, frozen=True):
    """A job that still holds slots shall end when it has let go of them."""

    by: str


class HoldSet(JobFact, frozen=True):
    """People hold a job, or (``why`` empty) have released it."""

    why: str


class TenantPaused(Fact, frozen=True):
    """Jobs of a tenant and of those below it do not start, or (``why`` empty) may again."""

    tenant: str
    why: str


class WindowSet(Fact, frozen=True):
    """Hosts are reserved from a time on; the window is in the event."""

    name: str


class WindowBegun(Fact, frozen=True):
    """The time of a reservation has come."""

    name: str


class WindowOver(Fact, frozen=True):
    """Hosts are reserved no more."""

    name: str


class BudgetNoted(Fact, frozen=True):
    """People were told how much of a tenant's budget is used."""

    tenant: str
    month: str
    percent: int


class QuotaSet(Fact, frozen=True):
    """A tenant is to have another quota for a while; it is in the event."""

    tenant: str


class QuotaBegun(Fact, frozen=True):
    """The quota for a while holds from now on."""

    tenant: str


class QuotaOver(Fact, frozen=True):
    """A tenant has the quota of the fleet again."""

    tenant: str


class Requeued(JobFact, frozen=True):
    """A job that failed, was cancelled or waits out a delay is tried anew, with no failures."""

    cause: str


class JobsForgotten(Fact, frozen=True):
    """Jobs and sweeps that are over left memory: there was too much of them."""

    jobs: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()


class DependencyMet(JobFact, frozen=True):
    """A job waits no more for another one."""

    on: str


class Edited(JobFact, frozen=True):
    """A job asks for what the event says; with a plan, from its next attempt on."""


class EditTaken(JobFact, frozen=True):
    """A job has no plan any more: what was changed meanwhile counts from now on."""


class Ended(JobFact, frozen=True):
    """An attempt is over (as the event says), and what becomes of the job."""

    to: JobState
    cause: str
    not_before_s: float = 0.0
    avoid_hosts: tuple[str, ...] = ()


class PackedWith(JobFact, frozen=True):
    """The job has its GPUs at the same time as another (empty: for itself again)."""

    colocated_with: str = field(name="beside")
    why: str


class Checkpointed(JobFact, frozen=True):
    """The job can resume from ``step``."""

    step: int


class ResumedFrom(JobFact, frozen=True):
    """The job went on from ``step``."""

    step: int


class TreeTaken(Fact, frozen=True):
    """Durations are predicted by the tree of the event from now on."""


class DatasetAdded(Fact, frozen=True):
    """The dataset of the event is in the catalogue."""


class CopyBegun(Fact, frozen=True):
    """A copy was ordered."""

    copy: Copy


class CopyReady(Fact, frozen=True):
    """A copy is complete and may be read."""

    copy: Copy


class CopyGone(Fact, frozen=True):
    """A copy failed."""

    copy: Copy
    error: str


class ReplicaDropped(Fact, frozen=True):
    """A region no longer holds a dataset."""

    dataset: str
    region: str


class DatasetRemoved(Fact, frozen=True):
    """A dataset is known no more, in whatever region it was."""

    dataset: str


class DeletionBegun(Fact, frozen=True):
    """The mover is to delete a replica's files; until then no dataset may have their folder."""

    deletion: Deletion


class DeletionDone(Fact, frozen=True):
    """The files of a replica are gone."""

    deletion: Deletion


def plans_won(event: Message, facts: Iterable[Struct]) -> Iterator[Planned]:
    """The plans that won by the facts of an event, each as a fact of its own, in order."""
    for fact in facts:
        if isinstance(fact, Planned):
            yield fact
        elif isinstance(fact, AllPlanned):
            plans = fact.columns(event).plans[fact.first :]
            for plan, epoch, over in zip(plans, fact.epochs, fact.over_quota, strict=False):
                yield Planned(plan.job, epoch, plan, over, AS_FORESEEN)
