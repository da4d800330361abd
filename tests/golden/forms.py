"""The forms of all that a database keeps for later versions, as JSON schemas of one line each.

A program that meets a form which it does not know would follow a leader wrongly, or not at all: it drops
a field in silence. So each change of a form is a new version of the database, which keeps older ones away.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

from topmast.accounts import AccountsFact
from topmast.accounts.machine import _State as AccountsState
from topmast.adapters.store.schema import VERSIONS
from topmast.fast.cluster import ClusterManager
from topmast.fast.cluster.gangs import _State as ClusterState
from topmast.fast.queue import GlobalQueue
from topmast.fast.queue.cycle.state import Saved
from topmast.fast.region import RegionalPlacer
from topmast.fast.region.state import Books
from topmast.model.messages import Event
from topmast.policies.options import Profile
from topmast.runtime.relay import Relay
from topmast.runtime.relay import _State as RelayState

FILE = Path(__file__).with_name("forms.jsonl")
REMEDY = (
    "what a database keeps has another form than version {version} of it had: an older program would "
    "not know it. Add a version (a migration that may change no table, and a line in schema.VERSIONS), "
    "then run `python -m tests.golden.forms`"
)
JOURNALLED: dict[str, Any] = {
    "events": Event,
    "facts of accounts": AccountsFact,
    **{f"facts of the {name}": reduce(or_, kind.appliers) for name, kind in (
        ("queue", GlobalQueue), ("placers", RegionalPlacer), ("clusters", ClusterManager),
        ("relays", Relay),
    )},
    "snapshot of accounts": AccountsState,
    "snapshot of the queue": Saved,
    "snapshot of a placer": Books,
    "snapshot of a cluster": ClusterState,
    "snapshot of a relay": RelayState,
}  # fmt: skip
"""What records and snapshots hold, mostly without fields that have their default."""
LEFT_OUT = {"title", "description"}
"""Words for people."""


def forms() -> list[str]:
    """All that is kept, and what each kind of it has."""
    return [
        *lines_of(JOURNALLED, LEFT_OUT),
        *lines_of({"profile": Profile}, LEFT_OUT | {"default"}),  # of which every field is written
    ]


def lines_of(kinds: dict[str, Any], left_out: set[str]) -> list[str]:
    """Some kinds, and all that they are made of."""
    whole, parts = msgspec.json.schema_components(kinds.values())
    named = [*zip(kinds, whole, strict=True), *sorted(parts.items())]
    return [msgspec.json.encode([name, _without(left_out, of)]).decode() for name, of in named]


def _without(left_out: set[str], schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: _without(left_out, part)
            for name, part in schema.items()
            if name not in left_out or isinstance(part, dict)
        }
    return [_without(left_out, part) for part in schema] if isinstance(schema, list) else schema


def kept(file: Path = FILE) -> tuple[str, list[str]]:
    """The version of the database that had these forms last, and the forms."""
    version, *lines = file.read_text().splitlines()
    return version, lines


def keep(found: Sequence[str], version: str, file: Path = FILE) -> None:
    """Write forms down, as those of a version. Raises ValueError if the version had others."""
    before, lines = kept(file)
    if lines != list(found) and version == before:
        raise ValueError(REMEDY.format(version=before))
    file.write_text("\n".join([version, *found]) + "\n")


if __name__ == "__main__":
    keep(forms(), VERSIONS[-1])
