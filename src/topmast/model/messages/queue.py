"""What people, the mover and the grower say to the queue, and what it says to the last two."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from topmast.model.dataset import Copy
from topmast.model.fleet import DatasetSpec, Fleet
from topmast.model.job import JobChanges, JobSpec
from topmast.model.messages.base import Message
from topmast.model.states import JobState
from topmast.model.timed_quota import TimedQuota
from topmast.model.tree import Tree
from topmast.model.window import Window


class ConfigureFleet(Message, frozen=True):
    """The fleet file, as read at start-up, or as changed while the server runs."""

    fleet: Fleet
    base: str | UnsetType = UNSET
    """The version that it changes; absent: whatever there is."""
    file: str | UnsetType = UNSET
    """The version of the file that it was read from; absent: it comes from no file."""
    by: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    changed: tuple[str, ...] | UnsetType = UNSET
    """What an operator changes, in words for the history; absent: it is the fleet of a start."""


class SkipAttempts(Message, frozen=True):
    """Attempts were found that the journal does not know: their names are not given again."""

    next_job: int
    """Jobs are numbered from here, at least."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch found, by job."""


class SubmitJobs(Message, frozen=True):
    """Admit jobs, all or none."""

    jobs: tuple[JobSpec, ...]
    key: str = ""
    """Makes a repetition harmless."""
    digest: str = ""
    """Names the content."""
    ended: dict[str, JobState] | UnsetType = UNSET
    """How jobs ended that others depend on, and that the queue has forgotten."""
    known_tenants_only: bool | UnsetType = UNSET
    """Refuse tenants that have left the fleet; absent: jobs of a trace may have any."""
    kinds: tuple[int, ...] | UnsetType = UNSET
    """For each job the place of the first here that is like it but for name, script, variables and
    labels, of jobs of which none depends on others or is a sweep. Absent: not known.
    """


class CancelJobs(Message, frozen=True):
    """End jobs for good."""

    jobs: tuple[str, ...]
    by: str = ""
    reason: str | UnsetType = UNSET
    """Why, in the words of the one that asks for it."""


class HoldJobs(Message, frozen=True):
    """Jobs do not start until they are released."""

    jobs: tuple[str, ...]
    by: str = ""
    reason: str | UnsetType = UNSET
    stop: bool = False
    """What runs stops at its checkpoint, and lets go of its GPUs."""


class ReleaseJobs(Message, frozen=True):
    """Jobs that are held may start again."""

    jobs: tuple[str, ...]
    by: str = ""
    reason: str | UnsetType = UNSET


class PreemptJobs(Message, frozen=True):
    """Stop the attempts of jobs at their checkpoints; the jobs wait again."""

    jobs: tuple[str, ...]
    by: str = ""
    reason: str | UnsetType = UNSET


class PauseTenant(Message, frozen=True):
    """No job of a tenant, or of one below it, starts until it is resumed."""

    tenant: str
    by: str = ""
    reason: str | UnsetType = UNSET
    drain: bool = False
    """What runs stops at its checkpoint, unless it may not be preempted."""


class ResumeTenant(Message, frozen=True):
    """The jobs of a tenant that is paused may start again."""

    tenant: str
    by: str = ""
    reason: str | UnsetType = UNSET


class RequeueJobs(Message, frozen=True):
    """Jobs that have failed, wait out a delay or run are to be tried anew."""

    jobs: tuple[str, ...]
    by: str = ""
    reason: str | UnsetType = UNSET


class EditJobs(Message, frozen=True):
    """Change what jobs ask for; of a job that has GPUs, from its next attempt on."""

    jobs: tuple[str, ...]
    changes: JobChanges
    by: str = ""
    reason: str | UnsetType = UNSET


class SetWindow(Message, frozen=True):
    """Reserve hosts from a time on, until another."""

    window: Window
    """Without a name: it gets one."""


class EndWindow(Message, frozen=True):
    """Hosts are reserved no more."""

    name: str
    by: str = ""
    reason: str | UnsetType = UNSET


class SetQuota(Message, frozen=True):
    """Give a tenant another quota for a while, in place of the one that it may have so."""

    timed: TimedQuota


class EndQuota(Message, frozen=True):
    """A tenant has the quota of the fleet again."""

    tenant: str
    by: str = ""
    reason: str | UnsetType = UNSET


class NoteBudget(Message, frozen=True):
    """So much of a tenant's budget is used: people are told once a month of each threshold."""

    tenant: str
    month: str
    percent: int
    """The threshold."""
    text: str
    """In words."""


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
    """Nothing is left to delete at ``path``, or the region has no store to delete from."""

    region: str
    path: str


class DeletionFailed(Message, frozen=True):
    """Files of a dropped replica are still there."""

    region: str
    path: str
    error: str


class CopyProgress(Message, frozen=True):
    """Bytes of a copy so far. Shown to people, never journalled."""

    copy: str
    bytes: int


class GrowTree(Message, frozen=True):
    """Grow a tree from these jobs."""

    rows: bytes
    """Doubles, ``width`` for each job: the features, then the target."""
    width: int


class TreeGrown(Message, frozen=True):
    """A tree by which durations are to be predicted from now on."""

    tree: Tree
