"""Profiles and policies by name: data files alone decide, and mistakes are told at the start."""

import pytest

from tests.support.build import profile
from topmast.model.errors import InvalidInput
from topmast.policies.options import Preemption, WhenBlocked
from topmast.policies.registry import ORDERS, SCORINGS, load_profile, policies_of, profile_names


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_can_be_loaded(name: str) -> None:
    """It is called as its file is, says what it is, and names policies that exist."""
    loaded = load_profile(name)
    assert loaded.name == name
    assert loaded.description
    assert policies_of(loaded).profile is loaded


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_can_be_made(name: str) -> None:
    """An order is made from a profile's options."""
    assert policies_of(profile(order=name)).order is not None


@pytest.mark.parametrize("name", SCORINGS)
def test_every_scoring_can_be_made(name: str) -> None:
    """So is a scoring."""
    assert policies_of(profile(scoring=name)).score is not None


def test_an_unknown_profile_hides_no_wrong_option() -> None:
    """Both are told at once."""
    with pytest.raises(InvalidInput, match="did you mean 'mast'") as raised:
        load_profile("mst", {"min_runtime_s": "x", "nosuch": "1", "restart_cost_s": "1"})
    assert [one.field for one in raised.value.more] == ["--set min_runtime_s", "--set nosuch"]


def test_the_profile_without_a_file_is_that_of_its_options() -> None:
    """`mast` is what the options say when nobody says anything."""
    mast = load_profile("mast")
    assert (mast.order, mast.scoring) == (profile().order, profile().scoring)
    assert (mast.when_blocked, mast.preemption) == (WhenBlocked.SKIP, Preemption.BAND)


def test_options_are_laid_over_a_profile() -> None:
    """Plain ones and those of a group."""
    loaded = load_profile("fifo", {"when_blocked": "skip", "rank.age": "1"})
    assert loaded.when_blocked is WhenBlocked.SKIP
    assert loaded.rank.age == 1.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("1e9", 1e9), ("+2.5E3", 2500.0), ("3", 3.0), ("1.5e2", 150.0)]
)
def test_numbers_are_written_as_people_write_them(text: str, seconds: float) -> None:
    """YAML 1.1 takes 1e9 for a word."""
    assert load_profile("mast", {"copy_limit_s": text}).copy_limit_s == seconds


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"order": "alphabet"}, "alphabet"),
        ({"scoring": "dice"}, "dice"),
        ({"when_blocked": "cry"}, "cry"),
        ({"nope": "1"}, "nope"),
        (
            {"score.dato": "1"},
            r"--set score.dato: there is no such option .did you mean 'score.data'",
        ),
        ({"nosuch": "1"}, "--set nosuch: .* .`topmast policies` lists all options.$"),
        ({"score": "1"}, "--set score: there is no such option"),
        ({"score.data": "abc"}, "--set score.data: wanted a number, found text 'abc'"),
        ({"min_runtime_s": "-5"}, r"--set min_runtime_s: -5 is out of range .0 or more"),
        ({"score.data": ".nan"}, "--set score.data: nan is out of range"),
        ({"copy_limit_s": ".inf"}, "--set copy_limit_s: inf is out of range"),
        ({"host_losses_allowed": "-1"}, "host_losses_allowed: -1"),
        (
            {"rank.usage_half_life_s": "0"},
            "--set rank.usage_half_life_s: 0 is out of range .more than 0",
        ),
    ],
)
def test_a_mistake_is_told_at_once(options: dict[str, str], names: str) -> None:
    """An option or a policy that does not exist is named."""
    with pytest.raises(InvalidInput, match=names):
        load_profile("mast", options)


def test_a_profile_that_does_not_exist() -> None:
    """The nearest one is suggested."""
    with pytest.raises(InvalidInput) as caught:
        load_profile("fifo-skp")
    assert "fifo-skip" in caught.value.remedy


@pytest.mark.parametrize("name", ["tiresias-las", "gavel-fifo", "gavel-makespan-packed"])
def test_as_published_a_profile_has_other_options(name: str) -> None:
    """Those of the public code; what is set by hand lies over them."""
    own, public = load_profile(name), load_profile(f"{name}-as-published")
    assert public.name == f"{name}-as-published"
    assert (own.shares, own.queues) != (public.shares, public.queues)
    assert load_profile(public.name, {"shares.lease": "3"}).shares.lease == 3.0
    assert public.shares.lease == (1.0 if name.startswith("gavel") else own.shares.lease)


def test_where_no_other_code_is_public_there_is_no_such_profile() -> None:
    """It would be the profile itself under another name."""
    with pytest.raises(InvalidInput, match="'srtf'") as refused:
        load_profile("srtf-as-published")
    assert "tiresias-las-as-published" in refused.value.remedy
