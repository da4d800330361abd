"""Mistyped words: the message repeats the word and names the nearest, as people write it."""

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.changes import changes_of
from topmast.model.files.fields import nearest
from topmast.model.roles import Role
from topmast.model.selector import selector_of, states_of


def test_the_nearest_state_is_named_as_people_write_it() -> None:
    """Not as Python shows a member of an enumeration."""
    with pytest.raises(InvalidInput, match="unknown state 'RUNING'") as wrong:
        states_of(["RUNING"])
    assert wrong.value.remedy == "did you mean 'RUNNING'?"


def test_the_nearest_band_is_named() -> None:
    """In a selector and in a change."""
    with pytest.raises(InvalidInput, match="unknown band 'hihg'") as wrong:
        selector_of("band=hihg")
    assert wrong.value.remedy == "did you mean 'high'?"
    with pytest.raises(InvalidInput, match="unknown band 'hihg'") as wrong:
        changes_of({"priority": "hihg"})
    assert wrong.value.remedy == "did you mean 'high'?"


def test_a_member_of_an_enumeration_is_named_as_people_write_it() -> None:
    """A role, for example: not as the code has it."""
    assert nearest("viewr", tuple(Role)) == "did you mean 'viewer'?"


def test_of_names_that_are_as_near_the_one_that_begins_alike_is_meant() -> None:
    """A slip is seldom in the first letter; where that says nothing, it is the first."""
    known = ["east-1", "north-1", "west-1"]
    for order in (known, known[::-1]):
        assert nearest("est-1", order) == "did you mean 'east-1'?"
        assert nearest("wst-1", order) == "did you mean 'west-1'?"
    hosts = [f"east-1-{number}" for number in range(4)]
    assert nearest("east-1-9", hosts) == "did you mean 'east-1-0'?"
    assert nearest("east-1-33", hosts) == "did you mean 'east-1-3'?"


def test_a_name_that_is_made_like_others_is_not_taken_for_one_of_them() -> None:
    """Hosts have names in rows: what they share says nothing. Nor has `bogus` to do with GPUs."""
    assert nearest("east-9", ["east-1-3", "west-1"]) == ""
    assert nearest("bogus", ["gpus", "nodes"]) == ""
    assert nearest("esat-1-3", ["east-1-3", "west-1"]) == "did you mean 'east-1-3'?"
