"""What is shown of times that are over, as lines."""

from __future__ import annotations

from msgspec import Struct


class SeriesView(Struct, frozen=True):
    """One figure over time."""

    key: tuple[str, ...]
    """Its kind, then what tells it from others of the kind: a region, a GPU model, a tenant."""
    values: tuple[float | None, ...]
    """One for each moment; None: it is not known."""


class FleetHistory(Struct, frozen=True):
    """Figures over time."""

    from_s: float
    until_s: float
    step_s: float
    """Each value is the mean of so many seconds."""
    first_s: float | None
    """When the samples of this resolution begin; None: there are none yet."""
    times: tuple[float, ...]
    """The beginnings of what the values are means of, in seconds since the epoch, ascending."""
    series: tuple[SeriesView, ...]


class CurveView(Struct, frozen=True):
    """A metric of a job over its steps."""

    name: str
    steps: tuple[int, ...]
    """Ascending: what a job computed anew after a restart replaces what was lost."""
    values: tuple[float | None, ...]
