"""What a policy is: options of a profile, and the hooks an engine calls.

A profile is a small data file (`profiles/`). The machines read its options; nothing is ever
chosen by the profile's name.
"""

from __future__ import annotations

from msgspec import Struct


class ScoreWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of the score's terms (fast-path: score of a plan); the lower sum wins.

    ``preemption`` per GPU-hour of lost work; ``speed`` per unit of slowdown against the job's best
    model; ``locality`` per level above the preferred one; ``fragmentation`` for a host left
    wholly stranded; ``data`` per hour until the data is there; ``balance`` per unit of
    demand over supply.
    """

    preemption: float = 10.0
    speed: float = 4.0
    locality: float = 1.0
    fragmentation: float = 0.5
    data: float = 6.0
    balance: float = 0.5


class RankWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the credit inside a band: waiting time and fair share."""

    age: float = 0.5
    fairness: float = 0.5
    age_cap_s: float = 86_400.0
    usage_half_life_s: float = 86_400.0


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """A named combination of options.

    ``min_runtime_s``: younger attempts are no victims. ``restart_cost_s``: what a restart costs
    beside the lost work. ``rerank_interval_s``: how long credit stays frozen. ``backoff_s`` and
    ``backoff_cap_s``: the growing delay before a failed job starts again. ``on_demand_copies``
    and ``copy_limit_s``: whether, and for how long at most, a job may wait for a copy of its data.
    """

    name: str
    description: str = ""
    score: ScoreWeights = ScoreWeights()
    rank: RankWeights = RankWeights()
    min_runtime_s: float = 300.0
    restart_cost_s: float = 30.0
    rerank_interval_s: float = 60.0
    backoff_s: float = 2.0
    backoff_cap_s: float = 300.0
    on_demand_copies: bool = True
    copy_limit_s: float = 3_600.0
    host_losses_allowed: int = 20
    suspect_s: float = 60.0
