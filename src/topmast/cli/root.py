"""What the command line cannot do as a client: `app` composes it, and hands it in as a `Root`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topmast.cli import rootoptions


@dataclass(frozen=True)
class Root:
    """What `app` hands in; each callable imports what it needs when it is called.

    All raise a `TopmastError` to fail with one clear line. ``replay``, ``database``, ``bench`` and
    ``whatif`` return a document (a Struct, dataclass or dict) to be shown; their progress goes to
    stderr.
    """

    serve: Callable[[rootoptions.ServeOptions], int]
    """Prints what it has to say and returns the exit code."""
    demo: Callable[[rootoptions.DemoOptions], int]
    """Prints what it has to say and returns the exit code."""
    break_glass: Callable[[Path, float], tuple[str, bool]]
    """Makes a token of an administrator in a state folder, good for so many seconds; says whether
    one that was made before would still be good."""
    replay: Callable[[rootoptions.ReplayOptions], object]
    database: Callable[[str, rootoptions.StoreOptions], dict[str, Any]]
    """The first argument is the command: check, upgrade, copy, backup, restore."""
    doctor: Callable[[rootoptions.DoctorOptions], dict[str, Any]]
    """Findings, and how many of them are faults."""
    bench: Callable[[str, rootoptions.BenchOptions], object]
    whatif: Callable[[rootoptions.WhatIfOptions, Callable[[int, int, float], None]], dict[str, Any]]
