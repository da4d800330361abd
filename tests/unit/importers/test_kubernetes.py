"""Jobs and PyTorchJobs of Kubernetes as job files."""

import subprocess

import pytest

from topmast.importers.kubernetes import import_kubernetes
from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import parse_job

JOB = b"""\
apiVersion: batch/v1
kind: Job
metadata: {name: mnist, namespace: ml, labels: {team: vision}}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  backoffLimit: 3
  activeDeadlineSeconds: 3600
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 60
      nodeSelector: {gpu: a100}
      containers:
      - name: main
        image: pytorch:1
        command: [python, train.py]
        args: ["--dir=$(DATA)/x y", "--n", "3", "$(id)", "a$$(DATA)$$"]
        workingDir: /app
        env:
        - {name: DATA, value: /d}
        - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}
        - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        resources:
          requests: {cpu: 250m}
          limits: {nvidia.com/gpu: 8, memory: 64Gi, cpu: 500m, rdma/hca: 1}
"""


def test_a_job_becomes_a_job() -> None:
    """Its container's command is what each task runs."""
    found = import_kubernetes(JOB, "job.yaml")
    job = dict(found.job)
    run = job.pop("run")
    assert job == {
        "name": "mnist", "labels": {"team": "vision"}, "num_nodes": 2, "max_restarts": 3,
        "time_limit": 3600, "image": "pytorch:1", "checkpoint": {"grace": 60},
        "envs": {"DATA": "/d"}, "secrets": {"KEY": "kubernetes:s/k"},
        "resources": {"accelerators": 8, "memory": "64GiB", "cpus": 0.5},
    }  # fmt: skip
    parse_job(found.job)
    printed = run.replace("cd /app", "cd /").replace("python train.py", "printf '%s|'")
    done = subprocess.run(
        ["bash", "-euc", printed],
        env={"DATA": "/my data", "RANK": "1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"--dir=/my data/x y|--n|3|$(id)|a$(DATA)$|"
    assert 'JOB_COMPLETION_INDEX="$RANK"' in run
    named = [(note.line, note.field.removeprefix("spec.template.spec.")) for note in found.notes]
    assert named == [
        (3, "metadata.namespace"), (5, "spec.parallelism"), (14, "nodeSelector"),
        (24, "containers[0].env[2].valueFrom"), (27, "containers[0].resources.limits.rdma/hca"),
    ]  # fmt: skip


PYTORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: p}}
spec:
  elasticPolicy: {{minReplicas: 2, maxReplicas: 8}}
  pytorchReplicaSpecs:
    Master: {{replicas: 1, template: {{spec: {{containers: [{{image: a, command: [run]}}]}}}}}}
    Worker: {{replicas: 3, template: {{spec: {{containers: [{{image: a, command: [{worker}]}}]}}}}}}
"""


def test_roles_that_are_alike_are_one_gang() -> None:
    """Of the master and the workers; otherwise each is a group."""
    job = import_kubernetes(PYTORCH.format(worker="run").encode(), "x").job
    parse_job(job)
    assert job == {
        "name": "p", "image": "a", "run": "run\n", "num_nodes": 4, "min_nodes": 2, "max_nodes": 8,
    }  # fmt: skip
    job = import_kubernetes(PYTORCH.format(worker="work").encode(), "x").job
    parse_job(job)
    assert job["groups"] == [
        {"name": "master", "count": 1, "run": "run\n"}, {"name": "worker", "count": 3, "run": "work\n"},
    ]  # fmt: skip


ROLES = """\
kind: PyTorchJob
spec:
  elasticPolicy: {minReplicas: 2}
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{image: a, command: [env], env: [
      {name: BOTH, value: x}, {name: ROLE, value: "it's master"}, {name: RANK, value: 7},
      {name: TOK, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}}
    Worker: {replicas: 3, template: {spec: {terminationGracePeriodSeconds: 60,
      containers: [{image: b, command: [env], env: [{name: BOTH, value: x}, {name: ROLE, value: w},
      {name: MORE, value: m}, {name: a.b, value: n}]}]}}}
    Third: {template: {spec: {containers: [{env: [{name: BOTH, value: x}, {name: LOST, value: y}]}]}}}
"""


def test_what_roles_do_not_share_is_kept_or_told() -> None:
    """Variables are set by the script of each group; what only a whole job has gets a line."""
    found = import_kubernetes(ROLES.encode(), "x")
    job = dict(found.job)
    groups = {group["name"]: group for group in job.pop("groups")}
    assert job == {
        "envs": {"BOTH": "x"}, "secrets": {"TOK": "kubernetes:s/k"}, "image": "a",
        "checkpoint": {"grace": 60},
    }  # fmt: skip
    for name, own in (
        ("master", {"ROLE": "it's master"}), ("worker", {"ROLE": "w", "MORE": "m"}),
    ):  # fmt: skip
        script = ["bash", "-euc", groups[name]["run"]]
        done = subprocess.run(script, env={"RANK": "1"}, capture_output=True, check=True, text=True)
        lines = done.stdout.splitlines()
        assert {f"{key}={value}" for key, value in own.items()} <= set(lines)
        assert ("MORE=m" in lines, "RANK=1" in lines) == ("MORE" in own, True)
    told = [
        (note.line, note.field.removeprefix("spec."), note.message)
        for note in found.notes
        if "command" not in note.message
    ]
    master, worker, third = (f"pytorchReplicaSpecs.{r}" for r in ("Master", "Worker", "Third"))
    assert told == [
        (3, "elasticPolicy", "is left out"),
        (5, master, "envs RANK of group master is left out"),
        (5, master, "group master has no checkpoint grace, and gets '60'"),
        (8, worker, "envs a.b of group worker is left out"),
        (8, worker, "group worker has image 'b', and gets 'a'"),
        (8, worker, "group worker has no secrets TOK, and gets 'kubernetes:s/k'"),
        (11, third, "envs LOST of group third is left out"),
        (11, third, "group third has no image, and gets 'a'"),
        (11, third, "group third has no secrets TOK, and gets 'kubernetes:s/k'"),
        (11, third, "group third has no checkpoint grace, and gets '60'"),
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("kind: Deployment", "x:1: kind: is 'Deployment' (one of: Job, PyTorchJob"),
        ("a: 1", "x: kind: is missing"),
        ("kind: Job", "x: spec: is missing"),
        ("kind: Job\nspec: [", "this is not valid YAML"),
    ],
)
def test_what_is_no_job_is_refused(text: str, want: str) -> None:
    """With what would be right."""
    with pytest.raises(InvalidInput) as caught:
        import_kubernetes(text.encode(), "x")
    assert want in str(caught.value)


def test_shapes_that_are_wrong_break_nothing() -> None:
    """Each wrong type is refused, here or by the reader of job files."""
    for spec in ("1", "[a]", "{template: 3}", "{template: {spec: {containers: 3}}}", "{parallelism: x}",
                 "{template: {spec: {containers: [{command: x, env: [1, {name: A}], resources: 3}]}}}",
                 "{template: {spec: {containers: [1]}}}"):  # fmt: skip
        for kind in ("Job", "PyTorchJob"):
            document = f"kind: {kind}\nmetadata: 3\nspec: {spec}\n"
            with pytest.raises(InvalidInput):
                parse_job(import_kubernetes(document.encode(), "x").job)
