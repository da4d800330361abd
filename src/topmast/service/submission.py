"""What the audit log has of a submission."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from topmast.model import ids
from topmast.model.access import Caller
from topmast.model.job import JobSpec
from topmast.ports import Act
from topmast.service.access import json_text, row

USERS_NAMED = 20
"""At most so many users are in the row of a tenant."""


def submission(caller: Caller, specs: Sequence[JobSpec]) -> Act:
    """The act that admits jobs: a row for each tenant, with its jobs. O(jobs)."""
    places: dict[str, list[int]] = {}
    users_of: dict[str, dict[str, None]] = {}
    count = 0
    for spec in specs:
        size = spec.sweep.size if spec.sweep else 1
        places.setdefault(spec.tenant, []).extend(range(count, count + size))
        users_of.setdefault(spec.tenant, {})[spec.user] = None
        count += size
    rows = []
    for tenant, own in places.items():
        users = tuple(users_of[tenant])[:USERS_NAMED]
        line = row(caller, "submit", tenant=tenant)
        rows.append(replace(line, after=json_text(jobs=len(own), users=users)))

    def named(jobs: Sequence[str]) -> list[str]:
        first = ids.job_number(jobs[0])  # the others come right behind it
        return [ids.runs_of([first + i for i in own]) for own in places.values()]

    return Act(rows[0], named=named, also=tuple(rows[1:]))
