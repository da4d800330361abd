"""What people type after options."""

import re
import time
from datetime import datetime
from pathlib import Path

import pytest
import typer

from topmast.cli import values
from topmast.cli.actoptions import PeriodOptions
from topmast.cli.text import minute, minutes, moment


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1900000000", 1_900_000_000.0),
        ("1900000000.5", 1_900_000_000.5),
        ("2030-01-31T12:00+00:00", 1_896_091_200.0),
        ("2030-01-31T12:00:00Z", 1_896_091_200.0),
        ("2030-01-31", datetime(2030, 1, 31).timestamp()),  # noqa: DTZ001 - the reader's zone
        (None, None),
    ],
)
def test_moments(text: str | None, want: float | None) -> None:
    """Seconds since the epoch, or a date in the reader's zone or another."""
    assert values.moment_s(text, "--until") == want


@pytest.mark.parametrize(("text", "ago_s"), [("2h", 7200), ("90", 90), ("1h30m", 5400), ("0", 0)])
def test_moments_ago(text: str, ago_s: float) -> None:
    """A duration is that long ago."""
    found = values.moment_s(text, "--until")
    assert found == pytest.approx(time.time() - ago_s, abs=5)


@pytest.mark.parametrize("text", ["", "now-ish", "-5", "nan", "inf", "1e99", "2030-13-01", "1h2h"])
def test_no_moments(text: str) -> None:
    """What is no time is refused."""
    with pytest.raises(typer.BadParameter, match="is not a time"):
        values.moment_s(text, "--until")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_loopback(host: str) -> None:
    """Addresses of this machine alone."""
    assert values.loopback(host) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_not_loopback(host: str) -> None:
    """Everything else is refused: there is no authentication yet."""
    with pytest.raises(typer.BadParameter, match="only loopback"):
        values.loopback(host)


def test_assignments() -> None:
    """A value may hold an equals sign, or be empty; the same one may be said twice."""
    assert values.assignments(["A=1", "B=x=y", "C=", "A=1"], "--set") == {
        "A": "1",
        "B": "x=y",
        "C": "",
    }


def test_a_name_has_one_value(tmp_path: Path) -> None:
    """Only a line of a file gives way, to what comes later."""
    first, second, twice = (tmp_path / name for name in ("first", "second", "twice"))
    first.write_text("A=1\nB=1\n")
    second.write_text("A=2\n")
    twice.write_text("A=1\nA=2\n")
    assert values.assignments([f"@{first}", "A=3"]) == {"A": "3", "B": "1"}
    assert values.assignments([f"@{first}", f"@{second}"]) == {"A": "2", "B": "1"}
    for texts in (
        ["A=1", "A=2"],
        ["A=1", f"@{second}"],
        [f"@{first}", "A=3", "A=4"],
        [f"@{twice}"],
    ):
        with pytest.raises(typer.BadParameter, match=r"A is given twice, as '.' and as '.'"):
            values.assignments(texts, "--set")


def test_a_long_value_is_cut_short_in_a_refusal() -> None:
    """A line is to be read."""
    with pytest.raises(typer.BadParameter) as error:
        values.assignments(["A=" + "x" * 1000, "A=" + "y" * 1000], "--set")
    assert len(error.value.message) < 300


def test_whole_numbers() -> None:
    """A list with commas; blanks do not matter."""
    assert values.whole_numbers("1, 2,64") == (1, 2, 64)


@pytest.mark.parametrize("text", ["", "1,,2", "0", "-1", "1.5", "x", "²"])
def test_no_whole_numbers(text: str) -> None:
    """Each must be a number from 1 on."""
    with pytest.raises(typer.BadParameter):
        values.whole_numbers(text)


def test_a_time_to_come() -> None:
    """A duration counts from now on; a time is what it is."""
    soon_s = values.coming_s("2h", "--until")
    assert soon_s is not None
    assert 7100 < soon_s - time.time() < 7300
    assert values.coming_s("2100-01-01T00:00+00:00", "--until") == 4102444800.0
    assert values.coming_s(None, "--until") is None


def test_a_duration_without_a_unit_is_said_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Four hours are easily typed as 4, which are seconds everywhere."""
    period = PeriodOptions(from_="1h", for_="4")
    from_s, until_s = period.bounds_s()
    assert from_s is not None
    assert until_s - from_s == pytest.approx(4.0)
    assert capsys.readouterr().err.startswith("--for 4 means 4s, seconds; for others write 4m")
    values.coming_s("30", "--until")
    assert "--until 30 means 30s" in capsys.readouterr().err
    values.coming_s("30s", "--until")
    values.coming_s("2100-01-01", "--until")
    assert capsys.readouterr().err == ""


def test_what_is_no_time_to_come() -> None:
    """The remedy says how a time to come is written, not one that is over."""
    with pytest.raises(typer.BadParameter, match=r"write 2h \(from now\)"):
        values.coming_s("yesterday", "--from")
    with pytest.raises(typer.BadParameter, match=r"write 2h \(ago\)"):
        values.moment_s("yesterday", "--since")
    for text in ("2020-01-31", "1600000000", "2020-01-31T12:00+00:00"):
        with pytest.raises(typer.BadParameter, match=f"'{re.escape(text)}' has passed: write a"):
            values.coming_s(text, "--from")


def test_seconds_are_shown_within_a_minute() -> None:
    """Else what begins and ends would be the same."""
    start_s = 1_900_000_000.0
    assert minutes(start_s, start_s + 4.0) == (moment(start_s), moment(start_s + 4.0))
    assert minutes(start_s, start_s + 400.0) == (minute(start_s), minute(start_s + 400.0))
