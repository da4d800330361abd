"""The tenants of a fleet file: each by itself, then the tree that they form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import UNSET

from topmast.model.budget import AtLimit, Budget
from topmast.model.files.fields import Value
from topmast.model.files.source import Kind
from topmast.model.fleet import TenantSpec
from topmast.model.units import show

MAX_TENANTS = 10_000
MAX_DEPTH = 16
MAX_QUOTA = 10_000_000
MAX_WEIGHT = 1e6

DEFAULT_TENANT = "default"

_FIELDS = ("parent", "quota", "borrow_limit", "lend_limit", "weight", "budget")
_BUDGET = ("gpu_hours", "usd", "at_limit")
_AT_LIMIT = {one.value: one for one in AtLimit}
MAX_BUDGET = 1e15

Specs = Mapping[str, TenantSpec]


def read_tenants(value: Value | None, models: Collection[str]) -> tuple[TenantSpec, ...]:
    """The tenants in ``value``; one tenant without limits if there are none.

    O(tenants x depth x models).
    """
    listed = value.entries(limit=MAX_TENANTS, wanted="a mapping of tenants") if value else {}
    specs = {name: _tenant(name, part, models) for name, part in listed.items()}
    for name in specs:
        _check_parents(listed[name], specs[name], specs)
    for name in specs:
        _check_quota(listed, specs[name], specs)
    _check_sums(listed, specs)
    return tuple(specs.values()) or (TenantSpec(DEFAULT_TENANT),)


def _tenant(name: str, value: Value, models: Collection[str]) -> TenantSpec:
    value.check_name(name)
    if value.is_nothing():
        return TenantSpec(name)
    fields = value.record(_FIELDS)
    quota, borrow, lend = (fields.get(f) for f in ("quota", "borrow_limit", "lend_limit"))
    parent, weight, budget = (fields.get(f) for f in ("parent", "weight", "budget"))
    if borrow and not quota:
        raise borrow.error("has no quota to borrow beyond", "give the tenant a quota as well")
    if lend and not quota:
        raise lend.error("has no quota to lend from", "give the tenant a quota as well")
    return TenantSpec(
        name=name,
        quota=_gpus_by_model(quota, models) if quota else None,
        borrow_limit=_gpus_by_model(borrow, models) if borrow else None,
        weight=weight.number(high=MAX_WEIGHT, above=True) if weight else 1.0,
        lend_limit=_gpus_by_model(lend, models) if lend else None,
        parent=parent.name() if parent else None,
        budget=_budget(budget) if budget else UNSET,
    )


def _budget(value: Value) -> Budget:
    fields = value.record(_BUDGET)
    hours, usd, at_limit = (fields.get(name) for name in _BUDGET)
    if not hours and not usd:
        raise value.error("has no limit", "give gpu_hours, usd or both")
    return Budget(
        hours.number(high=MAX_BUDGET, above=True) if hours else None,
        usd.number(high=MAX_BUDGET, above=True) if usd else None,
        at_limit.choice(_AT_LIMIT, "what happens at a limit") if at_limit else AtLimit.WARN,
    )


def _gpus_by_model(value: Value, models: Collection[str]) -> dict[str, int]:
    wanted = "a mapping of GPU models to numbers, such as {H100: 16}"
    entries = value.entries(limit=len(models) + 1_000, wanted=wanted)
    for model, count in entries.items():
        if model not in models:
            raise count.unknown("no region has the GPU model", model, models, "regions")
    return {model: count.integer(low=0, high=MAX_QUOTA) for model, count in entries.items()}


# ---------------------------------------------------------------------------------- the tree


def _above(spec: TenantSpec, specs: Specs) -> Iterator[TenantSpec]:
    """The tenants above one, nearest first."""
    while spec.parent is not None:
        spec = specs[spec.parent]
        yield spec


def _home(spec: TenantSpec, specs: Specs) -> TenantSpec | None:
    """The nearest tenant above one that states a quota."""
    return next((above for above in _above(spec, specs) if above.quota is not None), None)


def _field(value: Value, *names: str) -> Value:
    """A field of a tenant that is known to be there."""
    for name in names:
        value = value.part(name, value.node.entries[name])
    return value


def _check_parents(value: Value, spec: TenantSpec, specs: Specs) -> None:
    """Every parent exists, and the way up ends."""
    way = [spec.name]
    while spec.parent is not None:
        if spec.parent not in specs:
            if len(way) > 1:
                return  # an error of that tenant, which has its own turn
            others = [name for name in specs if name != spec.name]
            parent = _field(value, "parent")
            raise parent.unknown("there is no tenant", spec.parent, others, "tenants")
        way.append(spec.parent)
        if spec.parent in way[:-1]:
            if spec.parent != way[0]:
                return  # it hangs below the circle: a member of the circle reports the error
            message = f"its parents go round in a circle: {' -> '.join(way)}"
            raise _field(value, "parent").error(message, "take the parent from one of them")
        if len(way) > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} tenants one below the other"
            raise _field(value, "parent").error(message, "leave out levels")
        spec = specs[spec.parent]


def _is_aside(value: Value, model: str) -> bool:
    """Whether the quota of a model is set aside: how large it should be is not known."""
    part = value.node.entries["quota"].entries.get(model)
    return part is not None and part.kind is Kind.ASIDE


def _check_quota(listed: Mapping[str, Value], spec: TenantSpec, specs: Specs) -> None:
    """No tenant is promised more than the one above it has."""
    home = _home(spec, specs)
    for model, count in (spec.quota or {}).items() if home else ():
        most = (home.quota or {}).get(model, 0) if home else 0
        if home and count > most and not _is_aside(listed[home.name], model):
            message = f"{count:,} {model} is more than the {most:,} of {show(home.name)} above it"
            remedy = f"at most {most:,}, or raise the quota of {show(home.name)}"
            raise _field(listed[spec.name], "quota", model).error(message, remedy)


def _check_sums(listed: Mapping[str, Value], specs: Specs) -> None:
    """What is promised below a tenant is no more than what it has."""
    given: dict[str, dict[str, int]] = {}
    for spec in specs.values():
        home = _home(spec, specs) if spec.quota else None
        for model, count in (spec.quota or {}).items() if home else ():
            sums = given.setdefault(home.name if home else "", {})
            sums[model] = sums.get(model, 0) + count
    for name, sums in given.items():
        quota = specs[name].quota or {}
        for model, count in sums.items():
            if model in quota and count > quota[model]:
                below = f"the tenants below it have quotas of {count:,} {model}"
                message = f"{below}, and it has {quota[model]:,}"
                remedy = f"at least {count:,}, or lower theirs"
                raise _field(listed[name], "quota", model).error(message, remedy)
