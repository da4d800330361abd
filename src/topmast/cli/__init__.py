"""The command line: presentation only, a client of the REST interface."""

from topmast.cli.main import build, main
from topmast.cli.root import (
    BenchOptions,
    DemoOptions,
    DoctorOptions,
    ReplayOptions,
    Root,
    ServeOptions,
    StoreOptions,
    WhatIfOptions,
)

__all__ = [
    "BenchOptions",
    "DemoOptions",
    "DoctorOptions",
    "ReplayOptions",
    "Root",
    "ServeOptions",
    "StoreOptions",
    "WhatIfOptions",
    "build",
    "main",
]
