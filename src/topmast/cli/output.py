"""Writing: results to stdout, as tables or as one JSON document; everything else to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from topmast.cli.text import clean, clean_json, clean_text, width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


_NARROWEST = 20
_FOLDED = 12
_LIST_COMMA = re.compile(r",(?=[A-Za-z])")
"""Between names, and not in a number like 1,234."""


class Column(NamedTuple):
    """A column of a table.

    On a terminal that is too narrow, columns with a number in ``spare`` are left out. Elsewhere
    lines are as wide as they have to be.
    """

    title: str
    right: bool = False
    whole: bool = False
    """Never cut or folded, as ids must not be."""
    spare: int = 0
    """1 is left out first; 0 never."""
    most: int = 0
    """Lists and prose are cut after so many characters; 0: never."""
    folds: bool = False
    """It takes two lines before words of others are broken, as names may."""


class Cell(NamedTuple):
    """A cell with a style of its own, for terminals that have colours."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


def say(line: str = "") -> None:
    """One line of the result, with all that acts on a terminal spelled out."""
    sys.stdout.write(clean(line) + "\n")


def say_block(text: str) -> None:
    """Lines of the result that have to stay as they are, such as a file: only controls change."""
    sys.stdout.write(clean_text(text.rstrip("\n")) + "\n")


def note(line: str) -> None:
    """One line beside the result: a warning, a hint, progress."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """A warning beside the result: on a terminal broken between words."""
    note_text(f"warning: {text}")


def note_text(text: str) -> None:
    """Prose beside the result: on a terminal broken between words, elsewhere on one line."""
    for line in _broken(text, sys.stderr, rest="  "):
        note(line)


def say_json(document: object) -> None:
    """The result as one JSON document: on one line, or indented for eyes."""
    import msgspec

    encoded = msgspec.json.encode(document)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    sys.stdout.write(clean_json(encoded.decode()) + "\n")


def say_table(columns: Sequence[Column], rows: Iterable[Row], title: str = "") -> int:
    """A table: with colours on a terminal, aligned by spaces elsewhere.

    Returns how many columns were left out for want of room.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        return _rich_table(columns, cells, title)
    if title:
        say(title)
    for line in plain_lines(columns, cells):
        say(line)
    return 0


def say_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair to a line."""
    pairs = [(name, clean(value)) for name, value in fields if value]
    longest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say_text(value, first=f"{name:<{longest}}  ", rest=" " * (longest + 2))


def say_text(text: str, first: str = "", rest: str = "") -> None:
    """Prose: on a terminal broken between words, elsewhere on one line."""
    for line in _broken(text, sys.stdout, first, rest):
        say(line)


def _broken(text: str, stream: TextIO, first: str = "", rest: str = "") -> list[str]:
    """The lines of prose: of the width of a terminal; one where the stream is none."""
    if not stream.isatty():
        return [first + text]
    import shutil
    import textwrap

    room = max(_NARROWEST, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(
        clean(text), room, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines or [first.rstrip()]


def console_on(stream: TextIO) -> Console:
    """What draws tables on a terminal; with NO_COLOR set it sends no bold either."""
    from rich.console import Console

    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, highlight=False, markup=False, emoji=False, color_system=system)


def plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The lines of a table without colours or rules, as wide as it has to be."""
    lines = [[column.title for column in columns]]
    for row in rows:
        pairs = zip(columns, row, strict=True)
        lines.append([shortened(cell.text, column.most) for column, cell in pairs])
    widths = [max(width(line[index]) for line in lines) for index in range(len(columns))]
    result = []
    for line in lines:
        parts = []
        for column, wanted, text in zip(columns, widths, line, strict=True):
            space = " " * (wanted - width(text))
            parts.append(space + text if column.right else text + space)
        result.append("  ".join(parts).rstrip())
    return result


def shortened(text: str, most: int) -> str:
    """A text of at most ``most`` characters (0: any), cut after a word with a mark at the end."""
    if not most or len(text) <= most:
        return text
    return text[: most - 3].rsplit(" ", 1)[0].rstrip(",") + " ..."


def _cell(value: str | Cell) -> Cell:
    text, style = value if isinstance(value, Cell) else (value, "")
    return Cell(clean(text) or "-", style)


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], title: str) -> int:
    console = console_on(sys.stdout)
    if title:
        console.print(clean(title), style="bold")
    table = rich_table(columns, rows, console.width)
    console.print(table)
    return len(columns) - len(table.columns)


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> RichTable:
    """The table for a terminal of ``room`` columns.

    Cells are `Text`: a name in brackets is a name, not markup.
    """
    from rich.table import Table
    from rich.text import Text

    kept = _kept(columns, rows, room)
    columns = [columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in rows]
    if sum(_widths(columns, rows)) - 2 > room:
        rows = [list(map(_breaking_at_commas, columns, row)) for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    words, gaps = _longest_words(columns, rows), 2 * len(columns) - 2
    fits = sum(words) + gaps <= room
    natural = [wanted - 2 for wanted in _widths(columns, rows)]
    shares = _shares(natural, words, room - gaps) if fits else []
    for index, column in enumerate(columns):
        options: dict[str, Any] = {"justify": "right" if column.right else "left"}
        if fits:
            options["width"] = shares[index]
        elif column.whole:
            longest = max((width(row[index].text) for row in rows), default=1)
            options |= {"min_width": longest, "no_wrap": True}
        table.add_column(Text(column.title), overflow="fold", **options)
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return table


def _shares(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The width of each column in so much room: the widest give way, none below its least.

    O(columns x characters too many).
    """
    shares = list(natural)
    for _ in range(sum(natural) - room):
        above = [index for index, width in enumerate(shares) if width > least[index]]
        shares[max(above, key=lambda index: shares[index])] -= 1
    return shares


def _longest_words(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The width of each column that keeps its words whole; one that ``folds`` may break them."""
    found = []
    for index, column in enumerate(columns):
        texts = [column.title, *(row[index].text for row in rows)]
        words = texts if column.whole else [word for text in texts for word in text.split()]
        longest = max(map(width, words), default=1)
        found.append(min(longest, max(_FOLDED, (longest + 1) // 2)) if column.folds else longest)
    return found


def _breaking_at_commas(column: Column, cell: Cell) -> Cell:
    """A cell in which lists of names take several lines, so that the names stay whole."""
    return cell if column.whole else cell._replace(text=_LIST_COMMA.sub(", ", cell.text))


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """How wide each column is if nothing is broken, with the space behind it."""
    return [
        2 + max(width(text) for text in (column.title, *(row[index].text for row in rows)))
        for index, column in enumerate(columns)
    ]


def _kept(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[int]:
    """The columns that are shown: all, but for spare ones for which there is no room."""
    widths = _widths(columns, rows)
    kept = list(range(len(columns)))
    for index in sorted(kept, key=lambda index: columns[index].spare):
        if columns[index].spare and sum(widths[left] for left in kept) - 2 > room:
            kept.remove(index)
    return kept
