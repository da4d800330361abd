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


def test_a_name_does_not_turn_the_sentence_that_it_stands_in() -> None:
    """Nor has it tags; right-to-left script itself stays as it is."""
    assert words.named("by <b>\u202ex for a") == "<bdi>by &lt;b&gt;\ufffdx for a</bdi>"
    assert words.whole("user:<\u202e") == '<bdi class="whole">user:&lt;\ufffd</bdi>'
    assert words.whole("x" * 27) == f"<bdi>{'x' * 27}</bdi>"
    assert words.marked("\u2066`a`") == "<bdi>\ufffd<code>a</code></bdi>"
    assert words.named("\u05d0") == "<bdi>\u05d0</bdi>"


@pytest.mark.parametrize(("count", "want"), [(1, "1 copy"), (2, "2 copies"), (0, "0 copies")])
def test_a_plural_of_its_own(count: int, want: str) -> None:
    assert words.plural(count, "copy", "copies") == want
