"""Values of variables that a job file only refers to, read where the task is about to begin."""

from __future__ import annotations

import os
import stat
from typing import Any

CANNOT_BEGIN = 126
"""The exit status of a process that did not become a script."""
SECRET_BYTES = 64_000
HANDED = "TOPMAST_SECRET_"
"""What names of variables begin with in which a scheduler hands over what it keeps itself."""


class NoSecret(Exception):
    """A reference leads nowhere; the text names it, and never a value."""


def resolved(secrets: Any) -> dict[str, str]:
    """The value of each variable, by references as job files have them. Raises NoSecret."""
    found = {}
    for name, reference in sorted(secrets.items()):
        kind, _, where = reference.partition(":")
        if kind == "file":
            found[name] = _content(name, where)
        else:
            found[name] = os.environ[_variable(name, reference)]
    return found


def missing(secrets: Any) -> str:
    """What keeps tasks from their values, found without reading any; empty: nothing."""
    try:
        for name, reference in sorted(secrets.items()):
            kind, _, where = reference.partition(":")
            if kind == "file":
                os.close(_opened(name, where))
            else:
                _variable(name, reference)
    except NoSecret as error:
        return str(error)
    return ""


def _variable(name: str, reference: str) -> str:
    """The variable of this process that has the value of a reference which is no file."""
    kind, _, where = reference.partition(":")
    # Kubernetes gives the container a variable of its own for each of its Secrets.
    variable = where if kind == "env" else HANDED + name
    if variable not in os.environ:
        raise NoSecret("secrets.%s: %s is not there on this host" % (name, reference))  # noqa: UP031
    return variable


def _opened(name: str, path: str) -> int:
    """A regular file, to be read. Whatever it is, opening it must not wait."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoSecret("secrets.%s: %s: %s" % (name, path, error.strerror)) from None  # noqa: UP031
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NoSecret("secrets.%s: %s is not a file" % (name, path))  # noqa: UP031
    return file


def _content(name: str, path: str) -> str:
    """The text of a file, without the end of its last line."""
    try:
        with os.fdopen(_opened(name, path), "rb") as source:
            data = source.read(SECRET_BYTES + 1)
    except OSError as error:
        raise NoSecret("secrets.%s: %s: %s" % (name, path, error.strerror)) from None  # noqa: UP031
    if len(data) > SECRET_BYTES or b"\0" in data:
        raise NoSecret("secrets.%s: %s is too long, or has NUL bytes" % (name, path))  # noqa: UP031
    return os.fsdecode(data[:-1] if data.endswith(b"\n") else data)


def without_handed(environment: Any) -> dict[str, str]:
    """An environment without what was handed over: tasks find it under their own names."""
    return {name: text for name, text in environment.items() if not name.startswith(HANDED)}
