"""What a fleet file may set of the local engine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=0)]


class LocalOptions(Struct, frozen=True):
    """What a fleet file may say below ``options`` of a cluster of this engine."""

    host_return_s: Seconds = 10.0
    """How long a host stays down after its agent died."""
    progress_s: Seconds = 0.2
    """How often what tasks report is read."""
    linger_s: Seconds = 30.0
    """How long an agent waits for a Topmast when it has no task."""
    eager_hosts: Count = 32
    """In a cluster of up to so many hosts all agents start at once, else when one is needed."""
    keep_attempts: Count = 1000
    """Of how many ended attempts the files are kept."""
