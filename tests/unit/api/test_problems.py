"""Refusals of requests that no handler sees."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from topmast.api import problems


def nothing() -> None:
    """A handler."""


@pytest.mark.parametrize(
    ("path", "want"),
    [("/things", "DELETE, GET"), ("/hidden", "POST"), ("/openapi.json", "GET, HEAD")],
    ids=["two routes", "a route outside the schema", "the schema itself"],
)
def test_a_405_names_the_methods_that_there_are(path: str, want: str) -> None:
    """Of all routes with the path; also where the schema does not have it."""
    app = FastAPI()
    problems.install(app)
    app.get("/things")(nothing)
    app.delete("/things")(nothing)
    app.post("/hidden", include_in_schema=False)(nothing)

    async def put() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.put(path)

    refused = asyncio.run(put())
    assert (refused.status_code, refused.headers["allow"]) == (405, want)
    assert refused.headers["content-type"] == "application/problem+json"
