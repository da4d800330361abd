"""The real traces, where they are at hand: every row is read, and known figures come out."""

from pathlib import Path

import numpy as np
import pytest

from topmast.model.files.fleetfile import parse_fleet
from topmast.traces.machines import read_machines
from topmast.traces.reading import read

FILES = [
    ("philly", "philly/philly_82k.csv.gz", 82_247),
    ("pai-tasks", "alibaba/pai_tasks_60k.csv.gz", 60_105),
    ("openb", "alibaba/openb_pod_list_default.csv.gz", 8_152),
    ("openb", "alibaba/openb_pod_list_gpuspec33.csv.gz", 8_152),
    ("gavel", "gavel/max_min_fairness.trace", 96),
    ("gavel", "gavel/small_test.trace", 20),
    ("tiresias", "tiresias/60_job.csv", 60),
    ("muri", "muri/trace3.csv", 992),
]


@pytest.mark.parametrize(("format", "path", "jobs"), FILES)
def test_every_row_is_read(format: str, path: str, jobs: int, data_dir: Path) -> None:
    """No row of a public file is bad."""
    trace = read(data_dir / path, format)
    assert len(trace) == jobs
    assert trace.submit_s[0] == 0
    assert (np.diff(trace.submit_s) >= 0).all()


def test_philly(data_dir: Path) -> None:
    """Fifteen virtual clusters; nothing is lost when counts of GPUs become gangs."""
    trace = read(data_dir / "philly/philly_82k.csv.gz", "philly")
    assert len(trace.tenant.names) == 15
    assert trace.total_gpus().max() == 128
    assert (trace.total_gpus() == 16).sum() == 199


def test_pai(data_dir: Path) -> None:
    """The quantiles of the sample are near those of the whole table."""
    trace = read(data_dir / "alibaba/pai_tasks_60k.csv.gz", "pai-tasks")
    found = np.percentile(trace.duration_s, [50, 90, 99])
    np.testing.assert_allclose(found, [614, 12_390, 67_166], rtol=0.03)


def test_gavel(data_dir: Path) -> None:
    """Speeds are those of the table: Recommendation is slower on V100 than on P100."""
    trace = read(data_dir / "gavel/small_test.trace", "gavel")
    models = trace.model.values()
    row = next(i for i, model in enumerate(models) if model == "Recommendation (batch size 8192)")
    assert trace.gpu_models[row] == "V100|P100|K80"
    assert float(trace.speeds[row].split("|")[1]) > 1


def test_fleets(data_dir: Path) -> None:
    """6,742 GPUs on 1,897 machines, and 6,212 on 1,213."""
    for format, path, hosts, gpus in (
        ("pai-machines", "alibaba/pai_machine_spec.csv", 1_897, 6_742),
        ("openb-nodes", "alibaba/openb_node_list_gpu_node.csv", 1_213, 6_212),
    ):
        fleet = parse_fleet(read_machines(data_dir / path, format))
        assert sum(fleet.gpus().values()) == gpus
        assert len(fleet.regions[0].clusters[0].hosts) == hosts
