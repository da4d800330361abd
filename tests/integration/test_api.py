"""The REST interface as a stranger meets it: every route, and every way to be turned away."""

import gzip
import hashlib
import json
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.hostile import connect
from tests.support.live import Server, eventually, live, until_state
from topmast import Client

FLEET = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 2, gpu: H100, gpus: 2}]}
  west:
    clusters:
      west-a: {hosts: [{count: 1, gpu: A100, gpus: 2}]}
links: [{from: east, to: west, gbps: 10}]
tenants: {vision: {quota: {H100: 2, A100: 2}}, speech: {quota: {H100: 2}}}
"""
PROBLEM = {"type", "title", "status", "detail", "field", "remedy"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """The server of this file."""
    with live(tmp_path_factory.mktemp("api"), FLEET) as both:
        yield both


@pytest.fixture
def client(running: tuple[Server, Client]) -> Client:
    """The client of the package, to prepare things with."""
    return running[1]


@pytest.fixture
def http(running: tuple[Server, Client]) -> Iterator[httpx.Client]:
    """A plain HTTP client."""
    server, _ = running
    headers = {"Content-Type": "application/json"}
    with httpx.Client(base_url=f"{server.url}/api/v1", timeout=10.0, headers=headers) as plain:
        yield plain


def job(**fields: Any) -> dict[str, Any]:
    """The body of a submission."""
    return {"job": {"run": "true", **fields}}


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document.keys() - {"errors"} == PROBLEM
    assert document["status"] == status
    assert document["detail"]
    assert "\n" not in document["detail"]
    return document


# --- the document ---------------------------------------------------------------------------------


def references(part: object) -> Iterator[str]:
    """Every $ref below a part of a document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_the_openapi_document_is_complete(running: tuple[Server, Client]) -> None:
    """Every route says what it takes, what it answers and how it refuses; every reference resolves."""
    document = httpx.get(f"{running[0].url}/openapi.json").json()
    assert document["openapi"].startswith("3.")
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas, reference
    ids = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation["summary"], where
            assert operation["tags"], where
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part[:1] == "{"}, where
            *done, refused = sorted(operation["responses"])
            assert (len(done), done[0][0], refused) == (1, "2", "4XX"), where
            error = operation["responses"]["4XX"]["content"]["application/problem+json"]
            assert error["schema"] == {"$ref": "#/components/schemas/Problem"}, where
            content = operation["responses"][done[0]].get("content", {})
            assert all(kind["schema"] for kind in content.values()), where
            assert bool(content) == (method != "head"), where
            says_more = method in ("post", "put") and not path.endswith("/exec/{id}/end")
            assert ("requestBody" in operation) == says_more, where
    assert len(set(ids)) == len(ids)


def test_the_openapi_document_says_what_is_enforced(running: tuple[Server, Client]) -> None:
    """Fields that are refused are not allowed by the schemas, nor values of order and by."""
    paths = httpx.get(f"{running[0].url}/openapi.json").json()["paths"]
    bodies = [
        content["application/json"]["schema"]
        for methods in paths.values()
        for operation in methods.values()
        if "application/json" in (content := operation.get("requestBody", {}).get("content", {}))
    ]
    assert len(bodies) > 5
    assert {schema["additionalProperties"] for schema in bodies} == {False}
    enums = {
        parameter["name"]: parameter["schema"]["enum"]
        for path in ("/api/v1/jobs", "/api/v1/usage")
        for parameter in paths[path]["get"]["parameters"]
        if "enum" in parameter["schema"]
    }
    assert enums == {"order": ["", "newest", "queue"]}
    [by] = [p for p in paths["/api/v1/usage"]["get"]["parameters"] if p["name"] == "by"]
    assert by["schema"]["pattern"].startswith("^(tenant|user|gpu|label")


ROUTES = {
    "post /jobs", "get /jobs", "post /jobs/bulk", "post /jobs/dry-run", "get /jobs/{job}",
    "get /jobs/{job}/story", "get /jobs/{job}/spec", "get /jobs/{job}/explain", "post /jobs/{job}/cancel",
    "get /fleet", "post /fleet/diff", "post /fleet/apply",
    "post /tenants/{tenant}/pause", "post /tenants/{tenant}/resume",
    "post /tenants/{tenant}/quota", "post /tenants/{tenant}/quota/end", "get /budgets",
    "get /reservations", "post /reservations", "post /reservations/{name}/end",
    "post /hosts/cordon", "post /hosts/uncordon", "post /hosts/drain",
    "post /clusters/close", "post /clusters/open", "post /tenants/pause", "post /tenants/resume",
    "get /profile", "put /profile",
    "post /clusters/{cluster}/close", "post /clusters/{cluster}/open",
    "post /jobs/cancel", "post /jobs/hold", "post /jobs/release", "post /jobs/suspend",
    "post /jobs/resume", "post /jobs/preempt", "post /jobs/requeue", "post /jobs/edit",
    "post /jobs/{job}/exec", "get /jobs/{job}/exec/{id}", "post /jobs/{job}/exec/{id}/input",
    "post /jobs/{job}/exec/{id}/end",
    "get /jobs/{job}/logs", "put /workdirs/{digest}", "head /workdirs/{digest}", "get /regions",
    "get /clusters", "get /hosts", "get /gpus", "get /tenants", "get /datasets",
    "post /hosts/{host}/cordon", "post /hosts/{host}/uncordon", "post /hosts/{host}/drain",
    "get /hosts/{host}/story", "get /hosts/{host}/drain",
    "post /datasets", "post /datasets/{name}/replicas", "delete /datasets/{name}/replicas/{region}",
    "delete /datasets/{name}",
    "get /fleet/map", "get /fleet/history", "get /system", "post /whatif", "get /whatif/{number}", "get /sweeps",
    "get /sweeps/{sweep}", "get /webhooks", "put /webhooks/{name}", "delete /webhooks/{name}", "post /webhooks/{name}/test",
    "get /plans/data", "get /plans/capacity", "get /usage", "get /health", "get /events",
    "get /whoami", "get /tokens", "post /tokens", "delete /tokens/{token}", "get /accounts",
    "post /accounts", "delete /accounts/{name}", "get /roles", "post /roles/grant",
    "post /roles/revoke", "get /audit",
}  # fmt: skip
"""Those that the tests of this file and of test_access go through."""


def test_no_route_goes_untested(running: tuple[Server, Client]) -> None:
    """A new route is missed here, until it is added to the tests and to this list."""
    document = httpx.get(f"{running[0].url}/openapi.json").json()
    found = {
        f"{method} {path.removeprefix('/api/v1')}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert found == ROUTES


# --- every route ----------------------------------------------------------------------------------


def test_a_job_from_submission_to_its_log(http: httpx.Client, client: Client) -> None:
    """Submit, dry-run, look, explain, read the log, hear the story."""
    document = job(name="hello", run="echo hello; echo again", resources={"accelerators": "H100:1"})
    planned = http.post("/jobs/dry-run", json=document)
    assert (planned.status_code, planned.json()["plans"][0]["region"]) == (200, "east")
    answer = http.post("/jobs", json={**document, "user": "ann"})
    assert answer.status_code == 201
    receipt = answer.json()
    assert (receipt["name"], receipt["warnings"]) == ("hello", [])
    until_state(client, receipt["id"], "SUCCEEDED")
    place = f"/jobs/{receipt['id']}"
    view = http.get(place).json()
    assert (view["state"], view["user"], view["tenant"]) == ("SUCCEEDED", "ann", "vision")
    story = http.get(f"{place}/story").json()
    assert [line["kind"] for line in story["history"]] == [
        "submitted", "placed", "STARTING", "RUNNING", "SUCCEEDED",
    ]  # fmt: skip
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["succeeded"]
    assert "SUCCEEDED" in http.get(f"{place}/explain").json()["summary"]
    spec = http.get(f"{place}/spec").json()
    assert (spec["id"], spec["user"], spec["job"]["run"]) == (
        receipt["id"],
        "ann",
        document["job"]["run"],
    )
    assert http.post("/jobs/dry-run", json={"job": spec["job"]}).status_code == 200
    log = http.get(f"{place}/logs")
    assert (log.text, log.headers["content-type"]) == (
        "hello\nagain\n", "text/plain; charset=utf-8",
    )  # fmt: skip
    assert (log.headers["x-complete"], log.headers["x-attempt"]) == ("1", "1")
    rest = http.get(f"{place}/logs", params={"offset": 6, "limit": 3, "task": 0, "attempt": 1})
    assert (rest.text, rest.headers["x-next-offset"]) == ("aga", "9")
    none = problem_of(http.get(f"{place}/logs", params={"attempt": 2}), 404)
    assert none["detail"] == f"job '{receipt['id']}' has had 1 attempt"


def test_every_error_of_a_job_is_answered(http: httpx.Client) -> None:
    """A document with two errors is refused with both; one with a single error has no list."""
    bad = {"run": "true", "num_nodes": 0, "resources": {"cloud": "x"}}
    problem = problem_of(http.post("/jobs", json={"job": bad}), 422)
    assert {fault["field"] for fault in problem["errors"]} == {"num_nodes", "resources.cloud"}
    assert {
        "detail": problem["detail"],
        "field": problem["field"],
        "remedy": problem["remedy"],
    } == (problem["errors"][0])
    del bad["num_nodes"]
    assert "errors" not in problem_of(http.post("/jobs", json={"job": bad}), 422)


def test_a_sweep_that_is_asked_for_as_a_job_names_its_first(http: httpx.Client) -> None:
    """As anything else that is no job, it is not found; what is almost one is told the nearest."""
    tuned = {"run": "true", "sweep": {"matrix": {"LR": [1, 2]}}}
    sweep = http.post("/jobs", json={"job": tuned}).json()["id"]
    for name, want in (
        (sweep, f"no job '{sweep}': that is a sweep, and its first job is {sweep}[0]"),
        (f"{sweep}[2]", f"no job '{sweep}[2]': those of {sweep} are {sweep}[0] to [1]"),
        ("s987", "no sweep 's987'"), ("sx", "no job 'sx'"),
        ("all", "no job 'all': the selector state=active means all that have not ended"),
        ("41", "no job '41' (did you mean 'j41'?)"), ("J41", "no job 'J41' (did you mean 'j41'?)"),
    ):  # fmt: skip
        assert problem_of(http.get(f"/jobs/{name}/explain"), 404)["detail"] == want
        acted = http.post("/jobs/hold", json={"jobs": [name], "dry_run": True}).json()
        assert name == sweep or acted["effects"][0]["why"] == want


def test_every_name_that_the_fleet_does_not_have_is_answered(http: httpx.Client) -> None:
    """The tenant does not hide the GPU models; of many jobs, each error names the job."""
    bad = {"run": "true", "tenant": "nosuch", "resources": {"accelerators": ["X:1", "Y:1"]}}
    problem = problem_of(http.post("/jobs/dry-run", json={"job": bad}), 422)
    told = [(fault["field"], fault["detail"]) for fault in problem["errors"]]
    assert told == [
        ("tenant", "unknown tenant 'nosuch'"),
        ("resources.accelerators", "no region has the GPU model 'X'"),
        ("resources.accelerators", "no region has the GPU model 'Y'"),
    ]
    many = problem_of(http.post("/jobs/bulk", json={"jobs": [bad]}), 422)
    assert [fault["detail"] for fault in many["errors"]] == [f"jobs[0]: {text}" for _, text in told]
    several = problem_of(http.post("/jobs/bulk", json={"jobs": [bad, {"run": "x"}, bad]}), 422)
    assert [fault["detail"] for fault in several["errors"]] == [
        f"jobs[{place}]: {text}" for place in (0, 2) for _, text in told
    ]


def test_errors_of_form_hide_no_name_that_there_is_not(http: httpx.Client) -> None:
    """What is wrong with a job, and what it names that there is not, are told at once."""
    digest = f"sha256:{'0' * 64}"
    bad = {
        "run": 7, "num_nodes": 0, "tenant": "nosuch", "resources": {"accelerators": "X:1"},
        "depends_on": ["j987654", "s987654"], "workdir": digest,
    }  # fmt: skip
    want = [
        ("depends_on", "no job 'j987654'"),
        ("depends_on", "no job 's987654'"),
        ("num_nodes", "the number 0 is out of range"),
        ("resources.accelerators", "no region has the GPU model 'X'"),
        ("run", "wanted text, found the number 7"),
        ("tenant", "unknown tenant 'nosuch'"),
    ]
    unsent = ("workdir", "the server does not have this snapshot")
    for path, whole in (("/jobs", sorted([*want, unsent])), ("/jobs/dry-run", want)):
        for body in ({"job": bad}, {"job": bad, "user": 7}):
            problem = problem_of(http.post(path, json=body), 422)
            told = [(fault["field"], fault["detail"]) for fault in problem["errors"]]
            of_user = [("user", "must be a text")] if "user" in body else []
            assert sorted(told) == sorted([*whole, *of_user])
    for user in ("ada", 7):
        answer = http.post("/jobs/bulk", json={"jobs": [{"run": "x"}, bad], "user": user})
        errors = [(e["field"], e["detail"]) for e in problem_of(answer, 422)["errors"]]
        for field, detail in (*want, unsent):
            assert (field, f"jobs[1]: {detail}") in errors
        assert (("user", "must be a text") in errors) == (user == 7)


def test_many_jobs_are_admitted_all_or_none(http: httpx.Client) -> None:
    """One bad job in a bulk refuses all of it, and is named."""
    before = http.get("/health").json()["journal_seq"]
    bad = {"jobs": [{"run": "true"}, {"run": "true", "num_nodes": 0}]}
    problem = problem_of(http.post("/jobs/bulk", json=bad), 422)
    assert (problem["field"], problem["detail"][:8]) == ("num_nodes", "jobs[1]:")
    assert http.get("/health").json()["journal_seq"] == before
    good = {"jobs": [{"run": "true", "name": f"bulk-{n}"} for n in range(3)]}
    answer = http.post("/jobs/bulk", json=good)
    assert (answer.status_code, len(set(answer.json()["ids"]))) == (201, 3)
    first, second = {"run": "true", "name": "a"}, {"run": "true", "depends_on": ["a"]}
    one, two = http.post("/jobs/bulk", json={"jobs": [first, second]}).json()["ids"]
    assert http.get(f"/jobs/{two}").json()["depends_on"] == {one: "ok"}


def test_very_many_wrong_jobs_are_not_all_read(http: httpx.Client) -> None:
    """An error costs many times what a job does: after so many the rest is not looked at."""
    few, many = ([{"run": "true", "num_nodes": 0}] * count for count in (999, 2_000))
    for jobs, told in (
        (few, "and 979 more errors"),
        (many, "and 980 more errors; what comes after them was not read"),
    ):
        problem = problem_of(http.post("/jobs/bulk", json={"jobs": jobs}), 422)
        assert problem["errors"][-1]["detail"] == told


def test_jobs_are_listed_page_by_page(http: httpx.Client) -> None:
    """Following the cursor shows every job once, newest first, however small the pages."""
    posted = http.post("/jobs/bulk", json={"jobs": [{"run": "true"}] * 7}).json()["ids"]
    whole = [view["id"] for view in http.get("/jobs", params={"limit": 1000}).json()["jobs"]]
    assert whole[:7] == posted[::-1]
    found: list[str] = []
    params: dict[str, Any] = {"limit": 3}
    while True:
        page = http.get("/jobs", params=params).json()
        assert len(page["jobs"]) <= 3
        found += [view["id"] for view in page["jobs"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert found == whole
    assert sum(page["counts"].values()) == len(whole)
    of_speech = http.get("/jobs", params={"tenant": "speech"}).json()
    assert of_speech["jobs"] == []


def test_waiting_jobs_are_listed_in_the_order_of_the_queue(
    http: httpx.Client, client: Client
) -> None:
    """Higher bands first, whoever came first; a cancelled job leaves the list."""
    for host in ("east-a-0", "east-a-1"):
        assert http.post(f"/hosts/{host}/cordon", json={}).json()["state"] == "cordoned"
    ask = {"resources": {"accelerators": "H100:1"}}
    ids = {
        band: http.post("/jobs", json=job(priority=band, **ask)).json()["id"]
        for band in ("low", "critical", "normal")
    }
    params = {"state": "PENDING,RECOVERING", "order": "queue"}
    listed = [view["id"] for view in http.get("/jobs", params=params).json()["jobs"]]
    assert listed == [ids["critical"], ids["normal"], ids["low"]]
    pages = [http.get("/jobs", params={**params, "limit": limit}).json() for limit in (2, 3)]
    assert [page["next_cursor"] for page in pages] == ["2", None], "no page without jobs follows"
    eventually(
        lambda: http.get(f"/jobs/{ids['low']}").json()["reason"] == "InsufficientCapacity",
        "it says why it waits",
    )
    cancelled = http.post(f"/jobs/{ids['normal']}/cancel", json={"user": "ann"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "CANCELLED")
    assert cancelled.json()["cause"] == "cancelled by ann"
    for host in ("east-a-0", "east-a-1"):
        assert http.post(f"/hosts/{host}/uncordon").json()["state"] == "healthy"
    for band in ("low", "critical"):
        until_state(client, ids[band], "SUCCEEDED")
    assert http.get("/jobs", params=params).json()["jobs"] == []


def test_the_fleet_is_shown(http: httpx.Client) -> None:
    """Regions, clusters, hosts, GPUs and tenants, each with what the fleet file says."""
    shown = {what: http.get(f"/{what}").json()[what] for what in
             ("regions", "clusters", "hosts", "gpus", "tenants", "datasets")}  # fmt: skip
    assert [(r["name"], r["hosts"], r["gpus"]) for r in shown["regions"]] == [
        ("east", 2, 4.0), ("west", 1, 2.0),
    ]  # fmt: skip
    assert [(c["name"], c["engine"]) for c in shown["clusters"]] == [
        ("east-a", "local"), ("west-a", "local"),
    ]  # fmt: skip
    assert [h["name"] for h in shown["hosts"]] == ["east-a-0", "east-a-1", "west-a-0"]
    assert [(g["gpu_model"], g["total"]) for g in shown["gpus"]] == [("H100", 4.0), ("A100", 2.0)]
    assert {(t["name"], t["gpu_model"], t["nominal"]) for t in shown["tenants"]} >= {
        ("vision", "H100", 2.0), ("speech", "H100", 2.0),
    }  # fmt: skip
    assert http.get("/health").json()["version"]


def test_a_host_is_drained_and_returned(http: httpx.Client) -> None:
    """Each verb answers with the host as it is then; a body is not needed."""
    assert http.post("/hosts/west-a-0/drain").json()["state"] == "draining"
    assert http.post("/hosts/west-a-0/cordon", json={"user": "ann"}).json()["state"] == "cordoned"
    assert http.post("/hosts/west-a-0/uncordon").json()["state"] == "healthy"
    story = http.get("/hosts/west-a-0/story").json()
    assert story["host"]["state"] == "healthy"
    texts = [line["text"] for line in story["history"]]
    assert texts[-2] == "west-a-0 was cordoned by ann"
    assert texts[-1].startswith("west-a-0 was uncordoned by ")
    plan = http.get("/hosts/west-a-0/drain").json()
    assert plan == {"host": "west-a-0", "region": "west", "state": "healthy", "moves": []}
    assert http.post("/hosts/west-a-0/drain", json={"now": True}).json()["state"] == "draining"
    assert problem_of(http.post("/hosts/west-a-0/drain", json={"now": 1}), 422)
    assert problem_of(http.post("/hosts/west-a-0/cordon", json={"now": True}), 422)
    assert http.post("/hosts/west-a-0/uncordon").json()["state"] == "healthy"
    both = {"also": ["east-a-1"]}
    assert http.post("/hosts/east-a-0/drain", json=both).json()["state"] == "draining"
    states = {h["name"]: (h["state"], h["free_gpus"]) for h in http.get("/hosts").json()["hosts"]}
    assert states["east-a-1"] == ("draining", 0.0), "what takes no work has nothing free"
    assert http.get("/hosts/east-a-0/drain?also=east-a-1").json()["moves"] == []
    for name in ("east-a-0", "east-a-1"):
        assert http.post(f"/hosts/{name}/uncordon").json()["free_gpus"] == 2.0
    assert problem_of(http.post("/hosts/east-a-0/drain", json={"also": ["west-a-0"]}), 422)
    assert problem_of(http.post("/hosts/east-a-0/drain", json={"also": "east-a-1"}), 422)
    assert problem_of(http.get("/hosts/east-a-0/drain?also=west-a-9"), 404)
    assert "west-a-9" in problem_of(http.get("/hosts/west-a-9/drain"), 404)["detail"]
    near = problem_of(http.post("/hosts/west-a-9/drain"), 404)
    assert "west-a-9" in near["detail"]


def test_a_dataset_is_added_copied_and_dropped(http: httpx.Client, tmp_path: Path) -> None:
    """The whole life of a replica; the last one may not go."""
    (tmp_path / "part").write_bytes(b"x" * 1000)
    body = {"name": "words", "region": "east", "source": str(tmp_path)}
    added = http.post("/datasets", json=body)
    assert (added.status_code, added.json()["size_bytes"]) == (201, 1000)
    assert problem_of(http.post("/datasets", json=body), 409)["detail"].startswith(
        "dataset 'words'"
    )
    copied = http.post("/datasets/words/replicas", json={"region": "west"})
    assert copied.status_code == 202

    def replicas() -> dict[str, str]:
        (view,) = (d for d in http.get("/datasets").json()["datasets"] if d["name"] == "words")
        return {replica["region"]: replica["state"] for replica in view["replicas"]}

    both = {"east": "complete", "west": "complete"}
    eventually(lambda: replicas() == both, "the replica is there")
    dropped = http.delete("/datasets/words/replicas/east")
    assert (dropped.status_code, replicas()) == (200, {"west": "complete"})
    last = problem_of(http.delete("/datasets/words/replicas/west"), 409)["detail"]
    assert "would have 0 complete replicas, and must have 1" in last
    assert "topmast datasets rm words" in last
    problem_of(http.delete("/datasets/words/replicas/east"), 404)
    removed = http.delete("/datasets/words")
    assert (removed.status_code, removed.json()["name"]) == (200, "words")
    assert all(d["name"] != "words" for d in http.get("/datasets").json()["datasets"])
    problem_of(http.delete("/datasets/words"), 404)


def test_a_misspelt_filter_is_refused_and_is_not_all_that_there_is(http: httpx.Client) -> None:
    """Of every route that reads; all that is wrong with the parameters is told at once."""
    for path, fields in (
        ("/jobs?stat=RUNNING&tennant=vision", {"stat": "did you mean 'state'?",
                                               "tennant": "did you mean 'tenant'?"}),
        ("/jobs?state=RUNNING&state=FAILED", {"state": "keep one of the two"}),
        ("/hosts?region=east", {"region": "leave it out"}),
        ("/fleet/map?at=5", {"at": "leave it out"}),
        ("/events?kind=x", {"kind": "known parameters: after"}),
    ):  # fmt: skip
        problem = problem_of(http.get(path), 422)
        told = problem.get("errors", [problem])
        assert {one["field"]: one["remedy"] for one in told} == fields


def test_a_dry_run_of_a_dataset_is_refused_as_the_act_is(
    http: httpx.Client, tmp_path: Path
) -> None:
    """What would be copied is looked at as the copy does it: no link leads out of the folder."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "part").write_bytes(b"x" * 1000)
    body = {"name": "tried", "region": "east", "source": str(folder)}
    tried = http.post("/datasets", json=body | {"dry_run": True})
    assert (tried.status_code, tried.json()["size_bytes"]) == (200, 1000)
    (folder / "out").symlink_to("/etc/passwd")
    for source in (str(folder), "/proc/self", f"/{'a' * 300}", "/proc"):
        refused = [
            http.post("/datasets", json=body | {"source": source, "dry_run": dry}).json()
            for dry in (True, False)
        ]
        assert {one["status"] for one in refused} <= {400, 422}, refused
        if source != "/proc":  # of which the first fault depends on the order of processes
            assert refused[0] == refused[1]
    assert all(one["name"] != "tried" for one in http.get("/datasets").json()["datasets"])


def test_no_dataset_reaches_into_the_folder_of_another(http: httpx.Client, tmp_path: Path) -> None:
    """Not by the same path, not from above, not from inside; not even while the first one arrives."""
    (tmp_path / "part").write_bytes(b"x" * 1000)
    body = {"region": "east", "source": str(tmp_path)}
    with ThreadPoolExecutor(4) as pool:
        same = [{"name": f"one{i}", "path": "own/folder", **body} for i in range(4)]
        codes = sorted(pool.map(lambda b: http.post("/datasets", json=b).status_code, same))
    assert codes == [201, 409, 409, 409]
    for path in ("own", "own/folder", "own/folder/part"):
        for region in ("east", "west"):
            more = {"name": "evil", "path": path, "region": region}
            problem = problem_of(http.post("/datasets", json=more), 409)
            assert "dataset 'one" in problem["detail"]
            assert "choose another path" in problem["detail"]
    known = [d["name"] for d in http.get("/datasets").json()["datasets"]]
    assert "evil" not in known


def test_a_workdir_is_uploaded_once_and_only_whole(http: httpx.Client) -> None:
    """The digest says what must be inside; nothing else gets in."""
    data = gzip.compress(bytes(1024))
    place = f"/workdirs/sha256:{hashlib.sha256(data).hexdigest()}"
    missing = http.head(place)
    kind = missing.headers["content-type"]
    assert (missing.status_code, kind) == (404, "application/problem+json")
    problem_of(http.put(place, content=b"another"), 422)
    assert http.head(place).status_code == 404
    assert [http.put(place, content=data).status_code for _ in range(2)] == [201, 200]
    assert http.head(place).status_code == 200
    problem_of(http.put("/workdirs/sha256:..%2f..%2fx", content=data), 404)
    problem_of(http.put("/workdirs/md5:00", content=data), 422)


def test_a_workdir_that_cannot_be_unpacked_is_refused(http: httpx.Client) -> None:
    """It names the field, and what is wrong: a damaged archive, or a header that is none."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 512
    whole = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"1" * 512)
    for data in (b"", b"hello"):
        place = f"/workdirs/sha256:{hashlib.sha256(data).hexdigest()}"
        assert "this is no archive" in problem_of(http.put(place, content=data), 422)["detail"]
        assert http.head(place).status_code == 404
    for data in (b"\x1f\x8b\x08" + bytes(7) + b"\x07\xff", whole[:-20], whole):
        place = f"/workdirs/sha256:{hashlib.sha256(data).hexdigest()}"
        problem = problem_of(http.put(place, content=data), 422)
        assert problem["field"] == "workdir"
        assert "the archive is damaged" in problem["detail"]


def test_requeue_of_a_sweep_leaves_out_what_succeeded(http: httpx.Client, client: Client) -> None:
    """So does a selector; a job that is named itself is refused."""
    receipt = http.post("/jobs", json=job(
        name="half", run='test "$X" = a', max_restarts=0,
        sweep={"matrix": {"X": ["a", "b"]}},
    )).json()  # fmt: skip
    sweep = receipt["id"]
    done, failed = (client.job(f"{sweep}[{index}]").id for index in (0, 1))
    until_state(client, done, "SUCCEEDED")
    until_state(client, failed, "FAILED")
    for body in ({"jobs": [sweep]}, {"selector": f"sweep={sweep},state=FAILED,state=SUCCEEDED"}):
        dry = http.post("/jobs/requeue", json=body | {"dry_run": True}).json()
        assert [(e["job"], e["effect"]) for e in dry["effects"]] == [(failed, "done")], body
    for named in (done, f"{sweep}[0]"):
        both = http.post("/jobs/requeue", json={"jobs": [sweep, named], "dry_run": True}).json()
        assert (both["counts"]["refused"], both["counts"]["done"]) == (1, 1)
    assert [e.job for e in client.requeue([sweep]).effects] == [failed]


def test_usage_is_accounted(http: httpx.Client, client: Client) -> None:
    """By tenant, user or GPU model, over a period."""
    held = http.post("/jobs", json=job(resources={"accelerators": "H100:1"})).json()["id"]
    until_state(client, held, "SUCCEEDED")
    for by in ("tenant", "user", "gpu"):
        report = http.get("/usage", params={"by": by}).json()
        assert report["by"] == by
        assert report["usage"]
        for row in report["usage"]:
            assert row["held_gpu_h"] == pytest.approx(row["kept_gpu_h"] + row["lost_gpu_h"])
    assert http.get("/usage", params={"since": 0, "until": 1}).json()["usage"] == []


def test_where_nothing_is_planned_the_data_plan_says_so(http: httpx.Client) -> None:
    """A server plans data only when told to."""
    plan = http.get("/plans/data").json()
    assert (plan["every_s"], plan["number"], plan["trouble"]) == (None, None, None)


def test_where_nothing_is_planned_the_capacity_plan_says_so(http: httpx.Client) -> None:
    """So do hosts: nobody wants them elsewhere."""
    plan = http.get("/plans/capacity").json()
    assert (plan["every_s"], plan["number"], plan["trouble"]) == (None, None, None)
    assert (plan["clusters"], plan["leaving"]) == ([], [])


# --- the event stream -----------------------------------------------------------------------------


def heard(http: httpx.Client, count: int, **headers: str) -> list[dict[str, Any]]:
    """The first so many events of a stream; of each the id, which its data repeats."""
    found: list[dict[str, Any]] = []
    with http.stream("GET", "/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        seq = ""
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                seq = value
            elif name == "data":
                found.append(json.loads(value))
                assert seq == str(found[-1]["seq"])
            if len(found) == count:
                break
    return found


def test_events_go_on_where_a_reader_stopped(http: httpx.Client, client: Client) -> None:
    """With Last-Event-ID nothing is missed and nothing told twice."""
    first = client.submit({"name": "first", "run": "true"}).id
    until_state(client, first, "SUCCEEDED")
    start = next(e["seq"] for e in heard(http, 1, **{"Last-Event-ID": "0"}))
    everything = heard(http, 5, **{"Last-Event-ID": "0"})
    assert [event["seq"] for event in everything] == list(range(start, start + 5))
    resumed = heard(http, 3, **{"Last-Event-ID": str(everything[1]["seq"])})
    assert resumed == everything[2:5]
    by_query = [event.seq for event, _ in zip(client.events(after=start), range(2), strict=False)]
    assert by_query == [start + 1, start + 2]
    last = heard(http, 1, **{"Last-Event-ID": str(start)})[-1]
    assert last.keys() == {"seq", "at_s", "kind", "job", "text", "detail"}


# --- refusals -------------------------------------------------------------------------------------

DEEP = b'{"job": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BOMB = b'{"job": {"run": "true", "datasets": [' + b'"a",' * 200_000 + b'"b"]}}'


@pytest.mark.parametrize(
    ("body", "want_field", "want_detail"),
    [
        (b"{", "body", "not JSON"),
        (b"[]", "body", "must be a JSON object"),
        (b'"x"', "body", "must be a JSON object"),
        (b"", "job", "missing"),
        (b"\xff\xfe{", "body", "not JSON"),
        (b'{"job": {"run": "\xff"}}', "body", "not JSON"),
        (b'{"job": {"run": "\\ud800"}}', "body", "not JSON"),
        (b'{"job": {"run": "true", "time_limit": NaN}}', "body", "not JSON"),
        (b'{"job": {"run": "true", "time_limit": 1e999}}', "body", "not JSON"),
        (b'{"job": {"run": "true", "num_nodes": ' + b"9" * 5000 + b"}}", "body", "not JSON"),
        (b'{"job": {"run": "a", "run": "b"}}', "run", "given twice"),
        (b'{"job": {"run": "a"}, "job": {"run": "b"}}', "job", "given twice"),
        (b'{"job": {"run": "true"}, "usr": "ann"}', "usr", "unknown field"),
        (DEEP, "body", "nested too deeply"),
        (BOMB, "", "values"),
    ],
)
def test_a_hostile_body_is_refused_soon(
    http: httpx.Client, body: bytes, want_field: str, want_detail: str
) -> None:
    """Whatever is not a JSON object with a job in it: one clear line, at once, and nothing happens."""
    before = http.get("/health").json()["journal_seq"]
    begun_s = time.monotonic()
    problem = problem_of(http.post("/jobs", content=body), 422)
    assert time.monotonic() - begun_s < 0.5
    assert problem["field"] == want_field
    assert want_detail in problem["detail"]
    assert http.get("/health").json()["journal_seq"] == before


@pytest.mark.parametrize(
    ("fields", "want_field", "want_remedy"),
    [
        ({"run": 5}, "run", "quote it"),
        ({"run": "a\0b"}, "run", ""),
        ({"num_nodes": 10**9}, "num_nodes", "from 1 to 100,000"),
        ({"num_nodes": -1}, "num_nodes", "from 1 to 100,000"),
        ({"num_nodes": 1.5}, "num_nodes", ""),
        ({"num_nodes": 10**25}, "num_nodes", "from 1 to 100,000"),
        ({"resources": {"accelerators": "H1000:1"}}, "resources.accelerators", "mean 'H100'?"),
        ({"resources": {"accelerators": "H100:1000000000"}}, "resources.accelerators", "65,536"),
        ({"resources": {"accelerators": "H100:nan"}}, "resources.accelerators", ""),
        ({"resources": {"cpus": "inf"}}, "resources.cpus", "a number"),
        ({"tenant": "visoin"}, "tenant", "did you mean 'vision'?"),
        ({"tenant": "nobody-like-that"}, "tenant", "one of: speech, vision"),
        ({"runn": "x"}, "runn", "did you mean 'run'?"),
        ({"time_limit": "nan"}, "time_limit", "seconds"),
        ({"time_limit": -1}, "time_limit", ""),
        ({"name": "../../etc"}, "name", "letters"),
        ({"name": "<script>"}, "name", "letters"),
        ({"checkpoint": {"path": "../other"}}, "checkpoint.path", "below its folder"),
        ({"datasets": ["a/../b"]}, "datasets[0]", "letters"),
        ({"envs": {"TOPMAST_RANK": "1"}}, "envs.TOPMAST_RANK", "rename it"),
        ({"envs": {"A=B": "1"}}, "envs.A=B", "letters"),
        ({"workdir": "/etc"}, "workdir", "snapshot"),
        ({"workdir": "sha256:" + "0" * 64}, "workdir", "PUT it first"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_a_remedy(
    http: httpx.Client, fields: dict[str, Any], want_field: str, want_remedy: str
) -> None:
    """The field at fault is named, and what to write instead; a dry run says the same."""
    problem = problem_of(http.post("/jobs", json=job(**fields)), 422)
    assert problem["field"] == want_field
    assert want_remedy in problem["remedy"]
    if "snapshot" not in problem["detail"]:
        assert problem_of(http.post("/jobs/dry-run", json=job(**fields)), 422) == problem


@pytest.mark.parametrize(
    ("fields", "want_field", "want_text"),
    [
        ({"path": "../../../etc"}, "path", "leaves its folder"),
        ({"path": "/etc"}, "path", "leaves its folder"),
        ({"path": ".topmast/manifests"}, "path", "not the path of a dataset"),
        ({"path": "a\0b"}, "path", "NUL"),
        ({"path": "nothing/here"}, "path", "nothing at"),
        ({"region": "eats"}, "region", "did you mean 'east'?"),
        ({"region": ["east"]}, "region", "unknown region"),
        ({"name": "../x"}, "name", "not a name"),
        ({"source": "relative/folder"}, "source", "an absolute path"),
        ({"source": "/no/such/folder"}, "source", "no folder '/no/such/folder'"),
        ({"source": "/dev/null"}, "source", "'/dev/null' is a device"),
        ({"source": "/dev/null/x"}, "source", "no folder '/dev/null/x'"),
        ({"allowed": ["mars"]}, "allowed[0]", "no region 'mars'"),
        ({"sizes": "1GB"}, "sizes", "did you mean 'size'?"),
    ],
)
def test_a_dataset_never_leads_out_of_its_store(
    http: httpx.Client, fields: dict[str, Any], want_field: str, want_text: str
) -> None:
    """No path, name or source gets anything in that a region does not keep for datasets."""
    body = {"name": "stray", "region": "east", **fields}
    problem = problem_of(http.post("/datasets", json=body), 422)
    assert problem["field"] == want_field
    assert want_text in f"{problem['detail']} {problem['remedy']}"
    assert all(d["name"] != "stray" for d in http.get("/datasets").json()["datasets"])


@pytest.mark.parametrize(
    ("path", "want_status", "want_field"),
    [
        ("/jobs?limit=0", 422, "limit"),
        ("/jobs?limit=abc", 422, "limit"),
        ("/jobs?limit=99999999999999999999", 422, "limit"),
        ("/jobs?state=RUNING", 422, "state"),
        ("/jobs?order=oldest", 422, "order"),
        ("/jobs?cursor=-1", 422, "cursor"),
        ("/jobs?cursor=x", 422, "cursor"),
        ("/jobs?cursor=" + "9" * 5000, 422, "cursor"),
        ("/jobs/j999999", 404, ""),
        ("/jobs/j999999/story", 404, ""),
        ("/jobs/j999999/explain", 404, ""),
        ("/jobs/j999999/logs", 404, ""),
        ("/jobs/j1%00", 404, ""),
        ("/jobs/..%2f..%2fjournal.sqlite", 404, ""),
        ("/jobs/j1/logs?task=7", 422, "task"),
        ("/jobs/j1/logs?offset=-1", 422, "offset"),
        ("/jobs/j1/logs?attempt=9", 404, ""),
        ("/usage?by=planet", 422, "by"),
        ("/usage?since=nan", 422, "since"),
        ("/usage?since=100&until=50", 422, "until"),
        ("/usage?since=9e10", 422, "since"),
        ("/usage?until=x", 422, "until"),
        ("/fleet/history?period=1y", 422, "period"),
        ("/events?after=x", 422, "after"),
        ("/nothing", 404, ""),
    ],
)
def test_a_question_that_has_no_answer(
    http: httpx.Client, client: Client, path: str, want_status: int, want_field: str
) -> None:
    """A parameter out of place and a thing that is not there are refused in the same form."""
    if not client.job_page().jobs:
        until_state(client, client.submit({"run": "true"}).id, "SUCCEEDED")
    assert problem_of(http.get(path), want_status)["field"] == want_field


def test_a_method_that_a_route_has_not(http: httpx.Client) -> None:
    """405 is a problem document like every other refusal."""
    refused = http.delete("/jobs")
    problem_of(refused, 405)
    assert refused.headers["allow"] == "GET, HEAD, POST"
    refused = http.get("/jobs/bulk/cancel")
    problem_of(refused, 405)
    assert refused.headers["allow"] == "POST"
    refused = http.post(str(http.base_url.join("/openapi.json")))
    problem_of(refused, 405)
    assert refused.headers["allow"] == "GET, HEAD"


def test_an_idempotency_key_stands_for_one_body(http: httpx.Client) -> None:
    """The same again is answered with the same job; anything else with 409."""
    key = {"Idempotency-Key": "a-key"}
    first = http.post("/jobs", json=job(name="a"), headers=key)
    again = http.post("/jobs", json=job(name="a"), headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    problem_of(http.post("/jobs", json=job(name="b"), headers=key), 409)
    problem_of(http.post("/jobs", json=job(), headers={"Idempotency-Key": "x" * 300}), 422)


@pytest.mark.parametrize(("keys", "status"), [([""], 422), (["a", "b"], 400)])
def test_a_key_that_is_none_or_two_is_refused(
    http: httpx.Client, keys: list[str], status: int
) -> None:
    """It would be ignored silently, and a repetition would be another job."""
    headers = [("Idempotency-Key", key) for key in keys]
    one = job(name="keyless")
    for path, body in (("/jobs", one), ("/jobs/bulk", {"jobs": [one["job"]]})):
        said = problem_of(http.post(path, json=body, headers=headers), status)
        assert "idempotency-key" in f"{said.get('field', '')} {said['detail']}".lower()
    assert "keyless" not in {known["name"] for known in http.get("/jobs").json()["jobs"]}


def test_a_body_that_is_too_large_is_refused_while_it_arrives(http: httpx.Client) -> None:
    """Nobody fills the memory: a body without end is cut off."""

    def endless() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 2**20

    digest = "sha256:" + "0" * 64
    problem = problem_of(http.put(f"/workdirs/{digest}", content=endless()), 413)
    assert "larger than" in problem["detail"]


@pytest.mark.parametrize(
    ("headers", "want_status"),
    [
        ([("Host", "localhost:80")], 200),
        ([("Host", "[::1]:80")], 200),
        ([("Host", "evil.example")], 403),
        ([("Host", "127.0.0.1.evil.example")], 403),
        ([("Host", "evil.example@localhost")], 403),
        ([("Host", "localhost#x")], 403),
        ([("Host", "localhost/.evil.example")], 403),
        ([("Host", "[")], 403),
        ([("Host", "")], 403),
        ([("Host", "localhost"), ("Origin", "http://localhost")], 200),
        ([("Host", "localhost:9"), ("Origin", "http://localhost:9")], 200),
        ([("Host", "localhost:9"), ("Origin", "https://localhost:9")], 403),
        ([("Origin", "http://localhost:3000")], 403),
        ([("Origin", "chrome-extension://localhost")], 403),
        ([("Origin", "http://evil.example")], 403),
        ([("Origin", "http://127.0.0.1@evil.example")], 403),
        ([("Origin", "http://[")], 403),
        ([("Origin", "null")], 403),
        ([("Origin", "http://a"), ("Origin", "http://localhost")], 400),
        ([("Sec-Fetch-Site", "same-origin")], 200),
        ([("Sec-Fetch-Site", "none")], 200),
        ([("Sec-Fetch-Site", "same-site")], 403),
        ([("Sec-Fetch-Site", "cross-site")], 403),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer b")], 400),
    ],
)
def test_only_this_machine_is_answered(
    http: httpx.Client, headers: list[tuple[str, str]], want_status: int
) -> None:
    """A page elsewhere, or on another port, reaches nothing: neither by a name that leads here nor by a script."""
    answer = http.get("/health", headers=headers)
    assert answer.status_code == want_status
    if want_status != 200:
        problem_of(answer, want_status)
        refused = http.post(
            "/jobs", content=b"{}", headers=[*headers, ("Content-Type", "application/json")]
        )
        assert refused.status_code in (want_status, 400)


def test_two_hosts_are_refused(running: tuple[Server, Client]) -> None:
    """Which of the two counts, each reader would decide for itself."""
    with connect(running[0].url) as raw:
        raw.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n")
        assert raw.recv(1_000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_named_json_is_refused(http: httpx.Client, kind: str) -> None:
    """What a page may send without being allowed to is no job."""
    before = http.get("/health").json()["journal_seq"]
    body = json.dumps(job()).encode()
    problem_of(http.post("/jobs", content=body, headers={"Content-Type": kind}), 415)
    assert http.get("/health").json()["journal_seq"] == before


def test_blanks_are_no_key(running: tuple[Server, Client]) -> None:
    body = json.dumps(job()).encode()
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connect(running[0].url) as raw:
        raw.sendall(head + b"Idempotency-Key: \t \r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert raw.recv(1_000).startswith(b"HTTP/1.1 422 ")


def test_strangers_write_no_lines_into_the_log(running: tuple[Server, Client]) -> None:
    """They could fill the disk with them: what is no HTTP, and what asks for another protocol."""
    server, _ = running
    before = server.log.read_bytes()
    upgrade = (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"
    )
    for said in (b"no HTTP\r\n\r\n", upgrade % b"websocket", upgrade % b"h2c"):
        with connect(server.url) as raw:
            raw.sendall(said)
            assert raw.recv(1_000).startswith(b"HTTP/1.1 ")
    assert server.log.read_bytes() == before


def test_nothing_hostile_upset_the_server(running: tuple[Server, Client]) -> None:
    """After all this its log has no traceback, and it still takes jobs."""
    server, client = running
    until_state(client, client.submit({"run": "true"}).id, "SUCCEEDED")
    log = server.log.read_text()
    assert "Traceback" not in log
    assert "error" not in log


def test_a_dry_run_is_refused_as_the_job_would_be(http: httpx.Client) -> None:
    """After the success of a job that was cancelled nothing can start; after its end it can."""
    wide = {"run": "true", "num_nodes": 1_000, "resources": {"accelerators": 8}}
    never = http.post("/jobs", json={"job": wide}).json()["id"]
    assert http.post(f"/jobs/{never}/cancel", json={}).json()["state"] == "CANCELLED"
    told = [
        problem_of(http.post(path, json={"job": {"run": "true", "depends_on": [never]}}), 422)
        for path in ("/jobs", "/jobs/dry-run")
    ]
    assert told[0] == told[1]
    assert told[1]["detail"] == f"{never} has CANCELLED, and this job runs only after its success"
    later = {"run": "true", "depends_on": [{"job": never, "after": "any"}]}
    assert http.post("/jobs/dry-run", json={"job": later}).status_code == 200
