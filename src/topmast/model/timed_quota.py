"""Quotas for a while: in place of those of the fleet, from a time on, until another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from topmast.model.fleet import TenantSpec


class PartlyStated(TenantSpec, frozen=True):
    """A tenant that states quotas of the models that it names, and of others none."""


class TimedQuota(Struct, frozen=True):
    """What a tenant may have for a while. A tenant has one at a time."""

    tenant: str
    quota: dict[str, int]
    """Whole GPUs by model; models that are not named keep what the fleet says."""
    from_s: float
    until_s: float
    """When it ends by itself."""
    by: str = ""
    reason: str = ""

    def why(self) -> str:
        """In words."""
        gpus = ", ".join(f"{count:,} {model}" for model, count in self.quota.items())
        reason = f": {self.reason}" if self.reason else ""
        by = self.by or "an unknown user"
        return f"{gpus} for tenant {self.tenant} for a while, by {by}{reason}"


class KnownQuota(Struct):
    """A quota for a while, as a snapshot has it."""

    timed: TimedQuota
    begun: bool | UnsetType = False
    """Whether its time has come."""


def with_timed(
    tenants: Iterable[TenantSpec], known: Mapping[str, KnownQuota]
) -> tuple[TenantSpec, ...]:
    """The tenants with the quotas that hold now. O(tenants)."""
    return tuple(
        _with(spec, known[spec.name].timed.quota)
        if spec.name in known and known[spec.name].begun
        else spec
        for spec in tenants
    )


def _with(spec: TenantSpec, quota: dict[str, int]) -> TenantSpec:
    if spec.quota is not None:
        return replace(spec, quota={**spec.quota, **quota})
    # Of other models it goes on as before: without a limit, or on the quota above it.
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return PartlyStated(**{**fields, "quota": quota})
