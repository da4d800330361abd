"""What the scopes and the outside world say to one another: events in, actions out.

A message is a frozen value with a tag, so that a journal can hold it and another process can read
it. ``Send`` puts an address on it; who lives at that address (the same process, another one, a
simulator) is known to the composition root alone.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.dataset import Copy
from topmast.model.fleet import ClusterSpec, DatasetSpec, Fleet, HostSpec, RegionSpec
from topmast.model.ids import Address
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Ask, Plan, Reservation, Seat
from topmast.model.reason import PendingReason
from topmast.model.states import HostState, Outcome
from topmast.model.tree import Tree


class Message(Struct, frozen=True, tag=True, gc=False):
    """Base of all messages. None can be part of a cycle, so that the collector need not look at them."""


class Send(Struct, frozen=True, gc=False):
    """A message on its way to an address."""

    to: Address
    message: Message


# --- to any machine ---------------------------------------------------------------------------


class Wake(Message, frozen=True):
    """Time has come for what the machine announced as its next wake-up."""


class Recovered(Message, frozen=True):
    """The machine was rebuilt from its journal; it says again what may not have been heard."""


# --- people to the queue ------------------------------------------------------------------------


class ConfigureFleet(Message, frozen=True):
    """The fleet file, as read at start-up."""

    fleet: Fleet


class SkipAttempts(Message, frozen=True):
    """Attempts were found that the journal does not know: their names are not given again.

    ``next_job``: jobs are numbered from there on, at least; ``epochs``: by job, the newest epoch found.
    """

    next_job: int
    epochs: dict[str, int] = {}


class SubmitJobs(Message, frozen=True):
    """Admit jobs, all or none. ``key`` makes a repetition harmless; ``digest`` names the content."""

    jobs: tuple[JobSpec, ...]
    key: str = ""
    digest: str = ""


class CancelJobs(Message, frozen=True):
    """End jobs for good."""

    jobs: tuple[str, ...]
    by: str = ""


class AddDataset(Message, frozen=True):
    """Enter a dataset in the catalogue; its replicas are in their stores already."""

    dataset: DatasetSpec


class RequestReplica(Message, frozen=True):
    """Copy a dataset to a region."""

    dataset: str
    region: str
    cause: str = ""


class DropReplica(Message, frozen=True):
    """Remove a region's replica of a dataset."""

    dataset: str
    region: str


class RemoveDataset(Message, frozen=True):
    """Forget a dataset, and delete all its replicas."""

    dataset: str


# --- the mover and the queue ------------------------------------------------------------------


class StartCopy(Message, frozen=True):
    """Copy the objects of a dataset between two stores; a repetition resumes."""

    copy: Copy
    path: str
    bytes_per_s: float


class DeleteReplica(Message, frozen=True):
    """Delete the objects of a dropped replica."""

    dataset: str
    region: str
    path: str


class CopyDone(Message, frozen=True):
    """All objects are there and verified."""

    copy: str
    bytes: int


class CopyFailed(Message, frozen=True):
    """The copy cannot go on; nothing became visible."""

    copy: str
    error: str


class ReplicaDeleted(Message, frozen=True):
    """Nothing is left to delete at ``path``; or the region has no store, so that nothing can be deleted."""

    region: str
    path: str


class DeletionFailed(Message, frozen=True):
    """Files of a dropped replica are still there."""

    region: str
    path: str
    error: str


# --- the queue and the placers ----------------------------------------------------------------


class ConfigureRegion(Message, frozen=True):
    """The part of the fleet file that a placer owns."""

    region: RegionSpec


class AskPlans(Message, frozen=True):
    """Where would these jobs best run? Answered by ``PlansOffered`` with the same batch number.

    ``hold_s``: keep what is offered for so long, and answer the later questions with that in mind: the
    balance is that of ``held_milli`` thousandths of GPUs, and of what the batch holds, over ``gpus``
    present; and a job for which a plan is offered is not looked into again (no plan, and no reason).
    """

    batch: int
    asks: tuple[Ask, ...]
    hold_s: float = 0.0
    held_milli: int = 0
    gpus: int = 0


class HoldTicket(Struct, frozen=True):
    """What was offered is kept until ``expires_s``, by the region's clock."""

    id: str
    expires_s: float


class RegionTerms(Struct, frozen=True, gc=False):
    """What differs from region to region in a question about one job (see ``Ask``)."""

    data_bytes: int = 0
    data_s: float = 0.0
    balance: float = 0.0


class AskFleet(Message, frozen=True):
    """Where would this job best run, of these regions? Answered by ``FleetOffered``.

    Regions whose placers are in other processes answer with ``PlansOffered``, and keep what they offer
    for ``hold_s``. A refusal is remembered for the ``kin`` of the job: for all that fit as it does.
    """

    batch: int
    ask: Ask
    terms: dict[str, RegionTerms]
    kin: int = 0
    hold_s: float = 0.0


class Offer(Struct, frozen=True, gc=False):
    """A region's answer for one job: its best plan, or why there is none.

    ``retry_at_s``: time alone would change the answer then (a victim grows old enough).
    ``reservation``: where and when it would start first, if that was asked. ``kept``: the plan is a place that
    was kept for the job.
    """

    job: str
    plan: Plan | None
    reason: PendingReason | None = None
    retry_at_s: float | None = None
    reservation: Reservation | None = None
    hold: HoldTicket | None = None
    kept: bool | UnsetType = UNSET


class FleetOffered(Message, frozen=True):
    """The answer of ``regions``: the offer of the best of them, or, if none has a plan, that of each."""

    batch: int
    regions: tuple[str, ...]
    offers: dict[str, Offer]


class PlansOffered(Message, frozen=True):
    """A region's answers to a batch, computed from its ``version``."""

    batch: int
    region: str
    version: int
    offers: tuple[Offer, ...]


class CommitPlan(Message, frozen=True):
    """The auction was won: take the slots, stop the victims, launch when all slots are free.

    ``time_left_s`` is what remains of the job's time limit, None without one; ``expected_s`` how long
    the attempt is expected to run, None when nobody says. ``hold``: of the offer, if it had one.
    """

    plan: Plan
    epoch: int
    spec: JobSpec
    band: Band
    time_left_s: float | None = None
    expected_s: float | None = None
    hold: str = ""


class PlanCommitted(Message, frozen=True):
    """The slots are taken; ``waiting`` while victims still hold some. A plan without victims just starts."""

    job: str
    epoch: int
    waiting: bool


class PlanRefused(Message, frozen=True):
    """The plan no longer fits; the job is asked about again."""

    job: str
    epoch: int
    why: str


class StopAttempt(Message, frozen=True):
    """End an attempt; ``why`` says with which outcome."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""


class EnlargeAttempt(Message, frozen=True):
    """GPUs are idle: give a running attempt of an elastic job up to ``tasks`` tasks, if that is worth a restart.

    A hint: where there is no room, or it is lost, nothing happens. The attempt then ends as preempted, and its
    new place is kept.
    """

    job: str
    epoch: int
    tasks: int


class SetHost(Message, frozen=True):
    """An operator cordons, drains or returns a host, and ``also`` more hosts of the region, all at once.

    A drain stops what has a place elsewhere, which is on none of these hosts; with ``at_once`` also what has none.
    """

    host: str
    state: HostState
    by: str = ""
    at_once: bool = False
    also: tuple[str, ...] | UnsetType = UNSET

    @property
    def hosts(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((self.host, *(self.also or ()))))


class AssignHosts(Message, frozen=True):
    """To which clusters hosts of the region shall go, by host; takes the place of what was wanted before.

    An idle host goes at once. One in use is drained first: it takes no new work, and goes when it is empty.
    """

    owners: dict[str, str]
    by: str = ""


class HostsMoved(Message, frozen=True):
    """Hosts of a region belong to other clusters now, by host."""

    region: str
    owners: dict[str, str]


class CapacityChanged(Message, frozen=True):
    """Something in the region changed so that a job refused before might fit now.

    ``clusters``: where there is more room than before; None if that may be anywhere.
    """

    region: str
    version: int
    clusters: tuple[str, ...] | None = None


class OutOfService(Message, frozen=True):
    """GPUs of a region, by model, on hosts that take no work now: lost, suspect, cordoned or drained."""

    region: str
    gpus: dict[str, int]


class WhoFits(Message, frozen=True):
    """Who of those refused might fit, now that there is more room? Answered by ``MayFit``, if there are any.

    ``freed``: the room is that of a reservation that has ended.
    """

    region: str
    clusters: tuple[str, ...] | None
    freed: bool = False


class MayFit(Message, frozen=True):
    """Whose kin deserve another look, by number; None for all of them."""

    kin: tuple[int, ...] | None


class DropHolds(Message, frozen=True):
    """These jobs were placed elsewhere, or not at all: what is held for them is free again.

    ``quiet``: whoever found no place on their account was not refused for that, and need not hear of it.
    ``places``: what was kept for them while they moved is free again, too.
    """

    jobs: tuple[str, ...]
    quiet: bool = False
    places: bool = False


class LinkUp(Message, frozen=True):
    """The process of a region's placer can be reached (again)."""

    region: str


class LinkDown(Message, frozen=True):
    """The process of a region's placer cannot be reached; ``why`` in words."""

    region: str
    why: str


# --- between processes ------------------------------------------------------------------------


class Forward(Message, frozen=True):
    """A relay hands a message to its link; ``seq`` 0 if it may be lost, else it must arrive."""

    seq: int
    message: Message


class OpenStream(Message, frozen=True):
    """The name of what a relay sends, given once in the life of its journal."""

    stream: str


class Pair(Message, frozen=True):
    """Who answers at the other end, and up to which of our messages it has applied them."""

    stream: str
    applied: int


class Heard(Message, frozen=True):
    """Every message of the other end up to ``seq`` is applied with this commit."""

    seq: int


class Acked(Message, frozen=True):
    """The other end has every message up to ``seq`` on its disk."""

    seq: int


# --- the placers and the clusters -------------------------------------------------------------


class ConfigureCluster(Message, frozen=True):
    """The part of the fleet file that a cluster manager owns."""

    region: str
    cluster: ClusterSpec


class LaunchGang(Message, frozen=True):
    """Start all tasks of an attempt, or none. ``beside``: the job that has the same GPUs at the same time."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    cluster: str
    seats: tuple[Seat, ...]
    time_left_s: float | None = None
    beside: str | UnsetType = UNSET


class StopGang(Message, frozen=True):
    """SIGTERM, the job's grace, SIGKILL; the attempt then ends with outcome ``why``."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""


class AttemptStarting(Message, frozen=True):
    """The gang is being launched."""

    job: str
    epoch: int


class AttemptRunning(Message, frozen=True):
    """Every task of the gang is up."""

    job: str
    epoch: int


class AttemptStopping(Message, frozen=True):
    """The gang was told to stop. ``moves``: a place is kept where it can go on."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""
    moves: bool = False


class AttemptSuspended(Message, frozen=True):
    """The gang stands still, so that others have its GPUs for a while."""

    job: str
    epoch: int


class AttemptContinued(Message, frozen=True):
    """It is the gang's turn (again): it has its GPUs from now on."""

    job: str
    epoch: int


class AttemptPacked(Message, frozen=True):
    """The gang has its GPUs at the same time as the job ``beside`` (empty: no more); ``why`` in words.

    ``gain``: what both were measured to do together, each over what it does alone, summed; only with a verdict.
    """

    job: str
    epoch: int
    beside: str
    why: str
    gain: float | UnsetType = UNSET


class AttemptPaced(Message, frozen=True):
    """The gang does so many steps a second while it has its GPUs for itself."""

    job: str
    epoch: int
    rate: float


class AttemptCheckpointed(Message, frozen=True):
    """The job can resume from ``step``; work up to ``at_s`` is kept whatever happens."""

    job: str
    epoch: int
    step: int
    at_s: float


class AttemptResumed(Message, frozen=True):
    """The job said from which step it went on."""

    job: str
    epoch: int
    step: int


class AttemptEnded(Message, frozen=True):
    """Nothing of the attempt runs any more; its slots are free.

    ``kept_s`` is the part of the time since the start whose work survives; ``metrics`` are the
    last the job reported; ``suspects`` are hosts that a new attempt should avoid. ``suspended_s``: how long it did
    not have its GPUs, others had them in their turns; absent if it always had them.
    """

    job: str
    epoch: int
    outcome: Outcome
    start_s: float
    end_s: float
    kept_s: float
    cause: str = ""
    exit_code: int | None = None
    step: int | None = None
    metrics: dict[str, float] = {}
    suspects: tuple[str, ...] = ()
    suspended_s: float | UnsetType = UNSET

    @property
    def held_s(self) -> float:
        """How long the attempt had its GPUs."""
        still_s = 0.0 if isinstance(self.suspended_s, UnsetType) else self.suspended_s
        return self.end_s - self.start_s - still_s


class GrowTree(Message, frozen=True):
    """Grow a tree: ``rows`` are doubles, ``width`` for each job, features first and then the target."""

    rows: bytes
    width: int


class TreeGrown(Message, frozen=True):
    """A tree by which durations are to be predicted from now on."""

    tree: Tree


class HostChanged(Message, frozen=True):
    """A cluster's engine lost a host, or has it again."""

    host: str
    up: bool


# --- the clusters and their engines -----------------------------------------------------------


class EquipCluster(Message, frozen=True):
    """The hosts of the cluster are these from now on; nothing runs on those that are not among them."""

    hosts: tuple[HostSpec, ...]


class StartGang(Message, frozen=True):
    """Start the tasks of an attempt. Named after job and epoch: a repetition finds the first."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    cluster: str
    seats: tuple[Seat, ...]


class StopTasks(Message, frozen=True):
    """SIGTERM to every process of the attempt, SIGKILL after ``grace_s``. Harmless if gone."""

    job: str
    epoch: int
    grace_s: float


class SuspendGang(Message, frozen=True):
    """Halt every process of the attempt where it stands. Harmless if it is halted."""

    job: str
    epoch: int


class ResumeGang(Message, frozen=True):
    """Let a suspended attempt go on. Harmless if it does."""

    job: str
    epoch: int


class AskPace(Message, frozen=True):
    """How far has the attempt come? Answered by ``Paced``, if it has reported a step."""

    job: str
    epoch: int


class AskTruth(Message, frozen=True):
    """What do you run? Answered by ``EngineTruth``."""


class TaskReport(Struct, frozen=True):
    """The last of what a task reported with ``topmast.progress``."""

    step: int | None = None
    metrics: dict[str, float] = {}


class TaskStarted(Message, frozen=True):
    """The task's supervisor holds its lock for good: setup, if any, and then the script run now."""

    job: str
    epoch: int
    rank: int
    at_s: float


class TaskExited(Message, frozen=True):
    """The task ended with ``code``; a signal N is 128 + N."""

    job: str
    epoch: int
    rank: int
    code: int
    at_s: float
    report: TaskReport = TaskReport()
    error: str = ""


class TaskLost(Message, frozen=True):
    """The task is gone without an exit status; nothing of it runs any more.

    ``blameless``: its host has no part in that, and may be trusted with the next attempt.
    """

    job: str
    epoch: int
    rank: int
    error: str
    blameless: bool | UnsetType = UNSET


class Checkpointed(Message, frozen=True):
    """A task reported a checkpoint."""

    job: str
    epoch: int
    step: int
    at_s: float


class Resumed(Message, frozen=True):
    """A task reported that it went on from a checkpoint."""

    job: str
    epoch: int
    step: int


class Paced(Message, frozen=True):
    """The attempt was at a step (mini-batch) at a time."""

    job: str
    epoch: int
    step: int
    at_s: float


class HostDown(Message, frozen=True):
    """The host is gone, and every task on it has ended."""

    host: str
    error: str = ""


class HostUp(Message, frozen=True):
    """The host answers (again)."""

    host: str


class TruthTask(Struct, frozen=True):
    """One task as an engine knows it: running, or ended with ``code`` (None: without a status)."""

    job: str
    epoch: int
    rank: int
    running: bool
    code: int | None = None
    at_s: float = 0.0
    report: TaskReport = TaskReport()


class EngineTruth(Message, frozen=True):
    """Everything an engine runs, or ran and has not forgotten, and its hosts that are down."""

    tasks: tuple[TruthTask, ...]
    down_hosts: tuple[str, ...] = ()


class Progress(Message, frozen=True):
    """A step of a running task. Shown to people, never journalled."""

    job: str
    epoch: int
    rank: int
    step: int | None
    metrics: dict[str, float]
    at_s: float


class CopyProgress(Message, frozen=True):
    """Bytes of a copy so far. Shown to people, never journalled."""

    copy: str
    bytes: int


ToPlacer = (
    ConfigureRegion | AskPlans | CommitPlan | StopAttempt | EnlargeAttempt | SetHost | DropHolds
    | AssignHosts
)  # fmt: skip
"""What a queue may say to a placer in another process."""

ToQueue = (
    PlansOffered | PlanCommitted | PlanRefused | CapacityChanged | AttemptStarting | AttemptRunning
    | AttemptStopping | AttemptCheckpointed | AttemptResumed | AttemptEnded | Progress | HostsMoved
    | AttemptSuspended | AttemptContinued | AttemptPacked | OutOfService
)  # fmt: skip
"""What a placer in another process may say to its queue."""


class Parcel(Struct, frozen=True):
    """A message on a link. ``seq`` counts from 1 those that must arrive; 0 is one that may be lost."""

    seq: int
    message: ToPlacer | ToQueue


class Deliver(Message, frozen=True):
    """Parcels of the stream ``stream`` came in for the machine at ``to``.

    ``peer``: whom the sender takes this end for, empty while it does not know; ``applied``: up to
    which message of this end it had applied them when it sent this.
    """

    to: Address
    stream: str
    peer: str
    applied: int
    parcels: tuple[Parcel, ...]


class Receipt(Struct, frozen=True):
    """What became of parcels: all up to ``applied`` are on the disk of the stream ``stream``'s owner.

    ``refused``: why nothing was taken; empty when it was.
    """

    stream: str
    applied: int
    refused: str = ""


Event = (
    Wake | Recovered
    | ConfigureFleet | SkipAttempts | SubmitJobs | CancelJobs | AddDataset | RequestReplica | DropReplica
    | RemoveDataset | CopyDone | CopyFailed | ReplicaDeleted | DeletionFailed | TreeGrown
    | ConfigureRegion | AskFleet | FleetOffered | AskPlans | PlansOffered | CommitPlan | PlanCommitted | PlanRefused
    | StopAttempt | EnlargeAttempt | SetHost | AssignHosts | HostsMoved | CapacityChanged | WhoFits | MayFit
    | OutOfService
    | ConfigureCluster | LaunchGang | StopGang | AttemptStarting | AttemptRunning
    | AttemptStopping | AttemptCheckpointed | AttemptResumed | AttemptEnded | HostChanged
    | TaskStarted | TaskExited | TaskLost | Checkpointed | Resumed | HostDown | HostUp
    | EngineTruth | AttemptSuspended | AttemptContinued | AttemptPacked | AttemptPaced | Paced
    | DropHolds | LinkUp | LinkDown | OpenStream | Pair | Deliver | Heard | Acked
)  # fmt: skip
"""Every message that a machine may be handed, and so a journal may hold."""
