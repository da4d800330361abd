"""A region: its hosts, the exhaustive search over them, and the placer that answers the queue.

Other packages import what stands here. `facts` has the vocabulary of the journal, and `warm` loads
the compiled kernels; both are modules of their own, for they are used without the rest.
"""

from topmast.fast.region.explain.changes import region_changes
from topmast.fast.region.explain.changes.hosts import states_of
from topmast.fast.region.explain.changes.trials import Spot, count_of, listed, when_over
from topmast.fast.region.explain.rejections import emptied, pending_reason, roomy_hosts
from topmast.fast.region.invariants import check_hosts, check_index
from topmast.fast.region.inventory.allocation import AllocationPhase
from topmast.fast.region.inventory.columns import Columns, cpus_of
from topmast.fast.region.inventory.index import Pool
from topmast.fast.region.machine import RegionalPlacer
from topmast.fast.region.search.domains import Space
from topmast.fast.region.search.packing import gpus_of_task
from topmast.fast.region.search.scoring import choices_of

__all__ = [
    "AllocationPhase",
    "Columns",
    "Pool",
    "RegionalPlacer",
    "Space",
    "Spot",
    "check_hosts",
    "check_index",
    "choices_of",
    "count_of",
    "cpus_of",
    "emptied",
    "gpus_of_task",
    "listed",
    "pending_reason",
    "region_changes",
    "roomy_hosts",
    "states_of",
    "when_over",
]
