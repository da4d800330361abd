"""The most that any scheduler could allocate while jobs are submitted."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet
from topmast.experiments.ceiling import most_allocated
from topmast.traces.trace import Trace, trace_of

FLEET = fleet(cluster("a-1", hosts=1, gpus=8), cluster("b-1", hosts=1, gpus=8, model="A100"))
"""8 H100 and 8 A100; jobs are submitted over 100 s."""


def _trace(*jobs: tuple[float, float, float, str]) -> Trace:
    """Jobs of so many GPUs of a model, with when they are submitted and how long they run."""
    last = (100.0, 1.0, 0.0, "H100")
    submit_s, duration_s, gpus, models = zip(*jobs, last, strict=True)
    return trace_of(
        "t", submit_s=list(submit_s), duration_s=list(duration_s), gpus=list(gpus),
        gpu_models=list(models),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "want_gpu_s"),
    [
        pytest.param([(0.0, 100.0, 8.0, "H100")], 800.0, id="one model full, one idle"),
        pytest.param([(0.0, 50.0, 8.0, "H100")], 400.0, id="it ends before the last comes"),
        pytest.param([(0.0, 500.0, 8.0, "H100")], 800.0, id="what comes later does not count"),
        pytest.param(
            [(60.0, 500.0, 8.0, "H100"), (60.0, 500.0, 8.0, "H100")], 320.0,
            id="GPUs were idle before, and no backlog makes up for that",
        ),
        pytest.param(
            [(0.0, 50.0, 8.0, "H100"), (0.0, 30.0, 8.0, "H100"), (90.0, 9.0, 8.0, "H100")], 712.0,
            id="a backlog is done later, and what comes last finds GPUs idle",
        ),
        pytest.param(
            [(0.0, 100.0, 8.0, "H100|A100"), (0.0, 100.0, 8.0, "H100")], 1600.0,
            id="with a choice of models all GPUs are one pool",
        ),
    ],
)  # fmt: skip
def test_the_most_that_can_be_held(
    jobs: list[tuple[float, float, float, str]], want_gpu_s: float
) -> None:
    """Of 16 GPUs for 100 s."""
    assert most_allocated(_trace((0.0, 1.0, 0.0, "A100"), *jobs), FLEET) == pytest.approx(
        want_gpu_s / 1_600.0
    )
