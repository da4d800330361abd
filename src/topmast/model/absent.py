"""Fields that are absent from JSON where they say nothing, so that old journals stay readable."""

from __future__ import annotations

from typing import TypeVar

from msgspec import UNSET, UnsetType

T = TypeVar("T")
D = TypeVar("D")


def given(value: T | UnsetType, default: D) -> T | D:
    """The value of a field, or the default if it is absent."""
    return default if value is UNSET else value
