"""Bisections, against a search one by one."""

import pytest

from topmast.model.bisection import fewer_than, fewest_that, fewest_with, most_that, most_with


@pytest.mark.parametrize("guess", [0, 3, 20])
@pytest.mark.parametrize("most", range(12))
@pytest.mark.parametrize("enough", range(1, 14))
def test_the_fewest_are_found(most: int, enough: int, guess: int) -> None:
    """Never tried with none at all, nor with more than there are."""
    asked: list[int] = []

    def find(count: int) -> str | None:
        assert 0 < count <= most
        asked.append(count)
        return None if count < enough else f"plan without {count}"

    want = None if enough > most else (enough, f"plan without {enough}")
    assert fewest_with(find, most, guess=guess) == want
    assert len(asked) <= 1 + (guess > 0) + most.bit_length()
    assert fewest_that(lambda count: count >= enough, most) == (want and enough)


@pytest.mark.parametrize("too_few", range(4))
def test_what_is_known_to_be_too_few_is_not_tried(too_few: int) -> None:
    asked: list[int] = []

    def find(count: int) -> int | None:
        asked.append(count)
        return count if count > 4 else None

    assert fewest_with(find, 9, too_few) == (5, 5)
    assert min(asked) > too_few


@pytest.mark.parametrize("high", range(1, 12))
@pytest.mark.parametrize("last", range(12))
def test_the_most_are_found_between_two_ends_that_are_not_tried(last: int, high: int) -> None:
    def find(count: int) -> str | None:
        assert 0 < count < high
        return f"place for {count}" if count <= last else None

    want = min(last, high - 1)
    assert most_with(find, 0, high) == ((want, f"place for {want}") if want else None)
    assert most_that(lambda count: count <= last, 0, high) == want


@pytest.mark.parametrize(
    ("wanted", "gains", "want"),
    [(0, [], 0), (1, [], 0), (-5, [3], 0), (3, [3], 0), (4, [3], 1), (5, [0, 2, 0, 3, 1], 3),
     (6, [0, 2, 0, 3, 1], 4), (7, [0, 2, 0, 3, 1], 5)],
)  # fmt: skip
def test_how_many_are_too_few(wanted: int, gains: list[int], want: int) -> None:
    """One more could be enough, unless these are all."""
    assert fewer_than(wanted, gains) == want
