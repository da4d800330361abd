"""What the summary of a run does not have, counted from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topmast.model.job import MILLI
from topmast.sim.books import Tables
from topmast.sim.simulation import Simulation
from topmast.traces.trace import Trace


class Watch:
    """Hears the rows of a run and keeps what the summary does not have."""

    def __init__(self, trace: Trace) -> None:
        first_s, last_s = float(trace.submit_s.min()), float(trace.submit_s.max())
        self._late_s = (first_s + last_s) / 2, last_s
        self._held = self._present = 0.0
        self._seen: set[tuple[float, str]] = set()
        self.copied_for: dict[str, None] = {}
        self.simulation: Simulation | None = None
        self._window_s = first_s, last_s
        self._used = self._looked_s = 0.0

    def tables(self) -> Tables:
        """Where a run writes."""
        return Tables(self._nothing, self._nothing, self._interval, self._copy)

    def allocated_late(self) -> float:
        """GPU-seconds held over those present in the second half of the window, when the fleet is
        full.
        """
        return self._held / self._present if self._present else 0.0

    def in_use(self) -> float:
        """GPUs of which at least a share is held, in the mean over the time of submissions."""
        return self._used / self._looked_s if self._looked_s else 0.0

    def _look(self, length_s: float) -> None:
        """Count the GPUs that are held now, in whole or in part, for an interval that ends here."""
        assert self.simulation is not None
        placers = self.simulation.machines.placers.values()
        free = [placer.columns.free_milli for placer in placers]
        self._used += length_s * sum(int(np.count_nonzero(f < MILLI)) for f in free)
        self._looked_s += length_s

    def _nothing(self, row: Sequence[object]) -> None:
        pass

    def _interval(self, row: Sequence[Any]) -> None:
        start_s, end_s, region, _, present, _, allocated, _ = row
        if end_s <= self._window_s[1] and (end_s, "") not in self._seen:
            self._seen.add((end_s, ""))
            self._look(end_s - start_s)
        length_s = min(end_s, self._late_s[1]) - max(start_s, self._late_s[0])
        if length_s <= 0:
            return
        self._held += allocated * length_s
        if (end_s, region) not in self._seen:
            self._seen.add((end_s, region))
            self._present += present * length_s

    def _copy(self, row: Sequence[Any]) -> None:
        if row[6] not in ("initial", "dropped"):
            self.copied_for[str(row[6])] = None
