"""The error of a login that proves nothing."""

from __future__ import annotations

from topmast.model.errors import TopmastError


class Refused(TopmastError):
    """A login that proves nothing."""
