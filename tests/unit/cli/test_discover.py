"""A fleet file of what is there, and what people should know of it."""

from typing import Any

import pytest

from tests.unit.cli.conftest import Call
from topmast.adapters.engines.far.discovery import Discovered
from topmast.adapters.engines.far.slurm import discover as slurm
from topmast.model.fleet import HostSpec


@pytest.mark.parametrize("gpus", [0, 8])
def test_what_is_missing_is_said_whether_or_not_a_file_can_be_written(
    call: Call, monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    """It is often the reason why there is none: a fleet without GPUs is no fleet."""
    found = Discovered(
        "lab", (HostSpec("h0", "H100" if gpus else "", gpus),), left_out=("h1: it is down",),
        notes=("h0 has no nvidia-smi",),
    )  # fmt: skip

    def discover(*_: Any) -> Discovered:
        return found

    monkeypatch.setattr(slurm, "discover", discover)
    called = call("fleet", "discover", "slurm")
    said = ["h0 has no nvidia-smi", "left out: h1: it is down"]
    assert called.err.splitlines()[:2] == said
    assert (called.code == 0) == bool(called.out) == bool(gpus)
    assert ("the fleet has no GPUs" in called.err) == (not gpus)
