"""Files with secrets that others hand to the server: they are for its user alone."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from topmast.model.errors import InvalidInput

log = structlog.get_logger(__name__)


def require_private(file: Path, field: str) -> None:
    """Raises InvalidInput if all users can read a file, and warns if its group can.

    A file of another owner may be there for the group: so secrets are mounted into containers.
    """
    status, remedy = file.stat(), f"chmod 600 {file}"
    if status.st_mode & 0o007:
        raise InvalidInput(f"{file} can be read by all users", field=field, remedy=remedy)
    if status.st_mode & 0o070 and status.st_uid == os.geteuid():
        log.warning("a secret can be read by the group of its file", file=str(file), remedy=remedy)
