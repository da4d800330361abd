"""`queue`, `status`, `cancel`."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import (
    Answer,
    FakeServer,
    Request,
    ended,
    job,
    page,
    problem,
    running,
)
from topmast.model.views import AttemptView, HistoryView, JobStory, JobView

NASTY = "[red]x[/] \x1b[2J\x07"

# ------------------------------------------------------------------------------------------- queue


def test_the_queue_is_a_plain_table_in_a_pipe(server: FakeServer, call: Call) -> None:
    """One line for each job, aligned by spaces, nothing cut, nothing that acts on a terminal."""
    jobs = [
        running("j1234567890123", name="a" * 90, gpus=0.5),
        job("j2", name=NASTY, reason="WaitingForQuota"),
        ended("j3", "FAILED"),
    ]
    server.on("GET", "/jobs", page(*jobs))
    called = call("queue")
    assert called.err == ""
    header, *lines = called.out.splitlines()
    assert header.split() == [
        "ID", "NAME", "TENANT", "BAND", "STATE", "REASON", "WHERE", "GPUS", "TRIES", "STEP", "AGE",
    ]  # fmt: skip
    first, second, third = (re.split(r"  +", line.strip()) for line in lines)
    assert first[:9] == [
        "j1234567890123", "a" * 90, "vision", "normal", "RUNNING", "-", "east/east-1", "0.5", "1",
    ]  # fmt: skip
    assert second[1] == "[red]x[/] \\x1b[2J\\x07"
    assert second[4:7] == ["PENDING", "WaitingForQuota", "-"]
    assert third[4] == "FAILED"
    assert third[-2:] == ["90", "1m40s"], "what has ended no longer grows old"


def test_the_queue_on_a_terminal(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """States have colours, names in brackets are names, ids are whole even where it is narrow."""
    server.on("GET", "/jobs", page(running("j1234567890123"), job("j2", name="[red]x[/]")))
    screen = terminal("queue", columns=60)
    assert screen.code == 0
    assert "j1234567890123" in screen.text
    assert "\x1b[32m" in screen.text, "green is for what runs"
    assert "STEP" not in screen.text, "where it is narrow, some columns are left out"
    wide = terminal("queue", columns=200).text
    assert "STEP" in wide
    assert "[red]x[/]" in wide
    assert "1 RUNNING, 1 PENDING" in wide


def test_what_users_write_does_not_reach_a_terminal(
    server: FakeServer, terminal: Callable[..., Any]
) -> None:
    """Neither in tables, nor in errors, nor in output."""
    server.on("GET", "/jobs", page(job(name=NASTY)))
    server.on("GET", "/jobs/j1", running(cause=NASTY, name=NASTY), ended(cause=NASTY, name=NASTY))
    server.on("GET", "/jobs/j1/story", problem(404, NASTY))
    server.on("GET", "/jobs/j1/logs", Answer(NASTY.encode(), 200, {"X-Complete": "1"}))
    for arguments in (["queue"], ["wait", "j1"], ["status", "j1"], ["logs", "j1"]):
        screen = terminal(*arguments, columns=200)
        assert "\x07" not in screen.text, arguments
        assert "\x1b[2J" not in screen.text, arguments
        assert "[red]x[/]" in screen.text, arguments


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], {"state": "active", "order": "queue", "limit": "1000"}),
        (["--all"], {"limit": "1000"}),
        (["--only", "running, pending"], {"state": "RUNNING,PENDING", "limit": "1000"}),
        (["--tenant", "t", "-n", "5"], {"state": "active", "order": "queue", "tenant": "t", "limit": "5"}),
    ],
)  # fmt: skip
def test_the_queue_selects(
    arguments: list[str], want: dict[str, str], server: FakeServer, call: Call
) -> None:
    """What waits and runs by default, by rank; else what was asked for, newest first."""
    server.on("GET", "/jobs", page(job(tenant="t")))
    assert call("queue", *arguments).code == 0
    assert server.requests[0].query == want


def many(total: int) -> Callable[[Request], Answer]:
    """A server with many jobs, that ranks one page of them and pages through all."""
    jobs: list[JobView] = [job(f"j{number}") for number in range(total)]

    def serve(request: Request) -> Answer:
        limit, start = int(request.query["limit"]), int(request.query.get("cursor", 0))
        if request.query.get("order") == "queue":
            found, cursor = jobs[::-1][:limit], None
        else:
            found = jobs[start : start + limit]
            cursor = str(start + limit) if start + limit < total else None
        return Answer(
            msgspec.structs.replace(page(*found, cursor=cursor), counts={"PENDING": total})
        )

    return serve


def test_a_long_queue(server: FakeServer, call: Call) -> None:
    """--limit 0 shows all, each once, those that the server ranked first; less says that it is less."""
    server.on("GET", "/jobs", many(2500))
    found = call("queue", "--limit", "0", "--json").document["jobs"]
    assert len(found) == len({one["id"] for one in found}) == 2500
    assert [one["id"] for one in found[:2]] == ["j2499", "j2498"]
    called = call("queue")
    assert called.out.count("\n") == 1001
    assert called.error == "only the first 1,000 jobs: --limit 0 shows all"
    assert len(call("queue", "--limit", "1700", "--json").document["jobs"]) == 1700
    assert call("queue", "--limit", "0").err == ""


def test_the_queue_as_json(server: FakeServer, call: Call) -> None:
    """The page of the REST interface."""
    server.on("GET", "/jobs", page(running("j1", name="\u009b2J")))
    called = call("queue", "--json")
    assert called.document["jobs"][0]["name"] == "\u009b2J"
    assert called.document["counts"] == {"RUNNING": 1}
    assert "\u009b" not in called.out


# ------------------------------------------------------------------------------------------ status

STORY = JobStory(
    running(
        attempts=2, preemptions=1, step=70, resumed_from_step=40, metrics={"loss": 0.25},
        datasets=("imagenet",), over_quota=True,
    ),
    (
        HistoryView(1e9, "submitted", f"by ada {NASTY}", {}),
        HistoryView(1e9 + 12, "placed", "in east/east-1: the lowest score of 3 plans", {"score": 1}),
    ),
    (AttemptView(1, "west", "west-1", "H100", 8, 1e9 + 12, 1e9 + 72, 40.0, "preempted"),),
)  # fmt: skip


def test_status_tells_the_story(server: FakeServer, call: Call) -> None:
    """How the job stands, the attempts it had, and every step with its cause."""
    server.on("GET", "/jobs/j1/story", STORY)
    out = call("status", "j1").out
    for part in [
        "state      RUNNING", "gpus       8 H100", "step       70 (resumed from step 40)",
        "tenant     vision (over its quota)", "2 attempts, 1 preemption, 0 restarts",
        "metrics    loss 0.25", "west/west-1", "preempted", "1m", "by ada [red]x[/] \\x1b[2J\\x07",
        "in east/east-1: the lowest score of 3 plans",
    ]:  # fmt: skip
        assert part in out
    assert "reason" not in out


def test_status_as_json(server: FakeServer, call: Call) -> None:
    """The story of the REST interface."""
    server.on("GET", "/jobs/j1/story", STORY)
    assert msgspec.convert(call("status", "j1", "--json").document, JobStory) == STORY


# ------------------------------------------------------------------------------------------ cancel


def test_cancels_each_job_once(server: FakeServer, call: Call) -> None:
    """Several ids, and what became of each."""
    for name in ("j1", "j2"):
        server.on("POST", f"/jobs/{name}/cancel", Answer(job(name, state="CANCELLED"), 202))
    called = call("cancel", "j1", "j2", "j1", "--json")
    assert [one["id"] for one in called.document["jobs"]] == ["j1", "j2"]
    assert len(server.requests) == 2


def test_what_cannot_be_cancelled_does_not_stop_the_rest(server: FakeServer, call: Call) -> None:
    """The others are cancelled, and the errors come on one line."""
    server.on("POST", "/jobs/j1/cancel", Answer(job("j1", state="CANCELLED"), 202))
    for name in ("j8", "j9"):
        server.on("POST", f"/jobs/{name}/cancel", problem(404, f"no job {name}"))
    called = call("cancel", "j8", "j1", "j9")
    assert called.code == 1
    assert called.out.splitlines()[1].split() == ["j1", "resnet", "CANCELLED", "-"]
    assert called.error == "topmast: no job j8; no job j9"
    alone = call("cancel", "j9", "--json")
    assert (alone.code, alone.out) == (1, "")
