"""Break one promise after the other in a copy of the source, and see that a test notices.

    python -m tests.mutants.run [WORD...]

Words choose mutants by what they promise. It takes minutes; the last line says how many were noticed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS

REPO = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0
SOME_FAILED, ALL_PASSED = 1, 0


class OutOfDate(Exception):
    """The source no longer has what a mutant replaces."""


def break_it(source: Path, mutant: Mutant) -> None:
    """Replace the piece of one mutant in the package in ``source``."""
    file = source / "topmast" / mutant.file
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise OutOfDate(
            f"'{mutant.promise}': {mutant.file} has its piece {text.count(mutant.old)} times, not once"
        )
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")


def tested(folder: Path, test: str) -> int:
    """How pytest ends with a test on the copy in ``folder``: it is imported in place of what is installed."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        timeout=LIMIT_S,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    return done.returncode


def is_failure(ended: int) -> bool:
    """Whether tests failed, or a signal ended them: a broken kernel may write where it must not."""
    return ended == SOME_FAILED or ended < 0


def copy_to(folder: Path) -> None:
    """The source and the tests, with what was compiled beside them."""
    for name in ("src", "tests"):
        shutil.copytree(REPO / name, folder / name)
    shutil.copy2(REPO / "pyproject.toml", folder)


def noticed(mutant: Mutant) -> bool:
    """Whether its test passes on the source as it is, and fails on the mutant."""
    with tempfile.TemporaryDirectory(prefix="topmast-mutant-") as place:
        folder = Path(place)
        copy_to(folder)
        if tested(folder, mutant.test) != ALL_PASSED:
            print(f"{mutant.test} fails on the source as it is", file=sys.stderr)
            return False
        break_it(folder / "src", mutant)
        return is_failure(tested(folder, mutant.test))


def main(words: Sequence[str]) -> int:
    """Try the mutants that the words choose, or all; 1 when one went unnoticed."""
    chosen = [m for m in MUTANTS if not words or any(word in m.promise for word in words)]
    unnoticed = 0
    for mutant in chosen:
        found = noticed(mutant)
        unnoticed += not found
        print(
            f"{'noticed' if found else 'UNNOTICED'}: {mutant.promise} ({mutant.test})", flush=True
        )
    print(f"{len(chosen) - unnoticed} of {len(chosen)} mutants were noticed")
    return 1 if unnoticed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
