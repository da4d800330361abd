"""Topmast: one global queue for ML training across regions, clusters and engines.

Training code may call `topmast.progress`; programs may use `topmast.Client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.report import progress

__version__ = "0.1.0"
__all__ = ["Client", "__version__", "progress"]


def __getattr__(name: str) -> Any:
    """Import the two public names when first asked for: a training process pays for one only."""
    if name == "Client":
        from topmast.client import Client

        return Client
    if name == "progress":
        from topmast.report import progress

        return progress
    raise AttributeError(f"module 'topmast' has no attribute '{name}'")
