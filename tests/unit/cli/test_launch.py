"""`launch`, `wait`, `logs`."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import REPO, Call, nothing_is_sent, program
from tests.unit.client.fake import Answer, FakeServer, Request, ended, job, problem, running
from topmast.client import snapshot
from topmast.model.views import BulkReceipt, Explanation, Fault, JobView, Problem, Receipt

RECEIPT = Answer(Receipt("j7", "resnet", ("no dataset \x1b[1mimagenet",)), 201)
EXPLANATION = Explanation(
    None, "resnet", "NOT SUBMITTED", None, "1 task would start now in east/east-1", (), (), ()
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job file."""
    path = tmp_path / "resnet.yaml"
    path.write_text(
        "tenant: vision\nresources: {accelerators: H100:8}\nenvs: {LR: '0.1', SEED: '1'}\n"
        "run: python train.py\n"
    )
    return path


# ------------------------------------------------------------------------------------------ launch


def test_launch_prints_the_id(server: FakeServer, call: Call, file: Path) -> None:
    """Only the id, so that a script can keep it; warnings go to stderr."""
    server.on("POST", "/jobs", RECEIPT)
    called = call("launch", file)
    assert (called.code, called.out) == (0, "j7\n")
    assert called.error == "warning: no dataset \\x1b[1mimagenet"
    [asked] = server.asked("POST", "/jobs")
    assert asked.document["job"]["name"] == "resnet"
    assert asked.document["job"]["resources"] == {"accelerators": ["H100:8"]}
    assert asked.headers["idempotency-key"]


def test_launch_as_json(server: FakeServer, call: Call, file: Path) -> None:
    """The receipt."""
    server.on("POST", "/jobs", RECEIPT)
    assert call("launch", file, "--json").document["id"] == "j7"


def test_launch_with_changes(server: FakeServer, call: Call, file: Path) -> None:
    """Options go before the file; variables are added to those of the file."""
    server.on("POST", "/jobs", RECEIPT)
    changes = ["--name", "try-2", "--tenant", "nlp", "--priority", "high"]
    call("launch", file, *changes, "--env", "LR=0.2", "--env", "MODE=a=b")
    sent = server.requests[0].document["job"]
    assert (sent["name"], sent["tenant"], sent["priority"]) == ("try-2", "nlp", "high")
    assert sent["envs"] == {"LR": "0.2", "SEED": "1", "MODE": "a=b"}


def test_launch_with_labels_and_jobs_to_wait_for(
    server: FakeServer, call: Call, file: Path
) -> None:
    """Each option adds to what the file says; with a mistake nothing is submitted."""
    server.on("POST", "/jobs", RECEIPT)
    after = ["--after", "j1", "--after-ok", "j2,j3", "--after-ok", "j4", "--after-any", "j5"]
    call("launch", file, "--label", "team=vision", *after)
    sent = server.requests[0].document["job"]
    assert sent["labels"] == {"team": "vision"}
    assert [(one["job"], one["after"]) for one in sent["depends_on"]] == [
        ("j1", "started"), ("j2", "ok"), ("j3", "ok"), ("j4", "ok"), ("j5", "any"),
    ]  # fmt: skip
    called = call("launch", file, "--after-ok", "train")
    assert called.code == 2
    assert "--after-ok: 'train' is not the id of a job" in called.error
    called = call("launch", file, "--after-ok", "s3[1]")
    assert "--after-ok: 's3[1]' is one job of a sweep (name it by its id, which" in called.error
    called = call("launch", file, "--after-any", "s1", "--after", "s2")
    assert "--after: a sweep does not start as a whole" in called.error
    called = call("launch", file, "--set", "depends_on=[train]")
    assert "depends_on[0]: 'train' is not the id of a job" in called.error
    assert len(server.asked("POST", "/jobs")) == 1


def test_what_a_server_refuses_of_dependencies_names_the_option(
    server: FakeServer, call: Call, file: Path
) -> None:
    """That which brought the job; of a job of the file the field."""
    refused = problem(422, "no job 'j99'", field="depends_on")
    server.on("POST", "/jobs", refused)
    said = call("launch", file, "--after", "j1", "--after-ok", "j9,j99").error
    assert said == "topmast: command line: --after-ok: no job 'j99'"
    file.write_text("run: x\ndepends_on: [{job: j99, after: ok}]\n")
    assert call("launch", file).error == f"topmast: {file}:2: depends_on: no job 'j99'"


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (["--priority", "hihg"], "command line: priority: "),
        (["--name", "a b/c"], "command line: name: "),
        (["--env", "1X=2"], "command line: envs.1X: "),
        (["--env", "TOPMAST_RANK=2"], "command line: envs.TOPMAST_RANK: "),
    ],
)
def test_changes_are_checked(
    change: list[str], want: str, server: FakeServer, call: Call, file: Path
) -> None:
    """As the file is, before anything is sent."""
    called = call("launch", file, *change)
    assert called.code == 2
    assert want in called.error
    assert nothing_is_sent(server)


def test_a_bad_file_needs_no_server(call: Call, file: Path) -> None:
    """The error of the file comes first, with its line and field."""
    file.write_text("num_node: 2\nrun: x\n")
    called = call("launch", file, "--json")
    assert (called.code, called.out) == (2, "")
    assert called.problem["detail"].startswith(f"{file}:1: ")
    assert (called.problem["field"], called.problem["status"]) == ("num_node", 422)
    assert "num_nodes" in called.problem["remedy"]
    assert call("launch", file).error.startswith(f"topmast: {file}:1: num_node: ")
    file.write_text("run: x\n")
    assert call("launch", file).code == 1


def test_faults_of_options_and_of_the_file_are_told_at_once(call: Call, file: Path) -> None:
    """Each on its line, with its place."""
    file.write_text("num_node: 2\nrun: x\n")
    called = call("launch", file, "--gpus", "[", "--cpus", "]", "-N", "x", "--env-file", "/no/env")
    assert (called.code, called.out) == (2, "")
    places = [" ".join(line.split(": ")[1:3]) for line in called.err.splitlines()]
    assert places[:2] == [f"command line resources.{name}" for name in ("accelerators", "cpus")]
    assert places[2].startswith("/no/env")
    assert sorted(places[3:]) == sorted([f"{file}:1 num_node", "command line num_nodes"])


def test_launch_sends_the_workdir(
    server: FakeServer, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is found from the file, wherever the command is called."""
    (tmp_path / "a" / "src").mkdir(parents=True)
    (tmp_path / "a" / "src" / "x.py").write_text("x")
    (tmp_path / "a" / "job.yaml").write_text("workdir: src\nrun: x\n")
    monkeypatch.chdir(tmp_path)
    server.on("POST", "/jobs", RECEIPT)

    digest = snapshot(tmp_path / "a" / "src").digest
    server.on("HEAD", f"/workdirs/{digest}", Answer(b"", 200))
    assert call("launch", "a/job.yaml").code == 0
    assert server.asked("POST", "/jobs")[0].document["workdir"] == digest
    (tmp_path / "a" / "src" / "link").symlink_to("/etc/passwd")
    called = call("launch", "a/job.yaml")
    assert called.code == 2
    assert "a/job.yaml:1: workdir: the link link -> /etc/passwd leads out" in called.error
    assert call("launch", "a/job.yaml", "--dry-run").error == called.error


def test_a_dry_run_refuses_the_folder_that_launch_refuses(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """By the same words, with the line of the file; nothing is sent."""
    (tmp_path / "job.yaml").write_text("name: a\nworkdir: nosuch\nrun: x\n")
    refused = [call("launch", tmp_path / "job.yaml", *more) for more in ([], ["--dry-run"])]
    assert {called.code for called in refused} == {2}
    assert {called.error for called in refused} == {
        f"topmast: {tmp_path}/job.yaml:2: workdir: {tmp_path}/nosuch is not a folder "
        "(name a folder that is there)"
    }
    assert nothing_is_sent(server)


def test_the_folder_is_refused_beside_the_other_errors_of_the_file(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """A folder that is not there does not wait until the rest is right."""
    (tmp_path / "job.yaml").write_text("num_nodes: 0\nworkdir: nosuch\nrun: [x]\n")
    called = call("launch", tmp_path / "job.yaml")
    assert called.code == 2
    assert [line.split(":")[2:4] for line in called.err.splitlines()] == [
        ["1", " num_nodes"], ["3", " run"], ["2", " workdir"],
    ]  # fmt: skip
    assert nothing_is_sent(server)


def test_what_the_server_refuses_is_placed_in_the_file(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """Every error has its line; one in an option names no line of the file."""
    file = tmp_path / "multi.yaml"
    file.write_text("run: x\ntenant: vison\nresources:\n  accelerators: [H1000:8, A1000:8]\n")
    faults = (
        Fault("unknown tenant", "tenant", "did you mean 'vision'?"),
        Fault("no H1000", "resources.accelerators", ""),
        Fault("no A1000", "resources.accelerators", ""),
    )
    refusal = Problem("about:blank", "Invalid input", 422, "unknown tenant", "tenant", "", faults)
    for path, more in (("/jobs", []), ("/jobs/dry-run", ["--dry-run"])):
        server.on("POST", path, Answer(refusal, 422))
        called = call("launch", file, *more)
        assert called.code == 2
        assert called.err.splitlines() == [
            f"topmast: {file}:2: tenant: unknown tenant",
            f"topmast: {file}:4: resources.accelerators: no H1000",
            f"topmast: {file}:4: resources.accelerators: no A1000",
        ]
    called = call("launch", file, "--tenant", "vison")
    assert called.err.splitlines()[0] == "topmast: command line: tenant: unknown tenant"


def test_what_only_the_server_knows_is_told_beside_the_errors_of_the_file(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """It is asked about the rest: an unknown tenant does not wait until a number is right."""
    file = tmp_path / "job.yaml"
    file.write_text("run: x\ntenant: vison\nnum_nodes: 0\nmax_restarts: many\n")
    faults = (
        Fault("unknown tenant 'vison'", "tenant", "did you mean 'vision'?"),
        Fault("no region has the GPU model 'Q'", "resources.accelerators"),
        Fault("spurious", "max_restarts"),
    )
    detail, field = faults[0].detail, faults[0].field
    server.on("POST", "/jobs/dry-run", problem(422, detail, field, faults[0].remedy, faults))
    called = call("launch", file, "--gpus", "Q:1", "--priority", "hgh")
    assert called.code == 2
    assert {line.removeprefix("topmast: ") for line in called.err.splitlines()} == {
        "command line: priority: 'hgh' is not a priority (did you mean 'high'?)",
        "command line: resources.accelerators: no region has the GPU model 'Q'",
        f"{file}:2: tenant: unknown tenant 'vison' (did you mean 'vision'?)",
        f"{file}:3: num_nodes: the number 0 is out of range (from 1 to 100,000)",
        f"{file}:4: max_restarts: wanted a whole number, found text 'many'",
    }
    (asked,) = server.requests
    sent = asked.document["job"]
    assert (sent["tenant"], sent["resources"]) == ("vison", {"accelerators": ["Q:1"]})


def test_errors_of_a_file_are_told_without_a_server(call: Call, tmp_path: Path) -> None:
    """As far as they are seen here."""
    (tmp_path / "job.yaml").write_text("run: x\nnum_nodes: 0\n")
    gone = ("--server", "http://127.0.0.1:9")
    called = call("launch", tmp_path / "job.yaml", *gone)
    assert (called.code, called.error) == (
        2, f"topmast: {tmp_path}/job.yaml:2: num_nodes: the number 0 is out of range "
        "(from 1 to 100,000)",
    )  # fmt: skip


def test_errors_of_several_jobs_are_told_at_once(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """Those that the server finds in any of them, too, with the line in the file."""
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "name: a\nrun: x\ntenant: vison\n---\nname: b\nrun: x\nnum_nodes: 0\n"
        "---\nname: c\ndepends_on: [a, j7]\nrun: x\n"
    )
    known = {"a": ("unknown tenant", "tenant"), "b": ("", ""), "c": ("no job 'j7'", "depends_on")}

    def answer(request: Request) -> Answer:
        detail, field = known[request.document["job"]["name"]]
        return problem(422, detail, field) if field else Answer(EXPLANATION)

    server.on("POST", "/jobs/dry-run", answer)
    called = call("launch", file)
    assert called.code == 2
    assert [line.removeprefix(f"topmast: {file}:") for line in called.err.splitlines()] == [
        "7: num_nodes: the number 0 is out of range (from 1 to 100,000)",
        "3: tenant: unknown tenant",
        "10: depends_on: no job 'j7'",
    ]
    assert server.requests[-1].document["job"]["depends_on"] == [{"job": "j7", "after": "ok"}]


def test_dry_run_submits_nothing(server: FakeServer, call: Call, file: Path) -> None:
    """It shows what explain would show."""
    server.on("POST", "/jobs/dry-run", EXPLANATION)
    assert "1 task would start now in east/east-1" in call("launch", file, "--dry-run").out
    assert call("launch", file, "--dry-run", "--json").document["state"] == "NOT SUBMITTED"
    assert server.asked("POST", "/jobs") == []


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELLED", 1)])
def test_launch_may_wait(state: str, code: int, server: FakeServer, call: Call, file: Path) -> None:
    """The exit code tells how the job ended; the id is still all there is on stdout."""
    server.on("POST", "/jobs", RECEIPT)
    server.on("GET", "/jobs/j7", job("j7"), ended("j7", state, cause="exit code 3"))
    called = call("launch", file, "--wait")
    assert (called.code, called.out) == (code, "j7\n")
    assert "j7 resnet: PENDING InsufficientCapacity" in called.err
    assert (f"topmast: j7 {state} (exit code 3)" in called.err) == bool(code)
    document = call("launch", file, "--wait", "--json").document
    assert (document["id"], document["job"]["state"]) == ("j7", state)


def test_launch_may_follow(server: FakeServer, call: Call, file: Path) -> None:
    """What the first task writes appears as it is written, on stderr with --json."""
    server.on("POST", "/jobs", RECEIPT)
    server.on("GET", "/jobs/j7", ended("j7"))
    server.on("GET", "/jobs/j7/logs", Answer(b"step 1\n", 200, {"X-Complete": "1"}))
    called = call("launch", file, "--follow")
    assert (called.code, called.out) == (0, "step 1\nj7\n")
    called = call("launch", file, "--follow", "--json")
    assert called.document["job"]["state"] == "SUCCEEDED"
    assert "step 1\n" in called.err


# -------------------------------------------------------------------------------------------- wait


def test_wait_succeeds_only_with_all(server: FakeServer, call: Call) -> None:
    """Exit code 0 if all succeeded; else 1, and a line that names those that did not."""
    server.on("GET", "/jobs/j1", running("j1"), ended("j1"))
    server.on("GET", "/jobs/j2", ended("j2", "FAILED", cause="out of memory"))
    called = call("wait", "j1", "j2")
    assert called.code == 1
    assert (
        called.err.splitlines()[-1] == "topmast: j2 FAILED (out of memory); see `topmast logs j2`"
    )
    assert [line.split()[:3] for line in called.out.splitlines()[1:]] == [
        ["j1", "resnet", "SUCCEEDED"],
        ["j2", "resnet", "FAILED"],
    ]
    good = call("wait", "j1", "--json")
    assert good.code == 0
    assert [one["id"] for one in good.document["jobs"]] == ["j1"]


def test_wait_gives_up(server: FakeServer, call: Call) -> None:
    """After the time given, with exit code 1."""
    server.on("GET", "/jobs/j1", running("j1"))
    called = call("wait", "j1", "--timeout", "200ms")
    assert (called.code, called.out) == (1, "")
    assert (
        called.err.splitlines()[-1]
        == "topmast: time is up: not all jobs ended within 0.2 s: j1 is RUNNING"
    )


def test_wait_on_a_terminal(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """A live table, which leaves no trace but the result."""
    steps = [running("j1", step=123450 + step) for step in range(12)]
    server.on("GET", "/jobs/j1", *steps, ended("j1"))
    screen = terminal("wait", "j1")
    assert screen.code == 0
    assert "12345" in screen.text
    assert "SUCCEEDED" in screen.text.splitlines()[-1]


def test_wait_that_is_broken_off_leaves_its_table(
    server: FakeServer, terminal: Callable[..., Any]
) -> None:
    """And says how to go on."""
    server.on("GET", "/jobs/j1", running("j1", step=12345))
    screen = terminal("wait", "j1", interrupt_at="12345")
    assert screen.code == 130
    *_, last = [line for line in screen.text.splitlines() if line.strip()]
    assert (
        last.removeprefix("\x1b[?25h")
        == "what has not ended goes on without you: topmast wait j1, topmast cancel j1"
    )
    after = screen.text.rpartition("\x1b[2K")[2]
    assert "12345" in after, "the table is drawn once more, and not taken away"


def test_where_to_look_is_said_once(server: FakeServer, call: Call) -> None:
    """A cause that names the log of a task is not followed by another hint."""
    cause = "task 0: setup exited with 3; see `topmast logs j1 --task 0`; 0 restarts used up"
    server.on("GET", "/jobs/j1", ended("j1", "FAILED", cause=cause))
    assert call("wait", "j1").err.splitlines()[-1] == f"topmast: j1 FAILED ({cause})"


# -------------------------------------------------------------------------------------------- logs


def two_attempts(request: Request) -> Answer:
    """Output of two attempts, in colour."""
    text = b"\x1b[32mattempt %s\x1b[0m\r\n" % request.query["attempt"].encode()
    offset = int(request.query["offset"])
    return Answer(text[offset:], 200, {"X-Complete": "1", "X-Next-Offset": str(len(text))})


def test_logs(server: FakeServer, call: Call) -> None:
    """The latest attempt, without what acts on a terminal unless it is asked for."""
    server.on("GET", "/jobs/j1", running(attempts=2)).on("GET", "/jobs/j1/logs", two_attempts)
    assert call("logs", "j1").out == "attempt 2\n"
    assert call("logs", "j1", "--attempt", "1").out == "attempt 1\n"
    assert call("logs", "j1", "--raw").out == "\x1b[32mattempt 2\x1b[0m\r\n"
    assert call("logs", "j1", "--task", "3").code == 0
    assert server.requests[-1].query["task"] == "3"
    document = call("logs", "j1", "--json").document
    assert document["attempts"] == [{"attempt": 2, "text": "\x1b[32mattempt 2\x1b[0m\r\n"}]


def test_logs_of_all_tasks(server: FakeServer, call: Call) -> None:
    """Whole lines, each with its rank."""

    def two_tasks(request: Request) -> Answer:
        text = b"\x1b[32ma\x1b[0m\nb" if request.query["task"] == "1" else b"c\n"
        offset = int(request.query["offset"])
        return Answer(text[offset:], 200, {"X-Complete": "1", "X-Next-Offset": str(len(text))})

    server.on("GET", "/jobs/j1", running(tasks=2)).on("GET", "/jobs/j1/logs", two_tasks)
    assert call("logs", "j1", "--all").out == "0: c\n1: a\n1: b\n"
    assert call("logs", "j1", "--all", "--raw").out == "0: c\n1: \x1b[32ma\x1b[0m\n1: b\n"
    document = call("logs", "j1", "--all", "--json").document
    assert document["tasks"][0] == {"task": 0, "attempts": [{"attempt": 1, "text": "c\n"}]}
    assert call("logs", "j1", "--all", "--task", "1").code == 2


def test_logs_follow_over_attempts(server: FakeServer, call: Call) -> None:
    """Until the job has ended; where an attempt begins is said on stderr."""
    server.on("GET", "/jobs/j1", running(), running(attempts=2), ended(attempts=2))
    server.on("GET", "/jobs/j1/logs", two_attempts)
    called = call("logs", "j1", "--follow")
    assert (called.code, called.out) == (0, "attempt 1\nattempt 2\n")
    assert called.error == "-- attempt 2 --"


def test_logs_of_a_job_that_waits(server: FakeServer, call: Call) -> None:
    """Nothing, and why."""
    server.on("GET", "/jobs/j1", job())
    called = call("logs", "j1")
    assert (called.code, called.out) == (0, "")
    assert called.error == "nothing written yet: j1 is PENDING, InsufficientCapacity"


@pytest.mark.parametrize(
    ("view", "want"),
    [
        (ended(), "j1 wrote nothing: j1 is SUCCEEDED"),
        (ended(tasks=2), "task 0 of j1 wrote nothing: j1 is SUCCEEDED"),
        (job(state="CANCELLED", reason=None), "j1 never ran: it is CANCELLED"),
    ],
)
def test_logs_of_a_job_that_wrote_nothing(
    server: FakeServer, call: Call, view: JobView, want: str
) -> None:
    """What is over is not waited for."""
    server.on("GET", "/jobs/j1", view)
    server.on("GET", "/jobs/j1/logs", Answer(b"", 200, {"X-Complete": "1"}))
    assert call("logs", "j1").error == want


@pytest.mark.parametrize(
    ("view", "attempt", "want"),
    [
        (running(attempts=2), 1, "j1 wrote nothing in attempt 1: j1 is RUNNING; attempt 1 is over"),
        (running(attempts=2), 2, "nothing written yet: j1 is RUNNING"),
        (
            job(attempts=1, reason="RetryBackoff"),
            1,
            "j1 wrote nothing in attempt 1: j1 is PENDING, RetryBackoff; attempt 1 is over",
        ),
        (ended(attempts=2), 1, "j1 wrote nothing in attempt 1: j1 is SUCCEEDED"),
    ],
)
def test_logs_of_an_attempt_that_wrote_nothing(
    server: FakeServer, call: Call, view: JobView, attempt: int, want: str
) -> None:
    """Only one that still goes on may yet write."""
    server.on("GET", "/jobs/j1", view)
    server.on("GET", "/jobs/j1/logs", Answer(b"", 200, {"X-Complete": "1"}))
    assert call("logs", "j1", "--attempt", attempt).error == want


def test_following_that_is_broken_off_says_how_to_go_on(
    server: FakeServer, terminal: Callable[..., Any]
) -> None:
    """The job does not end with it."""
    server.on("GET", "/jobs/j1", running())
    server.on("GET", "/jobs/j1/logs", Answer(b"step 1\n", 200), Answer(b"", 200))
    screen = terminal("logs", "j1", "--follow", interrupt_at="step 1")
    assert screen.code == 130
    assert screen.text.splitlines()[-1] == (
        "j1 goes on without you: topmast logs j1 --follow, topmast cancel j1"
    )


@pytest.mark.parametrize(
    ("cause", "task", "want_task"),
    [
        ("task 3 exited with status 1; 0 restarts used up", None, "3"),
        ("task 2: setup exited with 3; see `topmast logs j1 --task 2`", None, "2"),
        ("task 3 exited with status 1", "1", "1"),
        ("task 9 of another kind", None, "0"),
        ("its time limit is over", None, "0"),
    ],
)
def test_logs_of_a_gang_that_failed(
    server: FakeServer, call: Call, cause: str, task: str | None, want_task: str
) -> None:
    """The task that failed is shown, unless another is asked for."""
    server.on("GET", "/jobs/j1", ended(state="FAILED", tasks=4, cause=cause))
    server.on("GET", "/jobs/j1/logs", two_attempts)
    called = call("logs", "j1", *(["--task", task] if task else []))
    assert server.requests[-1].query["task"] == want_task
    told = f"-- task {want_task}, which failed; --task N shows another --"
    assert called.err.splitlines() == ([told] if want_task in "23" else [])
    assert call("logs", "j1", "--json").document["task"] == int(want_task if not task else 3)


def test_following_a_job_that_waits_says_what_it_waits_for(server: FakeServer, call: Call) -> None:
    """Once for each reason, and again when another attempt is waited for."""
    other = job(reason="WaitingForQuota")
    again = job(attempts=1, reason="RetryBackoff")
    server.on("GET", "/jobs/j1/logs", two_attempts)
    server.on(
        "GET", "/jobs/j1", job(), job(), job(), other, running(), again, again, ended(attempts=2)
    )
    called = call("logs", "j1", "--follow")
    assert called.out == "attempt 1\nattempt 2\n"
    assert called.err.splitlines() == [
        "j1 is PENDING (InsufficientCapacity): `topmast explain j1` says more",
        "j1 is PENDING (WaitingForQuota): `topmast explain j1` says more",
        "j1 is PENDING (RetryBackoff): `topmast explain j1` says more",
        "-- attempt 2 --",
    ]


def test_a_file_with_several_errors(call: Call, tmp_path: Path) -> None:
    """A line for each, before any server is asked."""
    (tmp_path / "bad.yaml").write_text("nmae: a\nrun: 3\n")
    called = call("launch", str(tmp_path / "bad.yaml"))
    assert (called.code, called.out) == (2, "")
    assert [line.split(": ")[2] for line in called.err.splitlines()] == ["nmae", "run"]


def test_logs_of_nothing(server: FakeServer, call: Call) -> None:
    """A task that the job does not have is an error."""
    server.on("GET", "/jobs/j1", running())
    server.on("GET", "/jobs/j1/logs", problem(422, "the job has tasks 0 to 1", field="task"))
    called = call("logs", "j1", "--task", "9")
    assert called.code == 2
    assert called.error == "topmast: --task: the job has tasks 0 to 1"


def test_followed_lines_appear_at_once(server: FakeServer) -> None:
    """Also in a pipe: nothing waits in a buffer."""
    server.on("GET", "/jobs/j1", running())
    server.on(
        "GET", "/jobs/j1/logs", Answer(b"step 1\n"), lambda _: Answer(b"", 200, {})
    )  # fmt: skip
    process = subprocess.Popen(
        program("logs", "j1", "--follow"), cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "step 1\n"
    process.terminate()
    process.communicate(timeout=20)


def test_every_job_of_a_file_that_is_wrong_is_named(call: Call, tmp_path: Path) -> None:
    """With its line; a job that waits for one that is wrong is not wrong itself."""
    file = tmp_path / "three.yaml"
    file.write_text(
        "name: a\nrun: x\nnum_nodes: -1\ndepends_on: [none]\n---\nname: b\nrun: x\nprioriti: 1\n"
        "depends_on: [a]\n---\nname: c\nrun: x\nnum_nodes: many\n"
    )
    called = call("launch", file)
    assert called.code == 2
    lines = [line.removeprefix(f"topmast: {file}:") for line in called.err.splitlines()]
    assert [line.split(":")[0] for line in lines] == ["3", "4", "8", "13"], called.err
    file.write_text("---\n".join(f"name: j{n}\nrun: x\nnum_nodes: -1\n" for n in range(30)))
    *lines, last = call("launch", file).err.splitlines()
    assert (len(lines), last) == (20, "topmast: and 10 more errors")


PIPELINE = """# two jobs
name: prepare
run: echo prepared
---
name: train
workdir: code
depends_on: [prepare, {job: j3, after: any}]
run: |
  echo ---
  echo trained
---
"""


def test_launch_of_several_jobs(server: FakeServer, call: Call, tmp_path: Path) -> None:
    """One request; options change every job; a job names those before it."""
    server.on("POST", "/jobs/bulk", Answer(BulkReceipt(("j7", "j8"), ("jobs[1]: slow",)), 201))
    (tmp_path / "code").mkdir()
    server.on("HEAD", f"/workdirs/{snapshot(tmp_path / 'code').digest}", Answer(b"", 200))
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    called = call("launch", file, "--tenant", "nlp")
    assert (called.out, called.error) == ("j7\nj8\n", "warning: jobs[1]: slow")
    prepare, train = server.requests[-1].document["jobs"]
    assert [job["tenant"] for job in (prepare, train)] == ["nlp", "nlp"]
    assert train["depends_on"] == [
        {"job": "prepare", "after": "ok"}, {"job": "j3", "after": "any"}
    ]  # fmt: skip
    assert (train["run"], train["workdir"][:7]) == ("echo ---\necho trained\n", "sha256:")
    server.on(
        "POST", "/jobs/dry-run", Explanation(None, "a", "NOT SUBMITTED", None, "here", (), (), ())
    )
    assert len(call("launch", file, "--dry-run", "--json").document["jobs"]) == 2
    asked = [request.document["job"].get("depends_on", []) for request in server.requests[-2:]]
    assert asked == [[], [{"job": "j3", "after": "any"}]]


@pytest.mark.parametrize(
    ("written", "options", "want"),
    [
        ("depends_on: [prepar]", [], ":6: depends_on[0]: 'prepar' is not the id of a job"),
        ("num_node: 2", [], ":6: num_node: "),
        ("name: b", ["--name", "x"], "has 2 jobs: write name there"),
        ("name: b", ["--after-ok", "j1"], "has 2 jobs: write depends_on there"),
        ("name: b", ["--after-ok", "j1"], "Invalid value for '--after-ok': "),
        ("name: b", ["--follow"], "the file has several jobs"),
    ],
)
def test_what_several_jobs_cannot_have(
    written: str, options: list[str], want: str, server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """The error names the line of the file."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: prepare\nrun: x\n\n--- # the second\n\n{written}\nrun: x\n")
    called = call("launch", file, *options)
    assert called.code == 2
    assert want in called.error
    assert nothing_is_sent(server)
