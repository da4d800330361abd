"""All errors of a file at once, none of them a mere consequence of another."""

from pathlib import Path

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.every import MAX_ERRORS
from topmast.model.files.fleetfile import read_fleet
from topmast.model.files.jobfile import read_job

RENTED = """\
name: tune
region: us-east-1
num_nodes: two
resources:
  cloud: aws
  accelerators: A100:8
  use_spot: true
  disk_size: 256
  ports: 8080
envs:
  TOKEN:
  LR: 1e-3
secrets: {HF_TOKEN: x}
run: python train.py
"""

JOBS = [
    pytest.param(
        RENTED,
        ["2 region", "3 num_nodes", "5 resources.cloud", "7 resources.use_spot", "8 resources.disk_size",
         "9 resources.ports", "11 envs.TOKEN", "13 secrets.HF_TOKEN", "0 "],
        id="a file for rented machines, with a last line that says so",
    ),
    pytest.param("nmae: a\ncpus: 3\n", ["1 nmae", "1 run", "2 cpus"], id="what is missing is told beside the rest"),
    pytest.param("command: python train.py\n", ["1 command"], id="run is not missing but misspelt"),
    pytest.param("run: 3\npriority: urgent\n", ["1 run", "2 priority"], id="a required field of the wrong type"),
    pytest.param("run: x\nresources: 8\n", ["2 resources"], id="a section that is none"),
    pytest.param(
        "groups:\n- {name: a, run: x, cuont: 2}\n- {name: b, run: x, count: 0}\n- {name: c}\n",
        ["2 groups[0].cuont", "3 groups[1].count", "4 groups[2].run"], id="every item of a list, by its own number",
    ),
    pytest.param(
        "groups:\n- {name: '?', run: x}\n- {name: '!', run: x}\n", ["2 groups[0].name", "3 groups[1].name"],
        id="two names that are none are not one name twice",
    ),
    pytest.param("groups: 3\nskew: 7\n", ["1 groups", "2 skew"], id="groups that are none leave no run missing"),
    pytest.param("run: x\ndatasets: [a, a, b, b]\n", ["2 datasets[1]", "2 datasets[3]"], id="two of a list"),
    pytest.param("run: x\nenvs: {A.B: 1, TOPMAST_X: 2, C: }\n", ["2 envs.A.B", "2 envs.TOPMAST_X", "2 envs.C"],
                 id="names with dots in them"),
    pytest.param("- run: x\n", ["1 "], id="no job at all"),
    pytest.param("".join(f"x{i}: 1\n" for i in range(50)), [f"{i + 1} x{i}" for i in range(MAX_ERRORS)],
                 id="as many as one can read"),
]  # fmt: skip

FLEET = """\
regions:
  east:
    storage: much
    clusters:
      east-1: {hosts: [{count: 2, gpu: H100, gpus: 8, cpus: many}], egnine: local}
  west:
    clusters:
      west-1: {hosts: [{count: 1, gpu: A100, gpus: -1}]}
      west-2: {hosts: [{count: 0, gpu: A100, gpus: 4}]}
  north:
    clusters: {}
links:
  - {from: east, to: west, gbps: 0}
  - {from: east, to: noth, gbps: 100}
tenants:
  vision: {quota: {H100: -1}, weight: 0}
"""

FLEETS = [
    pytest.param(
        FLEET,
        ["3 regions.east.storage", "5 regions.east.clusters.east-1.egnine",
         "5 regions.east.clusters.east-1.hosts[0].cpus", "8 regions.west.clusters.west-1.hosts[0].gpus",
         "9 regions.west.clusters.west-2.hosts[0].count", "11 regions.north.clusters", "13 links[0].gbps",
         "16 tenants.vision.weight", "16 tenants.vision.quota.H100"],
        id="everywhere at once, also in cross-references that hold or are not judged",
    ),
    pytest.param(
        "regions:\n  east: {clusters: {east-1: {}}}\n  west: {clusters: {w: {hosts: [{count: 1, gpu: A100, gpus: 1}]}}}\n"
        "links: [{from: east, to: west, gbps: 1}]\ntenants: {a: {quota: {H100: 1}}}\n",
        ["2 regions.east.clusters.east-1.hosts"], id="a region that is lost is not missed by others",
    ),
    pytest.param(
        "regions: {east: {clusters: {e: {hosts: [{count: 1, gpu: A100, gpus: 1}]}}}}\n"
        "links: [{from: east, to: wset, gbps: 1}]\ntenants: {a: {parent: b}}\n",
        ["2 links[0].to", "3 tenants.a.parent"], id="a link that is lost hides no tenant: no tenant is defined there",
    ),
    pytest.param(
        "regions: {east: {clusters: {e: {hosts: [{count: 1, gpu: A100, gpus: 1}]}}}}\n"
        "links: [{from: esat, to: wset, gbps: 1}, {from: east, to: nroth, gbps: 1}]\n"
        "datasets: {a: {replicas: [wset]}}\n",
        ["2 links[0].from", "2 links[0].to", "2 links[1].to", "3 datasets.a.size", "3 datasets.a.replicas[0]"],
        id="every name of a region that is not there",
    ),
    pytest.param(
        "regions: {east: {clusters: {e: {hosts: [{names: [a, a], gpu: A100, gpus: 1}]}}}}\n"
        "links: [{from: east, to: wset, gbps: much}, {from: east, to: east}]\n"
        "datasets: {a: {size: 1GB, replicas: [east, wset], allowed: [nroth]}}\n",
        ["1 regions.east.clusters.e.hosts[0].names[1]", "2 links[0].gbps", "2 links[0].to",
         "2 links[1].gbps", "3 datasets.a.replicas[1]", "3 datasets.a.allowed[0]"],
        id="a reference hides nothing of what it is in",
    ),
    pytest.param(
        "regions: {east: {clusters: {e: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}\ntenants:\n"
        "  product: {quota: {H100: 16}}\n  search: {parent: product, quota: {H100: 8}}\n"
        "  ads: {parent: product, quota: {H100: 16}}\n  big: {parent: product, quota: {H100: 17}}\n",
        ["3 tenants.product.quota.H100", "6 tenants.big.quota.H100"],
        id="a quota that is too small for those below it is told once",
    ),
    pytest.param("links: []\n", ["1 regions"], id="no fleet"),
]  # fmt: skip


def _told(path: Path, error: InvalidInput) -> list[str]:
    lines = []
    for one in (error, *error.more):
        assert one.line().isprintable()
        assert one.where.startswith(str(path))
        lines.append(f"{one.where.removeprefix(str(path)).strip(':') or 0} {one.field}")
    return lines


@pytest.mark.parametrize(("text", "want"), JOBS)
def test_every_error_of_a_job_file(tmp_path: Path, text: str, want: list[str]) -> None:
    """In the order of the lines, each once, each with its line and field."""
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_job(path)
    assert _told(path, refused.value) == want


@pytest.mark.parametrize(("text", "want"), FLEETS)
def test_every_error_of_a_fleet_file(tmp_path: Path, text: str, want: list[str]) -> None:
    """The same, and nothing about what refers to a part that could not be read."""
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_fleet(path)
    assert sorted(_told(path, refused.value)) == sorted(want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n", ":2: this looks like a Slurm batch script"),
        ("#PBS -l nodes=2\npython train.py\n", ":1: this looks like a PBS batch script"),
        ("#!/bin/sh\necho\n", ":1: this looks like a script"),
        ("apiVersion: batch/v1\nkind: Job\n", ":1: this looks like a Kubernetes object"),
        ("kind: Job\napiVersion: v1\n", ":2: this looks like a Kubernetes object"),
    ],
)  # fmt: skip
def test_files_for_others_are_named(tmp_path: Path, text: str, want: str) -> None:
    """What a file is, and what to write instead, in one line."""
    path = tmp_path / "theirs"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_job(path)
    assert refused.value.line().startswith(f"{path}{want} (write a job file")
    assert not refused.value.more


def test_a_script_within_a_job_is_no_script(tmp_path: Path) -> None:
    """Lines of a block that begin like those of a script are the job's own."""
    path = tmp_path / "job.yaml"
    path.write_text("run: |\n  #!/bin/bash\n  #SBATCH -N 2\n  echo\n")
    assert "#SBATCH" in read_job(path).spec.groups[0].run
