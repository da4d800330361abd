"""How a server fares: what it leads, how long it takes, and what waits."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from topmast.model.views import Health


class TimingView(Struct, frozen=True):
    """How long one step takes, since the server's start."""

    step: str
    count: int
    mean_s: float
    median_s: float
    """An upper bound, as are the others: times are counted in classes."""
    p99_s: float


class SystemView(Struct, frozen=True):
    """A server at a glance."""

    health: Health
    timings: tuple[TimingView, ...]
    """First that of commits, then one for each kind of machine that decides."""
    inbox_depth: int
    """Events that wait to be handled."""
    records: int
    """Records that were committed since the start."""
    event_readers: int
    """Readers of the event stream."""
    out_of_reach: tuple[str, ...]
    """Regions of other processes that do not answer."""


class ProfileView(Struct, frozen=True):
    """What a server decides by."""

    name: str
    """The profile: `topmast policies` lists all."""
    options: dict[str, Any]
    """By name, those that are not as the profile of that name has them."""


class ProfileAct(Struct, frozen=True):
    """What decides now, and what will."""

    now: ProfileView
    later: ProfileView
    """What the next leader decides by, or this server after its next start."""
    effect: str = ""
    """``done`` or ``unchanged``, of an act."""
    dry_run: bool = False
    """Nothing was done."""
    foreseen: dict[str, str] = {}
    """What forecasts are told of starts, checkpoints and GPUs: `topmast up --set sim.KEY=VALUE`."""
