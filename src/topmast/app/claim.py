"""What a process that wants to lead says of itself."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

from topmast.adapters.engines.leader import highest_in
from topmast.adapters.store import Claim

ENGINES = "engines"
"""The folder with one of each cluster's engine."""
ID = "id"
"""The file that tells a state folder from all others."""


def claim_of(state: Path, address: str = "") -> Claim:
    """The claim of this process, with a state folder that is there."""
    return Claim(holder(), address, folder_of(state), highest_in(folders_in(state / ENGINES)))


def holder() -> str:
    """This process, for people, and apart from all others of its time."""
    return f"{socket.gethostname()} pid {os.getpid()}"


def folder_of(state: Path) -> str:
    """Tells a state folder, on this machine, from all others."""
    file = state / ID
    if not file.exists():
        part = file.with_name(f"{ID}.{uuid.uuid4().hex}")
        part.write_text(f"{uuid.uuid4().hex}\n", encoding="utf-8")
        try:
            os.link(part, file)
        except FileExistsError:  # another process was quicker
            pass
        finally:
            part.unlink()
    return f"{file.read_text('utf-8').strip()}@{socket.gethostname()}"


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder that may be missing, by name."""
    return sorted(f for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []
