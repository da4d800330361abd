"""Reads the progress file of a running task as it grows; whatever is in it, with limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Json, Report
from topmast.adapters.lines import Lines

READ_BYTES = 1 << 18
BACKLOG_BYTES = 16 << 20


@dataclass
class News:
    """What was new in a file: whether a step or metric was, and the last checkpoint and resume."""

    progress: bool = False
    checkpoint: tuple[int, float] | None = None
    resumed: int | None = None


class Tail:
    """One progress file, from its beginning, or from 16 MiB before its end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.report = Report()
        self._offset: int | None = None
        self._lines = Lines()

    def read(self, now: float, *, whole: bool = False) -> News | None:
        """What was written since the last time, in small bites unless `whole`; None: nothing."""
        received = self._receive()
        if not received:
            return None
        news = News()
        while received:
            lines = self._lines.feed(received)
            if len(self._lines.rest) > READ_BYTES:
                self._lines.rest = b""  # no line of ours is that long
            for line in lines:
                self._take(line, news, now)
            received = self._receive() if whole else b""
        return news

    def _receive(self) -> bytes:
        try:
            size_bytes = self.file.stat().st_size
            if self._offset is None or size_bytes - self._offset > BACKLOG_BYTES:
                self._offset = max(0, size_bytes - BACKLOG_BYTES)
            if size_bytes <= self._offset:
                return b""
            fd = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                received = os.pread(fd, READ_BYTES, self._offset)
            finally:
                os.close(fd)
        except OSError:
            return b""
        self._offset += len(received)
        return received

    def _take(self, line: bytes, news: News, now: float) -> None:
        said = self.report.take(line)
        if said is None:
            return
        news.progress = news.progress or "step" in said or "metrics" in said
        if said.get("checkpoint") is True:
            news.checkpoint = (self.report.step or 0, _time(said, now))
        resumed = files.whole_number(said.get("resumed_from"))
        if resumed is not None:
            news.resumed = resumed


def _time(said: Json, now: float) -> float:
    """When it was said: never in the future, and now if the line does not tell."""
    at_s = files.finite_number(said.get("at_s"))
    return now if at_s is None or at_s <= 0 else min(at_s, now)
