"""Engines on other machines: one generic engine, one runner, and a thin launcher for each kind."""

from __future__ import annotations

from pathlib import Path


def runner_path() -> Path:
    """The file that launchers carry to hosts and run there: ``python3 FILE TICKET_FILE|- HOST``."""
    return Path(__file__).with_name("runner.py")
