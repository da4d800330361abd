"""Refusals of requests that no handler sees."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from topmast.api import problems
from topmast.routing import guarded_router, open_to_all


@open_to_all
async def nothing() -> Response:
    """A handler."""
    return Response()


@pytest.mark.parametrize(
    ("path", "want"),
    [("/things", "DELETE, GET, HEAD"), ("/hidden", "POST"), ("/openapi.json", "GET, HEAD")],
    ids=["two routes", "a route outside the schema", "the schema itself"],
)
def test_a_405_names_the_methods_that_there_are(path: str, want: str) -> None:
    """Of all routes with the path; also where the schema does not have it."""
    app = FastAPI()
    problems.install(app)
    router = guarded_router()
    router.get("/things")(nothing)
    router.delete("/things")(nothing)
    router.post("/hidden", include_in_schema=False)(nothing)
    app.include_router(router)

    async def put() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.put(path)

    refused = asyncio.run(put())
    assert (refused.status_code, refused.headers["allow"]) == (405, want)
    assert refused.json()["detail"] == f"{path} takes {want.replace(', ', ' and ')}, not PUT"
    assert refused.headers["content-type"] == "application/problem+json"
