"""Profiles by name: the data files of `profiles/`, with options set on the command line.

And the policies that a profile names. To add one: a file with its class, and a line here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache, partial
from importlib import resources
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.wording import in_words
from topmast.model.units import show
from topmast.policies.attained_service import AttainedService
from topmast.policies.base import (
    BindPolicy,
    OrderPolicy,
    PackPolicy,
    Policies,
    RebalancePolicy,
    ScorePolicy,
    SharePolicy,
)
from topmast.policies.consolidate import Consolidate
from topmast.policies.credit import Credit
from topmast.policies.efficiency import Efficiency
from topmast.policies.gittins_index import GittinsIndex
from topmast.policies.home import Home
from topmast.policies.introspection import Introspective
from topmast.policies.least_loaded import LeastLoaded
from topmast.policies.near_data import NearData
from topmast.policies.options import BandWeights, Preemption, Profile, ScoreWeights, WhenBlocked
from topmast.policies.packing_greedy import Greedy
from topmast.policies.remaining_service import RemainingService
from topmast.policies.remaining_time import RemainingTime
from topmast.policies.shortest import Shortest
from topmast.policies.spill_over import SpillOver
from topmast.policies.submission import Submission
from topmast.policies.turn import TurnOrder
from topmast.policies.weighted import Weighted

ORDERS: dict[str, Callable[[Profile], OrderPolicy]] = {
    "attained-service": AttainedService,
    "credit": Credit,
    "gittins-index": GittinsIndex,
    "remaining-service": RemainingService,
    "remaining-time": RemainingTime,
    "shortest": Shortest,
    "submission": Submission,
    "turn": TurnOrder,
}
SCORINGS: dict[str, Callable[[Profile], ScorePolicy]] = {
    "efficiency": Efficiency,
    "skew": Consolidate,
    "weighted": Weighted,
}
PACKINGS: dict[str, Callable[[Profile], PackPolicy]] = {"greedy": Greedy}
REBALANCINGS: dict[str, Callable[[Profile], RebalancePolicy]] = {"introspective": Introspective}
DEFAULT_PROFILE = "mast"
LATE, NO_SHARES, TURN, NONE = "late", "none", "turn", "none"
_POWER_OF_TEN = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
"""Numbers that YAML 1.1 takes for words."""
BINDINGS: dict[str, Callable[[Profile], BindPolicy]] = {
    "home": Home,
    "least-loaded": LeastLoaded,
    "near-data": NearData,
    "spill-over": SpillOver,
}
HOOKS: dict[str, Mapping[str, Callable[[Profile], object]]] = {
    "order": ORDERS,
    "scoring": SCORINGS,
    "bind.policy": BINDINGS,
    "pack": PACKINGS,
    "rebalance": REBALANCINGS,
}
"""The policies of each hook, by the option that names one.

Each class states its ``source`` and ``options``.
"""

Policy = TypeVar("Policy")
FAMILY = 4
"""More profiles than that which begin alike are told as one family."""


def policies_of(profile: Profile) -> Policies:
    """The policies of a profile. Raises InvalidInput for a policy that does not exist."""
    order = _named(ORDERS, profile.order, "order")
    scoring = _named(SCORINGS, profile.scoring, "scoring")
    reserve = Efficiency(profile) if profile.reserve.models else None
    _check_slices(profile)
    pack = None if profile.pack == NONE else _named(PACKINGS, profile.pack, "pack")(profile)
    rebalance = None
    if profile.rebalance != NONE:
        rebalance = _named(REBALANCINGS, profile.rebalance, "rebalance")(profile)
    return Policies(
        profile, order(profile), scoring(profile), _binding(profile), _sharing(profile), reserve,
        pack, rebalance,
    )  # fmt: skip


MOST_LAYERS = 64


def _check_slices(profile: Profile) -> None:
    """Turns need a place for each gang; packing and moving need turns and a rebalancing policy."""
    layers, judged = profile.slices.layers, profile.rebalance != NONE
    if not 1 <= layers <= MOST_LAYERS:
        raise InvalidInput(
            f"{layers} is out of range",
            field="profile.slices.layers",
            remedy=f"1 to {MOST_LAYERS}",
        )
    needs = (
        ("pack", "rebalance=introspective", profile.pack == NONE or judged),
        ("shares.policy", "none", profile.shares.policy == NO_SHARES),
        ("bind.policy", LATE, profile.bind.policy == LATE),
        ("reserve_after_s", "null", profile.reserve_after_s is None),
    )
    for field, remedy, holds in needs if layers > 1 else ():
        if not holds:
            message = "cannot be combined with turns on the same GPUs (slices.layers)"
            raise InvalidInput(message, field=f"profile.{field}", remedy=remedy)


def _sharing(profile: Profile) -> SharePolicy | None:
    """The policy that divides time among jobs; None where a running job keeps running.

    Imported here: its solvers take a while to load.
    """
    options = profile.shares
    if options.policy == NO_SHARES:
        return None
    from topmast.policies.shares.registry import POLICIES
    from topmast.policies.shares.running import Running

    _named(POLICIES, options.policy, "shares.policy")
    if options.lease < 1:
        message = f"{options.lease:g} would have jobs stopped for running"
        raise InvalidInput(message, field="profile.shares.lease", remedy="1 or more")
    needs = (
        ("order", TURN, profile.order == TURN),
        ("bind.policy", LATE, profile.bind.policy == LATE),
        ("when_blocked", "skip", profile.when_blocked is WhenBlocked.SKIP),
        ("preemption", "none", profile.preemption is Preemption.NONE),
        ("reserve_after_s", "null", profile.reserve_after_s is None),
        ("defragment", "false", not profile.defragment),
        ("elastic.grow", "false", not profile.elastic.grow),
        ("elastic.shrink", "false", not profile.elastic.shrink),
    )
    for field, remedy, holds in needs:
        if not holds:
            message = "cannot be combined with shares of time, since rounds decide which jobs run"
            raise InvalidInput(message, field=f"profile.{field}", remedy=remedy)
    if options.pairs and not (options.aware and POLICIES[options.policy].pairs):
        message = "cannot be combined with a policy that does not use models or pairs"
        raise InvalidInput(message, field="profile.shares.pairs", remedy="false")
    return Running(profile)


def _binding(profile: Profile) -> BindPolicy | None:
    """The policy that binds jobs at submission; None where a place is sought when they start."""
    options = profile.bind
    if options.policy == LATE:
        return None
    if options.policy not in BINDINGS:
        raise InvalidInput(
            f"unknown policy '{options.policy}'",
            field="profile.bind.policy",
            remedy=f"known: {LATE}, {', '.join(BINDINGS)}",
        )
    if profile.when_blocked is WhenBlocked.STOP:
        message = "the first job of one place would stop those of all others"
        raise InvalidInput(message, field="profile.when_blocked", remedy="skip, with this binding")
    if options.choices is not None and options.choices < 1:
        raise InvalidInput("is below 1", field="profile.bind.choices", remedy="null: of all")
    if options.patience_s is not None and options.patience_s <= 0:
        raise InvalidInput("is not above 0", field="profile.bind.patience_s", remedy="null: never")
    if options.signal_s < 0:
        raise InvalidInput("is below 0", field="profile.bind.signal_s", remedy="0: always fresh")
    return BINDINGS[options.policy](profile)


def _named(known: Mapping[str, Policy], name: str, field: str) -> Policy:
    if name not in known:
        raise InvalidInput(
            f"unknown policy '{name}'",
            field=f"profile.{field}",
            remedy=f"known: {', '.join(known)}",
        )
    return known[name]


AS_PUBLISHED = "-as-published"
"""Behind the name of a profile: it does what the public code of its system does."""


def profile_names() -> tuple[str, ...]:
    """All profiles there are, sorted; without those `AS_PUBLISHED`."""
    folder = resources.files("topmast.policies") / "profiles"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))


@cache
def _public_code() -> dict[str, dict[str, Any]]:
    """By profile, or by the family that names begin with: the options of the public code."""
    text = (resources.files("topmast.policies") / "as_published.yaml").read_text("utf-8")
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return found


def _public_options(name: str) -> dict[str, str]:
    known = _public_code()
    options = known.get(name.partition("-")[0], {}) | known.get(name, {})
    return {key: str(value).lower() for key, value in options.items()}


def load_profile(name: str, options: Mapping[str, str] | None = None) -> Profile:
    """The profile ``name`` with ``options`` (``min_runtime_s=5``, ``score.data=0``) laid over it.

    Raises InvalidInput for a name or option that does not exist, or a value out of place.
    """
    names, own = profile_names(), name.removesuffix(AS_PUBLISHED)
    if own not in names:
        near = get_close_matches(name, names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {_by_family(names)}"
        faults = Faults()
        faults.add(f"unknown profile '{name}'", "profile", hint)
        faults.of(lambda: with_options(Profile(name), options or {}))
        faults.refuse()
    if own != name and not _public_options(own):
        known = ", ".join(f"{key}{AS_PUBLISHED}" for key in _public_code())
        message = f"of '{own}' no other code is public, or it does the same"
        raise InvalidInput(message, field="profile", remedy=f"{own}; there are {known}")
    text = (resources.files("topmast.policies") / "profiles" / f"{own}.yaml").read_text("utf-8")
    document = yaml.safe_load(text)
    if own == name:
        return _made(document, options or {})
    document |= {"name": name, "description": f"{document['description']} As its public code."}
    return _made(document, _public_options(own) | dict(options or {}))


def _by_family(names: Sequence[str]) -> str:
    """Names in one readable line: of many with one prefix, how many there are and where listed."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(name.partition("-")[0], []).append(name)
    parts = [
        ", ".join(of) if len(of) <= FAMILY else f"{family}-... ({len(of)})"
        for family, of in families.items()
    ]
    return f"{', '.join(parts)}; `topmast policies` lists all"


def with_options(profile: Profile, options: Mapping[str, str]) -> Profile:
    """Another profile: ``options`` laid over this one. Raises InvalidInput."""
    return _made(msgspec.to_builtins(profile), options)


def _made(document: dict[str, Any], options: Mapping[str, str]) -> Profile:
    """Raises InvalidInput, with each option that is wrong by itself."""
    try:
        return _laid_over(deepcopy(document), options)
    except InvalidInput:
        faults = Faults()
        for key, value in options.items():
            faults.of(partial(_laid_over, deepcopy(document), {key: value}))
        faults.refuse()
        raise  # they are wrong together


def _laid_over(document: dict[str, Any], options: Mapping[str, str]) -> Profile:
    for key, value in options.items():
        _lay_over(document, key, value)
    try:
        profile = msgspec.convert(document, Profile)
    except msgspec.ValidationError as error:
        what, place = in_words(error)
        if place in options:
            what += f" {show(options[place])}"
        raise InvalidInput(what, field=f"--set {place}" if place else "profile") from error
    _check_numbers(profile, "")
    if profile.slow.capacity_least > profile.slow.capacity_most:
        raise InvalidInput(
            f"{profile.slow.capacity_least:g} is more than slow.capacity_most",
            field="--set slow.capacity_least", remedy=f"{profile.slow.capacity_most:g} or less",
        )  # fmt: skip
    if profile.slow.buffer_fraction >= 1.0:
        raise InvalidInput(
            f"{profile.slow.buffer_fraction:g} is out of range",
            field="--set slow.buffer_fraction", remedy="0 to less than 1",
        )  # fmt: skip
    if profile.rounds_s is not None and profile.shares.policy != NO_SHARES:
        raise InvalidInput(
            "cannot be combined with rounds in which time is shared (shares.policy)",
            field="--set rounds_s", remedy="shares.round_s says how long those are",
        )  # fmt: skip
    policies_of(profile)
    return profile


LEAST, SHORTEST_S, MOST = 1e-9, 1e-6, 1e15
"""Of numbers above 0, of times above 0, and of all: with less or more, sums and rounds overflow."""
_ABOVE_ZERO = (
    "copy_period_s",
    "ask_ahead",
    "quantum_s",
    "pack_trial_s",
    "age_cap_s",
    "usage_half_life_s",
    "rerank_interval_s",
    "rounds_s",
    "every_s",
    "quantum_gpu_s",
    "default_duration_s",
    "round_s",
    "memory_s",
    *BandWeights.__struct_fields__,
    "plan_data_every_s",
    "plan_data_limit_s",
    "plan_capacity_every_s",
    "plan_capacity_limit_s",
    "history_days",
)


def _check_numbers(options: Struct, prefix: str) -> None:
    """Prices, weights and times are finite and at least 0; divisors and counts are above 0."""
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if isinstance(value, Struct):
            _check_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            for key, amount in value.items():
                _check_number(f"{prefix}{name}.{key}", amount, above_zero=True)
        elif name == "efficiency" and not 0.5 <= value <= 1.0:
            remedy = "0.5 (more tasks are no faster) to 1 (twice the tasks, twice as fast)"
            field = f"--set {prefix}{name}"
            raise InvalidInput(f"{value:g} is out of range", field=field, remedy=remedy)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(f"{prefix}{name}", value, above_zero=name in _ABOVE_ZERO)
    if isinstance(options, ScoreWeights):
        for model, price in options.models:
            _check_number(f"{prefix}models {model}", price, above_zero=False)


def _check_number(option: str, value: float, *, above_zero: bool) -> None:
    least = 0.0 if not above_zero else SHORTEST_S if option.endswith("_s") else LEAST
    if not least <= value <= MOST:  # NaN is neither
        shown = f"{value:g}" if abs(value) < MOST else str(value)[:20]
        remedy = "more than 0" if above_zero else "0 or more"
        if value > 0:
            remedy = f"from {least:g} to {MOST:g}"
        raise InvalidInput(f"{shown} is out of range", field=f"--set {option}", remedy=remedy)


def option_names() -> tuple[str, ...]:
    """What ``--set`` may change, those of a group behind its name and a dot."""
    return tuple(_options(Profile))


def _options(kind: type[Struct], prefix: str = "") -> list[str]:
    """The names of all options, those of a group behind its name and a dot."""
    names = []
    for field in msgspec.structs.fields(kind):
        inner = isinstance(field.type, type) and issubclass(field.type, Struct)
        names += (
            _options(field.type, f"{prefix}{field.name}.") if inner else [f"{prefix}{field.name}"]
        )
    return names


LISTED = "`topmast policies` lists all options"


def _lay_over(document: dict[str, Any], key: str, value: str) -> None:
    known = [name for name in _options(Profile) if name not in ("name", "description")]
    if key not in known:
        parts = {name.rpartition(".")[2]: name for name in known}
        near = get_close_matches(key, known, 1) or [
            parts[part] for part in get_close_matches(key.rpartition(".")[2], list(parts), 1)
        ]
        remedy = f"did you mean '{near[0]}'?" if near else LISTED
        raise InvalidInput("there is no such option", field=f"--set {key}", remedy=remedy)
    place = document
    *path, last = key.split(".")
    for part in path:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InvalidInput(f"'{part}' has no options", field=f"--set {key}")
        place = inner
    place[last] = value_of(key, value)


def value_of(key: str, text: str) -> Any:
    """The value of ``--set KEY=TEXT`` as YAML, with 1e9 as a number. Raises InvalidInput."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("not a value", field=f"--set {key}") from error
    except RecursionError:
        message, remedy = "nested too deeply", "a number, a word or a short list"
        raise InvalidInput(message, field=f"--set {key}", remedy=remedy) from None
    return float(value) if isinstance(value, str) and _POWER_OF_TEN.fullmatch(value) else value
