"""Units: strict to read, exact to write, plain to look at."""

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.units import (
    MAX_BYTES,
    bytes_of_gb,
    exact_bytes,
    format_bytes,
    format_duration,
    format_gpus,
    gb_of_bytes,
    parse_bytes,
    parse_duration_s,
    parse_memory_gb,
)


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (0, 0),
        (1500, 1500),
        ("1500", 1500),
        ("1500B", 1500),
        ("150GB", 150 * 10**9),
        ("150 GB", 150 * 10**9),
        ("0.1GB", 10**8),
        ("100TB", 10**14),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("5GiB", 5 * 2**30),
        ("1.5MiB", 3 * 2**19),
        ("2PB", 2 * 10**15),
        ("1EiB", 2**60),
        (1e3, 1000),
        (MAX_BYTES, MAX_BYTES),
    ],
)
def test_sizes_are_read(written: str | int | float, want: int) -> None:
    """Decimal units count in thousands, binary ones in 1024; no rounding on the way."""
    assert parse_bytes(written) == want


@pytest.mark.parametrize(
    ("written", "want_words"),
    [
        ("", "is not a size"),
        ("GB", "is not a size"),
        ("-1GB", "is not a size"),
        (-1, "is not a size"),
        ("1,000", "is not a size"),
        ("1_000", "is not a size"),
        ("1 000", "is not a size"),
        ("nan", "is not a size"),
        (float("nan"), "is not a size"),
        (float("inf"), "is not a size"),
        (True, "is not a size"),
        ("१GB", "is not a size"),
        ("1GB\n", "is not a size"),
        ("9" * 10_000, "is not a size"),
        (10**400, "is not a size"),
        (2**63, "too large"),
        ("10EB", "too large"),
        ("1e999GB", "too large"),
        ("1gb", "did you mean 'GB'?"),
        ("1G", "did you mean 'GB'?"),
        ("1Gi", "did you mean 'GiB'?"),
        ("1GBit", "unknown unit 'GBit'"),
    ],
)
def test_other_sizes_are_refused(written: str | int | float, want_words: str) -> None:
    """Whatever is not a plain size is refused in one line, with an example."""
    with pytest.raises(InvalidInput) as refused:
        parse_bytes(written)
    assert want_words in refused.value.line()
    assert refused.value.remedy
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (256, 256 * 10**9),
        ("256", 256 * 10**9),
        ("256+", 256 * 10**9),
        (0.5, 5 * 10**8),
        ("64GiB", 64 * 2**30),
        ("1TB+", 10**12),
        (0, 0),
    ],
)
def test_memory_is_in_gb(written: str | int | float, want: int) -> None:
    """A plain number of memory is in GB; the plus means at least, as it always does."""
    assert parse_memory_gb(written) == want


@pytest.mark.parametrize("written", ["256++", "+256", "", "+", "-1", "much"])
def test_other_memory_is_refused(written: str) -> None:
    """The plus stands once, at the end."""
    with pytest.raises(InvalidInput, match="amount of memory"):
        parse_memory_gb(written)


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (0, 0.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("45s", 45.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2d12h", 216000.0),
        ("1w", 604800.0),
        ("250ms", 0.25),
        ("1h1ms", 3600.001),
        (1e-05, 1e-05),
        ("3650d", 315360000.0),
    ],
)
def test_durations_are_read(written: str | int | float, want: float) -> None:
    """Seconds, or units from large to small."""
    assert parse_duration_s(written) == want


@pytest.mark.parametrize(
    ("written", "want_words"),
    [
        ("", "not a duration"),
        ("m", "not a duration"),
        ("-5m", "not a duration"),
        ("5 m", "not a duration"),
        ("30m1h", "not a duration"),
        ("1h1h", "not a duration"),
        ("1h 30m", "not a duration"),
        ("5M", "not a duration"),
        ("5min", "not a duration"),
        ("1:30", "not a duration"),
        ("inf", "not a duration"),
        (float("nan"), "not a duration"),
        (float("inf"), "not a duration"),
        (False, "not a duration"),
        ("1" * 5_000, "not a duration"),
        (10**30, "too long"),
        ("3651d", "too long"),
        ("1e300", "too long"),
    ],
)
def test_other_durations_are_refused(written: str | int | float, want_words: str) -> None:
    """A duration out of order, negative or endless is refused."""
    with pytest.raises(InvalidInput) as refused:
        parse_duration_s(written)
    assert want_words in refused.value.line()


@pytest.mark.parametrize(
    ("size_bytes", "want"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "1kB"),
        (1536, "1.54kB"),
        (999_949, "1MB"),
        (150 * 10**9, "150GB"),
        (1.5e12, "1.5TB"),
        (99.96e9, "100GB"),
        (12.34e9, "12.3GB"),
        (-2e6, "-2MB"),
    ],
)
def test_sizes_are_shown(size_bytes: float, want: str) -> None:
    """Three digits are enough for a person."""
    assert format_bytes(size_bytes) == want


@pytest.mark.parametrize(
    ("size_bytes", "want"),
    [(0, "0B"), (1, "1B"), (1024, "1KiB"), (150 * 10**9, "150GB"), (5 * 2**30, "5GiB")],
)
def test_exact_sizes_read_back(size_bytes: int, want: str) -> None:
    """What is written to a document loses nothing."""
    assert exact_bytes(size_bytes) == want
    assert parse_bytes(exact_bytes(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("duration_s", "want"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (0.001, "0s"),
        (9.949, "9.95s"),
        (9.96, "10s"),
        (45, "45s"),
        (59.7, "1m"),
        (90, "1m30s"),
        (3599.9, "1h"),
        (5400, "1h30m"),
        (86399, "1d"),
        (183600, "2d3h"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_shown(duration_s: float, want: str) -> None:
    """Two units are enough for a person."""
    assert format_duration(duration_s) == want


@pytest.mark.parametrize(
    ("gpus_milli", "want"),
    [(0, "0"), (8000, "8"), (500, "0.5"), (125, "0.125"), (12500, "12.5"), (-500, "-0.5")],
)
def test_gpus_are_shown(gpus_milli: int, want: str) -> None:
    """Shares are exact."""
    assert format_gpus(gpus_milli) == want


@pytest.mark.parametrize("size_gb", [0, 0.5, 29.296875, 256, 768])
def test_a_gb_is_the_same_everywhere(size_gb: float) -> None:
    """A GB of a trace is the GB of job and fleet files, there and back."""
    assert bytes_of_gb(size_gb) == parse_memory_gb(size_gb)
    assert gb_of_bytes(bytes_of_gb(size_gb)) == size_gb
