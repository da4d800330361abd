"""The fleet over time: samples in rings of falling resolution, kept in the journal's database.

A thread of its own reads the gauges between two commits. The rings are written there every few
minutes, so that the next leader goes on with them; times at which no server ran have no samples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue
from topmast.fast.region import RegionalPlacer
from topmast.model.errors import TopmastError
from topmast.model.history_views import FleetHistory, SeriesView
from topmast.ports import Clock
from topmast.service import fleet
from topmast.service.redaction import HIDDEN_TENANT

RINGS = {"1h": (15.0, 240), "24h": (300.0, 288), "7d": (1_800.0, 336)}
"""By period: the seconds that a sample stands for, and how many samples there are at most."""
FIRST_S = 3.0
"""Until then a server at its start knows few of its hosts."""
SAMPLE_S = 15.0
SAVE_S = 300.0
ANSWER_S = 30.0
MOST_SERIES = 200
"""Of a ring; what comes later is left out."""
OPTION = "history"
"""The option of the journal with the rings."""
CLOSE_S = 5.0

Key = tuple[str, ...]
"""What a series shows: its kind, then what tells it from others of the kind."""

log = structlog.get_logger(__name__)


class Kept(Protocol):
    """The part of the journal that keeps the rings."""

    def option(self, name: str) -> str | None:
        """What was kept."""
        ...

    def set_option(self, name: str, value: str) -> None:
        """Keep something."""
        ...

    def leads(self) -> bool:
        """Whether this process still leads."""
        ...


class Ring(Struct):
    """Means over equal spans of time, the newest last."""

    step_s: float
    most: int
    ends: list[int] = []
    """The number of each span since the epoch, ascending; spans without a sample are left out."""
    count: int = 0
    """Samples in the newest span so far."""
    series: list[tuple[Key, list[float | None]]] = []
    """A value for each span; None: it was not there."""

    def add(self, at_s: float, values: Mapping[Key, float]) -> None:
        """Take a sample. O(series)."""
        span = int(at_s // self.step_s)
        while self.ends and self.ends[-1] > span:  # the clock was set back
            self._drop(-1)
        if not self.ends or self.ends[-1] < span:
            self.ends.append(span)
            self.count = 0
            for _, row in self.series:
                row.append(None)
        self.count += 1
        known = dict(self.series)
        for key, value in values.items():
            if key not in known:
                if len(known) >= MOST_SERIES:
                    continue
                known[key] = [None] * len(self.ends)
            row = known[key]
            before = row[-1]
            mean = value if before is None else before + (value - before) / self.count
            row[-1] = round(mean, 3)
        self.series = list(known.items())
        if len(self.ends) > self.most:
            self._drop(0)

    def _drop(self, at: int) -> None:
        del self.ends[at]
        self.count = 0 if at else self.count
        for _, row in self.series:
            del row[at]
        self.series = [(key, row) for key, row in self.series if any(v is not None for v in row)]

    def since(self, from_s: float, until_s: float) -> FleetHistory:
        """The samples of a time; a gap in them is a moment without values. O(samples x series)."""
        there = [at for at, span in enumerate(self.ends) if from_s <= span * self.step_s <= until_s]
        times: list[float] = []
        places: list[int | None] = []
        for at in there:
            begun_s = self.ends[at] * self.step_s
            if times and begun_s > times[-1] + 2.5 * self.step_s:
                times.append(times[-1] + self.step_s)
                places.append(None)
            times.append(begun_s)
            places.append(at)
        series = tuple(
            SeriesView(key, tuple(None if at is None else row[at] for at in places))
            for key, row in self.series
        )
        first_s = self.ends[0] * self.step_s if self.ends else None
        return FleetHistory(from_s, until_s, self.step_s, first_s, tuple(times), series)


class Rings:
    """The same samples at several resolutions."""

    def __init__(self, text: str | None = None) -> None:
        self.by_period = {name: Ring(*shape) for name, shape in RINGS.items()}
        for name, ring in (msgspec.json.decode(text, type=dict[str, Ring]) if text else {}).items():
            if RINGS.get(name) == (ring.step_s, ring.most):
                self.by_period[name] = ring

    def add(self, at_s: float, values: Mapping[Key, float]) -> None:
        """Take a sample."""
        for ring in self.by_period.values():
            ring.add(at_s, values)

    def text(self) -> str:
        """All of them, to be kept."""
        return msgspec.json.encode(self.by_period).decode()

    def view(self, period: str, until_s: float) -> FleetHistory:
        """The samples of a period up to a moment."""
        ring = self.by_period[period]
        return ring.since(until_s - ring.step_s * ring.most, until_s)


def sample(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer]) -> dict[Key, float]:
    """The figures of a moment. O(hosts + job classes + tenants x models).

    GPUs present and held by region and model, those that jobs wait for by model, demand over supply
    by region, and GPUs held by each tenant without a parent.
    """
    found: dict[Key, float] = {}

    def count(*key: str, gpus: float) -> None:
        found[key] = found.get(key, 0.0) + gpus

    for one in fleet.gpus(placers):
        count("present", one.region, one.gpu_model, gpus=one.total)
        count("held", one.region, one.gpu_model, gpus=one.held)
    for region, load in queue.tenancy.loads(queue.regions).items():
        found["load", region] = load
    for row in fleet.tenants(queue):
        if row.parent is None:
            if row.gpu_model:
                count("waiting", row.gpu_model, gpus=row.pending)
            count("tenant", row.name, gpus=row.used + row.borrowed)
    return found


def history_seen_by(whole: FleetHistory, seen: frozenset[str]) -> FleetHistory:
    """The same with the GPUs of tenants that are not ``seen`` in one series."""
    kept: list[SeriesView] = []
    others: list[SeriesView] = []
    for series in whole.series:
        hidden = series.key[0] == "tenant" and series.key[1] not in seen
        (others if hidden else kept).append(series)
    if others:
        columns = zip(*(series.values for series in others), strict=True)
        sums = (
            None if all(v is None for v in each) else sum(v or 0.0 for v in each)
            for each in columns
        )
        kept.append(SeriesView(("tenant", HIDDEN_TENANT), tuple(sums)))
    return replace(whole, series=tuple(kept))


class History:
    """The samples of a server that leads; `open` begins, `close` ends it."""

    def __init__(
        self, kept: Kept, clock: Clock, read: Callable[[], Mapping[Key, float]] | None = None
    ) -> None:
        """``read`` gives the figures of this moment; it may wait. None: of a past."""
        self._kept = kept
        self._clock = clock
        self._read = read
        self._lock = threading.Lock()
        self._rings = Rings(kept.option(OPTION))
        self._unsaved = 0
        """Samples that are not kept yet."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def open(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def close(self) -> None:
        """Keep what was sampled."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        self._save()

    def view(self, period: str) -> FleetHistory:
        """The samples of a period of `RINGS` up to now."""
        with self._lock:
            return self._rings.view(period, self._clock.now())

    def _run(self) -> None:
        self._over.wait(FIRST_S)
        while not self._over.is_set():
            self._sample()
            if self._unsaved * SAMPLE_S >= SAVE_S:
                self._save()
            self._over.wait(SAMPLE_S)

    def _sample(self) -> None:
        assert self._read is not None
        try:
            values = self._read()
        except Exception:
            if not self._over.is_set():
                log.exception("the fleet could not be sampled")
            return
        with self._lock:
            self._rings.add(self._clock.now(), values)
            self._unsaved += 1

    def _save(self) -> None:
        if not self._unsaved or not self._kept.leads():
            return
        self._unsaved = 0
        with self._lock:
            text = self._rings.text()
        try:
            self._kept.set_option(OPTION, text)
        except TopmastError as error:
            # The journal is closed, or lost: the server ends too.
            log.info("samples are not kept", why=str(error))
