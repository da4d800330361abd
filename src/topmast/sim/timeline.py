"""What the fleet holds and is asked for over time: integrals, and the rows of `timeline.csv`.

Every figure is a time-weighted mean over its interval. An interval ends at every ``step_s``, and
wherever the GPUs present change, and at the first and last submission; so sums over rows are
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from topmast.model.job import Band
from topmast.sim.demand import Regions, split

BANDS = tuple(sorted(Band, reverse=True))
HIGH = tuple(band for band in BANDS if band >= Band.HIGH)
LONG = 1_000
"""After so many intervals they become twice as long."""
Where = Callable[[object], Regions]
HEADER = (
    "start_s", "end_s", "region", "band", "present_gpus", "demanded_gpus", "allocated_gpus",
    "queued_gpus",
)  # fmt: skip


class Meter:
    """A quantity and its integral over time."""

    __slots__ = ("at_s", "sum", "value")

    def __init__(self, at_s: float) -> None:
        self.value = 0.0
        self.sum = 0.0
        self.at_s = at_s

    def add(self, change: float, now: float) -> None:
        """The quantity changes."""
        self.sum += self.value * (now - self.at_s)
        self.at_s = now
        self.value += change

    def flush(self, now: float) -> float:
        """The integral since the last flush."""
        total = self.sum + self.value * (now - self.at_s)
        self.sum, self.at_s = 0.0, now
        return total


class Timeline:
    """Meters by region and band. ``where`` tells which regions a class of queued jobs may go to."""

    def __init__(
        self,
        regions: Sequence[str],
        present: Sequence[float],
        bands: Sequence[Band],
        window: tuple[float, float],
        step_s: float,
        where: Where,
        write: Callable[[Sequence[object]], object],
        *,
        stretches: bool = False,
    ) -> None:
        """``stretches``: whether intervals grow longer when there are many of them."""
        self.regions = list(regions)
        self.present = list(present)
        self._bands = list(bands)
        self._window = window
        self._step_s = step_s
        self._stretches = stretches
        self._where = where
        self._write = write
        self._begun_s = window[0]
        self._regular_s, self._steps = window[0], 0
        """The last regular cut, and how many there were."""
        self.next_cut_s = self._next_cut()
        start_s = window[0]
        self._running = [{band: Meter(start_s) for band in self._bands} for _ in regions]
        self._waiting: dict[Band, dict[object, Meter]] = {band: {} for band in self._bands}
        # The exact split of bands >= high, as it is now, and its integrals.
        self._shares = [{band: Meter(start_s) for band in self._bands} for _ in regions]
        self._has_high = any(band >= Band.HIGH for band in self._bands)
        self.dirty, self._stirred_s = False, start_s
        self.ratio_sums = [0.0] * len(regions)
        self.ratio_s = [0.0] * len(regions)

    def _next_cut(self) -> float:
        last_s, cut_s = self._window[1], self._regular_s + self._step_s
        return last_s if self._begun_s < last_s < cut_s else cut_s

    # --- changes ----------------------------------------------------------------------------------

    def runs(self, region: int, band: Band, gpus: float, now: float) -> None:
        """GPUs of a band are taken in a region, or given back."""
        meter = self._running[region][band]  # `Meter.add`, as every start and end comes here
        meter.sum += meter.value * (now - meter.at_s)
        meter.at_s = now
        meter.value += gpus
        if self._has_high and band >= Band.HIGH:
            self.dirty, self._stirred_s = True, now

    def waits(self, kind: object, band: Band, gpus: float, now: float) -> None:
        """GPUs of a band are wanted by a class of jobs, or not any more."""
        meters = self._waiting[band]
        meter = meters.get(kind)
        if meter is None:
            meter = meters[kind] = Meter(now)
        meter.add(gpus, now)
        if self._has_high and band >= Band.HIGH:
            self.dirty, self._stirred_s = True, now

    def moved(self, now: float) -> None:
        """Data is somewhere else now, and so is the demand for it."""
        self._stir(Band.HIGH, now)

    def changes_supply(self, region: int, gpus: float, now: float) -> None:
        """GPUs come into or go out of service."""
        self.advance(now)
        self.cut(now)
        self.present[region] += gpus
        self._stir(Band.HIGH, now)

    def _stir(self, band: Band, now: float) -> None:
        if band >= Band.HIGH and self._has_high:
            self.dirty, self._stirred_s = True, now

    # --- time -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Before time passes: the split of the higher bands as it is since the last change."""
        if not self.dirty:
            return
        self.dirty = False
        parts = self._split_high()
        for number, shares in enumerate(self._shares):
            for band in self._bands:
                if band >= Band.HIGH:
                    shares[band].add(
                        parts[number].get(band, 0.0) - shares[band].value, self._stirred_s
                    )

    def _split_high(self) -> list[dict[Band, float]]:
        bands = [band for band in self._bands if band >= Band.HIGH]
        classes = self._classes(
            {b: {k: x.value for k, x in self._waiting[b].items()} for b in bands}
        )
        running = [sum(by[b].value for b in bands) for by in self._running]
        return self._by_region(classes, running)

    def _classes(
        self, waiting: Mapping[Band, Mapping[object, float]]
    ) -> dict[Regions, dict[Band, float]]:
        classes: dict[Regions, dict[Band, float]] = {}
        for band, kinds in waiting.items():
            for kind, gpus in kinds.items():
                if gpus > 0:
                    by_band = classes.setdefault(self._where(kind), {})
                    by_band[band] = by_band.get(band, 0.0) + gpus
        return classes

    def _by_region(
        self, classes: Mapping[Regions, Mapping[Band, float]], running: Sequence[float]
    ) -> list[dict[Band, float]]:
        """The demand of each class put on regions, band by band."""
        totals = {regions: sum(by_band.values()) for regions, by_band in classes.items()}
        found: list[dict[Band, float]] = [{} for _ in self.regions]
        for regions, parts in split(totals, running, self.present).items():
            for region, part in zip(regions, parts, strict=True):
                for band, gpus in classes[regions].items():
                    share = part * gpus / totals[regions]
                    found[region][band] = found[region].get(band, 0.0) + share
        return found

    def advance(self, now: float) -> None:
        """Close the intervals that end by ``now``."""
        self._settle()
        while self.next_cut_s <= now:
            self.cut(self.next_cut_s)

    def cut(self, now: float) -> None:
        """End the interval at ``now``, and begin the next."""
        length_s = now - self._begun_s
        if length_s > 0:
            self._close(now, length_s)
            self._begun_s = now
        if now >= self._regular_s + self._step_s:
            self._regular_s = now
            self._steps += 1
            if self._steps % LONG == 0 and self._stretches:
                self._step_s *= 2  # a long tail is told in less detail
        self.next_cut_s = self._next_cut()

    def _close(self, now: float, length_s: float) -> None:
        allocated = [{b: m.flush(now) / length_s for b, m in x.items()} for x in self._running]
        means: dict[Band, dict[object, float]] = {}
        for band, meters in self._waiting.items():
            means[band] = {kind: meter.flush(now) / length_s for kind, meter in meters.items()}
            for kind in [kind for kind, meter in meters.items() if meter.value <= 0]:
                del meters[kind]
        queued = [{b: m.flush(now) / length_s for b, m in x.items()} for x in self._shares]
        above = [sum(by[b] for b in by if b >= Band.HIGH) for by in allocated]
        for number, by_band in enumerate(queued):
            above[number] += sum(x for b, x in by_band.items() if b >= Band.HIGH)
        for band in (b for b in self._bands if b < Band.HIGH):
            above = [x + by[band] for x, by in zip(above, allocated, strict=True)]
            for number, by_band in enumerate(
                self._by_region(self._classes({band: means[band]}), above)
            ):
                queued[number][band] = by_band.get(band, 0.0)
                above[number] += by_band.get(band, 0.0)
        self._rows(now, length_s, allocated, queued)

    def _rows(
        self,
        now: float,
        length_s: float,
        allocated: list[dict[Band, float]],
        queued: list[dict[Band, float]],
    ) -> None:
        in_window = self._window[0] <= self._begun_s and now <= self._window[1]
        for number, region in enumerate(self.regions):
            present, ratio = self.present[number], 0.0
            for band in self._bands:
                held, wanted = allocated[number][band], queued[number][band]
                self._write(
                    (
                        self._begun_s, now, region, band.name.lower(), present, held + wanted,
                        held, wanted,
                    )
                )  # fmt: skip
                if band >= Band.HIGH and present:
                    ratio += (held + wanted) / present
            if in_window and present:
                self.ratio_sums[number] += ratio * length_s
                self.ratio_s[number] += length_s

    def ratios(self) -> dict[str, float]:
        """Demand over supply of bands >= high by region: its mean over the window."""
        return {
            region: self.ratio_sums[i] / self.ratio_s[i] if self.ratio_s[i] else 0.0
            for i, region in enumerate(self.regions)
        }
