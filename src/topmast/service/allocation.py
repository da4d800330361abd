"""`topmast allocate`: a problem from a file, one policy solve, the answer as a document."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from topmast.model.errors import InvalidInput
from topmast.policies.shares.reading import parse_problem
from topmast.policies.shares.registry import columns_for, policy_named
from topmast.policies.shares.rising import prepare
from topmast.policies.shares.shares import document
from topmast.traces.source import open_regular, place

MAX_BYTES = 2**30


def allocate_file(path: Path, policy: str, *, agnostic: bool = False) -> dict[str, Any]:
    """Solve the problem in a file; ``wall_s`` is the policy's time, without reading and compiling.

    Raises InvalidInput naming the field that is wrong.
    """
    chosen = policy_named(policy)
    where = place(path)
    with open_regular(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidInput("is larger than 1 GiB", where=where)
    problem = parse_problem(text, where)
    prepare(columns_for(chosen, problem, agnostic=agnostic))
    begun_s = time.perf_counter()
    try:
        columns = columns_for(chosen, problem, agnostic=agnostic)
        shares = chosen.solve(columns)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=error.field, where=where, remedy=error.remedy
        ) from None
    wall_s = time.perf_counter() - begun_s
    return document(policy, columns, shares) | {"wall_s": wall_s}
