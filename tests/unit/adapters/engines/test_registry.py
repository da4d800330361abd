"""The engines that a fleet file may name: one that is not there is refused, wherever its region is placed."""

from pathlib import Path

import pytest

from tests.support.build import cluster, fleet
from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.registry import ENGINES, check_engines, engine_of
from topmast.composition import System
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.policies.registry import load_profile
from topmast.regional import RegionalSystem

NOWHERE = "http://127.0.0.1:9"


def _slurm() -> Fleet:
    spec = cluster("east-1")
    return fleet(ClusterSpec(spec.name, spec.hosts, engine="slurm"), cluster("west-1"))


def test_every_engine_there_is_has_a_name() -> None:
    """A fleet of engines that are there is taken; of another one the field and the remedy are said."""
    assert "local" in ENGINES
    check_engines(fleet(cluster("east-1")).regions)
    with pytest.raises(InvalidInput) as caught:
        check_engines(_slurm().regions)
    assert caught.value.field == "regions.east.clusters.east-1.engine"
    assert "local" in (caught.value.remedy or "")


def test_no_engine_is_made_in_place_of_another(tmp_path: Path) -> None:
    """`engine: slurm` never gives local processes."""
    spec = _slurm().regions[0].clusters[0]
    with pytest.raises(InvalidInput, match="engine 'slurm' is not available"):
        engine_of(
            spec, "east", tmp_path, clock=SystemClock(), dataset_path=lambda *_: None,
            blob_path=lambda _: None, checkpoints=tmp_path,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("apart", [{}, {"east": NOWHERE}])
def test_a_server_does_not_start_with_an_engine_that_is_not_there(
    tmp_path: Path, apart: dict[str, str]
) -> None:
    """Neither where the region is placed by the server itself, nor where it has a process of its own."""
    with pytest.raises(InvalidInput) as caught:
        System(tmp_path, load_profile("mast"), _slurm(), apart=apart)
    assert caught.value.field == "regions.east.clusters.east-1.engine"


def test_the_process_of_a_region_runs_nothing_for_an_engine_that_it_has_not(tmp_path: Path) -> None:
    """Told of such a cluster by a queue of another version, it has no engine for it, and goes on."""
    region = _slurm().regions[0]
    system = RegionalSystem("east", NOWHERE, tmp_path, load_profile("mast"))
    system.runtime.start()
    system.runtime.post(ids.placer("east"), m.ConfigureRegion(region))
    try:
        assert system.runtime.ask(lambda: system._clusters()).result() == region.clusters
        system._equip_as_told()
        assert system.engines == {}
        assert not (tmp_path / "engines").exists()
        with pytest.raises(InvalidInput, match="slurm"):
            system.open()
    finally:
        system.runtime.stop()
        system.journal.close()
