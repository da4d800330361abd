"""Write what commands print today into the pages: ``python -m tests.support.pages.refresh [PAGE ...]``.

Run it after a change of what a command prints, and look at ``git diff docs README.md``: the difference
is what a reader will see. What only differs by what varies from run to run is left as it is.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.support.pages.compare import updated
from tests.support.pages.play import Difference, play
from tests.support.pages.script import PAGES, steps
from topmast.adapters.kernels import load_kernels

MOST_OUTPUTS = 40
"""A page that never prints the same twice is given up after so many."""


def main(names: list[str]) -> int:
    """Refresh the pages with these names, or all that have something to run."""
    pages = [Path(name).resolve() for name in names] or [page for page in PAGES if _runs(page)]
    slow = bool(os.environ.get("TOPMAST_SLOW_PAGES"))
    load_kernels()  # the first server must not compile them while a page waits
    left = 0
    for page in pages:
        for difference in _refreshed(page, slow):
            print(difference)
            left += 1
    return 1 if left else 0


def _refreshed(page: Path, slow: bool) -> list[Difference]:
    """Run and write a page until nothing changes; what cannot be written."""
    written = 0
    while True:
        with tempfile.TemporaryDirectory(prefix="topmast-pages-") as folder:
            found = play(page, Path(folder) / "page", slow, until_late=True)
        fit = [difference for difference in found if _can_be_shown(difference)]
        _write(page, fit)
        written += len(fit)
        if not fit or written > MOST_OUTPUTS:
            print(f"{page.name}: {written} outputs written anew", flush=True)
            return found


def _runs(page: Path) -> bool:
    return any(step.kind == "run" for step in steps(page))


def _can_be_shown(difference: Difference) -> bool:
    """Whether the page shows the output of a command that fails where the page says that it fails."""
    call = difference.call
    shows = bool(call.command or difference.printed)
    return shows and call.first >= 0 and (difference.status != 0) == call.fails


def _write(page: Path, differences: list[Difference]) -> None:
    """Put outputs into their page, the last first, so that the lines of the others stay where they are."""
    lines = page.read_text("utf-8").splitlines()
    for _, _, call, _, printed in sorted(differences, key=lambda d: d.call.first, reverse=True):
        if call.command:
            new = updated(call.shown, printed)
        else:
            new = updated(("...", *call.shown, "..."), printed)[1:-1]
        lines[call.first : call.first + len(call.shown)] = new
    page.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
