"""Any document as text: results of benchmarks, past states, descriptions of traces."""

from __future__ import annotations

import dataclasses
from typing import Any

from topmast.cli.output import Column, say, say_fields, say_table
from topmast.cli.text import number


def say_document(document: object) -> None:
    """Any document, for people: its plain values one to a line, its lists of records as tables."""
    import msgspec

    if dataclasses.is_dataclass(document) and not isinstance(document, type):
        document = dataclasses.asdict(document)
    plain = msgspec.to_builtins(document)
    if not isinstance(plain, dict):
        say_fields([("result", _value(plain))])
        return
    tables = {name: value for name, value in plain.items() if _is_table(value)}
    say_fields((name, _value(value)) for name, value in plain.items() if name not in tables)
    for name, records in tables.items():
        say()
        titles = list(dict.fromkeys(title for record in records for title in record))
        rows = [[_value(record.get(title)) for title in titles] for record in records]
        say_table([Column(title.upper()) for title in titles], rows, title=name)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_value(part) for part in value) or "-"
    return str(value)


def as_yaml(document: object) -> str:
    """A document as YAML that reads back as the same; texts of several lines are blocks."""
    import yaml

    from topmast.model.files.source import Kind, kind_of_plain

    class Dumper(yaml.SafeDumper):
        """Quotes what YAML 1.2 takes for something else than text."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        if style is None and kind_of_plain(value) is not Kind.TEXT:
            style = "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**20)
    return str(written).rstrip("\n")
