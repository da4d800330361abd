"""A cluster: the life of each gang from launch to its last process.

Other packages import what stands here; `facts` has the vocabulary of the journal.
"""

from topmast.fast.cluster.attempt import Attempt, AttemptPhase, TaskPhase
from topmast.fast.cluster.machine import ClusterManager
from topmast.fast.cluster.packing import Packing

__all__ = ["Attempt", "AttemptPhase", "ClusterManager", "Packing", "TaskPhase"]
