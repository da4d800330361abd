"""The table of acts: each exists in REST, in Python and on the command line, and none is missing."""

import re
from typing import Any

import pytest

from tests.unit.cli.program import command_line
from tests.unit.docs.test_reference import REFERENCE, _code, _openapi
from topmast import Client
from topmast.api import PREFIX

WHOLE = command_line()
CHANGES = ("post", "put", "delete", "patch")
ACTS = re.findall(
    r"(?m)^\| ([^|`]+) \| (`[^|]+`) \| ([^|]+) \| (`[^|]+`) \| [^|`]+ \|$",
    (REFERENCE / "verbs.md").read_text(),
)
"""What it is, its route, its method and its command."""


def _routes() -> set[str]:
    return {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, methods in _openapi()["paths"].items()
        for method in methods
    }


def test_every_route_that_changes_something_is_an_act() -> None:
    """A new route without a row is found here, and a row of a route that is gone."""
    changing = {r for r in _routes() if r.split()[0].lower() in CHANGES and "/auth/" not in r}
    told = {route for _, rest, _, _ in ACTS for route in _code(rest)}
    assert {route for route in told if not route.startswith("GET")} == changing
    assert told <= _routes()


@pytest.mark.parametrize(("act", "rest", "python", "line"), ACTS, ids=[row[0] for row in ACTS])
def test_every_act_exists_in_python_and_on_the_command_line(
    act: str, rest: str, python: str, line: str
) -> None:
    """By the names in the table, with the options that it names."""
    for method in _code(python):
        assert callable(getattr(Client, method)), method
    assert _code(python) or python == "-", python
    for text in _code(line):
        words = text.split()
        command: Any = WHOLE
        while words and not words[0].startswith("-"):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        assert set(words) <= options, text
        assert not getattr(command, "commands", None), f"{text} is only a group"
