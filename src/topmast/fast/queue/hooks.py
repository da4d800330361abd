"""Where policies take part in the queue: what they grant to jobs, and the steps at which they act.

The queue calls all hooks at a step, in order, and knows none of them; `machine` registers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.model.fleet import Fleet
from topmast.model.job import Band, TaskGroup


class Grant(Struct, frozen=True):
    """What a job may have for a while, of all that it asked for."""

    model: int
    """The number of a GPU model."""
    choice: int
    """Which of the job's accelerators that is."""
    colocated_with: str = ""
    """The job that it shares GPUs with; empty: it has GPUs of its own."""


class Grants:
    """What a policy that shares time grants; here every job may have all that it requests."""

    are_limited = False
    """Whether some jobs may have less than they request, or nothing."""

    def grant(self, job: str) -> Grant | None:
        """What a job is granted; None: nothing, or all that it asked for."""
        return None

    def turn(self, job: str) -> float:
        """The place of a job in the order of grants, the first with the least."""
        return 0.0

    def may_start(self, job: str) -> bool:
        """Whether a waiting job may be placed now."""
        return True

    def news(self, job: str) -> str:
        """What is to be said to people about the job; empty if nothing is."""
        return ""


class QueueHooks:
    """Called at the steps of the queue. As it stands here, it changes nothing."""

    def on_fleet(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """The fleet is another, or the process began anew."""

    def on_owners(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """Hosts went to other clusters."""

    def on_restored(self) -> None:
        """The state was read from a snapshot: plans are booked next."""

    def on_enqueued(self, record: JobRecord) -> None:
        """A job waits."""

    def on_expected(self, record: JobRecord) -> None:
        """A job that has GPUs is expected to run for another time than before."""

    def on_moved(self, record: JobRecord) -> None:
        """A job is in another state."""

    def on_booked(self, record: JobRecord) -> None:
        """A job has a plan."""

    def on_unbooked(self, job: str) -> None:
        """A job has none any more."""

    def on_over(self, job: str) -> None:
        """A job is over for good."""

    def on_room(self, region: str) -> None:
        """A region has more room than before."""

    def on_out_of_service(self, region: str, gpus: Mapping[str, int]) -> None:
        """Other hosts of a region take no work now: their GPUs by model are ``gpus``."""

    def on_wake(self) -> None:
        """Time has come for something; nothing is asked of the regions yet."""

    def may_try(self) -> bool:
        """Whether candidates may be tried now; if not, they wait."""
        return True

    def news(self) -> str:
        """What is to be said of a job that was not tried yet; empty if nothing is."""
        return ""

    def on_all_decided(self) -> None:
        """No job is left to be asked about."""

    def on_committed(self, record: JobRecord) -> None:
        """A plan for a job was committed."""

    def before_end(self, record: JobRecord) -> None:
        """Nothing of an attempt runs any more; its job still has the plan."""

    def on_ended(self, record: JobRecord) -> None:
        """An attempt has ended, and its job is over, or waits."""

    def may_shrink(self, band: Band, now: float) -> bool:
        """Whether running jobs might become smaller for one of this band."""
        return False

    def most_anywhere(self, elastic: TaskGroup) -> int | None:
        """The most tasks of a gang at a place that is not kept for it; None: of no concern."""
        return None

    def next_s(self) -> float | None:
        """When the hook has something to do next."""
        return None


class HookSteps:
    """By step, the hooks that do something there, in their order: most do so at few steps."""

    def __init__(self, hooks: Sequence[QueueHooks] = ()) -> None:
        self._hooks = tuple(hooks)

    def __getattr__(self, step: str) -> tuple[QueueHooks, ...]:
        """Those that have a method of their own for a step; sorted out once."""
        nothing = getattr(QueueHooks, step)
        found = tuple(hook for hook in self._hooks if getattr(type(hook), step) is not nothing)
        setattr(self, step, found)
        return found
