"""Points in time as people write them."""

from datetime import UTC, datetime

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.moments import parse_moment_s

NOW_S = 1_900_000_000.0


@pytest.mark.parametrize(
    ("text", "want_s"),
    [
        ("2h", NOW_S - 7_200), ("1h30m", NOW_S - 5_400), ("90", NOW_S - 90), ("0", NOW_S),
        ("1900000000.5", 1_900_000_000.5), ("2030-01-31", 1_896_048_000.0),
        ("2030-01-31T12:00", 1_896_091_200.0), ("2030-01-31 12:00", 1_896_091_200.0),
        ("2030-01-31T12:00+01:00", 1_896_087_600.0), ("2030-01-31T12:00:00Z", 1_896_091_200.0),
    ],
)  # fmt: skip
def test_a_date_without_a_zone_is_of_the_zone_that_is_given(text: str, want_s: float) -> None:
    """A duration is that long ago, and a date with a zone is what it is."""
    assert parse_moment_s(text, NOW_S, zone=UTC) == want_s


def test_without_a_zone_it_is_that_of_the_machine() -> None:
    there = datetime(2030, 1, 31).timestamp()  # noqa: DTZ001 - the machine's zone
    assert parse_moment_s("2030-01-31", NOW_S) == there


@pytest.mark.parametrize(
    "text", ["", "now-ish", "-5", "nan", "inf", "1e99", "2030-13-01", "x" * 99]
)
def test_what_is_no_time_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^since: .* is not a time \(write 2h \(from now\), "):
        parse_moment_s(text, NOW_S, ago="from now", field="since")
