"""What the words of the pages mean, each in a sentence or two: tooltips, and the page of words."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from topmast.model.engines import Capability
from topmast.model.reason import BACK_OFF, PendingReason
from topmast.model.states import JobState

REASONS: Mapping[str, tuple[str, str]] = {
    PendingReason.HELD: (
        "A person holds the job. It gets no place until it is released.",
        "Release it; if it was suspended, resume it.",
    ),
    PendingReason.TENANT_PAUSED: (
        "Its tenant, or a tenant above it, is paused: no job of it starts.",
        "Resume the tenant.",
    ),
    PendingReason.WAITING_FOR_JOBS: (
        "It depends on other jobs, which have not started or ended yet as it wants.",
        "Wait; its page names these jobs.",
    ),
    PendingReason.MISCONFIGURED: (
        "The job cannot run as it is written.", "Submit it again, corrected.",
    ),
    PendingReason.UNKNOWN_DATASET: (
        "The job reads a dataset that the server does not know.",
        "Add the dataset with `topmast datasets add`.",
    ),
    PendingReason.EXCEEDS_MAX_QUOTA: (
        "The job asks for more GPUs than its tenant may ever have.",
        "A larger quota, or a smaller job.",
    ),
    PendingReason.WAITING_FOR_QUOTA: (
        "Other jobs use the quota of its tenant, and there is nothing to borrow.",
        "Wait, a larger quota, or another tenant.",
    ),
    PendingReason.WAITING_FOR_DATA: (
        "Its dataset is being copied, or is in no region where the job may run.",
        "Wait for the copy, or copy the dataset.",
    ),
    PendingReason.NO_MATCHING_HARDWARE: (
        "No host has the GPU model, or as many GPUs, as one task asks for; or none of an engine "
        "that runs container images, gives parts of a GPU, or gives tasks variables of their "
        "hosts, if the job needs that.",
        "Another GPU model, or fewer GPUs for each task; a job without an image, with whole GPUs, "
        "or with secrets in files.",
    ),
    PendingReason.TOPOLOGY_DOES_NOT_FIT: (
        "Each task would fit on a host, but no rack (or what else the job asks for) is large "
        "enough for all of them, even empty.",
        "Fewer tasks, or less strict wishes about which hosts are near each other.",
    ),
    PendingReason.INSUFFICIENT_CAPACITY: (
        "The job fits, but not now: its GPUs are in use, and nothing may be stopped for it.",
        "Wait, or a higher priority.",
    ),
    PendingReason.PREEMPTION_IN_PROGRESS: (
        "Its place is chosen. The jobs that run there are being stopped.",
        "Wait: they save a checkpoint first.",
    ),
    PendingReason.PENDING_EVALUATION: (
        "The server has not looked for a place yet.",
        "Wait a moment.",
    ),
    BACK_OFF: (
        "It waits out a delay after a failure, which grows with each failure.",
        "Wait, or requeue the job: then it is tried at once.",
    ),
}  # fmt: skip
"""Why a job waits: what it means, and what helps."""

STATES: Mapping[JobState, str] = {
    JobState.PENDING: "It waits for a place.",
    JobState.STARTING: "It has a place, and its tasks are being started.",
    JobState.RUNNING: "All of its tasks run.",
    JobState.PREEMPTING: "It is being stopped, to wait again or to move to another place.",
    JobState.RECOVERING: "An attempt failed or its host was lost; it is tried again.",
    JobState.SUSPENDED: "A person stopped it at a checkpoint; it goes on when it is resumed.",
    JobState.CANCELLING: "It is being stopped for good.",
    JobState.SUCCEEDED: "It has ended, and all was well.",
    JobState.FAILED: "It has ended with a failure, and is not tried again.",
    JobState.CANCELLED: "A person ended it.",
}

WORDS: Mapping[str, str] = {
    "Attempt": "One run of a job, from its start until it ends or is stopped. A job that was "
    "stopped has several.",
    "Audit log": "The list of all acts: which account did what, to what, when and why. Refused "
    "acts are in it, too.",
    "Band": "Another word for priority.",
    "Borrowed": "GPUs of a tenant above its quota. They are idle quota of other tenants, and go "
    "back when these want them.",
    "Budget": "How many GPU-hours, or how much money, a tenant may use in a month.",
    "Checkpoint": "A saved state of a job. A job that was stopped goes on from its last one.",
    "Close": "A closed cluster takes no new work. What runs there goes on.",
    "Commit": "To write decisions to disk. Nothing happens outside before that.",
    "Cordon": "A cordoned host takes no new work. What runs there goes on.",
    "Copy": "A dataset in one region. Other pages call it a replica.",
    "Demand over supply": "GPUs that jobs hold or ask for in a region, divided by the GPUs that "
    "are there. Above 1, jobs have to wait.",
    "Drain": "A drained host takes no new work, and jobs there that can move go to other hosts.",
    "Dry run": "To ask what an act would do, without doing it. Every page does so before an act.",
    "Epoch": "How often a server has become the leader. It only grows.",
    "Expected start": "When a job will probably start: a forecast from how long other jobs run.",
    "Fair share": "The part of the fleet that a tenant should get by its weight, when tenants "
    "compete for idle GPUs.",
    "Fleet": "All regions, clusters and hosts together.",
    "GPU-hour": "One GPU for one hour.",
    "Hold": "A job on hold does not start until it is released. What runs goes on.",
    "Idle but held": "GPUs that a job holds and does not use: its tasks are being started or "
    "stopped.",
    "Journal": "The list of all that was decided. The server reads it when it starts.",
    "Kept": "Work that counts: what a checkpoint saved, or what ended well.",
    "Label": "A name and a value that a person gave to a job, such as team=vision. Jobs can be "
    "found and counted by it.",
    "Leader": "The one server that decides.",
    "Lent": "GPUs of a tenant's quota that other tenants use at the moment.",
    "Lost": "Work that must be done again: what came after the last checkpoint of an attempt that "
    "was stopped or failed.",
    "Optimum": "The best plan that can be. The server proves how far a plan is from it.",
    "Placer": "The part of the server that looks for places: one for each region, and one for the "
    "whole fleet.",
    "Preempt": "To stop a job at a checkpoint, so that another one can have its place. It waits "
    "again, and goes on from there.",
    "Priority": "A job of a higher priority starts earlier, and may stop one of a lower priority.",
    "Profile": "A set of rules by which the server decides: the order of jobs, and how places are "
    "chosen.",
    "Quota": "How many GPUs of a model a tenant can always have.",
    "Rack": "Hosts that stand together, with a fast network between them.",
    "Rank": "The place of a waiting job in the order in which places are looked for: a higher "
    "priority goes before a lower one; in each, the rules of the profile say, usually by how "
    "long a job has waited and how much less than its fair share its tenant has.",
    "Requeue": "To try a job again that has failed or that runs.",
    "Reservation": "Hosts that are kept free for a time, for maintenance or for some tenants.",
    "Role": "What an account may do, for a tenant and all tenants below it.",
    "Score": "How good a place is for a job; lower is better. Its terms say what it is made of: "
    "such as data that must be copied, or work that is lost.",
    "Selector": "A text that says which jobs are meant, such as tenant=vision,cluster=east-*.",
    "Service account": "An account of a program, not of a person.",
    "Standby": "A server that takes over when the leader is lost.",
    "Subject": "The name of an account, such as user:ann, sa:ci-runner or group:vision.",
    "Suspend": "A suspended job stops at a checkpoint, and waits until it is resumed.",
    "Sweep": "One submission that becomes many jobs: one for each combination of settings.",
    "Task": "One part of a job, on one host. All tasks of a job start together.",
    "Tenant": "A team, or a team of teams, with its own quota.",
    "Term": "One part of a score: such as data that must be copied, or work that is lost.",
    "Token": "A secret by which a program proves its account.",
    "Waited for": "GPUs that the waiting jobs of a tenant ask for.",
    "Webhook": "An address outside that is told of events.",
    "What-if": "Two futures of the system side by side: as it is, and with something changed.",
}


CAN: Mapping[Capability, str] = {
    Capability.SUSPEND: "let jobs take turns",
    Capability.EXACT_SLOTS: "give each task its own GPUs",
    Capability.SHARES: "give a part of a GPU",
    Capability.PAIRS: "run two jobs on the same GPUs",
    Capability.IMAGES: "run container images",
    Capability.EXEC: "run commands beside a task",
    Capability.ENV: "give tasks variables of their hosts",
}
"""What the engine of a cluster can do."""

TERMS: Mapping[str, str] = {
    "preemption": "Work of the jobs that would be stopped, and their restart.",
    "speed": "How much slower the GPU model is for this job than the fastest one.",
    "locality": "How far apart the hosts are: one host, one rack, or more.",
    "fragmentation": "GPUs that would be left over in pieces too small for other jobs. Below 0, it "
    "uses such pieces up.",
    "data": "Time to copy the dataset there.",
    "balance": "How full the region is.",
    "allocation": "How loaded the hosts are, also with CPUs and memory.",
    "model": "A dear or rare GPU model, for a job that could do with another.",
    "layer": "How many other jobs take turns on the same GPUs.",
    "migration": "How much worse the new places are of jobs that move to make room.",
}
"""What terms of a score stand for; what a profile adds to these has no sentence."""


def anchor(word: str) -> str:
    """The place of a word on the page of words."""
    return word.lower().replace(" ", "-")


def word(name: str, shown: str = "") -> Markup:
    """A word with what it means as its tooltip, and a link to the page of words.

    ``shown``: as which the text has it. KeyError for a word without a meaning.
    """
    return Markup('<a class="word" href="/words#{}" title="{}">{}</a>').format(
        anchor(name), WORDS[name], shown or name
    )


def term_word(term: str) -> Markup:
    """A term of a score, with its meaning if that is known."""
    if term not in TERMS:
        return escape(term)
    return Markup('<a class="word" href="/words#term-{}" title="{}">{}</a>').format(
        term, TERMS[term], term
    )


def can(capability: str) -> str:
    """What an engine can do, in words."""
    return CAN[Capability(capability)]


def reason_means(reason: str) -> str:
    """What a reason for waiting means, in a sentence."""
    return REASONS[reason][0]
