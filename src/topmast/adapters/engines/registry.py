"""The engines there are, by name: for every process that has clusters.

Agents and supervisors do not import it, so that they start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from topmast.adapters.engines.far.kubernetes.engine import KubernetesEngine
from topmast.adapters.engines.far.slurm import SlurmEngine
from topmast.adapters.engines.far.ssh import SshEngine
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, RegionSpec
from topmast.policies.options import Profile
from topmast.ports import Capability, Engine, Site

Options = TypeVar("Options", bound=Struct)
Engines = Mapping[str, type[Engine]]
ENGINES: Engines = {
    "local": LocalEngine,
    "slurm": SlurmEngine,
    "kubernetes": KubernetesEngine,
    "ssh": SshEngine,
}
"""By the name that a fleet file says."""


def engine_of(
    cluster: ClusterSpec,
    region: str,
    folder: Path,
    site: Site,
    profile: Profile,
    engines: Engines = ENGINES,
) -> Engine:
    """The engine of a cluster, not open yet. Raises InvalidInput as `check_engines` does."""
    kind, options = _checked(cluster, region, profile, engines)
    return kind(cluster, folder, site, options)


def check_engines(
    regions: Iterable[RegionSpec], profile: Profile, engines: Engines = ENGINES
) -> None:
    """Raise InvalidInput for a cluster that cannot have its engine, wherever its region is placed.

    There may be none of that name, or it lacks an option or what the policies need.
    """
    for region in regions:
        for cluster in region.clusters:
            _checked(cluster, region.name, profile, engines)


def _checked(
    cluster: ClusterSpec, region: str, profile: Profile, engines: Engines
) -> tuple[type[Engine], Struct]:
    field = f"regions.{region}.clusters.{cluster.name}"
    kind = engines.get(cluster.engine)
    if kind is None:
        raise InvalidInput(
            f"engine '{cluster.engine}' is not available", field=f"{field}.engine",
            remedy=f"available: {', '.join(engines)}",
        )  # fmt: skip
    for capability in _needs(profile):
        if capability not in kind.capabilities:
            raise InvalidInput(
                f"profile '{profile.name}' needs engines that can {capability} tasks, and engine "
                f"'{cluster.engine}' cannot",
                field=f"{field}.engine", remedy="choose another profile (--profile)",
            )  # fmt: skip
    options = read_options(
        cluster.options, kind.options_type, engine=cluster.engine, field=f"{field}.options"
    )
    return kind, options


def _needs(profile: Profile) -> list[Capability]:
    return [Capability.SUSPEND] if profile.slices.layers > 1 else []


def read_options(
    given: Mapping[str, str], options_type: type[Options], *, engine: str, field: str
) -> Options:
    """Options as an engine declares them. Raises InvalidInput.

    A mapping is filled key by key: ``gpu.H100: x`` is key ``H100`` of option ``gpu``, and without a
    key (``gpu: x``) it is the key "", the default of the others.
    """
    known = {option.name: option.type for option in msgspec.structs.fields(options_type)}
    found: dict[str, Any] = {}
    for name, text in given.items():
        option, _, key = name.partition(".")
        if option not in known or (key and known[option] != dict[str, str]):
            raise InvalidInput(
                f"engine '{engine}' has no such option", field=f"{field}.{name}",
                remedy=f"options: {', '.join(known)}" if known else "it has no options",
            )  # fmt: skip
        if known[option] == dict[str, str]:
            found.setdefault(option, {})[key] = text
            continue
        try:
            found[option] = msgspec.convert(text, known[option], strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"'{text}': {error}", field=f"{field}.{name}") from None
    return msgspec.convert(found, options_type)
