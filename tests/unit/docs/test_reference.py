"""The tables of the reference are complete, and say what the code says."""

import asyncio
import inspect
import re
from enum import StrEnum
from functools import cache
from typing import Any, cast

import httpx
import pytest
from msgspec import Struct

from tests.unit.docs.pages import REPO
from topmast import Client
from topmast.api import PREFIX, create_api
from topmast.model.decided import Rule
from topmast.model.reason import BACK_OFF, PRECEDENCE, PendingReason, Rejection
from topmast.model.states import TRANSITIONS, HostState, JobState, Outcome
from topmast.policies.options import ScoreWeights
from topmast.policies.registry import load_profile, profile_names
from topmast.service.service import Service

REFERENCE = REPO / "docs" / "reference"


def rows(page: str, section: str = "") -> list[list[str]]:
    """The rows of the tables of a page, or of one section, without their heads, cell by cell."""
    text = (REFERENCE / page).read_text("utf-8")
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = text.splitlines()
    cells = [re.split(r" ?\| ?", line.strip("| ")) for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0].startswith("`")]


def _code(text: str) -> list[str]:
    return re.findall(r"`([^`]*)`", text)


# ------------------------------------------------------------------------------------- routes


@cache
def _openapi() -> dict[str, Any]:
    async def ask() -> Any:
        transport = httpx.ASGITransport(create_api(cast(Service, None)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/openapi.json")).json()

    return cast(dict[str, Any], asyncio.run(ask()))


def _routes() -> dict[str, list[str]]:
    """The rows of the tables of routes, by method and whole path."""
    found = {}
    for row in rows("rest.md", "Routes"):
        method, path = row[0].strip("`").split()
        found[f"{method} {PREFIX}{path}"] = row
    return found


def test_every_route_is_in_the_reference_and_no_other() -> None:
    """The tables of routes are those of the OpenAPI document."""
    there = {
        f"{method.upper()} {path}"
        for path, methods in _openapi()["paths"].items()
        for method in methods
    }
    assert set(_routes()) == there


def test_every_answer_is_what_openapi_says() -> None:
    """Status and type of each answer, where OpenAPI names a type."""
    document = _openapi()
    for route, row in _routes().items():
        method, path = route.split()
        answers = document["paths"][path][method.lower()]["responses"]
        kinds = {
            status: re.findall(r"schemas/(\w+)", str(answer)) for status, answer in answers.items()
        }
        expected = [s for s, kind in kinds.items() if kind and s.startswith("2")]
        for status in expected:
            assert row[3].startswith(status), row[0]
            assert kinds[status][0] in row[3], row[0]


# ------------------------------------------------------------------------------------- states


def test_transitions() -> None:
    """Each state, and what it may become."""
    shown = {row[0].strip("`"): row[-1] for row in rows("states.md", "States of a job")}
    for state in JobState:
        assert set(_code(shown[state])) == set(TRANSITIONS[state]), state


@pytest.mark.parametrize("kind", [PendingReason, Rejection, Rule, Outcome, HostState])
def test_every_reason_has_its_row(kind: type[StrEnum]) -> None:
    """All members of an enumeration are first in some row."""
    shown = {row[0].strip("`") for row in rows("states.md")}
    assert {member.value for member in kind} <= shown


def test_reasons_are_in_their_order() -> None:
    """The table of reasons has their precedence."""
    first = [row[0].strip("`") for row in rows("states.md")]
    at = first.index(PRECEDENCE[0])
    assert first[at : at + len(PRECEDENCE) + 1] == [*PRECEDENCE, BACK_OFF]


# ----------------------------------------------------------------------------------- profiles


def _options(options: Struct, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if isinstance(value, Struct):
            found |= _options(value, f"{prefix}{name}.")
        elif name not in ("name", "description"):
            found[f"{prefix}{name}"] = value
    return found


def test_every_option_with_its_default() -> None:
    """The table of options is that of the profile `mast`."""
    shown = {row[0].strip("`"): row[1] for row in rows("profiles.md", "Options")}
    options = _options(load_profile("mast"))
    assert shown == {
        name: "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(list(value) if isinstance(value, tuple) else value)
        for name, value in options.items()
    }


def test_every_profile_is_named() -> None:
    """No profile is kept from people."""
    text = (REFERENCE / "profiles.md").read_text("utf-8")
    assert len(profile_names()) > 20
    assert [name for name in profile_names() if f"`{name}`" not in text] == []


def test_every_term_with_its_weight() -> None:
    """The table of terms names each weight with its value."""
    weights = load_profile("mast").score
    text = (REFERENCE / "profiles.md").read_text("utf-8")
    for name in ScoreWeights.__struct_fields__:
        if name in ("allocated_gpus", "allocated_memory", "models"):
            assert not getattr(weights, name)
            assert f"`score.{name}`" in text, "several weights of one term"
        elif name in ("allocated_cpus", "gpu_hosts"):
            assert f"`score.{name}` = {getattr(weights, name)}" in text, "the term `allocation`"
        elif name == "shapes":
            assert weights.shapes
            assert "`score.shapes` = true" in text, "the term `fragmentation`"
        else:
            assert f"| `{name}` | `score.{name}` = {getattr(weights, name)} |" in text


# ------------------------------------------------------------------------------------- Python


def _parameters(call: object) -> str:
    """What a method is called with, without types; a default that is no plain value as ``...``."""
    found = inspect.signature(cast(Any, call))
    plain = [
        one.replace(
            annotation=one.empty,
            default=one.default if _is_plain(one.default) else ...,
        )
        for one in found.parameters.values()
        if one.name != "self"
    ]
    text = str(found.replace(parameters=plain, return_annotation=found.empty))
    return text.replace("'", '"').replace("Ellipsis", "...")


def _is_plain(default: object) -> bool:
    empty = default in ("", b"", ()) or default is inspect.Parameter.empty
    return empty or default is None or isinstance(default, (str, bool, int, float))


def _shown_methods() -> dict[str, str]:
    """The parameters of each method on the page; ``(...)``: those of the one before it."""
    text = (REFERENCE / "python.md").read_text("utf-8")
    shown, before = dict[str, str](), ""
    for name, given in re.findall(r"`(\w+)(\([^`]*?\))(?: -> [^`]*)?`", text):
        before = before if given == "(...)" else given
        shown.setdefault(name, before)
    return shown


def test_every_method_of_the_client_with_its_parameters() -> None:
    """With their names and defaults, since programs name them."""
    names = [name for name in dir(Client) if not name.startswith("_")]
    methods = [
        name for name in names if not isinstance(inspect.getattr_static(Client, name), property)
    ]
    assert len(methods) > 80
    shown = _shown_methods()
    wanted = {name: _parameters(getattr(Client, name)) for name in methods}
    assert {name: shown.get(name) for name in methods} == wanted
    text = (REFERENCE / "python.md").read_text("utf-8")
    assert [name for name in set(names) - set(methods) if f"`client.{name}`" not in text] == []
