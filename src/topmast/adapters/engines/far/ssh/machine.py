"""What a host is as a machine: its boots, what it has, and which host of a fleet it serves as.

It is sent to hosts with `remote`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = Any
SMI_S = 20.0
LINE_MOST = 200
_GPU = re.compile(r"([^\r]+), *([0-9]{1,9}|\[[^]]*\]|N/A) *\r?")
"""A GPU and its memory in MiB, which some do not tell; anything else is a message."""
CLAIMS = "topmast-ssh"
CLAIM_S = 5.0
NAMED_MOST = 50
"""Of the name of a host, so that a claim fits into the name of a socket."""


class Refused(Exception):
    """Nothing was made; the text says why."""


def boot_id() -> str:
    """Of the time since the machine was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_s() -> float:
    """A clock that is never set, and begins anew with each boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- one machine, one host ------------------------------------------------------------------------


def machine() -> str:
    """The same for all addresses and accounts of a machine; containers count as machines."""
    return f"{boot_id()}/{_inode('net')}/{_inode('pid')}"


def _inode(namespace: str) -> int:
    return Path(f"/proc/self/ns/{namespace}").stat().st_ino


def claim(host: str) -> socket.socket:
    """Let the machine serve as this host for as long as the socket is open in any process.

    Two addresses may lead to one machine, and what runs there must not be started beside itself.
    The claim is the name of an abstract socket: every account sees it, it ends with the last
    process that has it, and network namespaces, as most containers have them, are machines of their
    own. Raises Refused when the machine serves as a host of another name: names are unique in a
    fleet, and a cluster that takes a host over, or a state folder made anew, calls it the same.
    """
    place = f"{CLAIMS}/{_inode('pid')}/"
    owner = hashlib.sha256(host.encode()).hexdigest()[:16]
    called = host[:NAMED_MOST]
    with _alone(f"{CLAIMS}-claims/{_inode('pid')}"):
        for name in _sockets():
            if name.startswith(place):
                other, _, its_name = name[len(place) :].split("/", 2)
                if other != owner:
                    raise Refused(
                        f"this machine is in use as host {its_name} already: two addresses lead to "
                        f"it, or another Topmast uses it. Take {called} or {its_name} out of its "
                        f"fleet file"
                    )
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        claimed.bind(f"\0{place}{owner}/{secrets.token_hex(4)}/{called}")
        return claimed


def serve(host: str, fleet: str, instance: str) -> socket.socket:
    """Let this connection serve a Topmast, which is told by its process and by its engine's folder.

    Another one may call the machine the same, with a copy of the fleet file. What has neither in
    common is another one; a later process of the same folder is not, nor is another cluster of the
    same process. Raises Refused.
    """
    place = f"{CLAIMS}-serving/{_inode('pid')}/"
    ours = [hashlib.sha256(word.encode()).hexdigest()[:16] for word in (fleet, instance)]
    with _alone(f"{CLAIMS}-claims/{_inode('pid')}"):
        for name in _sockets():
            if name.startswith(place) and not set(name[len(place) :].split("/")[:2]) & set(ours):
                raise Refused(
                    f"this machine is in use as host {host[:NAMED_MOST]} already, by another "
                    f"Topmast that runs: take the host out of the fleet file of one of the two"
                )
        serving = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        serving.bind(f"\0{place}{'/'.join(ours)}/{secrets.token_hex(4)}")
        return serving


def _sockets() -> Iterator[str]:
    """The names of the abstract sockets of this network namespace."""
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
        parts = line.split(None, 7)
        if len(parts) == 8 and parts[7].startswith("@"):
            yield parts[7][1:]


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """No other process of the machine does the same meanwhile."""
    until_s = time.monotonic() + CLAIM_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as only:
        while True:
            try:
                only.bind(f"\0{name}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until_s:
                    raise Refused(f"the machine cannot be claimed: {error.strerror}") from None
                time.sleep(0.01)
        yield


# --- what it has ----------------------------------------------------------------------------------


def facts() -> Json:
    """What this host has."""
    memory_kib = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    gpus, why = graphics()
    return {
        "cpus": len(os.sched_getaffinity(0)), "memory_bytes": memory_kib << 10, "gpus": gpus,
        "why": why, "machine": machine(), "now_s": time.time(),
    }  # fmt: skip


def graphics() -> tuple[list[Json], str]:
    """The GPUs as nvidia-smi tells them, and why there are none, or what else it says."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "there is no nvidia-smi"
    query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run([program, *query], timeout=SMI_S, capture_output=True)
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi does not answer within {SMI_S:g} s, as where its driver hangs"
    except OSError as error:
        return [], f"nvidia-smi cannot be started: {error.strerror}"
    text = said.stdout.decode(errors="replace")
    if said.returncode:
        told = _first_line(text) or _first_line(said.stderr.decode(errors="replace"))
        return [], f"nvidia-smi: {told or f'it ended with code {said.returncode}'}"
    rows = [(line, _GPU.fullmatch(line)) for line in text.split("\n")]
    gpus = [
        {"name": row[1].strip(), "memory_bytes": int(row[2]) << 20 if row[2].isdigit() else 0}
        for _, row in rows if row
    ]  # fmt: skip
    odd = _first_line("\n".join(line for line, row in rows if not row))
    if odd:
        return gpus, f"nvidia-smi: {odd}"
    return gpus, "" if gpus else "nvidia-smi shows no GPU"


def _first_line(text: str) -> str:
    """The first line with anything to read, as far as a person would read it."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "")[:LINE_MOST]
