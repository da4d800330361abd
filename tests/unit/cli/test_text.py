"""Nothing that came from a user acts on a terminal."""

import json

import pytest

from topmast.cli.output import Cell, Column, plain_lines
from topmast.cli.text import BlockCleaner, clean, clean_block, clean_json, moment, number, width

NASTY = [
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
    ("two\nlines", "two lines"),
    ("a\r\nb\rc", "a b c"),
    ("back\rward", "back\\x0dward"),
    ("nul\x00 del\x7f", "nul\\x00 del\\x7f"),
    ("one-byte CSI \x9b31m", "one-byte CSI \\x9b31m"),
    ("turned \u202eround", "turned \\u202eround"),
    ("a\tb", "a b"),
    ("größe 模型 🚀 [red]x[/]", "größe 模型 🚀 [red]x[/]"),
]


@pytest.mark.parametrize(("text", "want"), NASTY)
def test_clean(text: str, want: str) -> None:
    """Controls are spelled out, on one line; letters of any language stay."""
    assert clean(text) == want
    assert clean(text).isprintable()


@pytest.mark.parametrize(("text", "_"), NASTY)
def test_json_means_the_same(text: str, _: str) -> None:
    """JSON keeps every character, as an escape where it could act."""
    encoded = json.dumps({"name": text}, ensure_ascii=False)
    shown = clean_json(encoded)
    assert json.loads(shown) == {"name": text}
    assert shown.isprintable()


BLOCKS = [
    ("\x1b[1;32mok\x1b[0m\n", "ok\n"),
    ("50%\r100%\r\n", "50%\n100%\n"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b[2J\x1b[Htop", "top"),
    ("a\x1bcb", "ab"),
    ("a\x08b\x07", "a\\x08b\\x07"),
    ("open \x1b]0;evil\nstays", "open \nstays"),
    ("tab\tstays", "tab\tstays"),
    ("\x9b2J", "\\x9b2J"),
    ("lone \x1b", "lone \\x1b"),
]


@pytest.mark.parametrize(("text", "want"), BLOCKS)
def test_clean_block(text: str, want: str) -> None:
    """Output keeps its lines and tabs, and loses its colours and movements."""
    assert clean_block(text) == want


@pytest.mark.parametrize(("text", "want"), BLOCKS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_pieces_are_cleaned_alike(text: str, want: str, size: int) -> None:
    """A sequence that is broken between two pieces is still seen."""
    cleaner = BlockCleaner()
    pieces = [cleaner.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, cleaner.finish()]) == want


def test_an_endless_sequence_is_let_go() -> None:
    """Nobody can hide the rest of the output behind a sequence that never ends."""
    cleaner = BlockCleaner()
    shown = cleaner.feed("\x1b]" + "x" * 10_000) + cleaner.feed("\nvisible")
    assert shown.endswith("\nvisible")


def test_columns_line_up() -> None:
    """Also where letters are twice as wide, or take no place at all."""
    columns = [Column("NAME"), Column("GPUS", right=True), Column("LAST")]
    rows = [
        [Cell(name), Cell(gpus), Cell("x")]
        for name, gpus in (("plain", "8"), ("模型", "16"), ("e\u0301te\u0301", "0.5"))
    ]
    lines = plain_lines(columns, rows)
    assert lines[0] == "NAME   GPUS  LAST"
    assert {width(line) for line in lines[1:]} == {len("NAME   GPUS  x")}


@pytest.mark.parametrize(
    ("value", "want"),
    [(8.0, "8"), (0.5, "0.5"), (1e7, "10000000"), (0.0, "0"), (-1e-9, "0"), (None, "-")],
)
def test_numbers(value: float | None, want: str) -> None:
    """Whole numbers are whole, and never in powers of ten."""
    assert number(value) == want


def test_moments() -> None:
    """A time that no calendar has is shown as it is."""
    assert len(moment(1e9)) == len("2001-09-09 01:46:40")
    assert moment(None) == "-"
    assert moment(1e300) == "1e+300"


@pytest.mark.parametrize(
    ("text", "most", "want"),
    [
        ("short", 20, "short"),
        ("rank.age=0.5, rank.fairness=0.5, rank.cap=1", 36, "rank.age=0.5, rank.fairness=0.5 ..."),
        ("never cut where nothing is said of it", 0, "never cut where nothing is said of it"),
    ],
)
def test_lists_are_cut_after_a_word(text: str, most: int, want: str) -> None:
    """In a pipe, and so that the end can be seen to lack."""
    assert plain_lines([Column("OPTIONS", most=most)], [[Cell(text)]])[1] == want
