"""Points in time as people write them: ``2h`` (ago), ``2030-01-31T12:00``, seconds since 1970."""

from __future__ import annotations

from datetime import datetime, tzinfo

from topmast.model.errors import InvalidInput
from topmast.model.units import MAX_DURATION_S, parse_duration_s, show

_LAST_S = 1e11


def parse_moment_s(
    text: str, now_s: float, *, zone: tzinfo | None = None, ago: str = "ago", field: str = ""
) -> float:
    """Seconds since the epoch of ``2h`` (two hours ago), ``2030-01-31T12:00`` or such a number.

    ``zone``: that of dates that name none; without it, the machine's. ``ago`` is what a refusal
    says of durations. Raises InvalidInput.
    """
    found_s = dated_s(text, zone)
    if found_s is not None:
        return found_s
    try:
        return now_s - parse_duration_s(text)
    except InvalidInput:
        remedy = f"write 2h ({ago}), 2030-01-31, 2030-01-31T12:00, or seconds since the epoch"
        raise InvalidInput(f"{show(text)} is not a time", field=field, remedy=remedy) from None


def dated_s(text: str, zone: tzinfo | None = None) -> float | None:
    """Seconds since the epoch of a date or of such a number; None for other texts."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if MAX_DURATION_S < number < _LAST_S:
            return number
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
