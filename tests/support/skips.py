"""Why tests were skipped: noted while they run, and summed up in one line at the end.

    python -m tests.support.skips [--none] FILE

With ``--none`` it ends with 1 if there were any.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

CAUSES = (
    ("no data", ("no traces", "no data")),
    ("no PostgreSQL", ("postgres",)),
    ("as root", ("root may",)),
    ("no pyarrow", ("pyarrow",)),
    ("no strace", ("strace",)),
    ("no mounts or traces of processes", ("not permitted", "mount namespaces")),
    ("no Prometheus", ("no prometheus",)),
    ("no Helm", ("no helm",)),
    ("no Slurm", ("no slurm",)),
    ("no SSH hosts", ("no ssh hosts",)),
    ("no such shell", ("there is no zsh", "there is no fish", "there is no bash")),
)
"""Causes in a few words, by what reasons of pytest speak of; the first that fits counts."""


def cause_of(reason: str) -> str:
    """The cause of one skip; a reason of no known cause stands for itself."""
    plain = reason.removeprefix("Skipped: ")
    for cause, words in CAUSES:
        if any(word.lower() in plain.lower() for word in words):
            return cause
    return plain.partition("\n")[0][:60] or "no reason given"


def summed_up(reasons: Iterable[str]) -> str:
    """``5 skipped: 3 no data, 2 no PostgreSQL``; the most frequent cause first."""
    causes = Counter(map(cause_of, reasons))
    if not causes:
        return "0 skipped"
    parts = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    return f"{causes.total()} skipped: " + ", ".join(f"{count} {cause}" for cause, count in parts)


def main(arguments: list[str]) -> int:
    """Print the line; see above."""
    file = Path(arguments[-1])
    reasons = file.read_text("utf-8").splitlines() if file.exists() else []
    print(summed_up(reasons))
    if "--none" in arguments and reasons:
        print("error: every test is to run here", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
