"""Lists of machines become fleet files."""

from pathlib import Path

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.traces.machines import read_machines, write_fleet

SAMPLES = Path(__file__).parent / "samples"


def test_pai_machines(tmp_path: Path) -> None:
    """Machines that are alike are one entry; the fleet file says what the list says."""
    plan = read_machines(SAMPLES / "pai_machines.csv", "pai-machines")
    assert len(plan["regions"]["pai"]["clusters"]["pai"]["hosts"]) == 3
    path = tmp_path / "fleet.yaml"
    fleet = write_fleet(plan, path)
    assert read_fleet(path) == fleet
    assert fleet.gpus() == {"V100": 16, "T4": 2}
    hosts = fleet.regions[0].clusters[0].hosts
    assert [(h.model, h.cpus, h.memory_bytes) for h in hosts[:2]] == [
        ("", 96, 512 * 10**9), ("V100", 96, 384 * 10**9),
    ]  # fmt: skip


def test_openb_nodes(tmp_path: Path) -> None:
    """CPUs come in thousandths, memory in MiB; a node without GPUs has no model."""
    fleet = write_fleet(
        read_machines(SAMPLES / "openb_nodes.csv", "openb-nodes"), tmp_path / "f.yaml"
    )
    hosts = fleet.regions[0].clusters[0].hosts
    assert [(h.model, h.gpus, h.cpus) for h in hosts] == [
        ("P100", 2, 64), ("P100", 2, 64), ("", 0, 94.5),
    ]  # fmt: skip
    assert hosts[0].memory_bytes == 262_144 * 2**20


BAD = [
    ("pai-machines", "m1,V100,96,384,8\nm1,V100,96,384,8\n", "t.csv:2: machine: 'm1' is on line 1 too"),
    ("pai-machines", "m1,,96,384,8\n", "t.csv:1: gpu_type: is missing from a machine with GPUs"),
    ("pai-machines", "m1,V100,96,384\n", "t.csv:1: cap_gpu: the row has 4 columns"),
    ("pai-machines", "m1,V100,many,384,8\n", "t.csv:1: cap_cpu: 'many' is not a number"),
    ("pai-machines", "m1,V100,96,384,1e9\n", "t.csv:1: cap_gpu: '1e9' is too large"),
    ("openb-nodes", "sn,cpu_milli,memory_mib,gpu\nn0,1,1,2\n", "t.csv:2: model: is missing from a node with GPUs"),
    ("openb-nodes", "sn,cpu_milli,gpu,model\n", "t.csv:1: memory_mib: the column is missing"),
    ("openb-nodes", "", "t.csv: the file is empty"),
    ("slurm", "", "format: no list of machines 'slurm' is known (pai-machines or openb-nodes)"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "want"), BAD)
def test_bad_lists(format: str, text: str, want: str, tmp_path: Path) -> None:
    """What is wrong is said with file, line and column."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_machines(path, format)
    assert want in str(caught.value)


def test_a_name_that_no_fleet_can_have(tmp_path: Path) -> None:
    """A GPU model that a fleet file refuses is refused before anything is written."""
    path = tmp_path / "t.csv"
    path.write_text("m1,V:100,96,384,8\n")
    with pytest.raises(InvalidInput, match="is not"):
        write_fleet(read_machines(path, "pai-machines"), tmp_path / "f.yaml")
    assert not (tmp_path / "f.yaml").exists()
