"""The user of this process, and keys by which a server knows a request again."""

from __future__ import annotations

import getpass
import os
import uuid


def new_key() -> str:
    """A key that no other request has."""
    return uuid.uuid4().hex


def this_user() -> str:
    """The name of the user, or its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name, in a container without a user database
        return f"uid{os.getuid()}"
