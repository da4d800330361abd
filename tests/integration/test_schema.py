"""Whatever is sent to a route, within its schema and beyond it, the server has an answer for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.support.entrance import URL, Entrance, entrance, run
from topmast.model.access import Role

pytestmark = pytest.mark.always

EXAMPLES = 12
"""Of each route and mode: seconds for all of them. More are worth a try after a change of many routes."""
STREAMS = "/events"
NOT_HERE = {"/api/v1/whatif", "/api/v1/whatif/{number}"}
"""What this server lacks: its routes may answer 503."""
ONE = {"run": "true", "resources": {"accelerators": "H100:1"}, "tenant": "vision"}


@schemathesis.serializer("application/gzip")
def _as_bytes(context: Any, value: Any) -> bytes:
    """A made-up archive."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """The control plane of this file."""
    with entrance(tmp_path_factory.mktemp("schema")) as found:
        yield found


def tried(
    door: Entrance, token: str, known: dict[str, list[str]], below: str = "", least: int = 300
) -> list[str]:
    """Every route ``below`` a path with made-up requests; the answers that no client should see.

    Streams come last, when the server tells no more events: else they would not end.
    """
    schema = schemathesis.openapi.from_dict(door.inner.openapi())
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    headers = {**shown, "Host": URL.removeprefix("https://")}
    faults: list[str] = []
    count = 0
    operations = [cast(Any, found).ok() for found in schema.get_all_operations()]
    operations = [one for one in operations if one.path.startswith(below)]
    for operation in sorted(operations, key=lambda one: one.path.endswith(STREAMS)):
        if operation.path.endswith(STREAMS):
            door.service.event_stream.close()
        for mode in GenerationMode:

            @seed(1)
            @settings(
                max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
            def attempt(case: Any, data: Any) -> None:
                nonlocal count
                for name in case.path_parameters or {}:
                    if name in known and data.draw(st.booleans()):
                        case.path_parameters[name] = data.draw(st.sampled_from(known[name]))
                answer = case.call(app=door.app, base_url=URL, headers=headers)
                count += 1
                lacks = answer.status_code == 503 and case.operation.path in NOT_HERE
                if answer.status_code >= 500 and not lacks:
                    sent = f"{case.method} {case.formatted_path} {case.query} {case.body!r}"
                    faults.append(f"{answer.status_code} {sent[:500]} -> {answer.text[:500]}")

            with suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
                attempt()  # what takes nothing cannot be given anything wrong
    assert count > least
    return faults


def test_no_request_is_answered_with_a_fault_of_the_server(door: Entrance) -> None:
    """An answer of 5xx means that the server did not think of it."""
    made: dict[str, Any] = {}

    async def prepare() -> None:
        made["token"] = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(made["token"]) as client:
            made["job"] = (await client.post("/jobs", json={"job": ONE})).json()["id"]

    run(prepare)
    known = {
        "job": [made["job"], "j999999999", "j0"], "host": ["east-a-0"], "region": ["east", "west"],
        "name": ["vision", "chief2", "images"],
    }  # fmt: skip
    faults = tried(door, made["token"], known)
    assert faults == []
