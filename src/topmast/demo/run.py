"""One demo from beginning to end: a folder, a server, the play, the findings, and nothing left."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from topmast.client import Client
from topmast.demo import tables
from topmast.demo.findings import Findings, Inquest
from topmast.demo.machines import Machines, RealMachines
from topmast.demo.play import Play
from topmast.demo.screen import Screen, open_screen
from topmast.demo.server import LOG, Server
from topmast.demo.watch import Feed, Watch
from topmast.model.errors import InvalidInput, TopmastError

SETTINGS = {
    # A second here stands for minutes: a job that has run for one may be preempted, and waiting one
    # for data has its price.
    "min_runtime_s": "1",
    "score.data": "3600",
}


class Took(Struct, frozen=True):
    """How long each part of a demo took."""

    kernels_s: float
    """Waited for compiled kernels: 0, for a server decides without them."""
    server_s: float
    jobs_s: float


class DemoResult(Struct, frozen=True):
    """What `perform` brings back."""

    findings: Findings
    took: Took
    wall_s: float
    kept: Path | None


def run_demo(*, state: Path | None, keep: bool, as_json: bool, engines: bool) -> int:
    """`topmast demo`: show everything, tell the result; 0 if all happened. Raises TopmastError."""
    outcome = perform(state, keep=keep, machines=RealMachines() if engines else Machines())
    findings = outcome.findings
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(document(outcome)) + b"\n")
        sys.stdout.flush()
    else:
        console = tables.result_console()
        tables.show_result(console, findings)
        tables.show_claims(console, findings, outcome.wall_s)
        tables.show_commands(console, findings, outcome.kept)
    if findings.gave_up:
        sys.stderr.write(time_is_up(findings, outcome.took) + "\n")
    for claim in findings.missing:
        sys.stderr.write(f"{tables.verdict(findings)}: {claim.what}\n")
    if findings.missing and outcome.kept is not None:
        sys.stderr.write(f"the files of the demo are in {outcome.kept}\n")
    return 1 if findings.missing else 0


def time_is_up(findings: Findings, took: Took) -> str:
    """That the demo waited no longer, for what, and where the time went."""
    left = ", ".join(findings.unfinished) or "no job"
    return (
        f"time is up: {findings.gave_up}; not ended: {left}. "
        f"The server's start took {took.server_s:.0f} s, the jobs {took.jobs_s:.0f} s"
    )


def document(outcome: DemoResult) -> dict[str, object]:
    """The result for programs."""
    findings = outcome.findings
    return {
        "jobs": findings.jobs,
        "preemptions": findings.preemptions,
        "resumes": findings.resumes,
        "host_losses": findings.host_losses,
        "copies": findings.copies,
        "copied_bytes": findings.copied_bytes,
        "explained": findings.explained,
        "engines": findings.engines,
        "wall_s": round(outcome.wall_s, 3),
        "took": outcome.took,
        "gave_up": findings.gave_up,
        "unfinished": findings.unfinished,
    }


def perform(state: Path | None, *, keep: bool, machines: Machines) -> DemoResult:
    """Run the demo; the folder stays if it is to be kept, or if something went wrong."""
    began_s = time.monotonic()
    folder = _make_folder(state)
    kept = keep
    try:
        with _ending_by_sigterm():
            findings, took = _perform_in(folder, machines)
        kept = keep or bool(findings.missing)
    except TopmastError:
        kept = True
        sys.stderr.write(f"the server's log is {folder / LOG}\n")
        raise
    finally:
        if not kept:
            _remove(folder, whole=state is None)
    return DemoResult(findings, took, time.monotonic() - began_s, folder if kept else None)


def _perform_in(folder: Path, machines: Machines) -> tuple[Findings, Took]:
    screen = open_screen()
    server: Server | None = None
    try:
        began_s = time.monotonic()
        server = Server(folder, machines.start(folder, screen.note), SETTINGS)
        screen.note("starting a server with three regions and five clusters")
        url = server.start()
        started_s = time.monotonic()
        findings = _perform_on(url, server, machines, screen)
        took = Took(
            kernels_s=0.0,
            server_s=round(started_s - began_s, 3),
            jobs_s=round(time.monotonic() - started_s, 3),
        )
        return findings, took
    finally:
        with _uninterrupted():
            screen.close()
            if server is not None:
                server.stop()
            machines.stop()


def _perform_on(url: str, server: Server, machines: Machines, screen: Screen) -> Findings:
    feed = Feed(url)
    try:
        with Client(url) as client:
            watch = Watch(client, feed)
            seen = Play(client, server, machines, watch, screen).run()
            return Inquest(client, watch, seen, machines).findings()
    finally:
        feed.close()


# --- the folder ---------------------------------------------------------------------------------


def _make_folder(state: Path | None) -> Path:
    if state is None:
        return Path(tempfile.mkdtemp(prefix="topmast-demo-"))
    if state.exists() and (not state.is_dir() or any(state.iterdir())):
        raise InvalidInput(
            f"{state} is there already", field="--state", remedy="name an empty or a new folder"
        )
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return state.absolute()


def _remove(folder: Path, whole: bool) -> None:
    """Remove the folder, or what we put into it."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if whole:
        with suppress(OSError):
            folder.rmdir()


# --- signals ------------------------------------------------------------------------------------


@contextmanager
def _ending_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: cleared up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Clearing up takes a second or two, and must not be broken off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
