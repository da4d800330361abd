"""What a part of the tests has: its share of the files, and what each commit has to keep."""

import subprocess
import sys

from tests.conftest import REPO

PARTS = 100_003
FILES = ("tests/contract/test_leadership.py", "tests/contract/test_months.py")


def test_what_is_marked_always_is_left_out_by_no_part() -> None:
    """Of so many parts one has the other file; this commit's does not, but for one in 100,003."""
    words = [
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--parts={PARTS}",
        *FILES,
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=REPO, capture_output=True, text=True, check=False
    )
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == {FILES[0]}, done.stdout[-2000:] + done.stderr[-2000:]
