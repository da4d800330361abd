"""Each method asks for its route, and understands the answer."""

import getpass
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import topmast
from tests.unit.client.fake import DROP, Answer, FakeServer, ended, job, page, problem, running
from topmast.client import Client, WaitTimeout
from topmast.model import views
from topmast.model.act_views import (
    ClusterActed,
    HostEffect,
    HostsActed,
    JobFileView,
    QuotaActed,
    ReservationView,
)
from topmast.model.budget import BudgetView
from topmast.model.errors import InvalidInput, NotFound, Unavailable
from topmast.model.job import JobSpec, Resources, TaskGroup
from topmast.model.reason import ClusterVerdict

HOST = views.HostView(
    name="h0", region="east", cluster="east-1", state="healthy", gpu_model="H100", gpus=8,
    free_gpus=8, datacenter="d", pod="p", rack="r", jobs=(),
)  # fmt: skip
DRAIN = views.DrainView("h0", "east", "draining", ())
HOSTS_ACTED = HostsActed("drain", True, (HOST,), (HostEffect("h0", "done"),), 8.0, ())
QUOTA = QuotaActed("a b", False, {}, {"H100": 4}, 1.0, 9.0, "", 2, 1)
BUDGET = BudgetView("a", "2030-01", "hold", 5.0, 7.0, 50.0, 9.0, 10.0)
RESERVATION = ReservationView(
    "w1", "planned", 1.0, 9.0, ("h0",), "", "", ("a",), "ada", "a new disk", 8.0, ("j1",)
)
CLUSTER_ACTED = ClusterActed(
    "close", False, views.ClusterView("c 1", "east", "local", 1, 1, 8.0, 8.0, 0), "done", ()
)
DATASET = views.DatasetView("imagenet", 10, "data/imagenet", None, 1, (), ())
STORY = views.JobStory(job(), (), ())
EXPLANATION = views.Explanation(
    "j1", "resnet", "PENDING", "InsufficientCapacity", "no room", (),
    (views.RegionVerdict("east", True, None, 0, 0.0, (ClusterVerdict("e1", (), True, 0, 8),)),), (),
)  # fmt: skip
HEALTH = views.Health("0.1.0", 2.0, 1.0, {"RUNNING": 1}, 9)
USAGE = {"usage": [], "since_s": 0.0, "until_s": 1.0, "by": "user"}


@dataclass(frozen=True)
class Case:
    """A call, the request it should make, and what it should return for the answer."""

    call: Callable[[Client], Any]
    route: str
    answer: Any
    want: Any = None
    want_body: Any = None
    want_query: dict[str, str] | None = None


CASES = [
    Case(lambda c: c.health(), "GET /health", HEALTH),
    Case(lambda c: c.job("j1"), "GET /jobs/j1", job()),
    Case(lambda c: c.story("j1"), "GET /jobs/j1/story", STORY),
    Case(lambda c: c.job_file("j1"), "GET /jobs/j1/spec", JobFileView("j1", "ada", {"run": "x"})),
    Case(lambda c: c.explain("j1"), "GET /jobs/j1/explain", EXPLANATION),
    Case(lambda c: c.cancel("j1"), "POST /jobs/j1/cancel", job(), want_body={"user": "ada"}),
    Case(
        lambda c: c.job_page(states=["RUNNING", "PENDING"], tenant="t", limit=5, cursor="x"),
        "GET /jobs", page(job()),
        want_query={"state": "RUNNING,PENDING", "tenant": "t", "limit": "5", "cursor": "x"},
    ),
    Case(
        lambda c: c.job_page(states="active", order="queue"), "GET /jobs", page(),
        want_query={"state": "active", "order": "queue", "limit": "1000"},
    ),
    Case(lambda c: c.regions(), "GET /regions", {"regions": []}, []),
    Case(lambda c: c.clusters(), "GET /clusters", {"clusters": []}, []),
    Case(lambda c: c.hosts(), "GET /hosts", {"hosts": [HOST]}, [HOST]),
    Case(lambda c: c.gpus(), "GET /gpus", {"gpus": []}, []),
    Case(lambda c: c.tenants(), "GET /tenants", {"tenants": []}, []),
    Case(lambda c: c.datasets(), "GET /datasets", {"datasets": [DATASET]}, [DATASET]),
    Case(lambda c: c.cordon("h0"), "POST /hosts/h0/cordon", HOST, want_body={"user": "ada"}),
    Case(lambda c: c.uncordon("h0"), "POST /hosts/h0/uncordon", HOST, want_body={"user": "ada"}),
    Case(lambda c: c.drain("h0"), "POST /hosts/h0/drain", HOST, want_body={"user": "ada"}),
    Case(
        lambda c: c.drain("h0", now=True), "POST /hosts/h0/drain", HOST,
        want_body={"user": "ada", "now": True},
    ),
    Case(
        lambda c: c.drain_hosts(selector="rack=r1", now=True, dry_run=True), "POST /hosts/drain",
        HOSTS_ACTED, want_body={
            "hosts": [], "selector": "rack=r1", "reason": "", "dry_run": True, "user": "ada",
            "now": True,
        },
    ),
    Case(
        lambda c: c.close_cluster("c 1", until_s=9.0), "POST /clusters/c%201/close", CLUSTER_ACTED,
        want_body={"user": "ada", "reason": "", "dry_run": False, "until_s": 9.0},
    ),
    Case(
        lambda c: c.reserve("h0", from_s=1.0, until_s=9.0, tenants=["a"]), "POST /reservations",
        RESERVATION, want_body={
            "hosts": ["h0"], "selector": "", "cluster": "", "region": "", "from_s": 1.0,
            "until_s": 9.0, "tenants": ["a"], "reason": "", "dry_run": False, "user": "ada",
        },
    ),
    Case(
        lambda c: c.end_reservation("w1"), "POST /reservations/w1/end", RESERVATION,
        want_body={"user": "ada", "reason": "", "dry_run": False},
    ),
    Case(
        lambda c: c.reservations(), "GET /reservations", {"reservations": [RESERVATION]},
        [RESERVATION],
    ),
    Case(
        lambda c: c.set_quota("a b", {"H100": 4}, from_s=1.0, until_s=9.0),
        "POST /tenants/a%20b/quota", QUOTA, want_body={
            "user": "ada", "quota": {"H100": 4}, "from_s": 1.0, "until_s": 9.0, "reason": "",
            "dry_run": False,
        },
    ),
    Case(
        lambda c: c.end_quota("a"), "POST /tenants/a/quota/end", QUOTA,
        want_body={"user": "ada", "reason": "", "dry_run": False},
    ),
    Case(lambda c: c.budgets(), "GET /budgets", {"budgets": [BUDGET]}, [BUDGET]),
    Case(lambda c: c.drain_plan("h0"), "GET /hosts/h0/drain", DRAIN),
    Case(
        lambda c: c.add_dataset("imagenet", "east"), "POST /datasets", DATASET,
        want_body={"name": "imagenet", "region": "east"},
    ),
    Case(
        lambda c: c.add_dataset(
            "imagenet", "east", path="p", source="/s", allowed=["east"], min_replicas=2
        ),
        "POST /datasets", DATASET,
        want_body={
            "name": "imagenet", "region": "east", "min_replicas": 2, "path": "p", "source": "/s",
            "allowed": ["east"],
        },
    ),
    Case(
        lambda c: c.replicate("imagenet", "west"), "POST /datasets/imagenet/replicas", DATASET,
        want_body={"region": "west", "user": "ada"},
    ),
    Case(lambda c: c.drop("imagenet", "w"), "DELETE /datasets/imagenet/replicas/w", DATASET),
    Case(
        lambda c: c.usage("user", since_s=5.5).until_s, "GET /usage", USAGE, 1.0,
        want_query={"by": "user", "since": "5.5"},
    ),
    Case(
        lambda c: c.dry_run({"run": "x"}), "POST /jobs/dry-run", EXPLANATION,
        want_body={"job": {"run": "x"}, "user": "ada"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.route)
def test_each_method_speaks_its_route(case: Case, server: FakeServer, client: Client) -> None:
    """One call is one request, and its answer comes back with its type."""
    method, path = case.route.split()
    server.on(method, path, Answer(case.answer))
    assert case.call(client) == (case.answer if case.want is None else case.want)
    [asked] = server.asked(method, path)
    if case.want_body is not None:
        assert asked.document == case.want_body
    if case.want_query is not None:
        assert asked.query == case.want_query


def test_the_public_name() -> None:
    """`topmast.Client` is the client, and by default it speaks for whoever runs the process."""
    assert topmast.Client is Client
    with topmast.Client("http://127.0.0.1:1") as client:
        assert client.user == getpass.getuser()


# -------------------------------------------------------------------------------------- submitting

RECEIPT = views.Receipt("j1", "resnet")
SPEC = JobSpec("resnet", (TaskGroup("main", 1, Resources(), "true"),))


def test_submits_a_spec_a_document_or_a_file(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    """All three ways to name a job send its document."""
    server.on("POST", "/jobs", Answer(RECEIPT, 201))
    file = tmp_path / "resnet.yaml"
    file.write_text("name: resnet\nrun: 'true'\n")
    for given in (SPEC, {"name": "resnet", "run": "true"}, file, str(file)):
        assert client.submit(given) == RECEIPT
    sent = [request.document for request in server.asked("POST", "/jobs")]
    assert all(body["job"]["name"] == "resnet" and body["job"]["run"] == "true" for body in sent)
    assert "tenant" not in sent[2]["job"], "the server knows the tenant of who names none"
    assert all(body["user"] == "ada" and body["workdir"] == "" for body in sent)


def test_a_bad_file_is_refused_before_anything_is_sent(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    """The reader of the job file has the first word."""
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nnum_node: 2\n")
    with pytest.raises(InvalidInput, match="num_node"):
        client.submit(file)
    assert server.requests == []


def test_a_retried_submission_keeps_its_key(server: FakeServer, client: Client) -> None:
    """A connection dropped after the job was accepted does not submit it twice."""
    server.on("POST", "/jobs", DROP, DROP, Answer(RECEIPT, 201))
    assert client.submit(SPEC) == RECEIPT
    client.submit(SPEC)
    keys = [asked.headers["idempotency-key"] for asked in server.asked("POST", "/jobs")]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1, "one key for one call, however often it is sent"
    assert keys[3] != keys[0], "another call, another key"


def test_the_caller_may_choose_the_key(server: FakeServer, client: Client) -> None:
    """So that even a program that starts again submits once."""
    server.on("POST", "/jobs", Answer(RECEIPT, 201))
    server.on("POST", "/jobs/bulk", Answer(views.BulkReceipt(("j1",)), 201))
    client.submit(SPEC, key="mine")
    client.submit_many([SPEC], key="ours")
    assert server.asked("POST", "/jobs")[0].headers["idempotency-key"] == "mine"
    assert server.asked("POST", "/jobs/bulk")[0].headers["idempotency-key"] == "ours"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A job file beside the folder that it works in."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("x = 1")
    (tmp_path / "job.yaml").write_text("workdir: src\nrun: python train.py\n")
    return tmp_path


def accept_workdirs(server: FakeServer, project: Path) -> str:
    """Let ``server`` take the snapshot of the project, of which it has nothing yet."""
    digest = topmast.client.snapshot(project / "src").digest
    server.on("HEAD", f"/workdirs/{digest}", Answer(b"", 404), Answer(b"", 200))
    server.on("PUT", f"/workdirs/{digest}", Answer({}, 201))
    return digest


def test_the_workdir_is_uploaded_once(server: FakeServer, client: Client, project: Path) -> None:
    """The folder is found from the job file, packed, and sent only if the server lacks it."""
    digest = accept_workdirs(server, project)
    server.on("POST", "/jobs", Answer(RECEIPT, 201))
    client.submit(project / "job.yaml")
    client.submit(project / "job.yaml")
    [put] = server.asked("PUT", f"/workdirs/{digest}")
    with tarfile.open(fileobj=io.BytesIO(put.body)) as archive:
        assert archive.getnames() == ["train.py"]
    sent = [request.document for request in server.asked("POST", "/jobs")]
    assert [body["workdir"] for body in sent] == [digest, digest]
    assert all("workdir" not in body["job"] for body in sent)


def test_a_digest_needs_no_upload(server: FakeServer, client: Client, project: Path) -> None:
    """Whoever has uploaded a snapshot may name it."""
    server.on("POST", "/jobs", Answer(RECEIPT, 201))
    client.submit(project / "job.yaml", workdir="sha256:" + "0" * 64)
    [asked] = server.requests
    assert asked.document["workdir"] == "sha256:" + "0" * 64


def test_many_jobs_share_a_snapshot(server: FakeServer, client: Client, project: Path) -> None:
    """A folder is packed once for all the jobs that work in it."""
    digest = accept_workdirs(server, project)
    server.on("POST", "/jobs/bulk", Answer(views.BulkReceipt(("j1", "j2", "j3")), 201))
    file = project / "job.yaml"
    assert client.submit_many([file, file, SPEC]).ids == ("j1", "j2", "j3")
    [asked] = server.asked("POST", "/jobs/bulk")
    assert [one.get("workdir") for one in asked.document["jobs"]] == [digest, digest, None]


def test_a_document_may_name_a_folder(server: FakeServer, client: Client, project: Path) -> None:
    """In a program the folder is relative to where the program runs."""
    digest = accept_workdirs(server, project)
    server.on("POST", "/jobs", Answer(RECEIPT, 201))
    client.submit({"run": "x", "workdir": str(project / "src")})
    [asked] = server.asked("POST", "/jobs")
    assert asked.document["workdir"] == digest
    assert asked.document["job"] == {"run": "x"}


# ---------------------------------------------------------------------------------------- listings


def test_jobs_come_page_by_page(server: FakeServer, client: Client) -> None:
    """The iterator fetches the next page when it needs it, with the same selection."""
    server.on("GET", "/jobs", page(job("j2"), cursor="next"), page(job("j1")))
    assert [one.id for one in client.jobs(states=iter(["PENDING"]), tenant="t")] == ["j2", "j1"]
    first, second = server.asked("GET", "/jobs")
    assert first.query == {"state": "PENDING", "tenant": "t", "limit": "1000"}
    assert second.query == first.query | {"cursor": "next"}


# ----------------------------------------------------------------------------------------- waiting


def test_waits_until_all_have_ended(server: FakeServer, client: Client) -> None:
    """The result is in the order asked for; every change is told once."""
    server.on("GET", "/jobs/j1", job("j1"), running("j1"), running("j1"), ended("j1"))
    server.on("GET", "/jobs/j2", ended("j2", "FAILED"))
    told: list[str] = []
    views = client.wait(["j2", "j1", "j2"], on_change=lambda one: told.append(one.id + one.state))
    assert [view.id + view.state for view in views] == ["j2FAILED", "j1SUCCEEDED", "j2FAILED"]
    assert told == ["j2FAILED", "j1PENDING", "j1RUNNING", "j1SUCCEEDED"]
    assert len(server.asked("GET", "/jobs/j2")) == 1, "what has ended is not asked about again"


def test_waiting_for_many_asks_little(server: FakeServer, client: Client) -> None:
    """Jobs that are listed as open are not asked about one by one."""
    ids = [f"j{number}" for number in range(80)]
    server.on("GET", "/jobs", page(*map(running, ids)), page(*map(running, ids[40:])), page())
    for one in ids:
        server.on("GET", f"/jobs/{one}", ended(one))
    assert [job.id for job in client.wait(ids)] == ids
    assert len(server.requests) <= 3 + len(ids)
    assert server.asked("GET", "/jobs")[0].query["state"] == "active"


def test_waiting_may_end_early(server: FakeServer, client: Client) -> None:
    """The error names what has not ended."""
    server.on("GET", "/jobs/j1", running("j1"))
    with pytest.raises(WaitTimeout, match=r"within 0\.3 s: j1 is RUNNING"):
        client.wait("j1", timeout_s=0.3)


def test_waiting_for_nothing_is_an_error(server: FakeServer, client: Client) -> None:
    """A job that does not exist never ends."""
    server.on("GET", "/jobs/j9", problem(404, "no job j9"))
    with pytest.raises(NotFound, match="no job j9"):
        client.wait(["j9"])


def test_waiting_outlasts_a_restart(server: FakeServer, client: Client) -> None:
    """A server that is away for a while is put up with, once it has been there."""
    busy = problem(503, "starting")
    server.on("GET", "/jobs/j1", running("j1"), busy, busy, ended("j1"))
    assert client.wait("j1")[0].state == "SUCCEEDED"


def test_waiting_for_a_server_that_never_was(server: FakeServer, client: Client) -> None:
    """The first look is not repeated."""
    server.on("GET", "/jobs/j1", problem(503, "starting"))
    with pytest.raises(Unavailable):
        client.wait("j1")
    assert len(server.requests) == 1
