"""All policies and profiles there are, as the registries have them: what each is, and where it comes from."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import Struct

from topmast.policies.base import Profile
from topmast.policies.registry import HOOKS, LATE, load_profile, profile_names
from topmast.policies.shares.registry import POLICIES

SHARES = "allocate --policy"


def listing() -> dict[str, Any]:
    """Policies by the option that names one, with sources and options; profiles with what they name."""
    policies = [
        _policy(hook, name, made) for hook, found in HOOKS.items() for name, made in found.items()
    ]
    policies += [_policy(SHARES, name, policy.solve) for name, policy in POLICIES.items()]
    return {"policies": policies, "profiles": [_profile(name) for name in profile_names()]}


def _policy(hook: str, name: str, made: Any) -> dict[str, Any]:
    """One policy: the first line of its module says what it is; class or module, where it comes from."""
    module = inspect.getmodule(made)
    first, *_ = (inspect.getdoc(module) or "").splitlines() or [""]
    source = getattr(made, "source", getattr(module, "SOURCE", ""))
    options = {k: v for group in getattr(made, "options", ()) for k, v in _options(group).items()}
    what = first.partition(": ")[2] or first
    return {"hook": hook, "name": name, "what": what, "source": source, "options": options}


def _options(group: str) -> dict[str, Any]:
    """An option, or all of a group, with their defaults."""
    value: Any = Profile("")
    for part in group.split("."):
        value = getattr(value, part)
    if not isinstance(value, Struct):
        return {group: msgspec.to_builtins(value)}
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return {f"{group}.{name}": inner for name, inner in plain.items()}


def _profile(name: str) -> dict[str, Any]:
    """One profile: what it says of itself, the policies that it names, the options that it sets."""
    profile = load_profile(name)
    given = _flat(msgspec.to_builtins(profile))
    usual = _flat(msgspec.to_builtins(Profile("")))
    named = {hook: given.get(hook, LATE) for hook in HOOKS}
    plain = {k: v for k, v in given.items() if k not in (*HOOKS, "name", "description")}
    changed = {k: v for k, v in plain.items() if v != usual[k]}
    return {"name": name, "what": profile.description, "policies": named, "options": changed}


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        inner = value if isinstance(value, dict) else None
        found |= {f"{prefix}{name}": value} if inner is None else _flat(inner, f"{prefix}{name}.")
    return found
