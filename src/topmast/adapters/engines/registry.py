"""The engines there are, by name: for every process that has clusters.

Agents and supervisors do not import it, so that they start fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.adapters.engines.forms import HOST, MODEL, TENANT, key_form, keys_of, misfit, values_of
from topmast.model.decoding import learn_structs
from topmast.model.engines import PROCESSES, Deadlines
from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.files.tenants import DEFAULT_TENANT
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.policies.options import Profile
from topmast.ports import Capability, Engine, Finding, Level, Site

Options = TypeVar("Options", bound=Struct)
Engines = Mapping[str, type[Engine]]


class _Found(Mapping[str, type[Engine]]):
    """Engines, each imported when it is asked for: its libraries take long to load."""

    def __init__(self, **places: str) -> None:
        """``places``: of each engine its module in this package, and its class."""
        self._places = places

    def __getitem__(self, name: str) -> type[Engine]:
        return _loaded(self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@cache
def _loaded(place: str) -> type[Engine]:
    kind = cast(type[Engine], resolve_name(f"{__package__}.{place}"))
    learn_structs()  # of its modules, before it has threads
    return kind


ENGINES: Engines = _Found(
    local="local.engine:LocalEngine",
    slurm="far.slurm:SlurmEngine",
    kubernetes="far.kubernetes.engine:KubernetesEngine",
    ssh="far.ssh:SshEngine",
)
"""By the name that a fleet file says."""


def engine_of(
    cluster: ClusterSpec,
    region: str,
    folder: Path,
    site: Site,
    profile: Profile,
    engines: Engines = ENGINES,
) -> Engine:
    """The engine of a cluster, not open yet. Raises InvalidInput as `with_engines` does."""
    kind, options, _ = _checked(cluster, region, profile, engines)
    return kind(cluster, folder, site, options)


def with_engines(fleet: Fleet, profile: Profile, engines: Engines = ENGINES) -> Fleet:
    """The fleet, each cluster told what its engine can do and how long that may take.

    Raises InvalidInput for a cluster that cannot have its engine, wherever its region is placed:
    there is none of that name, or it lacks an option, or what the policies or the file need. The
    first fault of each cluster is told.
    """
    faults, regions = Faults(), []
    for region in fleet.regions:
        clusters = []
        for cluster in region.clusters:
            checked = faults.rest_of(partial(_checked, cluster, region.name, profile, engines))
            if checked is None:
                continue
            kind, _, deadlines = checked
            able = tuple(sorted(kind.capabilities))
            told = replace(
                cluster,
                capabilities=UNSET if kind.capabilities == PROCESSES else able,
                deadlines=UNSET if deadlines == Deadlines() else deadlines,
            )
            clusters.append(told)
        regions.append(replace(region, clusters=tuple(clusters)))
    faults.refuse()
    return replace(fleet, regions=tuple(regions))


def check_engines(fleet: Fleet, engines: Engines = ENGINES) -> None:
    """What a fleet file has wrong that only engines know. Raises InvalidInput, one fault at a time:
    a reader that sets it aside asks again.
    """
    taken: dict[str, str] = {}
    for region in fleet.regions:
        for cluster in region.clusters:
            field = f"regions.{region.name}.clusters.{cluster.name}"
            kind, options, _ = _fitting(cluster, field, engines)
            for error in _of_nothing(cluster, kind, f"{field}.options"):
                raise error
            for host, place in kind.addresses(cluster, options).items():
                first = taken.setdefault(place, host)
                if first != host:
                    raise _same_address(fleet, first, host, place)


_NAMELESS = {
    MODEL: "no host of the cluster has GPUs of this model",
    HOST: "the cluster has no such host",
    TENANT: "the fleet file has no such tenant",
}


def _of_nothing(cluster: ClusterSpec, kind: type[Engine], field: str) -> Iterator[InvalidInput]:
    """Options for a GPU model or a host that the cluster does not have: nothing reads them."""
    known = {
        MODEL: sorted({host.model for host in cluster.hosts if host.model}),
        HOST: [host.name for host in cluster.hosts],
    }
    for name, option, what, key in _keyed(cluster, kind):
        _, default = keys_of(_types_of(kind)[option])
        example = f"write {option}.{what.upper() or 'KEY'}"
        if not key and ("." in name or not default):
            yield InvalidInput("it does not say of what", field=f"{field}.{name}", remedy=example)
        elif key and what in known and key not in known[what]:
            yield InvalidInput(
                _NAMELESS[what], field=f"{field}.{name}", remedy=one_of(key, known[what])
            )


def _keyed(cluster: ClusterSpec, kind: type[Engine]) -> Iterator[tuple[str, str, str, str]]:
    """The options of a cluster that are mappings: as written, option, what its keys name, key."""
    types = _types_of(kind)
    for name in cluster.options:
        option, _, key = name.partition(".")
        if option in types and values_of(types[option]):
            yield name, option, keys_of(types[option])[0], key


def _types_of(kind: type[Engine]) -> dict[str, Any]:
    return {option.name: option.type for option in msgspec.structs.fields(kind.options_type)}


def _same_address(fleet: Fleet, first: str, second: str, place: str) -> InvalidInput:
    """Said of the option that gives one of the two its address, where one does."""
    of = {
        host.name: (f"regions.{region.name}.clusters.{cluster.name}", cluster.options)
        for region in fleet.regions for cluster in region.clusters for host in cluster.hosts
        if host.name in (first, second)
    }  # fmt: skip
    by_option = [name for name in (second, first) if f"address.{name}" in of[name][1]]
    field = f"{of[second][0]}.hosts"
    if by_option:
        field = f"{of[by_option[0]][0]}.options.address.{by_option[0]}"
    return InvalidInput(
        f"hosts {first} and {second} have the same address, {place}", field=field,
        remedy="a machine is one host: its GPUs would be given away twice",
    )  # fmt: skip


def examine(
    fleet: Fleet, profile: Profile, engines: Engines = ENGINES
) -> Iterator[tuple[str, Finding]]:
    """What each cluster of a fleet answers, by its name: see `Engine.examine`."""
    for region in fleet.regions:
        for cluster in region.clusters:
            try:
                kind, options, _ = _checked(cluster, region.name, profile, engines)
            except InvalidInput as error:
                place = f"regions.{region.name}.clusters.{cluster.name}."
                what = error.field.removeprefix(place) or "options"
                yield cluster.name, Finding(Level.FAULT, what, error.message, error.remedy)
                continue
            for finding in _tenants_unknown(fleet, cluster, kind):
                yield cluster.name, finding
            for finding in kind.examine(cluster, options):
                yield cluster.name, finding


def _tenants_unknown(fleet: Fleet, cluster: ClusterSpec, kind: type[Engine]) -> Iterator[Finding]:
    """Options for tenants that the file does not have: they may come by a file of their own."""
    tenants = [tenant.name for tenant in fleet.tenants]
    for name, _, what, key in _keyed(cluster, kind):
        if what == TENANT and key and tenants != [DEFAULT_TENANT] and key not in tenants:
            why, remedy = _NAMELESS[TENANT], nearest(key, tenants)
            yield Finding(Level.WARNING, f"options.{name}", why, remedy)


def _checked(
    cluster: ClusterSpec, region: str, profile: Profile, engines: Engines
) -> tuple[type[Engine], Struct, Deadlines]:
    field = f"regions.{region}.clusters.{cluster.name}"
    kind, options, deadlines = _fitting(cluster, field, engines)
    for capability in _needs(profile):
        if capability not in kind.capabilities:
            raise InvalidInput(
                f"profile '{profile.name}' needs engines that can {_IN_WORDS[capability]}, and "
                f"engine '{cluster.engine}' cannot",
                field=f"{field}.engine", remedy="choose another profile (--profile)",
            )  # fmt: skip
    return kind, options, deadlines


def _fitting(
    cluster: ClusterSpec, field: str, engines: Engines
) -> tuple[type[Engine], Struct, Deadlines]:
    """The engine of a cluster, and what it makes of the options, whatever the policies need."""
    kind = engines.get(cluster.engine)
    if kind is None:
        raise InvalidInput(
            f"engine '{cluster.engine}' is not available", field=f"{field}.engine",
            remedy=nearest(cluster.engine, engines) or f"available: {', '.join(engines)}",
        )  # fmt: skip
    if cluster.image and Capability.IMAGES not in kind.capabilities:
        raise InvalidInput(
            f"engine '{cluster.engine}' runs no container images", field=f"{field}.image",
            remedy="leave it out, and prepare the environment on the hosts or in setup",
        )  # fmt: skip
    deadlines, options = _options_of(cluster, kind, f"{field}.options")
    return kind, options, deadlines


_IN_WORDS = {
    Capability.SUSPEND: "suspend tasks",
    Capability.EXACT_SLOTS: "give a task just the GPUs that were chosen for it",
    Capability.PAIRS: "run two jobs on the same GPUs",
}


def _needs(profile: Profile) -> list[Capability]:
    """What every engine must be able to do for the policies; what single jobs need is apart."""
    turns, pairs = profile.slices.layers > 1, bool(profile.shares.pairs)
    packs = turns and profile.pack != "none"
    wanted = {
        Capability.SUSPEND: turns,
        Capability.EXACT_SLOTS: turns or pairs,
        Capability.PAIRS: pairs or packs,
    }
    return [capability for capability, is_needed in wanted.items() if is_needed]


def _options_of(cluster: ClusterSpec, kind: type[Engine], field: str) -> tuple[Deadlines, Struct]:
    """The deadlines of a cluster, those of its engine unless the options say else; the rest."""
    names = [option.name for option in msgspec.structs.fields(Deadlines)]
    ours = {name: text for name, text in cluster.options.items() if name in names}
    others = {name: text for name, text in cluster.options.items() if name not in names}
    given = read_options(ours, Deadlines, engine=cluster.engine, field=field)
    deadlines = replace(kind.deadlines, **{name: getattr(given, name) for name in ours})
    options = read_options(
        others, kind.options_type, engine=cluster.engine, field=field, also=names
    )
    for name, why, remedy in kind.at_odds(options):
        raise InvalidInput(why, field=f"{field}.{name}", remedy=remedy)
    return deadlines, options


def read_options(
    given: Mapping[str, str],
    options_type: type[Options],
    *,
    engine: str,
    field: str,
    also: Sequence[str] = (),
) -> Options:
    """Options as an engine declares them. Raises InvalidInput.

    A mapping is filled key by key: ``gpu.H100: x`` is key ``H100`` of option ``gpu``, and without a
    key (``gpu: x``) it is the key "", the default of the others. An error names ``also`` what is
    read elsewhere.
    """
    known = {option.name: option.type for option in msgspec.structs.fields(options_type)}
    found: dict[str, Any] = {}
    for name, text in given.items():
        option, _, key = name.partition(".")
        values = values_of(known.get(option))
        if option not in known or (key and values is None):
            every = [*known, *also]
            keyed = [f"{one}.{key}" for one, of in known.items() if key and values_of(of)]
            raise InvalidInput(
                f"engine '{engine}' has no such option", field=f"{field}.{name}",
                remedy=nearest(name, [*every, *keyed]) or f"options: {', '.join(every)}",
            )  # fmt: skip
        if key and (wanted := misfit(key_form(known[option]), key)):
            raise InvalidInput(
                f"wanted {wanted}, found '{key}'", field=f"{field}.{name}",
                remedy=f"write {option}.{keys_of(known[option])[0].upper()}",
            )  # fmt: skip
        if wanted := misfit(values or known[option], text):
            raise InvalidInput(f"wanted {wanted}, found '{text}'", field=f"{field}.{name}")
        if values:
            found.setdefault(option, {})[key] = text
            continue
        try:
            found[option] = msgspec.convert(text, known[option], strict=False)
        except msgspec.ValidationError as error:
            why = str(error).removesuffix(", got `str`")  # all that a file says is text
            raise InvalidInput(f"'{text}': {why}", field=f"{field}.{name}") from None
    return msgspec.convert(found, options_type)
