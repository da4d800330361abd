"""Which regions can be asked: a region in another process may be out of reach."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

FIRST_SILENCE_S = 2.0
"""How long a region that did not answer in time is not asked, unless it is heard of before: one
question or answer may have been lost. Each time that it does not answer again twice as long."""
SILENCE_S = 30.0
"""The longest: a question to one that does not answer holds up all decisions."""

HOLD_S = 10.0
"""How long a region apart keeps what it offers: twice as long as the queue waits for an answer."""


class Absence(Struct, frozen=True):
    """A region that is not asked: since when, why, and until when, if time alone ends it."""

    since_s: float
    why: str
    until_s: float | None = None


class Reach:
    """Working memory: a link tells at every start whether its region is there."""

    def __init__(self) -> None:
        self.apart: dict[str, bool] = {}
        """Regions that are asked over a link, and whether for plans in columns."""
        self.absent: dict[str, Absence] = {}
        self._silences_s: dict[str, float] = {}
        """By region, how long it is not asked the next time that it does not answer."""

    def lose(self, region: str, why: str, now: float) -> None:
        """The link to a region is down; the first moment counts."""
        self.apart[region] = False
        known = self.absent.get(region)
        self.absent[region] = Absence(known.since_s if known else now, why)

    def find(self, region: str, *, columns: bool) -> None:
        """The link to a region is up; ``columns``: whether it makes plans in columns."""
        self.apart[region] = columns
        self.absent.pop(region, None)
        self._silences_s.pop(region, None)

    def make_columns(self, regions: Iterable[str]) -> bool:
        """Whether all of these that are apart make plans in columns. O(regions)."""
        return all(self.apart.get(region, True) for region in regions)

    def miss(self, region: str, patience_s: float, now: float) -> None:
        """A region did not answer in time, though its link is not known to be down."""
        if region not in self.absent:
            why = f"no answer within {patience_s:g} s"
            silence_s = self._silences_s.get(region, FIRST_SILENCE_S)
            self.absent[region] = Absence(now, why, now + silence_s)
            self._silences_s[region] = min(2 * silence_s, SILENCE_S)

    def hear(self, region: str) -> bool:
        """A region says something; whether it had been given up for its silence."""
        self._silences_s.pop(region, None)
        known = self.absent.get(region)
        if known is None or known.until_s is None:
            return False
        del self.absent[region]
        return True

    def hold_s(self) -> float:
        """How long regions apart keep what they offer. In one process nothing comes in between."""
        return HOLD_S if self.apart else 0.0

    def next_retry_s(self) -> float | None:
        """When the first silent region is asked again."""
        if not self.absent:
            return None
        times = [a.until_s for a in self.absent.values() if a.until_s is not None]
        return min(times, default=None)

    def retry(self, now: float) -> bool:
        """Give silent regions another chance when their time has come; whether there was any."""
        if not self.absent:
            return False
        due = [r for r, a in self.absent.items() if a.until_s is not None and a.until_s <= now]
        for region in due:
            del self.absent[region]
        return bool(due)
