"""What Topmast wants from the outside world; `adapters` has the implementations.

A port is handed in at the composition root (`app`). Nothing below it knows which one it got.
"""

from topmast.model.engines import Capability, Deadlines
from topmast.ports.engines import (
    Calls,
    Engine,
    EngineOrders,
    Exec,
    Finding,
    Level,
    LogPage,
    NoOptions,
    Orders,
    Replica,
    Site,
)
from topmast.ports.journal import (
    Act,
    ActFilter,
    ActRow,
    AttemptRow,
    Audit,
    HistoryRow,
    JobRow,
    Journal,
    Record,
    Snapshot,
    UsageDay,
)
from topmast.ports.machines import (
    Clock,
    Decision,
    Machine,
    Post,
)
from topmast.ports.mover import (
    Mover,
)

__all__ = [
    "Act",
    "ActFilter",
    "ActRow",
    "AttemptRow",
    "Audit",
    "Calls",
    "Capability",
    "Clock",
    "Deadlines",
    "Decision",
    "Engine",
    "EngineOrders",
    "Exec",
    "Finding",
    "HistoryRow",
    "JobRow",
    "Journal",
    "Level",
    "LogPage",
    "Machine",
    "Mover",
    "NoOptions",
    "Orders",
    "Post",
    "Record",
    "Replica",
    "Site",
    "Snapshot",
    "UsageDay",
]
