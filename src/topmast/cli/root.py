"""What the command line cannot do as a client: `app` composes it, and hands it in as a `Root`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PORT = 6278
"""MAST, on the keys of a telephone."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """`topmast up`. ``fleet`` None: the fleet of the state folder, or a default one.

    ``placers``: URLs of the regions that the queue's process does not place itself. ``region`` and
    ``queue``: what a placer's process is for, and where its queue is. ``link``: one more address, for
    links alone. ``throughputs``: a table of measured speeds, with pairs.
    """

    fleet: Path | None
    state: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    profile: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    json: bool = False
    role: str = "all"
    placers: dict[str, str] = field(default_factory=dict)
    region: str | None = None
    queue: str | None = None
    link: str | None = None
    token_file: Path | None = None
    checkpoints: Path | None = None
    throughputs: Path | None = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """`topmast demo`. ``state`` None: a folder made for it, and removed unless ``keep``."""

    state: Path | None = None
    keep: bool = False
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """`topmast replay`. ``until_s`` None: to the end of the journal."""

    state: Path
    until_s: float | None = None
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions:
    """`topmast whatif`. ``until_s`` None: as it is now. The rest is what is changed in one of two futures.

    ``add_hosts``: so many more hosts by ``CLUSTER`` or ``CLUSTER:KIND``; ``quotas``: whole GPUs by ``TENANT:MODEL``; ``throughputs``: the table
    that its server was given, in both futures.
    """

    state: Path
    until_s: float | None = None
    for_s: float = 86_400.0
    add_hosts: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    profile: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    lose_regions: tuple[str, ...] = ()
    throughputs: Path | None = None


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
    delay_s: float | None = None
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


@dataclass(frozen=True)
class Root:
    """What `app` hands in; each callable imports what it needs when it is called.

    ``serve`` and ``demo`` print what they have to say and return the exit code. ``replay``,
    ``bench`` and ``whatif`` return a document (a Struct, dataclass or dict) that the command line shows; what they
    have to say on the way goes to stderr. All raise a `TopmastError` to fail with one clear line.
    """

    serve: Callable[[ServeOptions], int]
    demo: Callable[[DemoOptions], int]
    replay: Callable[[ReplayOptions], object]
    bench: Callable[[str, BenchOptions], object]
    whatif: Callable[[WhatIfOptions, Callable[[int, int, float], None]], dict[str, Any]]
