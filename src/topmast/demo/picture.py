"""The pictures in the README: what real runs of the demo showed, as SVG.

python -m topmast.demo.picture [--engines] OUT.svg
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from topmast.demo import tables
from topmast.demo.machines import Machines, RealMachines
from topmast.demo.run import perform

WIDTH = 132
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# As Rich has it, but for the fonts, which it would load from elsewhere.
DRAWING = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
DRAWING = DRAWING.replace("Fira Code, monospace", FONTS)


def main(arguments: list[str]) -> int:
    """Run the demo and draw what it shows; nothing is drawn of one that failed."""
    parser = argparse.ArgumentParser(prog="python -m topmast.demo.picture")
    parser.add_argument("--engines", action="store_true", help="of `topmast demo --engines`")
    parser.add_argument("file", type=Path, metavar="OUT.svg")
    asked = parser.parse_args(arguments)
    outcome = perform(None, keep=False, machines=RealMachines() if asked.engines else Machines())
    if outcome.findings.missing:
        sys.stderr.write("something did not happen: run `topmast demo` to see what\n")
        return 1
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    if asked.engines:
        tables.show_jobs(console, outcome.findings)
        tables.show_claims(console, outcome.findings, outcome.wall_s)
    else:
        tables.show_result(console, outcome.findings)
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    title = "topmast demo --engines" if asked.engines else "topmast demo"
    drawn = console.export_svg(title=title, code_format=DRAWING, unique_id="demo")
    asked.file.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
