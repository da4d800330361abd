"""What commands hand to the `Root`: all that it has to know of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PORT = 6278
"""MAST, on the keys of a telephone."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """`topmast up`."""

    fleet: Path | None
    """None: the fleet of the state folder, or a default one."""
    state: Path
    fleet_replaces: bool = False
    """The fleet file goes before what was changed while the server ran."""
    validate: bool = False
    """Check invariants while the server runs."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    profile: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    json: bool = False
    role: str = "all"
    placers: dict[str, str] = field(default_factory=dict)
    """URLs of the regions that run in processes of their own."""
    region: str | None = None
    """The region of a placer's process."""
    queue: str | None = None
    """The URL of the queue, for a placer's process."""
    link: str | None = None
    """One more address, for links alone."""
    token_file: Path | None = None
    checkpoints: str | None = None
    """A folder, or the URL of a bucket."""
    throughputs: Path | None = None
    """A table of measured speeds, with pairs."""
    store: str | None = None
    """The URL of the database with the journal; None: what the state folder had before."""
    standby: bool = False
    """Follow the leader while there is one, and lead when there is none."""
    reads: bool = False
    """Answer what only reads while another process leads, some seconds old at most."""
    keep_months: int | None = None
    """Forget jobs that ended so many whole months ago; 0: never; None: as before."""
    keep_workdirs: int | None = None
    """Keep so many bytes of uploaded work folders at most; None: as before."""
    queue_memory: int | None = None
    """Take jobs of accounts until all have so many bytes, by an estimate; None: as before."""
    listen: str | None = None
    """HOST:PORT for other machines, over TLS and with login."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    """What clients call the server."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies that say truly from which address a request comes."""
    accounts: Path | None = None
    """A file about logins; one is asked for on loopback, too."""
    otlp: str | None = None
    """The URL of a collector that gets a span for each request."""
    notify_networks: tuple[str, ...] = ()
    """Networks of the site itself where webhooks may be received."""
    everyone_is_trusted: bool = False
    """Tasks may run as the server's user although other people submit them."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """`topmast demo`."""

    state: Path | None = None
    """None: a folder made for it, and removed unless ``keep``."""
    keep: bool = False
    json: bool = False
    engines: bool = False
    """On a Slurm cluster and hosts behind SSH as well, which it starts."""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """`topmast replay`."""

    state: Path
    until_s: float | None = None
    """None: to the end of the journal."""
    json: bool = False
    serve: bool = False
    """Show any moment in the pages of the dashboard, until a signal."""
    host: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """`topmast db`, `backup` and `restore`."""

    state: Path
    store: str | None = None
    """The URL of a database; None: the one of the state folder."""
    file: Path | None = None
    """The backup."""
    to: str | None = None
    """The file or URL of an empty database."""
    switch: bool = False
    """Let the state folder use the copy."""
    verify: bool = False
    """Restore into a folder that goes away again."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """`topmast doctor`: what to look at, beside this machine."""

    state: Path
    """Where a server would keep its state."""
    fleet: Path | None = None
    store: str | None = None


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions:
    """`topmast whatif`: the changes in one of two futures."""

    state: Path
    until_s: float | None = None
    """The start of both futures; None: now."""
    for_s: float = 86_400.0
    add_hosts: dict[str, int] = field(default_factory=dict)
    """So many more hosts by ``CLUSTER`` or ``CLUSTER:KIND``."""
    quotas: dict[str, int] = field(default_factory=dict)
    """Whole GPUs by ``TENANT:MODEL``."""
    profile: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    """The same, out of files: rounds in them are of both futures."""
    lose_regions: tuple[str, ...] = ()
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other values of what a job asks for, by job: those that `edit` changes."""
    throughputs: Path | None = None
    """The server's table of measured speeds, in both futures."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """`topmast bench NAME`. None: what the benchmark does by default."""

    jobs: int | None = None
    clients: int | None = None
    duration_s: float | None = None
    seed: int = 0
    state: Path | None = None
    json: bool = False
    regions: int | None = None
    clusters: int | None = None
    hosts: int | None = None
    gpus_per_host: int | None = None
    fill: float | None = None
    rate: float | None = None
    load: float | None = None
    profile: str | None = None
    engine: str | None = None
    profiles: tuple[str, ...] | None = None
    """Of the closed loop."""
    delay_s: float | None = None
    apart: bool = False
    """Each region has a process of its own."""
    mix: bool = False
    """Requests tell the mix of tasks seen lately."""
    sizes_gpus: tuple[int, ...] | None = None
    scaling: bool = False
    first_use: bool = True
    out: Path | None = None
    throughputs: Path | None = None
    cases: tuple[int, ...] | None = None
    peer: bool = True
    domains: int | None = None
    size_bytes: int | None = None
    files: int | None = None
    trace: Path | None = None
    fleet: Path | None = None
    format: str = "topmast"
    settings: dict[str, str] = field(default_factory=dict)
    asked: float | None = None
    seeds: int | None = None
    names: tuple[str, ...] = ()
    """Of clusters; empty: all."""
    starts: int | None = None
    gangs: int | None = None
    tasks: int | None = None
    home: str = ""
    store: str | None = None
    """The URL of an empty database for the journal; None: a file."""
    turns: int = 1
    """How often each of several benchmarks runs."""
    before: Path | None = None
    """A file of figures, and one of a later version."""
    after: Path | None = None
