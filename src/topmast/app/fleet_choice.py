"""Which fleet a start takes up: the one of its file, or the one that people made of it since."""

from __future__ import annotations

import structlog

from topmast.fast.queue import GlobalQueue
from topmast.model.errors import InvalidInput
from topmast.model.fleet import Fleet
from topmast.model.fleet_changes import FleetChange, fleet_changes, fleet_version, with_what_stays
from topmast.model.owners import settled

log = structlog.get_logger(__name__)

SHOWN = 3
"""So many differences are named."""


def fleet_of_start(file: Fleet, queue: GlobalQueue, *, replaces: bool) -> Fleet | None:
    """The fleet of a file, or None: the fleet of the journal stays as it is.

    A file that was read at an earlier start says nothing new: what `topmast fleet apply` changed
    since stays. One that was edited since might undo that without being meant to. Raises
    InvalidInput for it, unless it ``replaces`` whatever there is.
    """
    if replaces or not queue.fleet_edited:
        return file
    differences = _differences(file, queue)
    if not differences:
        return file
    if fleet_version(file) == queue.fleet_file:
        log.warning(
            "the fleet was changed since it was read from this file: it stays as it is now",
            differences=named(differences), remedy="topmast fleet show > FILE",
        )  # fmt: skip
        return None
    raise InvalidInput(
        "the fleet was changed while the server ran (topmast fleet apply), and this file, which is "
        f"another one than at the last start, would undo some of it: {named(differences)}",
        field="--fleet",
        remedy="start without --fleet, and then `topmast fleet show > FILE` and edit that; "
        "or let the file replace the fleet: --fleet-replaces",
    )


def warn_of_unused(file: Fleet | None, queue: GlobalQueue) -> None:
    """Say in the log that the file of a server that may stand by is not what the journal has."""
    differences = () if file is None else _differences(file, queue)
    if differences:
        log.warning(
            "the fleet of the journal is kept; the file of --fleet is not used",
            differences=named(differences),
            remedy="topmast fleet diff FILE, topmast fleet apply FILE; for what these cannot "
            "change: stop all servers, start one once without --standby and with --fleet FILE "
            "--fleet-replaces, then the standbys",
        )  # fmt: skip


def _differences(file: Fleet, queue: GlobalQueue) -> tuple[FleetChange, ...]:
    """What the file would change of the fleet in the journal."""
    known = queue.fleet
    return fleet_changes(known, with_what_stays(settled(file, known, queue.homes), known))


def named(differences: tuple[FleetChange, ...]) -> str:
    """The first differences in words."""
    words = [f"{change.what}: {change.change}" for change in differences[:SHOWN]]
    left = len(differences) - len(words)
    return "; ".join(words) + (f"; and {left} more" if left else "")
