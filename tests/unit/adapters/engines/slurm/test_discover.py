"""A fleet file from what Slurm says, as recorded and made up."""

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from topmast.adapters.engines.far.discovery import Discovered, as_declared, fleet_document
from topmast.adapters.engines.far.slurm import SlurmOptions
from topmast.adapters.engines.far.slurm.discover import (
    describe,
    discover,
    read_nodes,
    read_switches,
)
from topmast.adapters.engines.far.slurm.examine import examine
from topmast.adapters.engines.registry import read_options
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Level
from topmast.traces.machines import fleet_text


@pytest.mark.parametrize(
    ("gres", "want"),
    [
        ("gpu:h100:8", {"h100": 8}),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", {"nvidia_h100_80gb_hbm3": 8}),
        ("gpu:8", {"": 8}),
        ("gpu:8(S:0,1),nic:2", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:4090:2", {"4090": 2}),
        ("gpu:a100:4,gpu:1g.10gb:7,mps:100", {"a100": 4, "1g.10gb": 7}),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", {"a100": 4}),
        ("gpu:a100:0", {}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gpus_of_a_host(gres: str, want: dict[str, int]) -> None:
    """With types or without, with sockets, beside other resources."""
    (node,) = read_nodes(f"n1|64|200000|main|10.0.0.1|{gres}\n")
    assert node.gpus == want
    assert (node.name, node.cpus, node.memory_mib) == ("n1", 64, 200000)
    assert node.address == "10.0.0.1"


def test_a_host_in_two_partitions_is_one_host() -> None:
    """sinfo lists it with each."""
    assert len(read_nodes("a|1|2|p|a|gpu:1\na|1|2|q|a|gpu:1\nb|1|2|q|b|gpu:1\n")) == 2


@pytest.mark.parametrize("line", ["a|1|2|p|a", "a|x|2|p|a|gpu:1", "sinfo: error"])
def test_an_answer_that_cannot_be_read_is_an_error(line: str) -> None:
    """Rather than a fleet with a host less."""
    with pytest.raises(InvalidInput, match="sinfo said"):
        read_nodes(f"a|1|2|p|a|gpu:1\n{line}\n")


def described(
    *gres: str, switches: dict[str, tuple[str, str]] | None = None, model: str = "", **options: Any
) -> Discovered:
    lines = [f"n{index}|64|1000000|main|n{index}|{text}" for index, text in enumerate(gres)]
    return describe(
        "hpc", read_nodes("\n".join(lines)), switches or {}, SlurmOptions(**options), model=model
    )


def fleet_hosts(found: Discovered) -> tuple[HostSpec, ...]:
    """What the reader of fleet files makes of it."""
    document = fleet_document(found, "slurm", region="east", cluster="hpc", options={})
    (region,) = parse_fleet(document).regions
    assert region.clusters[0].engine == "slurm"
    return region.clusters[0].hosts


def test_the_fleet_file_has_hosts_as_slurm_names_them() -> None:
    """Alike ones in one entry, racks and pods from switches, and a short name for a long type."""
    found = described(
        *["gpu:nvidia_h100_80gb_hbm3:8(S:0-1)"] * 3,
        "(null)",
        switches={"n0": ("leaf1", "spine"), "n1": ("leaf1", "spine"), "n2": ("leaf2", "")},
    )
    document = fleet_document(found, "slurm", region="east", cluster="hpc", options={"bin": "/x"})
    cluster = document["regions"]["east"]["clusters"]["hpc"]
    assert cluster["options"] == {
        "bin": "/x", "gpu.H100": "nvidia_h100_80gb_hbm3", "cpus_per_gpu": 8,
        "memory_mib_per_gpu": 125000,
    }  # fmt: skip
    assert [entry["names"] for entry in cluster["hosts"]] == [["n0", "n1"], ["n2"], ["n3"]]
    first, _, third, cpu = fleet_hosts(found)
    assert (first.name, first.model, first.gpus, first.gpu_memory_bytes) == (
        "n0",
        "H100",
        8,
        80 * 10**9,
    )
    assert (first.rack, first.pod, first.cpus, first.memory_bytes) == (
        "leaf1",
        "spine",
        64,
        1000000 << 20,
    )
    assert (third.rack, third.pod) == ("leaf2", "hpc-p0")
    assert (cpu.name, cpu.gpus, cpu.cpus) == ("n3", 0, 64)


@pytest.mark.parametrize(
    ("of_type", "want"),
    [
        ("h100", "H100"),
        ("nvidia_a100-sxm4-80gb", "A100"),
        ("tesla_v100s", "V100S"),
        ("nvidia_l40s", "L40S"),
        ("nvidia_gb200", "GB200"),
        ("amd_instinct_mi300x", "MI300X"),
        ("rtx_6000", "rtx_6000"),
        ("big", "big"),
    ],
)
def test_short_names_of_models(of_type: str, want: str) -> None:
    """So that one model has one name in a fleet of many sites."""
    found = described(f"gpu:{of_type}:2")
    assert found.hosts[0].model == want
    assert found.options.get(f"gpu.{want}", of_type) == of_type


def test_types_with_one_short_name_keep_their_own() -> None:
    """40 and 80 GB are not the same."""
    found = described("gpu:a100_40gb:8", "gpu:a100_80gb:8")
    assert [host.model for host in found.hosts] == ["a100_40gb", "a100_80gb"]
    assert not [name for name in found.options if name.startswith("gpu.")]


def test_options_that_are_given_are_kept_to() -> None:
    """Names of models, a prefix of hosts, CPUs and memory."""
    found = described(
        "gpu:big:8", gpu={"B200": "big"}, host_prefix="e-", cpus_per_gpu=2.0, memory_mib_per_gpu=1
    )
    assert (found.hosts[0].name, found.hosts[0].model, found.options) == ("e-n0", "B200", {})


def test_gpus_without_a_type_need_a_name() -> None:
    """The site does not say what they are."""
    with pytest.raises(InvalidInput, match="--gpu H100"):
        described("gpu:8")
    found = described("gpu:8", model="L4")
    assert (found.hosts[0].model, found.options["gpu.L4"]) == ("L4", "any")
    assert described("gpu:8", gpu={"L4": "any"}).hosts[0].model == "L4"


def test_a_host_with_two_models_is_left_out_and_told() -> None:
    """Hosts of a fleet have one."""
    found = described("gpu:a100:4,gpu:h100:4", "gpu:a100:8")
    assert [host.name for host in found.hosts] == ["n1"]
    assert found.left_out == ("n0: GPUs of types a100, h100; hosts have one model",)


def test_switches() -> None:
    """As recorded; what is no switch is passed over."""
    said = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=two[0-2]\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=two[0-4] Switches=leaf[1-2]\n"
        "BlockName=b1 BlockIndex=0 Nodes=two0\nnothing\n"
    )
    assert list(read_switches(said)) == [("leaf1", 0, "two[0-2]"), ("top", 1, "two[0-4]")]


@pytest.mark.parametrize(
    ("commands", "partition", "want"),
    [
        ({}, "", "option `bin`"),
        ({"sbatch": "echo slurm 22.05.1", "scontrol": "echo Unable to contact slurm controller >&2; exit 1"},
         "", "Unable to contact"),
        ({"sbatch": "echo slurm 22.05.1", "scontrol": "true", "sinfo": "true"}, "gpu",
         "no host in partition gpu"),
    ],
)  # fmt: skip
def test_a_site_that_does_not_answer_is_an_error(
    tmp_path: Path, commands: dict[str, str], partition: str, want: str
) -> None:
    """In one line, with what to do."""
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o700)
    with pytest.raises(InvalidInput, match=want):
        discover(SlurmOptions(bin=str(tmp_path)), partition)


@pytest.mark.parametrize(
    ("partition", "want"),
    [({"": "main"}, ""), ({"": "main", "vision": "gone"}, "gone"), ({"": "gone,away"}, "gone, away"),
     ({"vision": "main"}, "")],
)  # fmt: skip
def test_partitions_of_the_options_are_looked_for(
    tmp_path: Path, partition: dict[str, str], want: str
) -> None:
    """Hosts of others are not written; without one of its own a job goes where the site says."""
    options = structs.replace(site(tmp_path, "127.0.0.1"), partition=partition)
    (tmp_path / "sinfo").write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\necho "n0|64|1000|main*|127.0.0.1|gpu:h100:8"\n'
    )
    if want:
        with pytest.raises(InvalidInput) as raised:
            discover(options)
        assert raised.value.message == f"there is no host in partition {want}"
    else:
        assert [host.name for host in discover(options).hosts] == ["n0"]
    asked = (tmp_path / "asked").read_text()
    assert ("-p main" in asked) is ("main" in partition.get("", ""))


def own_address() -> str:
    """One of this machine, other than the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


def site(folder: Path, address: str, gres: str = "gpu:h100:8") -> SlurmOptions:
    """Commands of a site with one host, for a fleet of one H100 host."""
    discovered = f"n0|64|1000|main|{address}|{gres}"
    looked = f"n0@idle@main*@up@{gres}@none@"
    marked = 'for all; do :; done; mark=${all#%N}; mark=${mark%%"%"*}'
    for name, body in {
        "sbatch": "echo slurm 22.05.1", "scontrol": "true",
        "sinfo": f'{marked}; case "$*" in *%o*) echo "{discovered}";; '
        f'*) echo "{looked}" | sed "s/@/$mark/g";; esac',
    }.items():  # fmt: skip
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o700)
    return SlurmOptions(bin=str(folder), gpu={"H100": "h100"})


def test_a_site_elsewhere_is_told_where_to_call_home(tmp_path: Path) -> None:
    """By the address through which its hosts are reached; not if they are here, or it is given."""
    own, options = own_address(), site(tmp_path, own_address())
    found = discover(options)
    assert found.options["listen"] == f"{own}:0"
    assert "option `listen`" in found.notes[0]
    for given in ({"listen": "10.1.1.1:80"}, {"advertise": "here"}):
        found = discover(structs.replace(options, **given))
        assert ("listen" in found.options, found.notes) == (False, ()), given
    found = discover(site(tmp_path, "127.0.0.1"))
    assert ("listen" in found.options, found.notes) == (False, ())


def test_hosts_that_are_not_known_here_are_said_to_need_an_address(tmp_path: Path) -> None:
    """Rather than a cluster whose jobs never start."""
    found = discover(site(tmp_path, "n0.invalid"))
    assert "listen" not in found.options
    assert "set option `listen: ADDRESS:PORT`" in found.notes[0]


def test_addresses_of_hosts_that_were_left_out_are_not_written() -> None:
    """A fleet file with an address of no host is refused."""
    options = {"address.n0": "10.0.0.1", "address.n9": "10.0.0.2", "user": "me"}
    found = Discovered("metal", (HostSpec("n0", "H100", 8),), left_out=("n9: it does not answer",))
    document = fleet_document(found, "ssh", region="r", cluster="c", options=options)
    written = document["regions"]["r"]["clusters"]["c"]["options"]
    assert written == {"address.n0": "10.0.0.1", "user": "me"}


def test_numbers_are_written_as_numbers() -> None:
    """Also those that were given; names that look like one are none."""
    given = {"lease_s": "none", "cpus_per_gpu": "4", "gpu.H100": "100", "exclusive": "true"}
    options = read_options(given, SlurmOptions, engine="slurm", field="--set")
    declared = as_declared(given, options)
    found = described("gpu:100:8", gpu={"H100": "100"})
    document = fleet_document(found, "slurm", region="e", cluster="c", options=declared)
    text = fleet_text(document)
    for want in ("cpus_per_gpu: 8", "memory_mib_per_gpu: 125000", "exclusive: true", "H100: '100'"):
        assert want in text
    (region,) = parse_fleet(yaml.safe_load(text)).regions
    assert region.clusters[0].options["cpus_per_gpu"] == "8"


@pytest.mark.parametrize(
    ("gres", "address", "want"),
    [
        ("gpu:h100:8", "127.0.0.1", set()),
        ("gpu:tesla:8", "127.0.0.1", {"no work for n0: in Slurm it has GPUs of type tesla, and jobs ask for h100 "
                         "(set option `gpu.H100: tesla`)"}),
        ("gpu:h100:8", "", {"no host reaches 127.0.0.1:0 of this machine"}),
    ],
)  # fmt: skip
def test_a_doctor_tells_what_jobs_would_not_get(
    tmp_path: Path, gres: str, address: str, want: set[str]
) -> None:
    """Their GPUs, and a way home."""
    cluster = ClusterSpec("c", (HostSpec("n0", "H100", 8),), "slurm")
    findings = examine(cluster, site(tmp_path, address or own_address(), gres))
    assert {found.detail for found in findings if found.level is Level.FAULT} == want
