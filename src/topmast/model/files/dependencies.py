"""The field ``depends_on`` of a job file: the jobs that must have come to something first."""

from __future__ import annotations

import re
from collections.abc import Mapping

from topmast.model.dependency import After
from topmast.model.files.fields import Value
from topmast.model.ids import job_number, sweep_number
from topmast.model.units import show

DEPENDENCIES_LIMIT = 1_000

_OF_SWEEP = re.compile(r"s[1-9]\d*\[\d+\]")
"""How people write one job of a sweep."""
AFTER = {after.value: after for after in After if after is not After.TURN}


def read_dependencies(value: Value | None, before: Mapping[str, int]) -> dict[str, After]:
    """The jobs that are waited for, and what each must have come to. Raises InvalidInput.

    They are named by their ids, or by the names of jobs that come before in the same submission:
    ``before`` has how many are called so.
    """
    found: dict[str, After] = {}
    for item in value.items(limit=DEPENDENCIES_LIMIT) if value else []:
        name, after = item, After.OK
        if item.node.entries:
            fields = item.record(("job", "after"))
            name, given = fields.need("job", "j7"), fields.get("after")
            after = given.choice(AFTER, "what a job must have come to") if given else after
        job = name.text()
        if job_number(job) < 0 and sweep_number(job) < 0:
            _check_name(name, job, before)
        if sweep_number(job) >= 0 and after is After.STARTED:
            raise name.error("a sweep does not start as a whole", "write after: ok, or after: any")
        if job in found:
            raise name.error(f"{job} is listed twice", "list it once")
        found[job] = after
    return found


def _check_name(field: Value, name: str, before: Mapping[str, int]) -> None:
    """Refuse what is neither an id nor the name of one job of the same submission."""
    if name not in before and _OF_SWEEP.fullmatch(name):
        remedy = f"name it by its id, which `topmast status '{name}'` says"
        raise field.error(f"{show(name)} is one job of a sweep", remedy)
    if name not in before:
        remedy = "such as j7, or s7 of a sweep; or the name of a job that is listed before this one"
        raise field.error(f"{show(name)} is not the id of a job", remedy)
    if before[name] > 1:
        message = f"{before[name]:,} jobs that are listed before this one are called {show(name)}"
        raise field.error(message, "give each a name of its own")
