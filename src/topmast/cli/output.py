"""Writing: results to stdout, as tables or as one JSON document; everything else to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from topmast.cli.text import clean, clean_json, clean_text, width

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text


_NARROWEST = 20
_FOLDED = 12
_LIST_COMMA = re.compile(r",(?=[A-Za-z])")
"""Between names, and not in a number like 1,234."""
_GAP = re.compile(r"[ ,]+")
_SEAM = re.compile(r"(?<=[-_/=@+])(?=[^\W_])|(?<=[.:,])(?=[A-Za-z])")
"""Where a name goes on in the next line if it has to: behind its signs, and not in a number."""


class Column(NamedTuple):
    """A column of a table.

    On a terminal that is too narrow, columns with a number in ``spare`` are left out. What is left
    is folded between words, and columns for which there is still no room are told beneath each row.
    Elsewhere lines are as wide as they have to be.
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
    """Its words may go on in the next line behind a sign, as long names may."""
    beneath: bool = False
    """Told beneath its row where the table is too narrow for one line, as prose and lists are."""


class Cell(NamedTuple):
    """A cell with a style of its own, for terminals that have colours."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


def say(line: str = "") -> None:
    """A sentence of the result: on a terminal broken between words, elsewhere on one line.

    All that acts on a terminal is spelled out.
    """
    say_text(line)


def say_block(text: str) -> None:
    """Lines of the result that have to stay as they are, such as a file: only controls change."""
    sys.stdout.write(clean_text(text.rstrip("\n")) + "\n")


def note(line: str) -> None:
    """A sentence beside the result, such as a hint or progress: broken as what `say` says."""
    for part in _broken(line, sys.stderr, rest="  "):
        sys.stderr.write(clean(part) + "\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """A warning beside the result."""
    note(f"warning: {text}")


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
    """As `say`: the first line begins with ``first``, the others with ``rest``."""
    for line in _broken(text, sys.stdout, first, rest):
        sys.stdout.write(clean(line) + "\n")


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
    """A text of at most ``most`` characters (0: any), cut after a word with a mark at the end.

    The first word is whole, however long it is.
    """
    if not most or len(text) <= most:
        return text
    gaps = [found.start() for found in _GAP.finditer(text)]
    ends = [at for at in gaps if at <= most - 4] or gaps[:1]
    return text[: ends[-1]] + " ..." if ends else text


def _cell(value: str | Cell) -> Cell:
    text, style = value if isinstance(value, Cell) else (value, "")
    return Cell(clean(text) or "-", style)


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], title: str) -> int:
    console = console_on(sys.stdout)
    if title:
        console.print(clean(title), style="bold")
    kept = _kept(columns, rows, console.width)
    for line in _table_lines(columns, rows, kept, console.width):
        console.print(line, soft_wrap=True)
    return len(columns) - len(kept)


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> Group:
    """The table for a terminal of ``room`` columns."""
    from rich.console import Group

    return Group(*_table_lines(columns, rows, _kept(columns, rows, room), room))


def _table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], kept: Sequence[int], room: int
) -> list[Text]:
    """The lines of a table. Columns for which there is no room are told beneath each row.

    They are `Text`: a name in brackets is a name, not markup.
    """
    columns = [columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in rows]
    beside = list(range(len(columns)))
    if sum(_widths(columns, rows)) - 2 > room:
        rows = [list(map(_breaking_at_commas, columns, row)) for row in rows]
        beside = [index for index in beside if not columns[index].beneath]
    least = _longest_words(columns, rows)
    while len(beside) > 1 and sum(least[index] + 2 for index in beside) - 2 > room:
        beside.remove(max(beside[1:], key=lambda index: least[index]))
    shown = [columns[index] for index in beside]
    cells = [[row[index] for index in beside] for row in rows]
    widths = _shares(shown, cells, [least[index] for index in beside], room)
    lines = _row_lines(shown, [Cell(column.title, "bold") for column in shown], widths)
    for row, part in zip(rows, cells, strict=True):
        lines += _row_lines(shown, part, widths)
        lines += _lines_beneath(columns, row, beside, room)
    return lines


def _row_lines(
    columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int]
) -> list[Text]:
    """The lines of one row, in columns that are so wide."""
    from rich.text import Text

    folded = [
        _folded(column, cell.text, wanted)
        for column, cell, wanted in zip(columns, cells, widths, strict=True)
    ]
    lines = []
    for number in range(max(map(len, folded))):
        line = Text()
        for column, cell, wanted, parts in zip(columns, cells, widths, folded, strict=True):
            part = parts[number] if number < len(parts) else ""
            free = wanted - width(part)
            before = free if column.right else 0
            line.append(" " * before).append(part, cell.style).append(" " * (free - before + 2))
        line.rstrip()
        lines.append(line)
    return lines


def _lines_beneath(
    columns: Sequence[Column], row: Sequence[Cell], beside: Sequence[int], room: int
) -> list[Text]:
    """The cells of a row that are not in its line, each with the title of its column."""
    from rich.text import Text

    lines = []
    for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
        if index not in beside and cell.text != "-":
            first = f"  {column.title}: "
            left = max(_NARROWEST, room - width(first))
            for part in _folded(column, cell.text, left):
                lines.append(Text(first).append(part, cell.style))
                first = " " * width(first)
    return lines


def _folded(column: Column, text: str, room: int) -> list[str]:
    """The lines of a cell, broken between words; words of a column that ``folds`` behind signs.

    What is longer than that is left whole.
    """
    if column.whole or width(text) <= room:
        return [text]
    lines = [""]
    for word in text.split():
        glue = " " if lines[-1] else ""
        for part in _SEAM.split(word) if column.folds and width(word) > room else (word,):
            if lines[-1] and width(lines[-1] + glue + part) > room:
                lines.append("")
                glue = ""
            lines[-1] += glue + part
            glue = ""
    return lines


def _shares(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], least: Sequence[int], room: int
) -> list[int]:
    """How wide each column is: the widest give way, none below its least.

    O(cells + columns x characters too many).
    """
    natural = [wanted - 2 for wanted in _widths(columns, rows)]
    shares, room = list(natural), room - 2 * len(columns) + 2
    if sum(natural) <= room:
        return shares
    for _ in range(sum(natural) - max(room, sum(least))):
        above = [index for index, share in enumerate(shares) if share > least[index]]
        shares[max(above, key=lambda index: shares[index])] -= 1
    # What folding leaves empty goes to the column that lacks most.
    for index, column in enumerate(columns):
        texts = (column.title, *(row[index].text for row in rows))
        shares[index] = max(
            width(line) for text in texts for line in _folded(column, text, shares[index])
        )
    lacking = max(range(len(columns)), key=lambda index: natural[index] - shares[index])
    shares[lacking] += max(0, room - sum(shares))
    return shares


def _longest_words(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The width of each column that cuts nothing: an id, a word, or a part of one that folds."""
    found = []
    for index, column in enumerate(columns):
        texts = [column.title, *(row[index].text for row in rows)]
        words = texts if column.whole else [word for text in texts for word in text.split()]
        longest = max(map(width, words), default=1)
        if column.folds:
            parts = (part for word in words for part in _SEAM.split(word))
            longest = min(longest, max(_FOLDED, *map(width, parts)))
        found.append(longest)
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
    widths = [
        0 if column.beneath else wanted
        for column, wanted in zip(columns, _widths(columns, rows), strict=True)
    ]
    kept = list(range(len(columns)))
    for index in sorted(kept, key=lambda index: columns[index].spare):
        if columns[index].spare and sum(widths[left] for left in kept) - 2 > room:
            kept.remove(index)
    return kept
