"""The state folder: for its owner alone, and for one kind of process.

Commands that refuse what they are given need it before anything that takes long to import.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from topmast.adapters.store import JOURNAL
from topmast.app.claim import ID
from topmast.model.errors import InvalidInput

log = structlog.get_logger(__name__)

ROLE = "role"
QUEUE_ROLE = "the queue"


def own_folder(state: Path) -> None:
    """Make the state folder, for its owner alone; close one that is open to others.

    Only a folder that is empty or Topmast's own is closed. For any other, such as a home, and for
    one that cannot be made it raises InvalidInput.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(
            f"{state} cannot be made: {error.strerror}", field="--state",
            remedy="name a folder that this user may make",
        ) from None  # fmt: skip
    if not is_open(state):
        return
    state.chmod(0o700)
    log.warning(
        "the state folder was open to other users; it is closed to them now", folder=str(state)
    )


def is_open(state: Path) -> bool:
    """Whether others may look into a state folder. Raises InvalidInput if it cannot be closed."""
    found = state.stat()
    if not found.st_mode & 0o077:
        return False
    ours = (state / ROLE).exists() or (state / JOURNAL).exists() or not any(state.iterdir())
    if found.st_uid != os.geteuid() or not ours:
        raise InvalidInput(
            f"{state} is open to other users of this machine", field="--state",
            remedy=f"chmod 700 {state}, or name a new folder",
        )  # fmt: skip
    return True


def leave(state: Path, made: bool) -> None:
    """Remove a state folder that this process ``made`` and that has nothing in it but its name."""
    if made and state.is_dir() and [file.name for file in state.iterdir()] in ([], [ID]):
        (state / ID).unlink(missing_ok=True)
        state.rmdir()


def claim_role(state: Path, role: str) -> None:
    """Note at the first start what a state folder is for. Raises InvalidInput for another's."""
    file = state / ROLE
    fresh = not (state / JOURNAL).exists()
    known = file.read_text("utf-8").strip() if file.exists() else ""
    known = known or ("" if fresh else QUEUE_ROLE)
    if known not in ("", role):
        raise InvalidInput(
            f"{state} belongs to {known}, not to {role}", field="--state",
            remedy="one folder for each process",
        )  # fmt: skip
    if not known or not file.exists():
        file.write_text(f"{role}\n", encoding="utf-8")


def note(state: Path, name: str, content: bytes) -> None:
    """Write a file of the folder for other processes, as a whole, unless it is there so.

    A disk that is full keeps no server from leading: others go without the file, and it says so.
    """
    file, part = state / name, state / f"{name}.{os.getpid()}.part"
    try:
        if file.is_file() and file.read_bytes() == content:
            return
        part.write_bytes(content)
        part.chmod(0o600)
        part.replace(file)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        log.warning("a note in the state folder is missing", file=str(file), why=error.strerror)
