"""What a fleet file may say of every cluster that is far; launchers add options of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from topmast.adapters.engines.forms import ADVERTISE, FOLDER, LISTEN

Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Count = Annotated[int, Meta(ge=0)]


class FarOptions(Struct, frozen=True):
    """Base of the ``options_type`` of every launcher."""

    listen: Annotated[str, LISTEN] = "127.0.0.1:0"
    """Where runners call home: ``ADDRESS:PORT`` (port 0: any, and the same after a restart), or
    ``unix:/path``.
    """
    advertise: Annotated[str, ADVERTISE] = ""
    """``HOST[:PORT]`` by which runners reach that address; empty: as it is."""
    lease_s: Annotated[float, Meta(ge=1, le=604_800)] | Literal["none"] = 600.0
    """A runner that was not answered for so long ends its tasks; ``none`` trusts the scheduler."""
    poll_s: Seconds = 2.0
    """How often the scheduler is asked while anything is there."""
    work: Annotated[str, FOLDER] = ""
    """The folder on each host below which work folders are made; empty: that of the system."""
    data: Literal["shared", "home"] = "shared"
    """``shared``: hosts have the folders of stores, and fetch from buckets; ``home``: they have and
    reach neither, and fetch everything by way of the engine.
    """
    cache: Annotated[str, FOLDER] = ""
    """The folder on each host for datasets that were fetched; empty: one beside work folders."""
    cache_max_bytes: Count = 0
    """The most that it may hold; 0 does not limit."""
    log_max_bytes: Count = 1 << 30
    """Of the output of each task that is kept; the rest is dropped."""
    keep_attempts: Count = 1000
    """Of how many ended attempts the output is kept."""
