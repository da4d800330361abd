"""Which experiments there are; apart, for help and completion must not wait for what runs them."""

from __future__ import annotations

from importlib import resources


def experiment_names() -> tuple[str, ...]:
    """All experiments there are, sorted."""
    folder = resources.files("topmast.experiments") / "configs"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))
