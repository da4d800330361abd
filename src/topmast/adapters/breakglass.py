"""A way in for the owner of the server's machine when nothing else gives one: a file it can write.

The owner of the state folder owns the server already, so the file takes nothing away. It holds the
digest of the token, and when it ends; the token itself is printed once.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from topmast.accounts import digest_of, new_token
from topmast.model.errors import NotFound
from topmast.model.messages import TokenKind

FILE = "break-glass.json"


class Pane(Struct, frozen=True):
    """What the file says."""

    digest: str
    expires_s: float


def break_glass(state: Path, now: float, life_s: float) -> str:
    """Make a token of an administrator, good for so long; an earlier one is good no more.

    Raises NotFound where there is no such folder.
    """
    if not state.is_dir():
        raise NotFound(f"{state}: no such folder; name the state folder of your server (--state)")
    token = new_token(TokenKind.PERSONAL, secrets.token_bytes(24))
    part = state / f"{FILE}.part"
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(msgspec.json.encode(Pane(digest_of(token), now + life_s)))
        out.flush()
        os.fsync(out.fileno())
    part.replace(state / FILE)
    return token


def is_break_glass(state: Path, token: str, now: float) -> bool:
    """Whether a token is the one of the file, and still good."""
    pane = _pane(state)
    if pane is None:
        return False
    return hmac.compare_digest(pane.digest, digest_of(token)) and now < pane.expires_s


def end_break_glass(state: Path, token: str) -> None:
    """Take away the file that a token is of, if it is there."""
    pane = _pane(state)
    if pane is not None and hmac.compare_digest(pane.digest, digest_of(token)):
        (state / FILE).unlink(missing_ok=True)


def is_one_good(state: Path, now: float) -> bool:
    """Whether the file has a token that is still good."""
    pane = _pane(state)
    return pane is not None and now < pane.expires_s


def _pane(state: Path) -> Pane | None:
    """What the file says; None where there is none to read."""
    try:
        return msgspec.json.decode((state / FILE).read_bytes(), type=Pane)
    except (OSError, msgspec.MsgspecError):
        return None
