"""The routes of pages and their files.

A page answers with the whole document, or with its content alone for a request with the header
``Topmast-Fragment``: that is what an open page asks for to draw itself anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from topmast.model.access import READING, Caller, Permission
from topmast.model.errors import NotFound, TopmastError
from topmast.model.problem import status_of
from topmast.routing import (
    CALLER,
    REQUEST,
    SECURITY_HEADERS,
    GuardedRoute,
    PageRouter,
    caller_of,
    needs,
    open_to_all,
)
from topmast.service.service import Service
from topmast.web import words
from topmast.web.assets import assets
from topmast.web.frames import Frames
from topmast.web.page import Ask, Page, Replay, Standing
from topmast.web.registry import all_pages

STATIC = "/static"
LOGGED_OUT = "/auth/logged-out"
FRAGMENT = "topmast-fragment"
"""The header of a request for the content alone."""
TEMPLATES = Path(__file__).parent / "templates"
HEADERS = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Vary": "Topmast-Fragment"}
LEADS_TO = {
    "/queue": "/", "/jobs": "/", "/hosts": "/fleet", "/hosts/{host}": "/fleet",
    "/clusters": "/fleet", "/clusters/{cluster}": "/fleet", "/tenants/{tenant}": "/tenants",
}  # fmt: skip
"""Addresses that people guess, and the page of each: parts of the path become its filters."""
FOR_EVER = "public, max-age=31536000, immutable"


def routes(
    service: Service,
    replay: Replay | None = None,
    standing: Callable[[], Standing | None] = lambda: None,
) -> PageRouter:
    """The routes of all pages, and of their files.

    ``replay``: those of a past moment. ``standing``: what to say if this server does not lead.
    """
    drawing = Drawing(service, replay, standing)

    class PageRoute(GuardedRoute):
        """A route that says in a page what went wrong."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            inner = super().get_route_handler()

            async def handle(request: Request) -> Response:
                try:
                    return await inner(request)
                except TopmastError as error:
                    return drawing.failure(request, error)

            return handle

    router = PageRouter(route_class=PageRoute)
    router.failure = drawing.failure
    for page in all_pages():
        router.add_api_route(
            page.path, _endpoint(drawing, page), methods=["GET"], include_in_schema=False,
            name=page.title,
        )  # fmt: skip

    permission = {page.path: page.permission for page in all_pages()}
    for path, to in LEADS_TO.items():
        router.add_api_route(
            path, _lead(to, permission[to]), methods=["GET"], include_in_schema=False
        )

    @router.get(LOGGED_OUT, include_in_schema=False)
    @open_to_all
    async def logged_out(request: Request) -> Response:
        """Where a logout ends: any other page would ask for a login at once."""
        if request.scope.get(CALLER) is not None:
            return RedirectResponse("/", 303)
        return drawing.plain(request, "logged_out.html", "Logged out")

    @router.get(f"{STATIC}/{{tag}}/{{name:path}}", include_in_schema=False)
    @open_to_all
    async def static(tag: str, name: str) -> Response:
        found = assets().files.get(name)
        if found is None or tag != assets().tag:
            raise NotFound("there is no such file, or it is of another version")
        headers = {**SECURITY_HEADERS, "Cache-Control": FOR_EVER}
        return Response(found.data, media_type=found.media_type, headers=headers)

    return router


def _endpoint(drawing: Drawing, page: Page) -> Callable[..., Awaitable[Response]]:
    async def draw(request: Request) -> Response:
        ask = Ask(
            drawing.service, caller_of(request), request.path_params,
            dict(request.query_params), request.query_params.multi_items(),
            FRAGMENT in request.headers,
        )  # fmt: skip
        shown = await page.view(ask)
        return shown if isinstance(shown, Response) else drawing.page(request, page, shown)

    @needs(page.permission)
    async def show(request: Request) -> Response:
        if FRAGMENT not in request.headers or page.own:
            return await draw(request)
        return await drawing.frames.show(request, caller_of(request), partial(draw, request))

    return show


def _lead(to: str, permission: Permission) -> Callable[..., Awaitable[Response]]:
    """Leads from a guessed address to a page."""

    @needs(permission)
    async def lead(request: Request) -> Response:
        filters = urlencode({**request.query_params, **request.path_params})
        return RedirectResponse(f"{to}?{filters}" if filters else to, 303)

    return lead


class Drawing:
    """Draws pages from their templates."""

    def __init__(
        self,
        service: Service,
        replay: Replay | None = None,
        standing: Callable[[], Standing | None] = lambda: None,
    ) -> None:
        self.service = service
        self.replay = replay
        self.standing = standing
        self.frames = Frames(service)
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        words.install(self._environment)

    def page(self, request: Request, page: Page, shown: dict[str, Any]) -> Response:
        """A page, or its content alone."""
        follows = "" if self.replay else page.follows  # nothing happens in the past any more
        if follows == "job":
            follows = f"job:{request.path_params['job']}"
        status = 422 if shown.get("trouble_of_filters") else 200
        return self._draw(
            request, page.template, {"page": page, "follows": follows, **shown}, status
        )

    def plain(self, request: Request, template: str, title: str) -> Response:
        """A page outside the navigation."""
        return self._draw(request, template, {"page": None, "follows": "", "title": title})

    def failure(self, request: Request, error: TopmastError) -> Response:
        """What went wrong, as a page."""
        status, title = status_of(error)
        shown = {
            "page": None, "follows": "", "title": title, "why": str(error),
            "request": request.scope[REQUEST],
        }  # fmt: skip
        return self._draw(request, "failure.html", shown, status)

    def _draw(
        self, request: Request, template: str, shown: dict[str, Any], status: int = 200
    ) -> Response:
        caller: Caller | None = request.scope.get(CALLER)
        page: Page | None = shown["page"]
        alone, standing = FRAGMENT in request.headers, self.standing()
        context = {
            "frame": "fragment.html" if alone else "frame.html",
            "title": page.title if page else "",
            "pages": _open_to(caller),
            "files": f"{STATIC}/{assets().tag}",
            "caller": caller,
            "may": _allowed(caller, for_reading=standing is not None),
            "Permission": Permission,
            "now_s": self.service.clock.now(),
            "replay": self.replay,
            "standing": standing,
            "filters": [(key, value) for key, value in request.query_params.items() if key != "at"],
            **shown,
        }
        text = self._environment.get_template(template).render(context)
        return HTMLResponse(words.harmless(text), status, headers=HEADERS)


def _open_to(caller: Caller | None) -> list[Page]:
    """The pages of the navigation that a caller may open."""
    if caller is None:
        return []
    may = caller.principal.may_somewhere
    return [page for page in all_pages() if page.place is not None and may(page.permission)]


def _allowed(caller: Caller | None, *, for_reading: bool) -> Callable[[Permission], bool]:
    """What a caller may do on pages, at one tenant at least."""

    def may(permission: Permission) -> bool:
        if caller is None or (for_reading and permission not in READING):
            return False
        return caller.principal.may_somewhere(permission)

    return may
