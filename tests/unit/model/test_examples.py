"""The examples and the reference: what they show is accepted, and tells the truth."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from topmast.model.files import fleetfile, hosts, jobfile, tenants
from topmast.model.files.fleetfile import parse_fleet, read_fleet
from topmast.model.files.jobfile import faults_in_fleet, parse_job, read_job

REPO = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((REPO / "examples").glob("*.yaml"))
FLEETS = [path for path in EXAMPLES if "fleet" in path.name]
JOBS = [path for path in EXAMPLES if path not in FLEETS]
REFERENCE = REPO / "docs" / "reference"


def blocks(page: str) -> list[str]:
    """The YAML blocks of a page of the reference."""
    text = (REFERENCE / page).read_text("utf-8")
    return re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    """The tests below have something to test."""
    assert JOBS
    assert FLEETS


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.name)
def test_example_fleets(path: Path) -> None:
    """Each has several regions, and data in them."""
    fleet = read_fleet(path)
    assert len(fleet.regions) >= 3
    assert fleet.datasets


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_example_jobs(path: Path) -> None:
    """Each is accepted, and can run on the example fleet with its data."""
    fleet = read_fleet(REPO / "examples" / "fleet.yaml")
    spec = read_job(path).spec
    tenants = [tenant.name for tenant in fleet.tenants]
    assert list(faults_in_fleet(spec, tenants, fleet.models())) == []
    assert set(spec.datasets) <= {dataset.name for dataset in fleet.datasets}


@pytest.mark.parametrize("block", blocks("job-file.md"))
def test_job_reference(block: str) -> None:
    """Every block of the page is a job file, or a part of one that lacks only `run`."""
    document: dict[str, Any] = yaml.safe_load(block)
    parse_job(document if "groups" in document else {"run": "x", **document})


@pytest.mark.parametrize("block", blocks("fleet-file.md"))
def test_fleet_reference(block: str) -> None:
    """Every block of the page is a fleet file, or a part of one that lacks only its regions."""
    whole = yaml.safe_load(blocks("fleet-file.md")[0])
    parse_fleet({"regions": whole["regions"], **yaml.safe_load(block)})


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("job-file.md", (*jobfile._JOB_FIELDS, *jobfile._GROUP_FIELDS, *jobfile._RESOURCE_FIELDS)),
        ("fleet-file.md", (
            *fleetfile._FLEET_FIELDS, *fleetfile._REGION_FIELDS, *fleetfile._CLUSTER_FIELDS,
            *fleetfile._LINK_FIELDS, *tenants._FIELDS, *fleetfile._DATASET_FIELDS,
            *hosts._FIELDS,
        )),
    ],
)  # fmt: skip
def test_the_reference_names_every_field(page: str, fields: tuple[str, ...]) -> None:
    """Each field has its row in a table."""
    text = (REFERENCE / page).read_text("utf-8")
    missing = [field for field in fields if f"| `{field}` |" not in text]
    assert not missing
