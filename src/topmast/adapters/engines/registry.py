"""The engines there are, by name: for every process that has clusters.

Agents and supervisors do not import it, so that they start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from topmast.adapters.engines.local.engine import LocalEngine
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, RegionSpec
from topmast.ports import Clock, Engine

ENGINES: dict[str, Callable[..., Engine]] = {"local": LocalEngine}
"""By the name that a fleet file says: called as `engine_of` calls it."""


def engine_of(
    cluster: ClusterSpec,
    region: str,
    folder: Path,
    *,
    clock: Clock,
    dataset_path: Callable[[str, str], Path | None],
    blob_path: Callable[[str], Path | None],
    checkpoints: Path,
) -> Engine:
    """The engine that the cluster names. Raises InvalidInput where there is none of that name."""
    _check(cluster, region)
    return ENGINES[cluster.engine](
        cluster, region, folder,
        clock=clock, dataset_path=dataset_path, blob_path=blob_path, checkpoints=checkpoints,
    )  # fmt: skip


def check_engines(regions: Iterable[RegionSpec]) -> None:
    """Raise InvalidInput for a cluster whose engine is not there, wherever its region is placed."""
    for region in regions:
        for cluster in region.clusters:
            _check(cluster, region.name)


def _check(cluster: ClusterSpec, region: str) -> None:
    if cluster.engine not in ENGINES:
        raise InvalidInput(
            f"engine '{cluster.engine}' is not available",
            field=f"regions.{region}.clusters.{cluster.name}.engine",
            remedy=f"available: {', '.join(ENGINES)}",
        )
