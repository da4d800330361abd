"""The one entrance to traces on disk: a path, a format, and what to do with bad rows."""

from __future__ import annotations

from pathlib import Path

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.traces.formats import FORMATS, Options, looks_like
from topmast.traces.trace import DEFAULT_HOST_GPUS, Trace


def read(
    path: Path,
    format: str = "topmast",
    *,
    host_gpus: int = DEFAULT_HOST_GPUS,
    skip_bad_rows: bool = False,
    throughputs: Path | None = None,
) -> Trace:
    """The trace in the file at ``path``, sorted by submission.

    ``host_gpus``: the GPUs of the largest host, for formats that give one number of GPUs (`gangs`).
    ``throughputs``: the table that `gavel` needs, if it is not beside the trace.
    """
    known = FORMATS.get(format)
    if known is None:
        remedy = ", ".join(FORMATS)
        raise InvalidInput(f"no format {show(format)} is known", field="format", remedy=remedy)
    options = Options(host_gpus, skip_bad_rows, throughputs, looks_like)
    return known.read(path, options)
