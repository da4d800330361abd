"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from topmast.model.errors import InvalidInput, NotFound, TooMany, TopmastError
from topmast.model.problem import made, problem_of
from topmast.model.views import Problem
from topmast.routing import LOGIN, shows_pages

_KINDS = {
    "int": "must be a whole number", "int_parsing_size": "must be a whole number, not as long",
    "float": "must be a number", "bool": "must be true or false",
}  # fmt: skip
"""What the values of parameters must be, by the kind of a fault of the library that reads them."""

log = structlog.get_logger(__name__)


def problem(status: int, title: str, detail: str, field: str = "", remedy: str = "") -> Response:
    """A response with a problem document."""
    return _response(made(status, title, detail, field, remedy))


def answered(error: TopmastError) -> Response:
    """A response with the problem document of an error."""
    return _response(problem_of(error))


def _response(body: Problem) -> Response:
    return Response(
        msgspec.json.encode(body), status_code=body.status, media_type="application/problem+json"
    )


async def _topmast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TopmastError)
    refusal = _shown(request, error) or answered(error)
    if isinstance(error, TooMany):
        refusal.headers["Retry-After"] = str(max(1, math.ceil(error.retry_s)))
    return refusal


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code == 404:
        detail = f"nothing is at {request.url.path}"
        return _shown(request, NotFound(detail)) or problem(404, "Not found", detail)
    if error.status_code == 405:
        told = (error.headers or {}).get("Allow", "")
        methods = _methods_at(request) or sorted(filter(None, told.split(", ")))
        told = f"{request.url.path} takes {' and '.join(methods)}, not {request.method}"
        answer = problem(405, "Refused", told)
        answer.headers["Allow"] = ", ".join(methods)
        return answer
    return problem(error.status_code, "Refused", str(error.detail))


def _shown(request: Request, error: TopmastError) -> Response | None:
    """An error as a page, where a browser asks for one to show it to a person."""
    page = getattr(request.app.state, "failure_page", None)
    accept = request.headers.get("accept", "")
    if page is None or not shows_pages(request.method, request.url.path, accept):
        return None
    found: Response = page(request, error)
    return found


def _methods_at(request: Request) -> list[str]:
    """The methods of a path of the schema, over all routes that have it."""
    parts = request.url.path.split("/")
    found: dict[str, None] = {}
    for path, methods in request.app.openapi()["paths"].items():
        names = path.split("/")
        pairs = zip(names, parts, strict=False)
        if len(names) == len(parts) and all(n == p or n.startswith("{") for n, p in pairs):
            found |= dict.fromkeys(method.upper() for method in methods)
    if "GET" in found and not request.url.path.startswith(LOGIN):
        found["HEAD"] = None
    return sorted(found)


async def _bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [InvalidInput(_said(one), field=str(one["loc"][-1])) for one in error.errors()]
    faults[0].more = tuple(faults[1:])
    return answered(faults[0])


def _said(fault: Mapping[str, Any]) -> str:
    """What is wrong with a parameter, in the words of `topmast.api.wire` for a field of a body."""
    bounds = fault.get("ctx", {})
    for bound, words in (("ge", "must be {:,} or more"), ("le", "must be at most {:,}")):
        if bound in bounds:
            return words.format(bounds[bound])
    kind = str(fault["type"]).removesuffix("_parsing").removesuffix("_type")
    return _KINDS.get(kind, str(fault["msg"]))


async def _gone(request: Request, error: Exception) -> Response:
    """The client disconnected during its request: no answer can arrive, and nothing failed here."""
    return problem(400, "Refused", "the request was broken off")


async def _bug(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    return problem(500, "Internal error", "the server's log has the cause")


def install(app: FastAPI) -> None:
    """Answer every error with a problem document."""
    app.add_exception_handler(TopmastError, _topmast_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _bug)
