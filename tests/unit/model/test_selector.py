"""Selectors: what a text means, and that none of them means more than it says."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import parse_job
from topmast.model.selector import MOST_PARTS, MOST_STARS, selector_of


def meant(text: str, name: str) -> bool:
    """Whether a selector means a job of this name."""
    spec = replace(parse_job({"run": "x"}).spec, name=name)
    return selector_of(text).takes(spec, "PENDING", "normal", None, ())


@pytest.mark.parametrize("text", [",", ",,", "name=a,", ",name=a", "name=a, ,band=low", " , "])
def test_an_empty_part_is_refused(text: str) -> None:
    """A comma too many, or a variable that is not set, would mean more jobs than was thought."""
    with pytest.raises(InvalidInput, match="a part of it is empty"):
        selector_of(text)


@pytest.mark.parametrize("text", ["", "  "])
def test_a_selector_without_text_means_any_job(text: str) -> None:
    """So listings without one list all; acts refuse it."""
    assert selector_of(text).takes_all


def test_a_selector_has_at_most_so_many_parts() -> None:
    """Each of them is compared with each job."""
    selector_of(",".join(["name=a"] * MOST_PARTS))
    with pytest.raises(InvalidInput, match="more than 100 parts"):
        selector_of(",".join(["name=a"] * (MOST_PARTS + 1)))


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=8))
def test_stars_stand_for_any_characters(pattern: str, name: str) -> None:
    """As in the shell, where only the star is special."""
    assert meant(f"name={pattern}", name) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "want"),
    [
        ("a[1]*", "a[1]-x", True),
        ("a[1]*", "a1-x", False),
        ("a?c*", "abc", False),
        ("a.c*", "abc", False),
        ("ab*ba", "aba", False),
        ("*", "a", True),
    ],
)
def test_no_other_character_is_special(pattern: str, name: str, want: bool) -> None:
    """Names of jobs may have brackets."""
    assert meant(f"name={pattern}", name) is want


def test_what_a_look_costs_is_known_and_bounded() -> None:
    """Each job is compared with each text, and looked through for what is between the stars."""
    assert selector_of("state=PENDING,band=high").steps == 0
    assert selector_of("tenant=a,name=x*,name=y*z*,label.k=*").steps == 1 + 2 + 3 + 2
    assert selector_of("name=" + "*a" * MOST_STARS).steps == 1 + MOST_STARS
    for text in ("name=" + "*a" * (MOST_STARS + 1), "name=x" + ",name=*a*b" * 51):
        with pytest.raises(InvalidInput, match="more than 100 stars"):
            selector_of(text)


def test_patterns_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is compiled and kept: a reader that asks for many would fill the memory."""

    def compiled(*_: object) -> None:
        raise AssertionError("a pattern was compiled")

    parts = ",".join(f"name={'*a' * 9}*{i}" for i in range(10, 20))
    jobs, spec = selector_of(parts), parse_job({"run": "x", "name": "a" * 100}).spec
    monkeypatch.setattr(re, "compile", compiled)
    assert not jobs.takes(spec, "PENDING", "normal", None, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state=RUNING,tenat=x", ["unknown key 'tenat'", "unknown state 'RUNING'"]),
        ("band=hgh,state=RUNING", ["unknown state 'RUNING'", "unknown band 'hgh'"]),
        ("tenant,state", ["'tenant' is not KEY=VALUE", "'state' is not KEY=VALUE"]),
    ],
)
def test_no_mistake_in_a_selector_hides_another(text: str, said: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        selector_of(text)
    assert [one.message for one in (refused.value, *refused.value.more)] == said
