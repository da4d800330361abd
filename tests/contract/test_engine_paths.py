"""Hosts that have the folders of the server under other paths; here by a symbolic link."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import ENGINES, Rig, opened, order
from topmast.model.job import Checkpoint


@pytest.fixture(params=ENGINES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """An open engine whose hosts have this folder under another path."""

    def make(rig: Rig) -> object:
        rig.paths = {str(tmp_path): str(tmp_path / "there")}
        return ENGINES[request.param](rig)

    (tmp_path / "there").symlink_to(tmp_path)
    with opened(make, tmp_path) as rig:  # type: ignore[arg-type]
        yield rig


def test_tasks_are_told_paths_as_their_hosts_have_them(rig: Rig, tmp_path: Path) -> None:
    """Of datasets, and of the folder for checkpoints, which is made here."""
    (tmp_path / "words").mkdir()
    rig.datasets["words"] = tmp_path / "words"
    script = "echo $TOPMAST_DATASET_WORDS $TOPMAST_CHECKPOINT_DIR; touch $TOPMAST_CHECKPOINT_DIR/1"
    checkpoint = Checkpoint(path="deep", grace_s=5.0)
    rig.engine.start_gang(order("j1", script, datasets=("words",), checkpoint=checkpoint))
    assert rig.end_of("j1").code == 0
    there = tmp_path / "there"
    assert rig.log("j1") == f"{there}/words {there}/checkpoints/j1/deep\n"
    assert (tmp_path / "checkpoints" / "j1" / "deep" / "1").exists()
