"""The warm start of the next plan, as the opaque ``duals`` of an answer: for another process."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns
from topmast.slow.data.large import WarmStart
from topmast.slow.data.prices import Point

FORMAT = 1
MOST_BYTES = 2**31


def written(columns: Columns, warm_start: WarmStart) -> dict[str, Any]:
    """The prices and the point of the relaxation, as numbers of 32 bits, compressed."""
    arrays = [*warm_start.point.arrays, warm_start.cost]
    packed = b"".join(array.astype("<f4").tobytes() for array in arrays)
    data = base64.b64encode(zlib.compress(packed, 1)).decode("ascii")
    return {"format": FORMAT, "shape": shape_of(columns), "weight": warm_start.weight, "data": data}


def shape_of(columns: Columns) -> list[int]:
    """What must be equal for a warm start to fit: the counts, and a checksum over what reads
    what.
    """
    items, start = columns.reads.items, columns.reads.start
    mark = zlib.crc32(np.ascontiguousarray(np.concatenate([items, start])).tobytes())
    return [*columns.shape(), len(items), mark]


def read(columns: Columns, duals: Any, placed: Bools, serve: Floats) -> WarmStart | None:
    """What ``duals`` say, or None where they are of a problem of another shape."""
    if not isinstance(duals, dict) or duals.get("format") != FORMAT:
        return None
    if duals.get("shape") != shape_of(columns):
        return None
    try:
        packer = zlib.decompressobj()
        packed = packer.decompress(base64.b64decode(duals["data"], validate=True), MOST_BYTES)
        weight = float(duals["weight"])
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error):
        raise _broken() from None
    tables, regions, workloads, models = columns.shape()
    shapes = [
        (tables, regions), (workloads, regions), (len(columns.reads.items), regions),
        (regions, models), (2 * regions + 1 + regions * regions,), (tables, regions),
    ]  # fmt: skip
    counts = [int(np.prod(shape)) for shape in shapes]
    if len(packed) != 4 * sum(counts) or not 0.0 < weight < np.inf:
        raise _broken()
    numbers = np.frombuffer(packed, "<f4").astype(float)
    if not np.isfinite(numbers).all():
        raise _broken()
    cuts = np.cumsum(counts)[:-1]
    arrays = [
        part.reshape(shape) for part, shape in zip(np.split(numbers, cuts), shapes, strict=True)
    ]
    for prices in arrays[2:5]:
        np.maximum(prices, 0.0, out=prices)
    return WarmStart(Point(*(each.copy() for each in arrays[:5])), weight, arrays[5], placed, serve)


def _broken() -> InvalidInput:
    remedy = "leave the duals out, or take the answer as it was written"
    return InvalidInput("the numbers cannot be read", field="duals", remedy=remedy)
