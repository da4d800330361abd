"""The forms of texts that far engines take: other texts are refused when a fleet is read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.far.slurm import SlurmOptions
from topmast.adapters.engines.far.ssh import SshOptions
from topmast.adapters.engines.registry import check_engines, examine, read_options
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.policies.registry import load_profile
from topmast.ports import Level

TYPES: dict[str, type[FarOptions]] = {
    "slurm": SlurmOptions,
    "ssh": SshOptions,
    "kubernetes": KubernetesOptions,
}
FAR = tuple(TYPES)
PROFILE = load_profile("mast")


def _read(engine: str, name: str, text: str) -> object:
    return read_options({name: text}, TYPES[engine], engine=engine, field="options")


WRONG = [
    (FAR, "listen", ["127.0.0.1:99999", "127.0.0.1:-1", "foo", "", "h:", "h:+1", "a b:1", "h:\u00b2"],
     "HOST:PORT with a port from 0 to 65535"),
    (FAR, "advertise", ["x:y", "http://x:1", "x:0", "x:65536", "x:", ":1", "a b", "[x]:1"],
     "HOST or HOST:PORT"),
    (("ssh",), "jump", ["root@gate:99999", "x y", "a@:b", "gate,", "@gate", "gate:0", "gate:"],
     r"\[USER@\]HOST\[:PORT\]"),
    (FAR, "work", ["~", "~/x", "scratch", "/", "//", "/.", "/tmp/..", "/a\nb"], "begins with /"),
    (FAR, "cache", ["~", "cache", "/"], "begins with /"),
    (("ssh",), "folder", ["", "/", "~", "~/", ".", "..", "../x", "/tmp/..", "~root"], "of its own"),
    (("slurm",), "time_limit", ["7d", "abc", "1:2:3:4", "1-", "-1", "1-2:3:4:5", "9" * 10],
     "as `sbatch --time` takes it"),
    (("slurm",), "memory_mib_per_gpu", ["1" + "0" * 30, "-1"], "Expected|out of range"),
    (FAR, "python", ["", "python3 -X dev", "-c", "\t"], "a path or a name of a program"),
    (("kubernetes",), "namespace", ["a/b", "../x", "UPPER", "a.b", "-a", "a" * 64],
     "name of a namespace"),
    (("kubernetes",), "pull_secret", ["A B", "a_b", ".a", "a" * 254], "an object of Kubernetes"),
    (("kubernetes",), "runtime_class", ["NOPE X"], "an object of Kubernetes"),
    (("kubernetes",), "priority_class", ["High"], "an object of Kubernetes"),
    (("kubernetes",), "tolerate", ["a b=c:d", "x:Foo", "=v", "a=b c", ":NoSchedule"],
     r"KEY\[=VALUE\]\[:EFFECT\]"),
    (("kubernetes",), "mount./data", ["A B", "a/b", ""], "a claim of a volume"),
    *[
        (("kubernetes",), f"mount.{path}", ["datasets"], "wanted a path as /data")
        for path in ("data", "/", "/a/../b", "/a:b", "/data/", "//data", "~", "/a\nb", "/dev/shm",
                     "/var/run/topmast/x", "/run/topmast", "/var", "/run", "/dev", "/proc/x",
                     "/sys")
    ],
    (("kubernetes",), "work", ["/dev/shm", "//dev//shm/", "/var/run/topmast/x", "/proc", "/a:b"],
     "not below one of /dev"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "name", "text", "want"),
    [(engine, name, text, want) for engines, name, texts, want in WRONG
     for engine in engines for text in texts],
)  # fmt: skip
def test_a_text_of_another_form_is_refused(engine: str, name: str, text: str, want: str) -> None:
    """The error names the option and says what it wants."""
    with pytest.raises(InvalidInput, match=want) as caught:
        _read(engine, name, text)
    assert caught.value.field == f"options.{name}"


@pytest.mark.parametrize(
    ("engines", "name", "texts"),
    [
        (FAR, "listen", ["127.0.0.1:0", ":65535", "[::1]:80", "::1:80", "login-1.site:6000",
                         "unix:", "unix:/run/x y"]),
        (FAR, "advertise", ["", "login", "login.site:1", "10.0.0.1:65535", "::1", "[::1]",
                            "[fe80::1]:80"]),
        (("ssh",), "jump", ["", "gate", "root@gate:22", "a@b@gate", "one, me@two:2222"]),
        (FAR, "work", ["", "/scratch", "/a/b c/", "//x", "/a/.b"]),
        (FAR, "cache", ["", "/local/cache"]),
        (("ssh",), "folder", [".topmast-ssh", "/var/x", "~/x", "~me/x", "a/b"]),
        (("slurm",), "time_limit", ["", "90", "90:00", "1:30:00", "7-0", "7-12:30", "7-12:30:00",
                                    "UNLIMITED"]),
        (("slurm",), "memory_mib_per_gpu", ["0", "2000000"]),
        (FAR, "python", ["python3", "/opt/py/bin/python3.11", "venv/bin/python"]),
        (("kubernetes",), "pull_secret", ["", "registry", "team.registry-1"]),
        (("kubernetes",), "tolerate", ["", "a", "nvidia.com/gpu", "a=b:NoSchedule, c", "a=:NoExecute",
                                       "x.y/Z_w=1.2"]),
    ],
)  # fmt: skip
def test_a_text_of_the_form_is_taken(engines: tuple[str, ...], name: str, texts: list[str]) -> None:
    """As it is written."""
    for engine in engines:
        for text in texts:
            assert str(getattr(_read(engine, name, text), name)) == text


def test_a_path_is_shown_one_claim() -> None:
    """By the path that is written; without one, the error says that it lacks."""
    options = _read("kubernetes", "mount./data/v1.2", "sets")
    assert isinstance(options, KubernetesOptions)
    assert options.mount == {"/data/v1.2": "sets"}
    spec = fleet(replace(cluster("k8s", 1), engine="kubernetes", options={"mount": "sets"}))
    with pytest.raises(InvalidInput, match="does not say of what") as caught:
        check_engines(spec)
    assert "mount.PATH" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"mount./tmp": "sets"}, "/tmp"),
        ({"mount./scratch": "sets", "work": "/scratch"}, "/scratch"),
        ({"mount./scratch/a": "sets", "work": "//scratch//a/"}, "/scratch/a"),
    ],
)
def test_a_claim_is_not_mounted_over_the_work_folders(options: dict[str, str], at: str) -> None:
    """Kubernetes would refuse each pod, or show only one of the two."""
    spec = fleet(replace(cluster("k8s", 1), engine="kubernetes", options=options))
    with pytest.raises(InvalidInput, match=f"each pod has a folder of its own at {at}") as caught:
        check_engines(spec)
    assert caught.value.field.endswith(f"k8s.options.mount.{at}")
    assert "another path" in caught.value.remedy


@pytest.mark.parametrize(
    "options",
    [
        {"mount./tmp": "sets", "work": "/scratch"},
        {"mount./tmp/sets": "sets"},
        {"mount./scratch": "sets", "work": "/scratch/work"},
    ],
)
def test_a_claim_may_be_beside_above_or_below_the_work_folders(options: dict[str, str]) -> None:
    """The container has both."""
    check_engines(fleet(replace(cluster("k8s", 1), engine="kubernetes", options=options)))


FAULTY = """
regions:
  east:
    clusters:
      hpc:
        engine: slurm
        options:
          listen: foo
          time_limit: 7d
          python: ""
        hosts: [{count: 1, gpu: H100, gpus: 8}]
      metal:
        engine: ssh
        options: {folder: "~", jump: x y}
        hosts: [{count: 1, gpu: H100, gpus: 8}]
"""


def test_all_of_a_fleet_file_are_told_at_once(tmp_path: Path) -> None:
    """Each with its line and its option."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FAULTY)
    with pytest.raises(InvalidInput) as caught:
        read_fleet(path, check_engines)
    told = [(one.where, one.field) for one in (caught.value, *caught.value.more)]
    hpc, metal = (f"regions.east.clusters.{name}.options" for name in ("hpc", "metal"))
    assert told == [
        (f"{path}:8", f"{hpc}.listen"),
        (f"{path}:9", f"{hpc}.time_limit"),
        (f"{path}:10", f"{hpc}.python"),
        (f"{path}:14", f"{metal}.folder"),
        (f"{path}:14", f"{metal}.jump"),
    ]


OF_NOTHING = """
regions:
  east:
    clusters:
      hpc:
        engine: slurm
        options:
          partition: big
          partition.: z
          gpu.H200: h200
          gpu.: x
          gpu.H100: ""
          partition.visoin: small
        hosts: [{count: 1, gpu: H100, gpus: 8}]
      bare:
        engine: slurm
        options: {gpu: y}
        hosts: [{count: 1, gpu: H100, gpus: 8}]
      metal:
        engine: ssh
        options: {address.gohst: 10.0.0.1, address.ghost: 10.0.0.2, address.h: "a b"}
        hosts: [{names: [ghost, h], gpu: H100, gpus: 8}]
      pods:
        engine: kubernetes
        options: {resource.A100: x/y, resource: x/z, mount./data: sets}
        hosts: [{count: 1, gpu: H100, gpus: 8}]
tenants: {vision: {}}
"""


def test_an_option_for_what_the_cluster_does_not_have_is_refused(tmp_path: Path) -> None:
    """With the near name; a tenant may come later, and is no fault."""
    path = tmp_path / "fleet.yaml"
    path.write_text(OF_NOTHING)
    with pytest.raises(InvalidInput) as caught:
        read_fleet(path, check_engines)
    errors = (caught.value, *caught.value.more)
    told = {one.field.removeprefix("regions.east.clusters."): one for one in errors}
    want = {
        "hpc.options.gpu.H200": "GPUs of this model (did you mean 'H100'?)",
        "hpc.options.gpu.": "it does not say of what (write gpu.MODEL)",
        "bare.options.gpu": "it does not say of what (write gpu.MODEL)",
        "hpc.options.gpu.H100": "wanted text that is not empty, found ''",
        "hpc.options.partition.": "it does not say of what (write partition.TENANT)",
        "metal.options.address.gohst": "no such host (did you mean 'ghost'?)",
        "metal.options.address.h": "without a port, found 'a b'",
        "pods.options.resource.A100": "GPUs of this model (did you mean 'H100'?)",
    }
    assert set(told) == set(want)
    for field, end in want.items():
        assert told[field].line().endswith(end), told[field].line()


OF_TENANT = """
regions:
  east:
    clusters:
      hpc:
        engine: slurm
        options: {{partition.visoin: small, bin: /none}}
        hosts: [{{count: 1, gpu: H100, gpus: 8}}]
tenants: {tenants}
"""


def test_doctor_warns_of_a_tenant_that_the_file_does_not_have(tmp_path: Path) -> None:
    """It may be in a file of its own; a file without tenants says nothing of them."""
    path = tmp_path / "fleet.yaml"
    for tenants, want in (
        ("{vision: {}}", [(Level.WARNING, "did you mean 'vision'?")]),
        ("{}", []),
    ):
        path.write_text(OF_TENANT.format(tenants=tenants))
        found = [finding for _, finding in examine(read_fleet(path, check_engines), PROFILE)]
        warned = [one for one in found if one.what == "options.partition.visoin"]
        assert [(one.level, one.remedy) for one in warned] == want


def test_doctor_names_the_option_of_a_cluster() -> None:
    """As the start of a server does, in words that are not those of a library."""
    told = fleet(replace(cluster("hpc"), engine="slurm", options={"memory_mib_per_gpu": "1.5"}))
    ((where, finding),) = examine(told, PROFILE)
    assert (where, finding.what) == ("hpc", "options.memory_mib_per_gpu")
    assert finding.detail == "'1.5': Expected `int`"


@pytest.mark.parametrize("text", ["inf", "1e300"])
def test_no_number_of_cpus_is_endless(text: str) -> None:
    """Slurm is told a whole number."""
    with pytest.raises(InvalidInput, match="<= 65536"):
        _read("slurm", "cpus_per_gpu", text)
