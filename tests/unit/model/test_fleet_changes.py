"""Differences of fleets, in the words of the fleet file."""

from msgspec.structs import replace

from tests.support.build import cluster, fleet
from topmast.model.fleet_changes import fleet_changes


def test_changes_of_a_host_are_told_as_the_file_has_them() -> None:
    """Sizes with their units, under the names that they have there."""
    spec = cluster("east-1", hosts=1, cpus=96.0, memory_bytes=1_024_000_000_000)
    (host,) = spec.hosts
    larger = replace(host, cpus=128.5, memory_bytes=0, gpus=16)
    found = fleet_changes(fleet(spec), fleet(replace(spec, hosts=(larger,))))
    assert [change.change for change in found] == [
        "gpus 8 -> 16", "cpus 96 -> 128.5", "memory 1024GB -> none",
    ]  # fmt: skip
    assert {change.what for change in found} == {"host east-1-0"}
