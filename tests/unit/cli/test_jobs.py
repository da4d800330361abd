"""`queue`, `status`, `cancel`."""

import re
import time
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
from topmast.cli.jobs import COUNTED_ENDED, counts_line
from topmast.cli.watch import Watch
from topmast.fast.queue.jobs.jobs import FINISHED_KEPT
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
        "ID", "NAME", "TENANT", "BAND", "STATE", "REASON", "WHERE", "GPUS", "TRIES", "STEP", "AGE", "ENDED",
    ]  # fmt: skip
    first, second, third = (re.split(r"  +", line.strip()) for line in lines)
    assert first[:9] == [
        "j1234567890123", "a" * 90, "vision", "normal", "RUNNING", "-", "east/east-1", "0.5", "1",
    ]  # fmt: skip
    assert second[1] == "[red]x[/] \\x1b[2J\\x07"
    assert second[4:7] == ["PENDING", "WaitingForQuota", "-"]
    assert third[4] == "FAILED"
    assert third[-3:-1] == ["90", "1m40s"], "what has ended no longer grows old"


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


def test_no_colour_is_no_style_at_all(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """NO_COLOR keeps bold titles away, too."""
    server.on("GET", "/jobs", page(running("j1")))
    assert "\x1b[1m" in terminal("queue").text
    assert "\x1b[" not in terminal("queue", NO_COLOR="1").text


def test_words_are_whole_at_80_columns(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """A place and a reason are not broken in the middle, and a name takes no three lines."""
    lately = {"submit_s": time.time() - 90.0}
    jobs = [
        running(
            "j1234", **lately, name="resnet-50-baseline-rerun", region="north", cluster="north-1"
        ),
        job("j1235", **lately, name="b", reason="InsufficientCapacity"),
    ]
    server.on("GET", "/jobs", page(*jobs))
    text = terminal("queue", columns=80, NO_COLOR="1").text
    for word in ("north/north-1", "InsufficientCapacity"):
        assert word in text
    table = text.replace("\r", "").partition("\n\n")[0].splitlines()
    assert len(table) == 1 + 2 + 1, "a title, two lines for the long name, and one"
    assert all(len(line) <= 80 for line in text.splitlines())


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
        ([], {"state": "active", "order": "queue", "limit": "1000", "fold": "true"}),
        (["--all"], {"limit": "1000", "fold": "true"}),
        (["--only", "running, pending"], {"state": "RUNNING,PENDING", "order": "queue", "limit": "1000", "fold": "true"}),
        (["--only", "pending,failed"], {"state": "PENDING,FAILED", "limit": "1000", "fold": "true"}),
        (["--tenant", "t", "-n", "5"], {"state": "active", "order": "queue", "tenant": "t", "limit": "5", "fold": "true"}),
    ],
)  # fmt: skip
def test_the_queue_selects(
    arguments: list[str], want: dict[str, str], server: FakeServer, call: Call
) -> None:
    """What waits and runs by rank; where jobs that have ended are wanted too, newest first."""
    server.on("GET", "/jobs", page(job(tenant="t")))
    assert call("queue", *arguments).code == 0
    assert server.requests[0].query == want


def many(total: int, moves: bool = False) -> Callable[[Request], Answer]:
    """A server with many jobs, ranked from the last to the first; ``moves``: one of them goes to the front."""
    jobs: list[JobView] = [job(f"j{number}") for number in range(total)]
    ranked = jobs[::-1]

    def serve(request: Request) -> Answer:
        limit, start = int(request.query["limit"]), int(request.query.get("cursor", 0))
        order = ranked if request.query.get("order") == "queue" else jobs
        found = order[start : start + limit]
        cursor = str(start + limit) if start + limit < total else None
        if moves and order is ranked and not start:
            ranked.append(ranked.pop(0))  # what was not listed yet moves up
            ranked.insert(0, ranked.pop(limit))
        return Answer(
            msgspec.structs.replace(
                page(*found, cursor=cursor), counts={"PENDING": total}, total=total
            )
        )

    return serve


def test_a_long_queue(server: FakeServer, call: Call) -> None:
    """--limit 0 shows all, each once, by rank on every page; less says that it is less."""
    server.on("GET", "/jobs", many(2500))
    found = call("queue", "--limit", "0", "--json").document["jobs"]
    assert [one["id"] for one in found] == [f"j{number}" for number in reversed(range(2500))]
    called = call("queue")
    assert called.out.count("\n") == 1001
    assert called.error == "showing 1,000 of 2,500 jobs: --limit 0 shows all"
    some = call("queue", "--limit", "1700", "--json").document["jobs"]
    assert [one["id"] for one in some] == [f"j{number}" for number in range(2499, 799, -1)]
    assert call("queue", "--limit", "0").err == ""


def test_a_job_that_moves_while_pages_are_fetched_is_listed(server: FakeServer, call: Call) -> None:
    """It is on no page of the ranked listing any more, and is not left out."""
    server.on("GET", "/jobs", many(2500, moves=True))
    found = call("queue", "--limit", "0", "--json").document["jobs"]
    assert sorted(one["id"] for one in found) == sorted(f"j{number}" for number in range(2500))


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        ({"RUNNING": 9, "PENDING": 1204}, "9 RUNNING, 1,204 PENDING"),
        ({"RUNNING": 1, "FAILED": 2, "SUCCEEDED": 3}, "1 RUNNING; ended: 3 SUCCEEDED, 2 FAILED"),
        ({"CANCELLED": 3}, "no job waits or runs; ended: 3 CANCELLED"),
        (
            {"PENDING": 4, "SUCCEEDED": 788, "CANCELLED": 9212},
            "4 PENDING; of the newest 10,000 that ended: 788 SUCCEEDED, 9,212 CANCELLED",
        ),
        (
            {"SUCCEEDED": 5, "FAILED": 2, "CANCELLED": 10_000},
            "no job waits or runs; of the newest 10,007 that ended: 5 SUCCEEDED, 2 FAILED, "
            "10,000 CANCELLED",
        ),
    ],
)
def test_counts_say_what_they_count(counts: dict[str, int], want: str) -> None:
    """Of jobs that have ended the server counts the newest, and no more."""
    assert counts_line(counts) == want
    assert COUNTED_ENDED == FINISHED_KEPT


def test_jobs_that_have_ended_show_when(server: FakeServer, call: Call) -> None:
    """A column more, where there is such a job."""
    server.on("GET", "/jobs", page(ended("j3", "FAILED"), job("j2")), page(job("j2")))
    header, first, second = call("queue", "--all").out.splitlines()
    assert header.split()[-1] == "ENDED"
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", first)
    assert second.split()[-1] == "-"
    assert "ENDED" not in call("queue").out


def test_a_job_that_waits_is_nowhere(server: FakeServer, call: Call) -> None:
    """The place that it had before is not shown as one that it has; its story still names it."""
    waits = job("j2", region="east", cluster="east-1", hosts=("east-1-0",), attempts=1)
    server.on("GET", "/jobs", page(waits))
    server.on("GET", "/jobs/j2/story", JobStory(waits, (), ()))
    assert "east" not in call("queue").out
    assert "was last in  east/east-1" in call("status", "j2").out


def test_a_job_of_a_region_that_does_not_answer_is_marked(server: FakeServer, call: Call) -> None:
    """Its state is what was heard last, and the queue and the story say so; others have no mark."""
    silent = running("j2", reachable=False)
    server.on("GET", "/jobs", page(silent, running("j3")))
    server.on("GET", "/jobs/j2/story", JobStory(silent, (), ()))
    server.on("GET", "/jobs/j3/story", JobStory(running("j3"), (), ()))
    rows = call("queue").out.splitlines()[1:]
    assert ["RUNNING, unreachable" in row for row in rows] == [True, False]
    line = "unreachable  region east does not answer: this is its last known state"
    assert line in call("status", "j2").out
    assert "unreachable" not in call("status", "j3").out


def test_an_empty_queue_says_so(server: FakeServer, call: Call) -> None:
    """Beside the table, so that a script reads no more than its header."""
    nothing = page()
    ended = msgspec.structs.replace(nothing, counts={"FAILED": 2})
    server.on("GET", "/jobs", nothing, ended, ended)
    called = call("queue")
    assert called.out.count("\n") == 1
    assert called.error == "no jobs: submit one with `topmast launch JOB.yaml`"
    assert call("queue").error == "no job waits or runs; --all shows those that have ended"
    assert call("queue", "-l", "user=ada").error == "no such jobs"


def test_a_job_that_runs_and_will_be_held_says_so(server: FakeServer, call: Call) -> None:
    """Else it would fail to start again for a reason that no listing had shown."""
    job = running("j2", hold="ada: an audit")
    server.on("GET", "/jobs", page(job, running("j3")))
    server.on("GET", "/jobs/j2/story", JobStory(job, (), ()))
    rows = call("queue").out.splitlines()[1:]
    assert ["Held next" in row for row in rows] == [True, False]
    assert "hold       ada: an audit" in call("status", "j2").out


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
        "tenant     vision (over its quota)", "attempts   2, 1 preemption, 0 restarts",
        "metrics    loss 0.25", "west/west-1", "preempted", "1m", "by ada [red]x[/] \\x1b[2J\\x07",
        "in east/east-1: the lowest score of 3 plans",
    ]:  # fmt: skip
        assert part in out
    assert "reason" not in out
    assert "why" not in out


def test_status_says_why_a_job_waits(server: FakeServer, call: Call) -> None:
    """By the name of its reason, and in words; a server of before says no words."""
    told = JobStory(job("j2", reason="Held"), (), (), "the job waits until it is released: by ada")
    server.on("GET", "/jobs/j2/story", told, JobStory(told.job, (), ()))
    out = call("status", "j2").out
    assert (
        "state      PENDING  Held\nwhy        the job waits until it is released: by ada\n" in out
    )
    assert "why" not in call("status", "j2").out


def test_status_as_json(server: FakeServer, call: Call) -> None:
    """The story of the REST interface."""
    server.on("GET", "/jobs/j1/story", STORY)
    assert msgspec.convert(call("status", "j1", "--json").document, JobStory) == STORY


def test_the_lines_of_wait_say_why_a_job_recovers(capsys: pytest.CaptureFixture[str]) -> None:
    """Not that it does alone: a launch that can never work would be waited for without end."""
    failed = "launch failed: no such secret"
    with Watch() as seen:
        seen.update(job("j1", state="RECOVERING", reason="PendingEvaluation", cause=failed))
        seen.update(job("j1", state="RECOVERING", reason="PendingEvaluation", cause=failed))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"RECOVERING PendingEvaluation ({failed})")


def test_the_lines_of_wait_say_where_it_is_told_why_no_host_will_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of what may be waited for without end, and not of GPUs that come free."""
    with Watch() as seen:
        seen.update(job("j1", state="PENDING", reason="NoMatchingHardware"))
        seen.update(job("j2", state="PENDING", reason="InsufficientCapacity"))
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("PENDING NoMatchingHardware (`topmast status j1` says why)")
    assert second.endswith("PENDING InsufficientCapacity")
