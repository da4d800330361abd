"""The world: tenants, ranking, the data catalogue and the auction over regions.

Other packages import what stands here: the machine, what it knows, and the steps that an
explanation runs dry. `facts` has the vocabulary of the journal.
"""

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.durations import LONGEST_S, Durations, stem_of
from topmast.fast.queue.backlog.placement_class import (
    NOT_TRIED,
    Verdict,
    colocated_of,
    job_key,
    placement_key,
)
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.queue.backlog.task_mix import Mix, takes_any
from topmast.fast.queue.backlog.waiting import Waiting
from topmast.fast.queue.cycle.auction import (
    PendingDecision,
    Phase,
    decided_by,
    most_hopeful,
    winner,
)
from topmast.fast.queue.cycle.checks import first_verdict
from topmast.fast.queue.cycle.early_binding import could_hold
from topmast.fast.queue.cycle.pipeline import (
    Step,
    first_step,
    may_preempt,
    next_step,
    regions_of,
    request_of,
    waits_near,
    when_matters,
)
from topmast.fast.queue.data.catalogue import Catalogue, DataCost, DatasetRecord
from topmast.fast.queue.data.copies_on_demand import Wait
from topmast.fast.queue.datasets import cannot_add, cannot_copy, cannot_drop, cannot_remove
from topmast.fast.queue.invariants import check_jobs, check_quotas
from topmast.fast.queue.jobs.dependencies import fault_of, outstanding
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import SweepRecord
from topmast.fast.queue.jobs.tallies import Kind, Tally, kind_of
from topmast.fast.queue.jobs.weights import Weights, bytes_of, most_bytes_of, said_bytes
from topmast.fast.queue.leaving import hosts_in_use, jobs_in_clusters, stranded
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.queue.pausing import drained, in_branch
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.fast.queue.tenancy.fair_shares import Share
from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.fast.queue.verbs import JUDGES, Effect, Judgement, judge_edit, judge_requeue

__all__ = [
    "JUDGES",
    "LONGEST_S",
    "NOT_TRIED",
    "Candidate",
    "Catalogue",
    "DataCost",
    "DatasetRecord",
    "Durations",
    "Effect",
    "Entitlements",
    "GlobalQueue",
    "JobRecord",
    "Judgement",
    "Kind",
    "Ledger",
    "Mix",
    "PendingDecision",
    "Phase",
    "Ranking",
    "Share",
    "Step",
    "SweepRecord",
    "Tally",
    "Verdict",
    "Wait",
    "Waiting",
    "Weights",
    "bytes_of",
    "cannot_add",
    "cannot_copy",
    "cannot_drop",
    "cannot_remove",
    "check_jobs",
    "check_quotas",
    "colocated_of",
    "could_hold",
    "decided_by",
    "drained",
    "fault_of",
    "first_step",
    "first_verdict",
    "hosts_in_use",
    "in_branch",
    "job_key",
    "jobs_in_clusters",
    "judge_edit",
    "judge_requeue",
    "kind_of",
    "may_preempt",
    "most_bytes_of",
    "most_hopeful",
    "next_step",
    "outstanding",
    "placement_key",
    "regions_of",
    "request_of",
    "said_bytes",
    "stem_of",
    "stranded",
    "takes_any",
    "waits_near",
    "when_matters",
    "winner",
]
