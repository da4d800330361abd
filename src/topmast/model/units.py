"""Sizes, durations and GPUs as people write and read them: ``150GB``, ``1h30m``, ``0.5``.

Every parser is strict: one spelling per unit, finite, never negative, and bounded; anything else is
an `InvalidInput` that names what would be accepted. Arithmetic is decimal, so ``0.1GB`` is exactly
100,000,000 bytes.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from typing import NamedTuple

from topmast.model.errors import InvalidInput
from topmast.model.job import MILLI

GB = 10**9
MAX_BYTES = 2**63 - 1
MAX_DURATION_S = 10 * 365 * 86400
"""Ten years."""

BYTE_UNITS = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "EB": 10**18,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60,
}  # fmt: skip
DURATION_UNITS_S = {
    "w": Decimal(604800), "d": Decimal(86400), "h": Decimal(3600), "m": Decimal(60),
    "s": Decimal(1), "ms": Decimal("0.001"),
}  # fmt: skip

_LONGEST = 40
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?) ?([A-Za-z]*)")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)")
_SHOWN = 40

_BYTES_REMEDY = "a number with a unit: 500MB, 150GB, 5GiB, 100TB"
_DURATION_REMEDY = "seconds, or a number with a unit: 90, 45s, 10m, 1h30m, 7d"


def show(text: str) -> str:
    """``text`` for one line of a message: quoted, escaped, and cut when it is long."""
    text = str(text)  # a member of an enumeration is shown as its value
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def parse_bytes(value: str | int | float) -> int:
    """Bytes of ``150GB`` (1000-based), ``5GiB`` (1024-based) or a plain number of bytes."""
    return _bytes(value, plain_unit="B", what="a size", remedy=_BYTES_REMEDY)


def parse_memory_gb(value: str | int | float) -> int:
    """Bytes of memory: a plain number is in GB, and a trailing ``+`` (at least) is accepted."""
    if isinstance(value, str):
        value = value.removesuffix("+")
    remedy = "GB as a number, or a number with a unit: 256, 256+, 64GiB"
    return _bytes(value, plain_unit="GB", what="an amount of memory", remedy=remedy)


def bytes_of_gb(size_gb: float) -> int:
    """Bytes of so many GB: 10^9 each, in every file and every trace. To the nearest byte."""
    return round(size_gb * GB)


def gb_of_bytes(size_bytes: float) -> float:
    """So many GB, of 10^9 bytes each."""
    return size_bytes / GB


def _bytes(value: str | int | float, *, plain_unit: str, what: str, remedy: str) -> int:
    number, unit = _quantity(value, what, remedy)
    if unit and unit not in BYTE_UNITS:
        raise InvalidInput(f"unknown unit {show(unit)}", remedy=_nearest_unit(unit) or remedy)
    with localcontext() as context:
        context.prec = 100
        size_bytes = number * BYTE_UNITS[unit or plain_unit]
        if size_bytes > MAX_BYTES:
            raise InvalidInput("the size is too large", remedy=f"at most {format_bytes(MAX_BYTES)}")
        return int(size_bytes.to_integral_value())


def _nearest_unit(unit: str) -> str:
    for known in BYTE_UNITS:
        if known.lower() in (unit.lower(), unit.lower() + "b"):
            return f"did you mean '{known}'?"
    return ""


def _quantity(value: str | int | float, what: str, remedy: str) -> tuple[Decimal, str]:
    """The number and the unit in ``value``."""
    text = _plain(value)
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise InvalidInput(f"{show(text)} is not {what}", remedy=remedy)
    return Decimal(found[1]), found[2]


def _plain(value: str | int | float) -> str:
    """``value`` as text; a number too long to be sensible becomes a text that no parser takes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 1000:
        return "a number too large"
    return str(value).strip(" ")


def parse_duration_s(value: str | int | float) -> float:
    """Seconds of ``90``, ``10m`` or ``1h30m``: units from large to small, each once."""
    text = _plain(value)
    refusal = InvalidInput(f"{show(text)} is not a duration", remedy=_DURATION_REMEDY)
    if len(text) > _LONGEST:
        raise refusal
    plain = _QUANTITY.fullmatch(text)
    if plain is not None and not plain[2]:
        total_s = Decimal(plain[1])
    else:
        parts = _DURATION_PART.findall(text)
        units = [unit for _, unit in parts]
        in_order = [unit for unit in DURATION_UNITS_S if unit in units]
        if not parts or "".join(n + u for n, u in parts) != text or units != in_order:
            raise refusal
        total_s = sum((Decimal(n) * DURATION_UNITS_S[u] for n, u in parts), Decimal(0))
    if total_s > MAX_DURATION_S:
        raise InvalidInput("the duration is too long", remedy="at most ten years (3650d)")
    return float(total_s)


class _Scale(NamedTuple):
    unit: str
    bytes: int


_DECIMAL = [_Scale(unit, BYTE_UNITS[unit]) for unit in ("EB", "PB", "TB", "GB", "MB", "kB")]


def format_bytes(size_bytes: float) -> str:
    """A size for people, to three digits: ``1.5TB``."""
    sign = "-" if size_bytes < 0 else ""
    size = abs(size_bytes)
    for scale in _DECIMAL:
        # What would be rounded to a thousand of the next smaller unit belongs to this one.
        if size >= scale.bytes * 0.9995:
            return f"{sign}{_three_digits(size / scale.bytes)}{scale.unit}"
    return f"{sign}{size:.0f}B"


def exact_bytes(size_bytes: int) -> str:
    """A size that `parse_bytes` reads back exactly: ``150GB``, ``5GiB``, ``1234567B``."""
    binary = [_Scale(f"{letter}iB", BYTE_UNITS[f"{letter}iB"]) for letter in "EPTGMK"]
    for scale in [*_DECIMAL, *binary] if size_bytes else []:
        if size_bytes % scale.bytes == 0:
            return f"{size_bytes // scale.bytes}{scale.unit}"
    return f"{size_bytes}B"


def _three_digits(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def format_duration(duration_s: float) -> str:
    """A duration for people, in its two largest units: ``2d3h``, ``1h30m``, ``45s``, ``0.25s``."""
    sign = "-" if duration_s < 0 else ""
    size_s = abs(duration_s)
    if size_s < 9.95:
        text = f"{size_s:.2f}".rstrip("0").rstrip(".")
        return f"{sign}{text}s" if text != "0" else "0s"
    rest = round(size_s) if size_s < 3600 else 60 * round(size_s / 60)
    rest = rest if rest < 86400 else 3600 * round(size_s / 3600)
    parts = []
    for unit, unit_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, unit_s)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)


def format_gpus(gpus_milli: int) -> str:
    """GPUs for people, exactly: ``8``, ``0.5``, ``0.125``."""
    sign = "-" if gpus_milli < 0 else ""
    whole, milli = divmod(abs(gpus_milli), MILLI)
    return f"{sign}{whole}.{milli:03d}".rstrip("0").rstrip(".") if milli else f"{sign}{whole}"
