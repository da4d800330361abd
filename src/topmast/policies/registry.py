"""Profiles by name: the data files of `profiles/`, with options set on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from typing import Any

import msgspec
import yaml

from topmast.model.errors import InvalidInput
from topmast.policies.base import Profile


def profile_names() -> tuple[str, ...]:
    """All profiles there are, sorted."""
    folder = resources.files("topmast.policies") / "profiles"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))


def load_profile(name: str, options: Mapping[str, str] | None = None) -> Profile:
    """The profile ``name`` with ``options`` (``min_runtime_s=5``, ``score.data=0``) laid over it.

    Raises InvalidInput for a name or option that does not exist, or a value out of place.
    """
    names = profile_names()
    if name not in names:
        near = get_close_matches(name, names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
        raise InvalidInput(f"unknown profile '{name}'", field="profile", remedy=hint)
    text = (resources.files("topmast.policies") / "profiles" / f"{name}.yaml").read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    for key, value in (options or {}).items():
        _lay_over(document, key, value)
    try:
        return msgspec.convert(document, Profile)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            str(error), field="profile", remedy="see docs/reference/profiles"
        ) from error


def _lay_over(document: dict[str, Any], key: str, value: str) -> None:
    place = document
    *path, last = key.split(".")
    for part in path:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InvalidInput(f"'{part}' has no options", field=f"--set {key}")
        place = inner
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidInput("not a value", field=f"--set {key}") from error
