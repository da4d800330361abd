"""The secret that the processes of one system share."""

from __future__ import annotations

import os
from pathlib import Path

from topmast.model.errors import InvalidInput

SHORTEST_TOKEN = 16


def read_token(file: Path | None) -> str:
    """The token that processes show each other; empty without one. Raises InvalidInput."""
    if file is None:
        token, field = os.environ.get("TOPMAST_TOKEN", ""), "TOPMAST_TOKEN"
    else:
        field = "--token-file"
        try:
            token, mode = file.read_text("utf-8"), file.stat().st_mode
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"{file} cannot be read: {error}", field=field) from None
        if mode & 0o077:
            raise InvalidInput(
                f"{file} can be read by other users", field=field, remedy=f"chmod 600 {file}"
            )
    token = token.strip()
    good = token.isascii() and token.isprintable() and " " not in token
    if (token or file is not None) and (len(token) < SHORTEST_TOKEN or not good):
        raise InvalidInput(
            f"not a token: at least {SHORTEST_TOKEN} printable characters, no blanks", field=field,
            remedy="openssl rand -hex 32",
        )  # fmt: skip
    return token
