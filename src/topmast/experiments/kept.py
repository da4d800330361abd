"""The results of a long experiment so far: the same command continues after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from topmast.experiments.outputs import folder_for
from topmast.model.decoding import decode

FILE = "runs.part.jsonl"


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    figures: dict[str, float | None]


class Kept:
    """The figures of each run in a file of lines, written as soon as a run is over.

    The first line names the setting. A file of another setting, and a line cut off by the end of
    a process, count for nothing. Without a ``folder`` nothing is kept.
    """

    def __init__(self, folder: Path | None, setting: dict[str, Any]) -> None:
        self._file: Path | None = None
        self._found: dict[str, dict[str, float | None]] = {}
        if folder is None:
            return
        folder_for(folder)
        self._file = folder / FILE
        header = msgspec.json.encode(setting, order="sorted")
        lines = self._file.read_bytes().split(b"\n") if self._file.exists() else []
        if not lines or lines[0] != header:
            self._file.write_bytes(header + b"\n")
            return
        for line in lines[1:-1]:
            try:
                known = decode(line, _Line)
            except msgspec.DecodeError:
                continue
            self._found[known.run] = known.figures
        if lines[-1]:
            with self._file.open("ab") as file:
                file.write(b"\n")  # ends what was cut off

    def __contains__(self, run: str) -> bool:
        return run in self._found

    def __getitem__(self, run: str) -> dict[str, float | None]:
        return self._found[run]

    def keep(self, run: str, figures: dict[str, float | None]) -> None:
        """Add a run that is over. O(1)."""
        if self._file is None or run in self._found:
            return
        self._found[run] = figures
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(_Line(run, figures)) + b"\n")

    def close(self) -> None:
        """All are over, and the results written: the file is not needed any more."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
