"""Sweeps on the command line: a line in the queue, `status`, `wait`, `launch --wait`."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tests.unit.cli.conftest import Call, Screen
from tests.unit.cli.test_explain import WAITING
from tests.unit.client.fake import Answer, FakeServer, ended, job
from tests.unit.client.test_logs import Log
from topmast.model.sweep_views import SweepView
from topmast.model.views import JobPage, Receipt

SWEEP = SweepView(
    id="s7", name="tune", tenant="vision", user="ada", band="normal", jobs=1_000, first_job="j7",
    variables=("LR", "SEED"), states={"PENDING": 504, "RUNNING": 8, "SUCCEEDED": 488}, done=0.488,
    gpus=8.0, max_parallel=8, submit_s=0.0, finish_s=None, labels={"stage": "tune"},
)  # fmt: skip
GOOD = replace(SWEEP, states={"SUCCEEDED": 1_000}, done=1.0, finish_s=9.0)
BAD = replace(GOOD, states={"SUCCEEDED": 999, "FAILED": 1})


def test_a_sweep_is_one_line_of_the_queue(server: FakeServer, call: Call) -> None:
    """Before the jobs, with how much of it is done; its jobs are shown if they are asked for."""
    server.on("GET", "/jobs", Answer(JobPage((job("j3"),), None, {"RUNNING": 9}, 1, (SWEEP,))))
    lines = call("queue").out.splitlines()
    assert lines[1].split()[:6] == ["s7", "tune", "vision", "normal", "48%", "done"]
    assert "504 PENDING, 8 RUNNING, 488 SUCCEEDED" in lines[1]
    assert lines[2].split()[0] == "j3"
    for options in (["--unfold"], ["--selector", "sweep=s7"]):
        call("queue", *options)
        assert "fold" not in server.requests[-1].query


def test_status_of_a_sweep(server: FakeServer, call: Call) -> None:
    """What differs between its jobs, and where they begin."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP))
    told = call("status", "s7").out
    for words in ("48% of 1,000 jobs", "j7 (s7[0])", "LR, SEED", "8 at most", "stage=tune"):
        assert words in told
    assert call("status", "s7", "--json").document["id"] == "s7"


def test_status_of_a_sweep_says_how_to_find_the_jobs_that_failed(
    server: FakeServer, call: Call
) -> None:
    """It counts them, and a sweep may have 100,000: the list of them is another command's."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP), Answer(BAD))
    assert "failed" not in call("status", "s7").out
    told = call("status", "s7").out
    assert "failed     topmast queue -l sweep=s7,state=FAILED\n" in told
    assert "again      topmast requeue -l sweep=s7,state=FAILED\n" in told


def test_a_sweep_whose_jobs_are_held_says_so(server: FakeServer, call: Call) -> None:
    """In the queue, in its status, and while one waits for it: it would never end by itself."""
    held = replace(SWEEP, held=504)
    server.on("GET", "/jobs", Answer(JobPage((), None, {"RUNNING": 9}, 1, (held,))))
    server.on("GET", "/sweeps/s7", Answer(held))
    want = "504 PENDING, 8 RUNNING, 488 SUCCEEDED; 504 held"
    assert want in call("queue").out
    assert want in call("status", "s7").out
    assert want in call("wait", "s7", "--timeout", "0.2").err


def test_wait_is_over_when_the_sweep_is(server: FakeServer, call: Call) -> None:
    """The exit code tells whether all of its jobs succeeded."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP), Answer(GOOD))
    waited = call("wait", "s7")
    assert (waited.code, waited.err.splitlines()[-1]) == (
        0, "s7 tune: 100% done (1,000 SUCCEEDED)",
    )  # fmt: skip
    server.on("GET", "/sweeps/s7", Answer(BAD))
    assert call("wait", "s7").code == 1
    server.on("GET", "/sweeps/s7", Answer(SWEEP))
    late = call("wait", "s7", "--timeout", "0.2")
    assert (late.code, "has not ended within 0.2 s" in late.err) == (1, True)


def test_wait_for_a_sweep_takes_all_of_its_time(server: FakeServer, call: Call) -> None:
    """It looks a last time when the time is up."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP))
    begun_s = time.monotonic()
    assert call("wait", "s7", "--timeout", "1.1").code == 1
    assert time.monotonic() - begun_s >= 1.1


def test_wait_for_a_sweep_draws_no_table_without_rows(
    server: FakeServer, terminal: Callable[..., Screen]
) -> None:
    """Its progress is a line whenever that changes; jobs beside it have the table."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP), Answer(GOOD))
    server.on("GET", "/jobs/j1", Answer(ended("j1")))
    alone = terminal("wait", "s7", columns=80, NO_COLOR="1").text
    assert "s7 tune: 48% done (504 PENDING, 8 RUNNING, 488 SUCCEEDED)" in alone
    assert "WHERE OR WHY" not in alone
    assert "WHERE OR WHY" in terminal("wait", "s7", "j1", columns=80, NO_COLOR="1").text


def test_explain_of_a_sweep_is_about_the_first_job_that_waits(
    server: FakeServer, call: Call
) -> None:
    """And says so. Where none waits, it says what the others do."""
    server.on("GET", "/sweeps/s7", Answer(SWEEP))
    server.on("GET", "/jobs", Answer(JobPage((job("j9"), job("j10")), None, {}, 2, ())))
    server.on("GET", "/jobs/j9/explain", Answer(replace(WAITING, job="j9")))
    called = call("explain", "s7")
    assert (called.code, "job" in called.out) == (0, True)
    what = "s7 is a sweep of 1,000 jobs (504 PENDING, 8 RUNNING, 488 SUCCEEDED)"
    assert called.err.splitlines()[0] == f"{what}; this is about the first that waits, j9"
    assert server.requests[-2].query["selector"] == "sweep=s7"
    server.on("GET", "/jobs", Answer(JobPage((), None, {}, 0, ())))
    none = call("explain", "s7")
    assert (none.code, none.error) == (
        1, f"topmast: {what}: none of them waits; see `topmast status s7`",
    )  # fmt: skip


def test_launch_of_a_sweep_waits_for_all_of_it(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """Its id is printed, as that of a job."""
    (tmp_path / "sweep.yaml").write_text("run: x\nsweep: {matrix: {LR: [1, 2]}}\n")
    server.on("POST", "/jobs", Answer(Receipt("s7", "sweep", jobs=2), 201))
    server.on("GET", "/sweeps/s7", Answer(GOOD))
    called = call("launch", tmp_path / "sweep.yaml", "--wait")
    assert (called.code, called.out) == (0, "s7\n")
    sent = server.requests[0].document["job"]
    assert sent["sweep"] == {"matrix": {"LR": ["1", "2"]}}


def test_logs_of_a_sweep_are_those_of_its_jobs(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """Each line with the number of its job; what is about one job is refused."""
    server.on("GET", "/sweeps/s7", Answer(replace(GOOD, jobs=2)))
    jobs = (ended("j8"), ended("j7"))
    server.on("GET", "/jobs", Answer(JobPage(jobs, None, {}, 2)))
    for name, text in (("j7", b"lr 1\ndone\n"), ("j8", b"lr 2\n")):
        server.on("GET", f"/jobs/{name}/logs", Log({1: text}, {1}, most=100))
    assert call("logs", "s7").out == "0: lr 1\n0: done\n1: lr 2\n"
    [first, second] = call("logs", "s7", "--json").document["jobs"]
    assert first == {
        "index": 0, "job": "j7", "attempts": [{"attempt": 1, "text": "lr 1\ndone\n"}]
    }  # fmt: skip
    assert second["job"] == "j8"
    for option in (["--task", "0"], ["--attempt", "1"], ["--all"]):
        assert call("logs", "s7", *option).code == 2
    (tmp_path / "sweep.yaml").write_text("run: x\nsweep: {matrix: {LR: [1, 2]}}\n")
    server.on("POST", "/jobs", Answer(Receipt("s7", "sweep", jobs=2), 201))
    followed = call("launch", tmp_path / "sweep.yaml", "--follow")
    assert followed.out == "0: lr 1\n0: done\n1: lr 2\ns7\n"
    server.on("GET", "/jobs", Answer(JobPage((job("j7"), job("j8")), None, {}, 2)))
    assert "nothing written yet: 100% of s7 is done" in call("logs", "s7").err
