"""`topmast fleet discover slurm`, asked of real clusters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster
from tests.unit.cli.program import ROOT
from topmast.adapters.engines.far.slurm import SlurmOptions
from topmast.adapters.engines.far.slurm.examine import examine
from topmast.cli import main
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Level


def discover(lab: SlurmCluster, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name("topmast")), "fleet", "discover", "slurm", *options]
    return subprocess.run(argv, env=lab.env, capture_output=True, text=True, timeout=120)


def test_the_fleet_of_a_cluster(lab: SlurmCluster, tmp_path: Path) -> None:
    """A file that `topmast up` can read, with the cluster's own names."""
    file = tmp_path / "fleet.yaml"
    done = discover(lab, "--region", "east", "--partition", "main", "--out", str(file))
    assert (done.returncode, done.stdout) == (0, f"wrote {file}: 3 hosts, 24 H100\n"), done.stderr
    (region,) = read_fleet(file).regions
    (cluster,) = region.clusters
    assert (region.name, cluster.name, cluster.engine) == ("east", "lab", "slurm")
    assert [host.name for host in cluster.hosts] == ["lab0", "lab1", "lab2"]
    assert cluster.hosts[0].gpus == 8
    assert cluster.options == {
        "partition": "main", "gpu.H100": "h100", "cpus_per_gpu": "8", "memory_mib_per_gpu": "25000",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "code", "want"),
    [
        (("--partition", "nosuch"), 2, "no host in partition nosuch"),
        (("--set", "bin=/nowhere"), 2, "/nowhere/sbatch: No such file"),
        (("--set", "patition=x"), 2, "no such option"),
        (("--region", "a b"), 2, "not a name"),
        (("--out", "/nowhere/x/fleet.yaml"), 2, "/nowhere"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    lab: SlurmCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...], code: int, want: str,
) -> None:  # fmt: skip
    """One line on stderr, and nothing on stdout."""
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    assert main(ROOT, ["fleet", "discover", "slurm", *options]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert want in said.err


def test_switches_are_racks_and_pods() -> None:
    """And GPUs without a type get the name that is given."""
    if reason := missing():
        pytest.skip(reason)
    racks = {"leaf1": "Nodes=net[0-2]", "leaf2": "Nodes=net[3-4]", "top": "Switches=leaf[1-2]"}
    with slurm_cluster("net", nodes=5, gpus=2, gpu_type="", racks=racks) as lab:
        done = discover(lab, "--gpu", "L4", "--json", "--cluster", "net-1")
        assert done.returncode == 0, done.stderr
        cluster = json.loads(done.stdout)["regions"]["net-1"]["clusters"]["net-1"]
        assert cluster["options"]["gpu.L4"] == "any"
        assert [(e["names"], e["rack"], e["pod"]) for e in cluster["hosts"]] == [
            (["net0", "net1", "net2"], "leaf1", "top"),
            (["net3", "net4"], "leaf2", "top"),
        ]
        assert "the site does not say" in discover(lab).stderr


def test_a_doctor_asks_slurm(lab: SlurmCluster, tmp_path: Path) -> None:
    """Hosts that are there, and a partition that is not: nothing is submitted."""
    file = tmp_path / "fleet.yaml"
    done = discover(lab, "--region", "east", "--partition", "main", "--out", str(file))
    assert done.returncode == 0, done.stderr
    assert "cpus_per_gpu: 8," in file.read_text()
    (warning,) = _found(lab, file, "warning", "fault")  # these clusters have no control groups
    assert (warning["what"], warning["remedy"]) == (
        "ends of jobs", "set ProctrackType=proctrack/cgroup in slurm.conf",
    )  # fmt: skip
    text = file.read_text().replace("partition: main", "partition: nosuch")
    file.write_text(text.replace("lab2", "lab7"))
    missing, outside, submit = _found(lab, file, "fault")
    assert "not there: lab7" in missing["detail"]
    assert "lab0, lab1: in Slurm it is not in partition nosuch" in outside["detail"]
    assert submit["what"] == "submit"
    assert "partition" in submit["detail"]


def test_a_doctor_tells_which_option_maps_a_model(lab: SlurmCluster, tmp_path: Path) -> None:
    """Where Slurm says a type; a job with the cluster's own GPUs is tried in any case."""
    file = tmp_path / "fleet.yaml"
    done = discover(lab, "--region", "east", "--out", str(file))
    assert done.returncode == 0, done.stderr
    (tried,) = [one for one in _found(lab, file, "ok") if one["what"] == "submit"]
    assert tried["detail"] == "Slurm would take a job with 8 H100 of lab2 (its defaults)"
    whole = file.read_text()
    file.write_text(whole.replace("gpu.H100: h100", "time_limit: 1-0"))
    (hosts,) = _found(lab, file, "fault")
    assert hosts["detail"].endswith("and jobs ask for H100 (set option `gpu.H100: h100`)")
    file.write_text(whole.replace("cpus_per_gpu: 8", "cpus_per_gpu: 80"))
    (submit,) = _found(lab, file, "fault")
    assert submit["what"] == "submit"
    assert "Requested node configuration is not available" in submit["detail"]


def test_a_doctor_tells_which_hosts_get_no_work(lab: SlurmCluster, tmp_path: Path) -> None:
    """A partition that is down or has not all hosts, and a host that is drained."""
    file = tmp_path / "fleet.yaml"
    done = discover(lab, "--region", "east", "--partition", "main", "--out", str(file))
    assert done.returncode == 0, done.stderr
    whole = file.read_text()
    file.write_text(whole.replace("partition: main", "partition: small"))
    lab.run("scontrol", "create", "PartitionName=small", "Nodes=lab[0-1]", "State=UP")
    try:
        (outside,) = _found(lab, file, "fault")
        assert "no work for lab2: in Slurm it is not in partition small" in outside["detail"]
        lab.run("scontrol", "update", "PartitionName=small", "State=DOWN", "Nodes=lab[0-2]")
        (down,) = _found(lab, file, "fault")
        assert "no work for lab0, lab1, lab2: " in down["detail"]
        assert "partition small, which is down" in down["detail"]
        lab.run("scontrol", "update", "PartitionName=small", "State=UP")
        lab.run("scontrol", "update", "NodeName=lab1", "State=DRAIN", "Reason=fan")
        away, _ = _found(lab, file, "warning", "fault")
        assert (away["level"], away["detail"]) == (
            "warning", "no work for lab1: in Slurm it is drained: fan",
        )  # fmt: skip
    finally:
        lab.run("scontrol", "update", "NodeName=lab1", "State=RESUME")
        lab.run("scontrol", "delete", "PartitionName=small")
        lab.until(lambda: set(lab.states().values()) == {"idle"}, "a host stays closed")


@pytest.mark.slow
def test_types_that_slurm_does_not_show_are_tried() -> None:
    """Its GPUs have no type: a job that asks for one is refused, whatever it is."""
    if reason := missing():
        pytest.skip(reason)
    with slurm_cluster("bare", nodes=1, gpu_type="") as lab:
        cluster = ClusterSpec("hpc", (HostSpec("bare0", "H100", 8),), "slurm")
        options = SlurmOptions(conf=str(lab.conf))
        (submit,) = [one for one in examine(cluster, options) if one.level is Level.FAULT]
        assert "Requested node configuration is not available" in submit.detail
        assert "option `gpu.MODEL" in submit.detail
        mapped = structs.replace(options, gpu={"H100": "any"})
        assert not [one for one in examine(cluster, mapped) if one.level is Level.FAULT]


def _found(lab: SlurmCluster, fleet: Path, *levels: str) -> list[dict[str, str]]:
    argv = [str(Path(sys.executable).with_name("topmast")), "doctor", "--json"]
    done = subprocess.run(
        [*argv, "--fleet", str(fleet), "--state", str(fleet.with_name("state"))],
        env=lab.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    return [found for found in findings if found["level"] in levels]
