"""The methods of a client about sweeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from topmast.adapters.backoff import Backoff
from topmast.client.sweeplogs import SweepChunk, SweepReader
from topmast.client.transport import Transport, path_of, patiently
from topmast.model.sweep_views import SweepView

FIRST_LOOK_S = 0.1
LONGEST_LOOK_S = 2.0


class SweepsCalls:
    """Sweeps are submitted as jobs are; acts on jobs take their ids."""

    _transport: Transport

    def sweeps(self) -> list[SweepView]:
        """All sweeps that the server remembers, the newest first."""
        return self._transport.get(dict[str, list[SweepView]], "/sweeps")["sweeps"]

    def sweep(self, sweep: str) -> SweepView:
        """One sweep as it stands."""
        return self._transport.get(SweepView, path_of("sweeps", sweep))

    def sweep_logs(
        self, sweep: str, *, follow: bool = False, patience_s: float = 30.0
    ) -> Iterator[SweepChunk]:
        """What the jobs of a sweep write, each in its latest attempt, in the order of the jobs.

        Of a job with several tasks it is the first one, or the one by which the job failed. With
        ``follow`` it continues, as they write it, to the end of the sweep.
        """
        look = partial(self.sweep, sweep)
        return SweepReader(self._transport, look, patience_s).read(follow)

    def wait_sweep(
        self,
        sweep: str,
        *,
        timeout_s: float | None = None,
        on_change: Callable[[SweepView], None] | None = None,
        patience_s: float = 30.0,
    ) -> SweepView | None:
        """Wait until all jobs of a sweep have ended; None if that takes too long."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        backoff, last = Backoff(FIRST_LOOK_S, LONGEST_LOOK_S, 1.5), self.sweep(sweep)
        while True:
            if on_change is not None:
                on_change(last)
            if last.finish_s is not None:
                return last
            pause_s = backoff.take()
            left_s = pause_s if deadline_s is None else deadline_s - time.monotonic()
            if left_s <= 0.0:
                return None
            time.sleep(min(pause_s, left_s))
            last = patiently(lambda: self.sweep(sweep), patience_s)
