"""Whatever is sent to a route, within its schema and beyond it, the server has an answer for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.support.entrance import URL, Entrance, entrance, run
from topmast.api.guard import Guard
from topmast.model.access import Role

EXAMPLES = 12
"""Of each route and mode: seconds for all of them. More are worth a try after a change of many routes."""
STREAMS = "/events"
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


def tried(door: Entrance, token: str, known: dict[str, list[str]]) -> list[str]:
    """Every route with made-up requests; the answers that no client should ever see."""
    assert isinstance(door.app, Guard)
    assert isinstance(door.app.app, FastAPI)
    schema = schemathesis.openapi.from_dict(door.app.app.openapi())
    headers = {"Authorization": f"Bearer {token}", "Host": URL.removeprefix("https://")}
    faults: list[str] = []
    count = 0
    for found in schema.get_all_operations():
        operation = cast(Any, found).ok()
        if operation.path.endswith(STREAMS):
            continue
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
                if answer.status_code >= 500 and answer.status_code != 503:
                    sent = f"{case.method} {case.formatted_path} {case.query} {case.body!r}"
                    faults.append(f"{answer.status_code} {sent[:500]} -> {answer.text[:500]}")

            with suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
                attempt()  # what takes nothing cannot be given anything wrong
    assert count > 300
    return faults


def test_no_request_is_answered_with_a_fault_of_the_server(door: Entrance) -> None:
    """An answer of 5xx means that the server did not think of it; 503 says that something is not there."""
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
