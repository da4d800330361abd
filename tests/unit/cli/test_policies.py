"""`topmast policies`: complete, because it reads the registries; and every policy says where it comes from."""

from typing import Any

import pytest

from tests.unit.cli.conftest import Call
from topmast.policies.registry import HOOKS, load_profile, profile_names
from topmast.policies.shares.registry import POLICIES
from topmast.service.policies import SHARES, listing


def _policies() -> list[dict[str, Any]]:
    return list(listing()["policies"])


def test_nothing_that_is_registered_is_left_out() -> None:
    """Every policy of every hook, and those that share time; every profile."""
    wanted = {(hook, name) for hook, found in HOOKS.items() for name in found}
    wanted |= {(SHARES, name) for name in POLICIES}
    assert {(p["hook"], p["name"]) for p in _policies()} == wanted
    assert [p["name"] for p in listing()["profiles"]] == list(profile_names())


@pytest.mark.parametrize("policy", _policies(), ids=lambda p: f"{p['hook']} {p['name']}")
def test_each_says_what_it_does_and_where_it_comes_from(policy: dict[str, Any]) -> None:
    """A class without a ``source``, or a module without a first line, is not ready to be listed."""
    assert policy["what"]
    assert policy["source"]


@pytest.mark.parametrize("name", profile_names())
def test_what_a_profile_is_said_to_set_makes_it(name: str) -> None:
    """Laid over the defaults, the policies and options that are shown give the profile again."""
    shown = next(p for p in listing()["profiles"] if p["name"] == name)
    profile = load_profile(name)
    for option, value in shown["options"].items():
        found: Any = profile
        for part in option.split("."):
            found = getattr(found, part)
        assert (list(found) if isinstance(found, tuple) else found) == value, option
    assert shown["policies"]["order"] == profile.order


def test_for_people_and_for_scripts(call: Call) -> None:
    """A table of each, or one document."""
    shown = call("policies")
    assert shown.code == 0
    assert "tiresias-las" in shown.out
    assert load_profile("yugong").description in shown.out, "in a pipe no cell is cut"
    assert shown.error == "without the options, which a terminal shows: they are in --json"
    assert call("policies", "--json").document == listing()
