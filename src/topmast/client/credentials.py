"""The tokens that `topmast login` keeps, by server, and the one of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from topmast.model.errors import InvalidInput

VARIABLE = "TOPMAST_TOKEN"
PREFIX = "tm_"
"""What tokens of callers begin with; the variable may also hold the secret of links."""
NO_TOKEN = f"holds no token of an account: those begin with {PREFIX}"


def why_none() -> str:
    """What is wrong with the environment where no token of it is shown; empty if nothing is."""
    given = os.environ.get(VARIABLE, "").strip()
    return f"{VARIABLE} {NO_TOKEN}" if given and not given.startswith(PREFIX) else ""


def token_for(url: str, known: Sequence[str] = ()) -> str:
    """The token to show to the server at ``url``; empty without one. Raises InvalidInput.

    It is shown over TLS only, or to this machine: others on the way could read it. Servers that
    take over from each other take the same tokens; ``known`` are their other URLs.
    """
    given = token = os.environ.get(VARIABLE, "").strip()
    if not token.startswith(PREFIX):
        kept = _kept()
        token = next((kept[one] for one in (url, *known) if one in kept), "")
    if given and token and token != given:
        raise InvalidInput(
            f"{NO_TOKEN}; the one that `topmast login` keeps may be of another account",
            field=VARIABLE, remedy=f"unset {VARIABLE} to use the kept one",
        )  # fmt: skip
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidInput(
            "holds characters that no token has",
            field=VARIABLE if given == token else str(file_of_tokens()),
            remedy=f"copy the token again: {PREFIX}, then letters, digits and _",
        )
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    if token and parts.scheme != "https" and not local:
        raise InvalidInput(
            f"a token is shown over TLS only, and {url} is without", where="--server",
            remedy=f"https://{parts.netloc}",
        )  # fmt: skip
    return token


def keep_token(url: str, token: str) -> None:
    """Keep a token for a server, readable by its owner alone; an empty one is forgotten."""
    found = _kept()
    found.pop(url, None)
    if token:
        found[url] = token
    file = file_of_tokens()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(found, out)
    part.replace(file)


def file_of_tokens() -> Path:
    """Where the tokens are kept."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".config"
    return base / "topmast" / "tokens.json"


def _kept() -> dict[str, str]:
    file = file_of_tokens()
    try:
        mode, found = file.stat().st_mode, json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError, RuntimeError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{file} cannot be read: {error}", remedy="topmast login writes it anew"
        ) from None
    if mode & 0o077:
        raise InvalidInput(
            f"{file} can be read by other users", remedy=f"revoke its tokens, and chmod 600 {file}"
        )
    texts = isinstance(found, dict) and all(isinstance(token, str) for token in found.values())
    return found if texts else {}
