"""Which experiments there are; apart, for help and completion must not wait for what runs them."""

from __future__ import annotations

from pathlib import Path


def experiment_names() -> tuple[str, ...]:
    """All experiments there are, sorted."""
    return tuple(sorted(file.stem for file in Path(__file__).with_name("configs").glob("*.yaml")))
