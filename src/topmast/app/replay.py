"""`topmast replay`: the past rebuilt from a journal, while its server runs or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from topmast.adapters.clock import SystemClock
from topmast.adapters.store import PROFILE, existing_store, open_journal
from topmast.model.decoding import decode
from topmast.model.errors import InvalidInput
from topmast.policies.options import Profile
from topmast.policies.registry import DEFAULT_PROFILE, load_profile
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import rebuild


def replay_state(state: Path, until_s: float | None) -> dict[str, Any]:
    """The jobs of a state folder at time ``until_s`` (None: now), as a document."""
    journal = open_journal(existing_store(state), read_only=True)
    try:
        machines = Machines(Profile("replay"))
        rebuilt = rebuild(machines, journal, until_s)
    finally:
        journal.close()
    at_s = SystemClock().now() if until_s is None else until_s
    queue = machines.queue
    counts: dict[str, int] = {}
    for record in queue.jobs.records.values():
        counts[record.state.value] = counts.get(record.state.value, 0) + 1
    return {
        "until_s": at_s,
        "seq": rebuilt.seq,
        "replayed": rebuilt.replayed,
        "counts": counts,
        "jobs": [record.view(at_s, None) for record in queue.jobs.records.values()],
    }


def profile_of_state(state: Path) -> Profile:
    """The policies that the server of a state folder last ran with."""
    file = state / PROFILE
    if not file.is_file():
        return load_profile(DEFAULT_PROFILE)
    try:
        return decode(file.read_bytes(), Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(
            f"cannot be read: {error}", field=str(file), remedy="remove it: the default is taken"
        ) from error
