"""The kept journal as files: one JSON document a line, so that a difference can be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tests.support.world import Input, World
from topmast.model.messages import Event, Message
from topmast.ports import Record

HERE = Path(__file__).parent
CURRENT = HERE / "current"


class RecordLine(Struct):
    """A journal entry; event and facts are kept as they were written, to the byte."""

    seq: int
    at_s: float
    machine: str
    event: Raw
    facts: Raw


class InputLine(Struct):
    """A message from outside."""

    at_s: float
    to: str
    message: Raw


_event: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Event)


def _write(path: Path, lines: Iterable[Any]) -> None:
    encoded = [msgspec.json.encode(line) for line in lines]
    path.write_bytes(b"\n".join(encoded) + b"\n")


def write(folder: Path, world: World) -> None:
    """Keep what came in, what was decided, and how it ended."""
    folder.mkdir(exist_ok=True)
    _write(
        folder / "inputs.jsonl",
        (InputLine(i.at_s, i.to, Raw(msgspec.json.encode(i.message))) for i in world.inputs),
    )
    _write(
        folder / "journal.jsonl",
        (
            RecordLine(r.seq, r.at_s, r.machine, Raw(r.event), Raw(r.facts))
            for r in world.journal.written
        ),
    )
    _write(folder / "end.jsonl", ([address, Raw(blob)] for address, blob in world.blobs().items()))


def records(folder: Path) -> list[Record]:
    """The kept journal."""
    found = []
    for line in (folder / "journal.jsonl").read_bytes().splitlines():
        kept = msgspec.json.decode(line, type=RecordLine)
        event, facts = bytes(kept.event), bytes(kept.facts)
        found.append(Record(kept.seq, kept.at_s, kept.machine, event, facts))
    return found


def inputs(folder: Path) -> list[Input]:
    """The kept messages from outside."""
    found = []
    for line in (folder / "inputs.jsonl").read_bytes().splitlines():
        kept = msgspec.json.decode(line, type=InputLine)
        found.append(Input(kept.at_s, kept.to, _event.decode(kept.message)))
    return found


def end(folder: Path) -> dict[str, bytes]:
    """The kept state of every machine at the end."""
    found = {}
    for line in (folder / "end.jsonl").read_bytes().splitlines():
        address, blob = msgspec.json.decode(line, type=tuple[str, Raw])
        found[address] = bytes(blob)
    return found


def without_zeros(blob: bytes) -> Any:
    """A state without the fields that are 0.0: these may be written or left out."""
    return _without(msgspec.json.decode(blob))


def _without(state: Any) -> Any:
    if isinstance(state, dict):
        left = {name: _without(value) for name, value in state.items()}
        return {name: v for name, v in left.items() if not (isinstance(v, float) and v == 0.0)}
    return [_without(value) for value in state] if isinstance(state, list) else state
