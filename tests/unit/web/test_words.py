"""How templates write numbers, and what users wrote."""

import pytest

from topmast.web import words


@pytest.mark.parametrize(
    ("value", "want"),
    [(0.0, "0"), (0.0004, "less than 0.01"), (0.005, "0.01"), (1.131, "1.13"), (1234.0, "1,234")],
)
def test_an_amount_that_is_little_is_not_nothing(value: float, want: str) -> None:
    assert words.amount(value) == want


@pytest.mark.parametrize(
    ("part", "want"),
    [(0.0, "0.0 %"), (0.0003, "less than 0.1 %"), (0.0006, "0.1 %"), (0.5, "50.0 %")],
)
def test_a_share_that_is_little_is_not_nothing(part: float, want: str) -> None:
    assert words.share(part) == want


def test_a_name_has_no_tags_and_a_direction_of_its_own() -> None:
    assert words.named("by <b>x") == "<bdi>by &lt;b&gt;x</bdi>"
    assert words.whole("user:<") == '<bdi class="whole">user:&lt;</bdi>'
    assert words.whole("x" * 27) == f"<bdi>{'x' * 27}</bdi>"
    assert words.marked("a `b<`") == "<bdi>a <code>b&lt;</code></bdi>"


def test_no_text_on_a_page_has_characters_that_act_on_what_shows_it() -> None:
    """Lines and right-to-left script stay."""
    shown = words.harmless("a\x1b[31m\u202e<\r\n\t\u05d0\x9b\x7f\0\u2066")
    assert shown == "a\ufffd[31m\ufffd<\r\n\t\u05d0\ufffd\ufffd\ufffd\ufffd"


@pytest.mark.parametrize(("count", "want"), [(1, "1 copy"), (2, "2 copies"), (0, "0 copies")])
def test_a_plural_of_its_own(count: int, want: str) -> None:
    assert words.plural(count, "copy", "copies") == want
