"""`topmast doctor`: whether a machine, a database and the clusters of a fleet are fit for a server.

Nothing is changed anywhere, and no server is needed.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from topmast.cli.rootoptions import DoctorOptions
from topmast.model.errors import InvalidInput, TopmastError
from topmast.ports import Finding, Level

LEAST_FREE_BYTES = 1 << 30
"""Below it, a journal and the output of tasks soon fill a disk."""
LEAST_FILES = 4_096
"""Connections, tasks and their output each need an open file."""
SKEW_S = 2.0
"""Clocks further apart make times in listings misleading; certificates and munge bear more."""
SERVER_NEEDS = ("alembic", "fastapi", "highspy", "numba", "numpy", "obstore", "scipy", "sqlalchemy",
                "structlog", "uvicorn", "uvloop")  # fmt: skip


def examine(options: DoctorOptions) -> dict[str, Any]:
    """All findings, by where they were made, and how many of them are faults."""
    rows = [("this machine", finding) for finding in _machine(options.state)]
    store = options.store or _remembered(options.state)
    if store is not None:
        rows += [("database", finding) for finding in _database(store)]
    if options.fleet is not None:
        rows += list(_fleet(options.fleet))
    findings = [
        {"where": where, "level": found.level.value, "what": found.what, "detail": found.detail,
         "remedy": found.remedy}
        for where, found in rows
    ]  # fmt: skip
    return {"findings": findings, "faults": sum(f["level"] == Level.FAULT for f in findings)}


def _machine(state: Path) -> Iterator[Finding]:
    yield Finding(Level.OK, "python", f"{platform.python_version()} at {sys.executable}")
    missing = [name for name in SERVER_NEEDS if find_spec(name) is None]
    if missing == list(SERVER_NEEDS):
        yield Finding(
            Level.WARNING, "packages",
            f"those of a client; a server also needs {', '.join(missing)}",
            "pip install 'topmast[server]' for a server",
        )  # fmt: skip
    elif missing:
        yield Finding(
            Level.FAULT, "packages", f"not installed: {', '.join(missing)}",
            "pip install 'topmast[server]'",
        )  # fmt: skip
    else:
        yield Finding(Level.OK, "packages", "a server has all that it needs")
    yield from _folder(state)
    yield from _content(state)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = most == resource.RLIM_INFINITY or most >= LEAST_FILES
    said = "no limit" if most == resource.RLIM_INFINITY else f"at most {most}"
    if enough:
        yield Finding(Level.OK, "open files", said)
    else:
        yield Finding(Level.WARNING, "open files", said, f"ulimit -Hn {LEAST_FILES} or more")


def _folder(state: Path) -> Iterator[Finding]:
    there = next(path for path in (state, *state.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            Level.FAULT, "state folder", f"cannot write to {there}", "choose another --state"
        )  # fmt: skip
        return
    room = shutil.disk_usage(there)
    if not room.total:  # as of /proc, where the rights allow to make a file that cannot be made
        yield Finding(
            Level.FAULT, "state folder", f"{there} is not on a disk: nothing can be kept there",
            "choose another --state",
        )  # fmt: skip
        return
    free = room.free
    if free < LEAST_FREE_BYTES:
        yield Finding(
            Level.WARNING, "state folder", f"{state}: {free >> 20} MiB are free",
            "make room, or choose another --state",
        )  # fmt: skip
    else:
        yield Finding(Level.OK, "state folder", f"{state}: {free >> 30} GiB are free")


def _content(state: Path) -> Iterator[Finding]:
    """What keeps a server from a state folder that is there, as `topmast up` would say it."""
    try:
        from topmast.adapters.store import JOURNAL, open_journal
        from topmast.app.folder import is_open
    except ImportError:
        return  # a client alone, which keeps no state
    if not state.is_dir() or not os.access(state, os.R_OK | os.X_OK):
        return
    try:
        if is_open(state):
            yield Finding(
                Level.WARNING, "rights", f"{state} is open to other users of this machine",
                f"chmod 700 {state}; a server does so at its start",
            )  # fmt: skip
        if (state / JOURNAL).is_file():
            journal = open_journal(state / JOURNAL, read_only=True)
            try:
                journal.latest_snapshot()
            finally:
                journal.close()
    except InvalidInput as error:
        yield Finding(Level.FAULT, "rights", error.message, error.remedy)
    except TopmastError as error:
        yield Finding(Level.FAULT, "journal", str(error), f"topmast db check --state {state}")


def _remembered(state: Path) -> str | None:
    """The database of a state folder, where it has one."""
    try:
        from topmast.adapters.store import store_of
    except ImportError:
        return None
    target = store_of(state)
    return target if isinstance(target, str) else None


def _database(url: str) -> Iterator[Finding]:
    try:
        from topmast.adapters.clock import wall_s
        from topmast.adapters.store import checked, clock_of

        begun_s = time.monotonic()
        theirs_s, version = clock_of(checked(url))
        took_s = time.monotonic() - begun_s
    except (TopmastError, ImportError) as error:
        yield Finding(Level.FAULT, "reach it", str(error))
        return
    yield Finding(Level.OK, "reach it", f"PostgreSQL {version}")
    skew_s = abs(wall_s() - theirs_s)
    if skew_s > SKEW_S + took_s:
        yield Finding(
            Level.WARNING, "clock", f"{skew_s:.0f} s from the clock of this machine",
            "let both be set by NTP",
        )  # fmt: skip
    else:
        yield Finding(Level.OK, "clock", f"within {SKEW_S:g} s of this machine")


def _fleet(file: Path) -> Iterator[tuple[str, Finding]]:
    try:
        from topmast.adapters.engines.registry import check_engines, examine
        from topmast.model.files.fleetfile import read_fleet
        from topmast.policies.registry import DEFAULT_PROFILE, load_profile
    except ModuleNotFoundError as error:
        why = f"not looked at: {error.name} is missing"
        yield str(file), Finding(Level.FAULT, "file", why, "pip install 'topmast[server]'")
        return
    faults = _faults(lambda: read_fleet(file, check_engines))
    for one in faults:
        where = one.where or str(file)
        yield where, Finding(Level.FAULT, one.field or "file", one.message, one.remedy)
    if _faults(lambda: read_fleet(file)):
        return
    fleet, told = read_fleet(file), {one.message for one in faults}
    clusters = sum(len(region.clusters) for region in fleet.regions)
    if not faults:
        yield str(file), Finding(Level.OK, "file", f"{clusters} cluster{'s' * (clusters != 1)}")
    for cluster, finding in examine(fleet, load_profile(DEFAULT_PROFILE, {})):
        if finding.detail not in told:
            yield f"cluster {cluster}", finding


def _faults(read: Callable[[], object]) -> tuple[InvalidInput, ...]:
    """All that is wrong with what is read."""
    try:
        read()
    except InvalidInput as error:
        return (error, *error.more)
    return ()
