"""Which leaders may still order an engine: none that a later one has replaced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import structlog

from topmast.adapters.engines.local import files

log = structlog.get_logger(__name__)


UNLED_S = 0.05
"""How often an engine asks again whether its process leads."""
FILE = "leader"


def highest_in(folders: Iterable[Path]) -> int:
    """The highest epoch that the engines of these folders remember; 0 if there is none."""
    return max((LeaderFence(folder).highest for folder in folders), default=0)


class LeaderFence:
    """Remembers the highest epoch of a leader in a file of the engine's folder.

    It is read with each order: two processes may have the folder at the same time, and the one
    that lost the leadership need not know it yet.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._highest = 0

    @property
    def highest(self) -> int:
        """The epoch of the last leader that gave an order."""
        return max(self._highest, self._recorded())

    def admits(self, leader: int) -> bool:
        """Whether no later leader gave orders; a new one is remembered durably first."""
        self._highest = self.highest
        if leader > self._highest:
            try:
                files.make_folder(self._file.parent)
                files.write_file(self._file, f"{leader}\n".encode())
            except OSError as error:
                log.error("no order of the new leader is accepted", leader=leader, why=str(error))
                return False
            self._highest = leader
        elif leader < self._highest:
            log.error(
                "an order of a leader that was replaced", leader=leader, highest=self._highest
            )
        return leader == self._highest

    def _recorded(self) -> int:
        content = files.read_bytes(self._file)
        text = "0" if content is None else content.decode(errors="replace").strip()
        if text.isascii() and text.isdecimal() and len(text) < 19:
            return int(text)
        log.error("not the epoch of a leader", file=str(self._file), found=text[:40])
        return 0
