"""The job file: what people write, and what they are told when it cannot be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import (
    JobFile,
    dump_job,
    faults_in_fleet,
    parse_job,
    read_job,
)
from topmast.model.job import (
    Accelerator,
    Band,
    Checkpoint,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)

GB = 10**9
DIGEST = "sha256:" + "0123456789abcdef" * 4

WHOLE = """
name: resnet
tenant: vision
num_nodes: 2
resources:
  accelerators: H100:8
  cpus: 32+
  memory: 256+
priority: high
envs: {LR: "0.1"}
workdir: .
datasets: [imagenet]
topology: {preferred: rack}
checkpoint: {path: ckpt, interval: 10m, grace: 60s}
time_limit: 12h
max_restarts: 5
preemptible: false
group: nightly-resnet
setup: pip install -r requirements.txt
run: python train.py
"""


def read(tmp_path: Path, text: str, name: str = "job.yaml") -> JobFile:
    (tmp_path / name).write_text(text)
    return read_job(tmp_path / name)


def spec_of(**fields: Any) -> JobSpec:
    return parse_job({"run": "x", **fields}).spec


def test_a_job_with_every_field(tmp_path: Path) -> None:
    """Each field goes where the rest of the system looks for it."""
    resources = Resources((Accelerator("H100", 8000),), cpus=32.0, memory_bytes=256 * GB)
    spec = JobSpec(
        name="resnet",
        groups=(
            TaskGroup("main", 2, resources, "python train.py", "pip install -r requirements.txt"),
        ),
        tenant="vision",
        band=Band.HIGH,
        envs={"LR": "0.1"},
        datasets=("imagenet",),
        topology=Topology(preferred=Level.RACK),
        checkpoint=Checkpoint("ckpt", 600.0, 60.0),
        time_limit_s=43200.0,
        max_restarts=5,
        preemptible=False,
        group="nightly-resnet",
    )
    assert read(tmp_path, WHOLE) == JobFile(spec, ".")


def test_a_job_of_one_line(tmp_path: Path) -> None:
    """`run` is enough: one task without GPUs, named for its file, all defaults."""
    want = JobSpec(name="hello", groups=(TaskGroup("main", 1, Resources(), "echo hi"),))
    assert read(tmp_path, "run: echo hi", "hello.yaml") == JobFile(want, None)


@pytest.mark.parametrize(
    ("file", "want"),
    [
        ("train.job.yaml", "train.job"),
        ("my job (2).yaml", "my-job-2"),
        (".hidden.yaml", "hidden"),
        ("---.yaml", "job"),
        ("é.yaml", "job"),
        ("x" * 200 + ".yaml", "x" * 100),
    ],
)
def test_the_name_of_the_file_becomes_a_name(tmp_path: Path, file: str, want: str) -> None:
    """Whatever the file is called, the job's name is one."""
    assert read(tmp_path, "run: x", file).spec.name == want


def test_who_asks() -> None:
    """The caller's tenant is the default; the user is whoever the caller is."""
    found = parse_job({"run": "x"}, tenant_default="vision", user="ada").spec
    assert (found.tenant, found.user) == ("vision", "ada")
    assert parse_job({"run": "x", "tenant": "nlp"}, tenant_default="vision").spec.tenant == "nlp"


def test_fields_without_a_value_are_left_out(tmp_path: Path) -> None:
    """`setup:` with nothing behind it means no setup."""
    empty = "name:\nsetup:\nenvs:\nresources: {cpus: , accelerators: }\ntopology:\nrun: x"
    assert read(tmp_path, empty) == read(tmp_path, "run: x")


def test_task_groups() -> None:
    """Groups keep their order; `resources` and `setup` of the top are for those without."""
    found = spec_of(
        run=None,
        setup="make",
        resources={"cpus": 4},
        groups=[
            {"name": "trainer", "count": 8, "resources": {"accelerators": "H100:8"}, "run": "t"},
            {"name": "reader", "count": 32, "run": "r", "setup": "true"},
            {"name": "eval", "run": "e"},
        ],
    )
    assert found.groups == (
        TaskGroup("trainer", 8, Resources((Accelerator("H100", 8000),)), "t", "make"),
        TaskGroup("reader", 32, Resources(cpus=4.0), "r", "true"),
        TaskGroup("eval", 1, Resources(cpus=4.0), "e", "make"),
    )


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("H100:8", [("H100", 8000, 1.0)]),
        ("H100", [("H100", 1000, 1.0)]),
        ("A100:0.5", [("A100", 500, 1.0)]),
        ("A100:0.125", [("A100", 125, 1.0)]),
        ("A100:1.0", [("A100", 1000, 1.0)]),
        ("A100-80GB:2", [("A100-80GB", 2000, 1.0)]),
        ('"Tesla V100: 2"', [("Tesla V100", 2000, 1.0)]),
        ("{H100: 8, A100: 4}", [("H100", 8000, 1.0), ("A100", 4000, 1.0)]),
        ("{A100: 4, H100: 8}", [("A100", 4000, 1.0), ("H100", 8000, 1.0)]),
        ("{H100:8, A100:4}", [("H100", 8000, 1.0), ("A100", 4000, 1.0)]),
        ("{H100, A100}", [("H100", 1000, 1.0), ("A100", 1000, 1.0)]),
        ("{A100: 0.25}", [("A100", 250, 1.0)]),
        (
            "{H100: {count: 8, speed: 1.0}, A100: {count: 8, speed: 0.6}}",
            [("H100", 8000, 1.0), ("A100", 8000, 0.6)],
        ),
        ("{H100: {speed: 2}}", [("H100", 1000, 2.0)]),
        ("[H100:8, A100:4]", [("H100", 8000, 1.0), ("A100", 4000, 1.0)]),
        ("8", [(None, 8000, 1.0)]),
        ("'8'", [(None, 8000, 1.0)]),
        ("0.5", [(None, 500, 1.0)]),
        ("1080:2", [("1080", 2000, 1.0)]),
        ("0", []),
        ("", []),
        ("65536", [(None, 65_536_000, 1.0)]),
    ],
)
def test_accelerators(
    tmp_path: Path, written: str, want: list[tuple[str | None, int, float]]
) -> None:
    """Every spelling becomes choices in order of preference."""
    found = read(tmp_path, f"run: x\nresources: {{accelerators: {written}}}").spec
    assert found.groups[0].resources.accelerators == tuple(Accelerator(*choice) for choice in want)


@pytest.mark.parametrize(
    ("field", "written", "want"),
    [
        ("priority", "critical", {"band": Band.CRITICAL}),
        ("priority", 300, {"band": Band.HIGH}),
        ("priority", 0, {"band": Band.OPPORTUNISTIC}),
        ("priority", "100", {"band": Band.LOW}),
        ("envs", {"A": 1, "B_2": 0.5, "_c": ""}, {"envs": {"A": "1", "B_2": "0.5", "_c": ""}}),
        ("envs", {"TEXT": "a\nb $HOME é"}, {"envs": {"TEXT": "a\nb $HOME é"}}),
        ("datasets", ["a", {"name": "b", "access": "read"}], {"datasets": ("a", "b")}),
        ("datasets", [{"name": "b"}], {"datasets": ("b",)}),
        ("topology", {"required": "pod", "preferred": "rack"}, {
            "topology": Topology(Level.POD, Level.RACK)
        }),
        ("checkpoint", {"path": "./a//b/"}, {"checkpoint": Checkpoint("a/b")}),
        ("checkpoint", {"grace": 0}, {"checkpoint": Checkpoint(grace_s=0.0)}),
        ("time_limit", 90, {"time_limit_s": 90.0}),
        ("max_restarts", 0, {"max_restarts": 0}),
        ("workdir", DIGEST, {"workdir": DIGEST}),
        ("name", 2024, {"name": "2024"}),
    ],
)  # fmt: skip
def test_one_field(field: str, written: object, want: dict[str, Any]) -> None:
    """Each spelling of a field that means something."""
    found = spec_of(**{field: written})
    assert {name: getattr(found, name) for name in want} == want


def test_numbers_in_envs_stay_as_written(tmp_path: Path) -> None:
    """A learning rate is not rewritten on its way."""
    found = read(tmp_path, "run: x\nenvs: {LR: 1.50e-3, ZIP: 00123, BIG: 1234567890123456789012}")
    assert found.spec.envs == {"LR": "1.50e-3", "ZIP": "00123", "BIG": "1234567890123456789012"}


def test_a_folder_and_a_digest() -> None:
    """A folder is for the client to snapshot; a digest is a snapshot that is there already."""
    assert parse_job({"run": "x", "workdir": "src"}) == JobFile(spec_of(name="job"), "src")
    assert parse_job({"run": "x", "workdir": DIGEST}).workdir is None


# ------------------------------------------------------------------------------------- refusals


@dataclass(frozen=True)
class Case:
    """A job file, and what its author must be told."""

    story: str
    text: str
    want_field: str
    want_words: tuple[str, ...]
    want_line: int


def bad(story: str, text: str, field: str, *words: str, line: int = 2) -> Case:
    """A case whose file begins with a good line."""
    return Case(story, f"run: x\n{text}", field, words, line)


def bad_gpus(story: str, written: str, *words: str) -> Case:
    return bad(story, f"resources: {{accelerators: {written}}}", "resources.accelerators", *words)


SHAPES = [
    Case("not a mapping", "[a]", "", ("wanted a mapping, found a list",), 1),
    Case("plain text", "python train.py", "", ("wanted a mapping", "'python train.py'"), 1),
    Case("nothing to run", "name: a\n", "run", ("missing", "run: python train.py"), 1),
    Case("blank run", "run: '  '", "run", ("must not be empty",), 1),
    Case("run is a list", "run: [a, b]", "run", ("wanted text, found a list", "begins with '|'"), 1),
    Case("setup is a list", "setup: [a, b]\nrun: x", "setup", ("found a list", "begins with '|'"), 1),
    Case("run is a number", "run: 7", "run", ("wanted text, found the number 7", '"7"'), 1),
    Case("run is too long", f"run: {'x' * 100_001}", "run", ("longer than 100,000 bytes",), 1),
    bad("a typing error", "resources:\n  acelerators: H100", "resources.acelerators",
        "unknown field", "did you mean 'accelerators'?", line=3),
    bad("another", "priorty: high", "priorty", "did you mean 'priority'?"),
    bad("in capitals", "Name: x", "Name", "did you mean 'name'?"),
    bad("far from any", "zzz: 1", "zzz", "unknown field", "one of: name, tenant"),
    bad("a field that is not printable", '"\\e[31m": 1', "'\\x1b[31m'", "unknown field"),
    bad("a name with a space", "name: my job", "name", "'my job' is not a name", "letters"),
    bad("a name that leaves", "name: ../x", "name", "is not a name"),
    bad("a name of dots", "name: ..", "name", "is not a name"),
    bad("a long name", f"name: {'x' * 129}", "name", "longer than 128 characters"),
    bad("a name that is a list", "name: [a]", "name", "wanted a name, found a list"),
    bad("a tenant with a slash", "tenant: a/b", "tenant", "'a/b' is not a name"),
    bad("a tag with a newline", 'group: "a\\nb"', "group", "'a\\nb' is not a name"),
]  # fmt: skip

FIELDS = [
    bad("no such band", "priority: hi", "priority", "'hi' is not a priority", "did you mean 'high'"),
    bad("no such number", "priority: 250", "priority", "'250' is not a priority", "critical"),
    bad("a band that is a list", "priority: [high]", "priority", "wanted a priority"),
    bad("envs that are a list", "envs: [A=1]", "envs", "wanted a mapping, found a list"),
    bad("a variable with a dash", "envs: {A-B: 1}", "envs.A-B", "not the name of an env"),
    bad("a variable with a line", 'envs: {"A\\nB": 1}', "envs.'A\\nB'", "not the name"),
    bad("our own variable", "envs: {TOPMAST_RANK: 1}", "envs.TOPMAST_RANK", "set by Topmast"),
    bad("a truth value", "envs:\n  A: true", "envs.A", "found true", 'quote it: "true"', line=3),
    bad("no value", "envs: {A: }", "envs.A", "wanted text or a number, found nothing"),
    bad("a list as value", "envs: {A: [1]}", "envs.A", "wanted text or a number, found a list"),
    bad("infinity", "envs: {A: .inf}", "envs.A", "finite", 'quote it: ".inf"'),
    bad("a large variable", f"envs: {{A: {'x' * 64_001}}}", "envs.A", "longer than 64,000 bytes"),
    bad("too many bytes", "envs:\n" + "".join(f" A{i}: {'x' * 60_000}\n" for i in range(5)),
        "envs", "the variables take 300,010 bytes", "at most 256,000", line=3),
    bad("too many variables", "envs:\n" + "".join(f" A{i}: 1\n" for i in range(1001)),
        "envs", "has 1,001 entries", "at most 1,000", line=3),
    bad("a workdir of a repository", "workdir: {url: x}", "workdir", "wanted text"),
    bad("a bad digest", "workdir: sha256:abc", "workdir", "not a digest"),
    bad("a workdir with a bell", 'workdir: "a\\a"', "workdir", "not a usable path"),
    bad("datasets in words", "datasets: imagenet", "datasets", "wanted a list", "[a, b]"),
    bad("a dataset twice", "datasets: [a, b, a]", "datasets[2]", "'a' is listed twice"),
    bad("an opportunistic job that would not make way",
        "priority: opportunistic\npreemptible: false", "preemptible", "make way", "priority", line=3),
    bad("datasets that tasks could not tell apart", "datasets: [a-b, a.b]", "datasets[1]",
        "both by TOPMAST_DATASET_A_B", "another name"),
    bad("a dataset to write", "datasets: [{name: a, access: write}]", "datasets[0].access",
        "'write' is not yet supported", "access: read"),
    bad("a dataset without a name", "datasets: [{access: read}]", "datasets[0].name", "missing"),
    bad("an empty dataset", "datasets: [{}]", "datasets[0]", "wanted a name, found a mapping"),
    bad("a dataset with a path", "datasets: [{name: a, path: /x}]", "datasets[0].path", "unknown"),
    bad("a topology in a word", "topology: rack", "topology", "fields: required, preferred"),
    bad("no such level", "topology: {required: racks}", "topology.required",
        "not a level of the topology", "did you mean 'rack'?"),
    bad("a checkpoint outside", "checkpoint: {path: ../x}", "checkpoint.path", "leaves its folder"),
    bad("inside and out", "checkpoint: {path: a/../../x}", "checkpoint.path", "leaves"),
    bad("an absolute checkpoint", "checkpoint: {path: /x}", "checkpoint.path", "leaves"),
    bad("a checkpoint at home", "checkpoint: {path: ~/x}", "checkpoint.path", "leaves"),
    bad("home, hidden", "checkpoint: {path: ./~/x}", "checkpoint.path", "names no file"),
    bad("a checkpoint of dots", "checkpoint: {path: ./.}", "checkpoint.path", "names no file"),
    bad("no interval", "checkpoint: {interval: 0}", "checkpoint.interval", "longer than 0s"),
    bad("a long grace", "checkpoint: {grace: 25h}", "checkpoint.grace", "at most 24h"),
    bad("a negative grace", "checkpoint: {grace: -1}", "checkpoint.grace", "'-1' is not a dur"),
    bad("no time", "time_limit: 0s", "time_limit", "longer than 0s"),
    bad("not a time", "time_limit: soon", "time_limit", "'soon' is not a duration", "1h30m"),
    bad("endless", "time_limit: .inf", "time_limit", "'.inf' is not a duration"),
    bad("a list of times", "time_limit: [1h]", "time_limit", "wanted a duration", "found a list"),
    bad("negative restarts", "max_restarts: -1", "max_restarts", "-1 is out of range", "from 0"),
    bad("half a restart", "max_restarts: 1.5", "max_restarts", "wanted a whole number"),
    bad("restarts in words", "max_restarts: three", "max_restarts", "found text 'three'"),
    bad("restarts that are true", "max_restarts: true", "max_restarts", "found true"),
    bad("yes", "preemptible: yes", "preemptible", "wanted true or false", "write true"),
    bad("one", "preemptible: 1", "preemptible", "wanted true or false, found the number 1"),
]  # fmt: skip

SIZES = [
    bad("no tasks", "num_nodes: 0", "num_nodes", "the number 0 is out of range", "from 1 to 100,000"),
    bad("negative", "num_nodes: -1", "num_nodes", "-1 is out of range"),
    bad("a gang of a billion", "num_nodes: 1000000000", "num_nodes", "out of range"),
    bad("a gang of very many", f"num_nodes: {'9' * 1000}", "num_nodes", "too large"),
    bad("half a task", "num_nodes: 1.5", "num_nodes", "wanted a whole number, found the number 1.5"),
    bad("not a number", "num_nodes: .nan", "num_nodes", "wanted a whole number"),
    bad("too many GPUs", "num_nodes: 100\nresources: {accelerators: 10001}", "num_nodes",
        "asks for 1,000,100 GPUs", "at most 1,000,000"),
    bad("in any of the choices", "num_nodes: 100\nresources: {accelerators: [A, 'B:10001']}",
        "num_nodes", "1,000,100 GPUs"),
    bad("CPUs in words", "resources: {cpus: many}", "resources.cpus", "not a number of CPUs"),
    bad("negative CPUs", "resources: {cpus: -1}", "resources.cpus", "'-1' is not a number of CPUs"),
    bad("endless CPUs", "resources: {cpus: 1e999}", "resources.cpus", "too large"),
    bad("CPUs with units", "resources: {cpus: 4x}", "resources.cpus", "32, 32+ or 0.5"),
    bad("memory in words", "resources: {memory: lots}", "resources.memory", "256, 256+, 64GiB"),
    bad("memory in small", "resources: {memory: 4gb}", "resources.memory", "did you mean 'GB'?"),
    bad("endless memory", "resources: {memory: 1e999}", "resources.memory", "too large"),
    bad("resources in a word", "resources: H100:8", "resources", "wanted a mapping", "accelerators"),
]  # fmt: skip

GPUS = [
    bad_gpus(
        "one and a half", "A100:1.5", "'1.5' is more than one GPU", "write 1 or 2, or a share"
    ),
    bad_gpus("any one and a half", "1.5", "write 1 or 2"),
    bad_gpus("too fine a share", "A100:0.1234", "at most three decimals"),
    bad_gpus("none of a model", "A100:0", "asks for no GPUs"),
    bad_gpus("negative", "A100:-1", "'-1' is not a number of GPUs"),
    bad_gpus("negative, any model", "-1", "'-1' is not a number of GPUs"),
    bad_gpus("not a number", "A100:.nan", "'.nan' is not a number of GPUs"),
    bad_gpus("NaN of any model", ".nan", "not a number of GPUs"),
    bad_gpus("words", "A100:eight", "'eight' is not a number of GPUs", "H100:8"),
    bad_gpus("too many for a task", "A100:65537", "at most 65,536 per task"),
    bad_gpus("far too many", "A100:" + "9" * 5000, "too many GPUs"),
    bad_gpus("no model", "':8'", "'' is not the name of a GPU model"),
    bad_gpus("a model with a colon", "a:b:8", "'a:b' is not the name of a GPU model"),
    bad_gpus("a model with a bell", '"a\\a:8"', "'a\\x07' is not the name of a GPU model"),
    bad_gpus("nothing listed", "[]", "names no GPU model"),
    bad_gpus("nothing mapped", "{}", "names no GPU model"),
    bad_gpus("a truth value", "true", "wanted GPUs, found true"),
    bad_gpus("a model twice", "[H100:8, H100:4]", "'H100' is listed twice"),
]
GPUS += [
    bad("a number in a list", "resources: {accelerators: [8]}", "resources.accelerators[0]",
        "wanted text, found the number 8"),
    bad("a count in words", "resources: {accelerators: {H100: eight}}",
        "resources.accelerators.H100", "wanted a number of GPUs, found text 'eight'"),
    bad("a speed of 0", "resources: {accelerators: {H100: {speed: 0}}}",
        "resources.accelerators.H100.speed", "0 is out of range", "more than 0"),
    bad("an endless speed", "resources: {accelerators: {H100: {speed: .inf}}}",
        "resources.accelerators.H100.speed", "out of range"),
    bad("a speed of NaN", "resources: {accelerators: {H100: {speed: .nan}}}",
        "resources.accelerators.H100.speed", "out of range"),
    bad("a typing error inside", "resources: {accelerators: {H100: {cuont: 1}}}",
        "resources.accelerators.H100.cuont", "did you mean 'count'?"),
]  # fmt: skip

GROUPS = [
    Case("run beside groups", "run: x\ngroups: [{name: a, run: y}]", "run",
         ("cannot stand beside groups", "its own 'run'"), 1),
    Case("num_nodes beside groups", "num_nodes: 2\ngroups: [{name: a, run: y}]", "num_nodes",
         ("cannot stand beside groups", "its own 'count'"), 1),
    Case("no groups", "groups: []", "groups", ("lists no group",), 1),
    Case("groups by name", "groups: {a: {run: x}}", "groups", ("wanted a list",), 1),
    Case("no name", "groups: [{run: x}]", "groups[0].name", ("missing", "trainer"), 1),
    Case("no run", "groups:\n- name: a\n- {name: b, run: x}", "groups[0].run", ("missing",), 2),
    Case("a name twice", "groups:\n- {name: a, run: x}\n- {name: a, run: x}", "groups[1].name",
         ("a second group named 'a'",), 3),
    Case("no tasks", "groups: [{name: a, run: x, count: 0}]", "groups[0].count",
         ("out of range", "from 1"), 1),
    Case("min_nodes beside groups", "min_nodes: 2\ngroups: [{name: a, run: y}]", "min_nodes",
         ("cannot stand beside groups", "its own 'min_count'"), 1),
    Case("max_nodes in a group", "groups: [{name: a, run: x, max_nodes: 1}]",
         "groups[0].max_nodes", ("write max_count",), 1),
    Case("two elastic groups", "groups:\n- {name: a, run: x, max_count: 2}\n"
         "- {name: b, run: x, count: 3, min_count: 1}", "groups[1].min_count",
         ("a second group of varying size", "to one group"), 3),
    Case("fewest above the count", "groups: [{name: a, run: x, count: 2, min_count: 3}]",
         "groups[0].min_count", ("is above count, 2", "at most 2"), 1),
    Case("a field of the job", "groups: [{name: a, run: x, priority: high}]", "groups[0].priority",
         ("belongs to the whole job", "move priority to the top"), 1),
    Case("num_nodes in a group", "groups: [{name: a, run: x, num_nodes: 1}]",
         "groups[0].num_nodes", ("write count",), 1),
    Case("too many together", "groups:\n" + "".join(
        f"- {{name: g{i}, run: x, count: 50000}}\n" for i in range(3)
    ), "groups", ("the gang has 150,000 tasks", "at most 100,000"), 2),
    Case("too many groups", "groups:\n" + "".join(
        f"- {{name: g{i}, run: x}}\n" for i in range(101)
    ), "groups", ("has 101 items", "at most 100"), 2),
    Case("a bad group", "groups: [trainer]", "groups[0]", ("wanted a mapping", "name, count"), 1),
]  # fmt: skip

FOREIGN = [
    bad("a group's", "min_count: 1", "min_count", "write min_nodes"),
    bad("a group's too", "max_count: 1", "max_count", "write max_nodes"),
    bad("of services", "min_replicas: 1", "min_replicas", "write min_nodes"),
    bad("fewest", "num_nodes: 2\nmin_nodes: 3", "min_nodes", "is above num_nodes, 2", line=3),
    bad(
        "most",
        "num_nodes: 4\nmax_nodes: 3",
        "max_nodes",
        "is below num_nodes, 4",
        "at least 4",
        line=3,
    ),
    bad(
        "a range upside down",
        "min_nodes: 4\nmax_nodes: 3",
        "max_nodes",
        "is below min_nodes, 4",
        line=3,
    ),
    bad("no tasks", "min_nodes: 0", "min_nodes", "out of range"),
    bad("far too many", "max_nodes: 100001", "max_nodes", "out of range"),
    bad(
        "too many GPUs at most",
        "max_nodes: 100000\nresources: {accelerators: 16}",
        "max_nodes",
        "the gang asks for 1,600,000 GPUs",
    ),
    bad("mounts", "file_mounts: {/a: s3://b}", "file_mounts", "datasets", "workdir"),
    bad(
        "a checkpoint in a bucket",
        "checkpoint: {path: s3://b/c}",
        "checkpoint.path",
        "is a URL",
        "buckets are not supported here",
    ),
    bad(
        "a checkpoint at a short URL", "checkpoint: {path: 'gs:/b'}", "checkpoint.path", "is a URL"
    ),
    bad("a work folder in a bucket", "workdir: s3://b/c", "workdir", "is a URL"),
    bad("an image at another place", "image_id: docker:x", "image_id", "write image: NAME"),
    bad(
        "an image of one kind of tasks",
        "resources: {image: x}",
        "resources.image",
        "move image to the top",
    ),
    bad("an image with a scheme", "image: docker:x", "image", "leave out docker:"),
    bad("an image like an option", "image: --privileged", "image", "not a name of an image"),
    bad("an image with blanks", "image: a b", "image", "not a name of an image"),
    bad("an image that is a list", "image: [a]", "image", "wanted text"),
    bad("a service", "service: {}", "service", "serving is not supported"),
    bad("a secret itself", "secrets: {A: b}", "secrets.A", "never the value"),
    bad("GPUs at the top", "accelerators: H100:8", "accelerators", "belongs to resources"),
    bad("spot", "resources: {use_spot: true}", "resources.use_spot", "preemptible: true"),
    bad("a cloud", "resources:\n  cloud: aws", "resources.cloud", "Topmast chooses", line=3),
    bad("alternatives", "resources: {any_of: []}", "resources.any_of", "[H100:8, A100:8]"),
    bad("ports", "resources: {ports: 80}", "resources.ports", "TOPMAST_HOSTS"),
    bad("env", "env: {A: 1}", "env", "write envs"),
    bad("command", "command: x", "command", "write run"),
]


@pytest.mark.parametrize(
    "case",
    [*SHAPES, *FIELDS, *SIZES, *GPUS, *GROUPS, *FOREIGN],
    ids=lambda case: f"{case.want_field[:40]!a}: {case.story}",
)
def test_what_cannot_be_accepted(tmp_path: Path, case: Case) -> None:
    """The error names the file, the line, the field, what is wrong, and the way out."""
    (tmp_path / "job.yaml").write_text(case.text)
    with pytest.raises(InvalidInput) as refused:
        read_job(tmp_path / "job.yaml")
    error = refused.value
    for words in case.want_words:
        assert words in error.line()
    assert error.field == case.want_field
    assert error.where == f"{tmp_path / 'job.yaml'}:{case.want_line}"
    assert error.line().isprintable()


def test_the_whole_line() -> None:
    """In a request there are no lines, and the rest of the message is the same."""
    with pytest.raises(InvalidInput) as refused:
        parse_job({"run": "x", "resources": {"acelerators": "H100"}}, where="body")
    want = "body: resources.acelerators: unknown field (did you mean 'accelerators'?)"
    assert str(refused.value) == want


@pytest.mark.parametrize("document", [None, [], "run: x", 7, {"run": True}, {"run": "x\0"}])
def test_odd_requests(document: Any) -> None:
    """A body may be anything."""
    with pytest.raises(InvalidInput):
        parse_job(document)


# ----------------------------------------------------------------------------- writing, and fleets


def test_written_back() -> None:
    """What the client sends says all that the file said, the snapshot in place of the folder."""
    found = parse_job(
        {
            "name": "resnet", "num_nodes": 2, "workdir": DIGEST, "run": "x", "time_limit": "1h",
            "resources": {"accelerators": {"A": {"count": 0.5, "speed": 0.3}}, "memory": "1GiB"},
        }
    ).spec  # fmt: skip
    document = dump_job(found)
    assert document == {
        "name": "resnet", "tenant": "default", "priority": "normal", "workdir": DIGEST,
        "time_limit": 3600.0, "checkpoint": {"interval": 600.0, "grace": 30.0},
        "max_restarts": 3, "preemptible": True, "num_nodes": 2,
        "resources": {"accelerators": {"A": {"count": 0.5, "speed": 0.3}}, "memory": "1GiB"},
        "run": "x",
    }  # fmt: skip
    assert parse_job(document).spec == found


def test_a_model_that_no_region_has() -> None:
    """Found before the job is sent, with the name that was meant."""
    job = spec_of(resources={"accelerators": ["H100:8", "A1000:8"]})
    assert [str(fault) for fault in faults_in_fleet(job, ["default"], ["A100", "H100"])] == [
        "resources.accelerators: no region has the GPU model 'A1000' (did you mean 'A100'?)"
    ]


def test_all_names_that_the_fleet_does_not_have() -> None:
    """The tenant does not hide a model, nor the first model the second."""
    job = spec_of(tenant="vison", resources={"accelerators": ["H1000:8", "A100:8", "A1000:8"]})
    assert [str(fault) for fault in faults_in_fleet(job, ["nlp", "vision"], ["A100", "H100"])] == [
        "tenant: unknown tenant 'vison' (did you mean 'vision'?)",
        "resources.accelerators: no region has the GPU model 'H1000' (did you mean 'H100'?)",
        "resources.accelerators: no region has the GPU model 'A1000' (did you mean 'A100'?)",
    ]


def test_a_model_that_no_region_has_in_a_group() -> None:
    """The group is named; with no near name, those that there are."""
    groups = [
        {"name": "a", "run": "x"},
        {"name": "b", "run": "x", "resources": {"accelerators": "TPU"}},
    ]
    spec = spec_of(run=None, groups=groups)
    (fault,) = faults_in_fleet(spec, ["default"], ["H100", "A100"])
    assert fault.field == "groups[1].resources.accelerators"
    assert fault.remedy == "one of: A100, H100"


def test_models_that_are_there() -> None:
    """Known models, any model, and no GPUs at all."""
    for accelerators in ("H100:8", 8, None):
        spec = spec_of(resources={"accelerators": accelerators})
        assert list(faults_in_fleet(spec, ["default"], ["H100"])) == []


@pytest.mark.parametrize("skew", [0, 0.74, 1, "0.5"])
def test_a_share_of_the_parameters_is_a_skew(skew: float | str) -> None:
    """And is written back as it was read."""
    found = spec_of(skew=skew)
    assert found.skew == float(skew)
    assert parse_job(dump_job(found)).spec == found


@pytest.mark.parametrize(
    "name",
    ["nvcr.io/nvidia/pytorch:24.05-py3", "a@sha256:0a", "nvcr.io#nvidia/x:1", "/shared/x.sqsh"],
)
def test_the_image_of_a_job(name: str) -> None:
    """As registries, Slurm's containers and Kubernetes write it; written back as read."""
    found = spec_of(image=name)
    assert found.image == name
    assert parse_job(dump_job(found)).spec == found
    assert "image" not in dump_job(spec_of())


def test_what_a_table_of_speeds_calls_a_job() -> None:
    """Any words; written back as read, and absent where nobody says it."""
    found = spec_of(work="ResNet-18 (batch size 64)")
    assert found.work == "ResNet-18 (batch size 64)"
    assert parse_job(dump_job(found)).spec == found
    assert "work" not in dump_job(spec_of())


@pytest.mark.parametrize("skew", [-0.1, 1.01, 2, "half", "nan", "1e9"])
def test_more_than_all_parameters_is_none(skew: float | str) -> None:
    """The error names the field and what would be right."""
    with pytest.raises(InvalidInput, match=r"skew.*share"):
        spec_of(skew=skew)


@dataclass
class Size:
    """What is written of a number of tasks, and what it means: asked for, fewest, most."""

    story: str
    fields: dict[str, Any]
    want: tuple[int, int | None, int | None]


RANGES = [
    Size("nothing", {}, (1, None, None)),
    Size("a range", {"num_nodes": 4, "min_nodes": 2, "max_nodes": 8}, (4, 2, 8)),
    Size("it may grow", {"num_nodes": 4, "max_nodes": 8}, (4, 4, 8)),
    Size("it may shrink", {"num_nodes": 4, "min_nodes": 2}, (4, 2, 4)),
    Size("the fewest are what it asks for", {"min_nodes": 3, "max_nodes": 6}, (3, 3, 6)),
    Size("one is asked for", {"max_nodes": 6}, (1, 1, 6)),
    Size("no range at all", {"num_nodes": 4, "min_nodes": 4, "max_nodes": 4}, (4, None, None)),
]


@pytest.mark.parametrize("size", RANGES, ids=lambda size: size.story)
def test_sizes_of_elastic_jobs(size: Size) -> None:
    """At the top and in a group a range reads alike, and is written back as it was."""
    names = {"num_nodes": "count", "min_nodes": "min_count", "max_nodes": "max_count"}
    group = {"name": "a", "run": "x", **{names[f]: n for f, n in size.fields.items()}}
    for spec in (spec_of(**size.fields), parse_job({"groups": [group]}).spec):
        only = spec.groups[0]
        assert (only.count, only.min_count, only.max_count) == size.want
        assert (spec.elastic is None) == (size.want[1] is None)
        assert parse_job(dump_job(spec)).spec == spec


@pytest.mark.parametrize("number", [1e308, 10**400], ids=["as JSON", "longer than a float"])
def test_each_number_beyond_all_bounds_is_told_with_its_field(number: float) -> None:
    """All of them at once."""
    resources = {"cpus": number, "memory": number, "accelerators": {"H100": number}}
    most = dict.fromkeys(("num_nodes", "time_limit", "max_restarts", "skew"), number)
    with pytest.raises(InvalidInput) as refused:
        parse_job({"run": "x", "resources": resources, **most})
    told = {error.field for error in (refused.value, *refused.value.more)}
    assert told == {
        *most, "resources.cpus", "resources.memory", "resources.accelerators.H100",
    }  # fmt: skip
