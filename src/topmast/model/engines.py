"""What engines differ in, as far as placing and watching jobs depends on it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0, le=604_800)]


class Capability(StrEnum):
    """What some engines can do and others cannot."""

    SUSPEND = "suspend"
    """Halt the tasks of an attempt and let them go on, so that jobs can take turns on GPUs."""
    EXACT_SLOTS = "exact_slots"
    """Give a task just the GPUs of its seat; else only their number counts, and which is unknown.
    """
    SHARES = "shares"
    """Give a task a part of a GPU, counted in thousandths."""
    PAIRS = "pairs"
    """Run the tasks of two jobs on the same GPUs at the same time."""
    IMAGES = "images"
    """Run tasks in a container image."""
    EXEC = "exec"
    """Run a command of a user beside a task: on its host, in its folder and environment."""
    ENV = "env"
    """Give a task variables of its host: the secrets ``env:NAME`` of a job."""


PROCESSES = frozenset(Capability) - {Capability.IMAGES, Capability.ENV}
"""What can be done with plain processes on hosts of which Topmast decides alone.

Their environment may be that of the server, which has its credentials: it is not given to tasks.
"""


class Deadlines(Struct, frozen=True):
    """How long things may take in a cluster. A fleet file may set each field below ``options``."""

    start_within_s: Seconds = 120.0
    """From the order to start a gang until its last task has started, images and all."""
    stop_within_s: Seconds = 15.0
    """From the end of the grace until nothing of an attempt is left; then it is stopped again."""
    truth_every_s: Seconds = 60.0
    """How often the engine is asked what it runs, while anything runs or a host is down."""
