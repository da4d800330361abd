"""What hosts offer beside a GPU and what jobs ask for, on a fleet small enough to count by hand."""

import pytest

from tests.support.build import cluster, fleet
from topmast.traces.capacity import capacity
from topmast.traces.trace import trace_of

FLEET = fleet(
    cluster("a-1", hosts=2, gpus=8, model="V100", cpus=64.0, memory_bytes=512 * 10**9),
    cluster("b-1", hosts=4, gpus=2, model="T4", cpus=64.0),
    cluster("c-1", hosts=1, gpus=0, model="", cpus=96.0),
)


def test_gpus_are_stranded_where_the_cpus_run_out_first() -> None:
    """V100 hosts have 8 CPUs per GPU, and their jobs take 16: half of 16 GPUs cannot be used."""
    trace = trace_of(
        "t", submit_s=[0, 0, 0], duration_s=[100, 300, 50], gpus=[1, 0.5, 0], cpus=[16, 8, 90],
        gpu_models=["V100", "V100", ""],
    )  # fmt: skip
    v100, t4 = capacity(trace, FLEET)
    assert (v100["gpu_model"], v100["hosts"], v100["gpus"]) == ("V100", 2, 16)
    assert v100["cpus_per_gpu"] == {"offered": 8.0, "requested": 16.0}
    assert v100["memory_gb_per_gpu"] == {"offered": 64.0, "requested": 0.0}, (
        "of 10^9 bytes, as files say"
    )
    assert v100["gpu_hours"] == pytest.approx((100 + 150) / 3600)
    assert v100["stranded_gpus"] == 8.0
    assert t4["cpus_per_gpu"] == {"offered": 32.0, "requested": 0.0}
    assert t4["memory_gb_per_gpu"]["offered"] is None, "no limit is known"
    assert t4["stranded_gpus"] == 0.0


def test_jobs_that_take_any_model_count_by_its_gpus() -> None:
    """Of 24 GPUs 16 are V100: two thirds of the time of a job that takes either; of models not there, none."""
    trace = trace_of(
        "t", submit_s=[0, 0, 0], duration_s=[90, 90, 90], gpus=[1, 1, 1], cpus=[4, 4, 4],
        gpu_models=["", "T4|V100", "H100"],
    )  # fmt: skip
    v100, t4 = capacity(trace, FLEET)
    assert v100["gpu_hours"] * 3600 == pytest.approx(2 * 60)
    assert t4["gpu_hours"] * 3600 == pytest.approx(2 * 30)
    assert v100["cpus_per_gpu"]["requested"] == pytest.approx(4.0)
