"""Of which revision the code is that makes figures: pages of figures say it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import topmast

CHECKOUT = Path(topmast.__file__).resolve().parents[2]
"""Where the package lies in a folder `src`, if it was not installed elsewhere."""
ANSWERS_WITHIN_S = 30.0


def revision(root: Path = CHECKOUT) -> str | None:
    """Commit and its day (`2337bd9b of 2026-11-22`), with a word where files of the code were
    changed since; None where ``root`` is no checkout.
    """
    if not (root / ".git").exists():
        return None
    commit = _git(root, "log", "-1", "--abbrev=8", "--format=%h of %cs")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    return f"{commit}, changed since" if commit and changed else commit


def _git(root: Path, *words: str) -> str | None:
    """What git prints; None where there is none, or it does not answer."""
    command = ["git", "-C", str(root), *words]
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None
