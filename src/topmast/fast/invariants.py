"""What must hold between two events, whatever happened before: tests and servers check the same."""

from __future__ import annotations


class Broken(AssertionError):
    """The story of an invariant that does not hold."""


def require(holds: bool, story: str) -> None:
    """Raise Broken unless something holds."""
    if not holds:
        raise Broken(story)
