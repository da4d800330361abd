"""All policies and profiles of the registries: what each is, and where it comes from."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import Struct

from topmast.policies.options import Profile
from topmast.policies.registry import HOOKS, load_profile, profile_names
from topmast.policies.shares.registry import POLICIES

SHARES = "shares.policy"


def listing() -> dict[str, Any]:
    """Policies by the option that names one, with sources and options; profiles likewise."""
    policies = [
        _policy(hook, name, made) for hook, found in HOOKS.items() for name, made in found.items()
    ]
    policies += [_policy(SHARES, name, policy.solve) for name, policy in POLICIES.items()]
    return {"policies": policies, "profiles": [_profile(name) for name in profile_names()]}


def _policy(hook: str, name: str, made: Any) -> dict[str, Any]:
    """One policy: the first line of its module describes it; class or module name its source."""
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
        return {group: _plain(value)}
    return flat(value, f"{group}.")


def _profile(name: str) -> dict[str, Any]:
    """One profile: what it says of itself, the policies that it names, the options that it sets."""
    profile = load_profile(name)
    given, usual = flat(profile), flat(Profile(""))
    hooks = (*HOOKS, SHARES)
    named = {hook: given[hook] for hook in hooks}
    plain = {k: v for k, v in given.items() if k not in (*hooks, "name", "description")}
    changed = {k: v for k, v in plain.items() if v != usual[k]}
    return {"name": name, "what": profile.description, "policies": named, "options": changed}


def flat(options: Struct, prefix: str = "") -> dict[str, Any]:
    """Options by name, those of a group behind its name and a dot."""
    found: dict[str, Any] = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if isinstance(value, Struct):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))
