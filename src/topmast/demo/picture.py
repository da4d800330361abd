"""The picture in the README: the result of a real run of the demo, as SVG.

python -m topmast.demo.picture OUT.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from topmast.demo import tables
from topmast.demo.run import perform

WIDTH = 132
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# As Rich has it, but for the fonts, which it would load from elsewhere.
DRAWING = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
DRAWING = DRAWING.replace("Fira Code, monospace", FONTS)


def main(arguments: list[str]) -> int:
    """Run the demo and draw what it shows; nothing is drawn of one that failed."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m topmast.demo.picture OUT.svg\n")
        return 2
    outcome = perform(None, keep=False)
    if outcome.findings.missing:
        sys.stderr.write("something did not happen: run `topmast demo` to see what\n")
        return 1
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    tables.show_result(console, outcome.findings)
    file = Path(arguments[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(title="topmast demo", code_format=DRAWING, unique_id="demo")
    file.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
