"""Routes that FastAPI need not look at: they answer as all others do."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from topmast.api import problems
from topmast.model.errors import NotFound
from topmast.routing import guarded_router, open_to_all

ROUTER = guarded_router()


@ROUTER.get("/plain/{thing}")
@open_to_all
async def plain(thing: str, request: Request) -> Response:
    """Takes its request, and a text of the path."""
    return _answer(thing)


@ROUTER.get("/other/{thing}")
@open_to_all
async def other(thing: str, request: Request, shout: bool = False) -> Response:
    """Takes a parameter, too."""
    return _answer(thing.upper() if shout else thing)


@ROUTER.get("/number/{thing}")
@open_to_all
async def number(thing: int, request: Request) -> Response:
    """Takes a number of the path, which has to be read."""
    return Response(str(thing + 1))


@ROUTER.get("/page/{thing}")
@open_to_all
async def page(request: Request) -> Response:
    """Looks into the path by itself."""
    return Response(request.path_params["thing"])


def _answer(thing: str) -> Response:
    if thing == "lost":
        raise NotFound("it is lost")
    return Response(thing)


def _ask(method: str, path: str) -> httpx.Response:
    app = FastAPI()
    problems.install(app)
    app.include_router(ROUTER, prefix="/api/v1")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, f"/api/v1{path}")

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "want"), [("plain", True), ("other", False), ("number", False), ("page", True)]
)
def test_only_texts_of_the_path_need_no_look(name: str, want: bool) -> None:
    """What has to be read and checked is left to FastAPI."""
    routes = [one for one in ROUTER.routes if isinstance(one, APIRoute) and one.name == name]
    assert [getattr(one, "_plain", None) is not None for one in routes] == [want]


@pytest.mark.parametrize(
    ("method", "end", "want"),
    [
        ("GET", "a%20b", (200, "a b")),
        ("GET", "lost", (404, "")),
        ("POST", "a", (405, "")),
        ("GET", "a?noise=1", (422, "")),
        ("HEAD", "a", (200, None)),
    ],
)
def test_both_kinds_answer_alike(method: str, end: str, want: tuple[int, str | None]) -> None:
    """What is there, what is not, other methods, parameters that it does not take, a head alone."""
    first, second = (_ask(method, f"/{kind}/{end}") for kind in ("plain", "other"))
    assert first.status_code == second.status_code == want[0]
    assert first.headers.get("content-type") == second.headers.get("content-type")
    if want[1]:
        assert first.text == second.text == want[1]


def test_a_page_looks_into_its_path_by_itself() -> None:
    """It is not given what it does not name."""
    assert _ask("GET", "/page/a").text == "a"
