"""The many spellings of `resources.accelerators`, read into one tuple in order of preference."""

from __future__ import annotations

import re
from typing import Any

from topmast.model.files.fields import Value
from topmast.model.files.source import Kind
from topmast.model.job import MILLI, Accelerator
from topmast.model.units import format_gpus, show

MAX_GPUS_PER_TASK = 65_536
MAX_CHOICES = 100
MAX_SPEED = 1e9

_COUNT = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SPELLINGS = "such as H100:8, {H100: 8, A100: 8}, [H100:8, A100:8], or 8 for any model"


def read_accelerators(value: Value | None) -> tuple[Accelerator, ...]:
    """The acceptable GPUs of a task; none when the field is left out or 0."""
    if value is None:
        return ()
    kind = value.node.kind
    if kind is Kind.NUMBER:
        return _any_model(value)
    if kind is Kind.TEXT and _COUNT.fullmatch(value.node.text[:40]):
        return _any_model(value)
    if kind is Kind.TEXT:
        found = [_spelled(value, value.node.text)]
    elif kind is Kind.LIST:
        found = [_spelled(item, item.text()) for item in value.items(limit=MAX_CHOICES)]
    elif kind is Kind.MAPPING:
        entries = value.entries(limit=MAX_CHOICES).items()
        found = [_entry(model, entry) for model, entry in entries]
    else:
        raise value.wrong("GPUs", _SPELLINGS)
    if not found:
        raise value.error("names no GPU model", "leave it out for tasks without GPUs")
    models = [choice.model for choice in found]
    for model in models:
        if model is not None and models.count(model) > 1:
            raise value.error(f"the model {show(model)} is listed twice", "list it once")
    return tuple(found)


def _any_model(value: Value) -> tuple[Accelerator, ...]:
    gpus_milli = _milli(value, value.node.text, zero=True)
    return (Accelerator(None, gpus_milli),) if gpus_milli else ()


def _spelled(value: Value, text: str) -> Accelerator:
    """``H100:8``, or ``H100`` for one."""
    model, colon, count = text.rpartition(":")
    if not colon:
        return Accelerator(value.check_model(text), MILLI)
    return Accelerator(value.check_model(model), _milli(value, count.strip(" ")))


def _entry(key: str, entry: Value) -> Accelerator:
    """``H100: 8``, ``H100: {count: 8, speed: 1.0}``, or ``H100:8`` and ``H100`` without a value."""
    if entry.node.kind is Kind.NOTHING:
        return _spelled(entry, key)
    model = entry.check_model(key)
    if entry.node.kind is not Kind.MAPPING:
        return Accelerator(model, _count(entry))
    fields = entry.record(("count", "speed"))
    count, speed = fields.get("count"), fields.get("speed")
    return Accelerator(
        model,
        _count(count) if count else MILLI,
        speed.number(high=MAX_SPEED, above=True) if speed else 1.0,
    )


def _count(value: Value) -> int:
    if value.node.kind is not Kind.NUMBER:
        raise value.wrong("a number of GPUs", "such as 8, or a share such as 0.5")
    return _milli(value, value.node.text)


def _milli(value: Value, text: str, *, zero: bool = False) -> int:
    """Thousandths of GPUs in ``8`` or ``0.5``."""
    if not _COUNT.fullmatch(text[:40]):
        raise value.error(f"{show(text)} is not a number of GPUs", _SPELLINGS)
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    if len(text) > 40 or int(whole) > MAX_GPUS_PER_TASK:
        raise value.error("asks for too many GPUs", f"at most {MAX_GPUS_PER_TASK:,} per task")
    gpus = int(whole)
    if not decimals:
        if gpus == 0 and not zero:
            raise value.error("asks for no GPUs", "leave it out for tasks without GPUs")
        return gpus * MILLI
    if gpus:
        remedy = f"write {gpus} or {gpus + 1}, or a share below 1"
        raise value.error(f"{show(text)} is more than one GPU and not whole", remedy)
    if len(decimals) > 3:
        raise value.error(f"the share {show(text)} is too fine", "at most three decimals: 0.125")
    return int(decimals.ljust(3, "0"))


def dump_accelerators(choices: tuple[Accelerator, ...]) -> Any:
    """A document that `read_accelerators` reads back to ``choices``."""
    if len(choices) == 1 and choices[0].model is None:
        return _number(choices[0].gpus_milli)
    if all(choice.speed == 1.0 for choice in choices):
        return [f"{choice.model}:{format_gpus(choice.gpus_milli)}" for choice in choices]
    return {
        str(choice.model): {"count": _number(choice.gpus_milli), "speed": choice.speed}
        for choice in choices
    }


def _number(gpus_milli: int) -> int | float:
    return gpus_milli / MILLI if gpus_milli % MILLI else gpus_milli // MILLI
