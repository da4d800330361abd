"""Reading the output of tasks."""

from dataclasses import dataclass, field

import pytest

from tests.unit.client.fake import Answer, FakeServer, Request, ended, job, problem, running
from topmast.client import Client, LogChunk
from topmast.model.errors import NotFound
from topmast.model.views import JobView


@dataclass
class Log:
    """What attempts have written, served as the REST interface serves it."""

    attempts: dict[int, bytes]
    complete: set[int] = field(default_factory=set)
    most: int = 5

    def __call__(self, request: Request) -> Answer:
        attempt = int(request.query["attempt"])
        if attempt not in self.attempts:
            return problem(404, f"j1 has no attempt {attempt}")
        text, offset = self.attempts[attempt], int(request.query["offset"])
        data = text[offset : offset + min(self.most, int(request.query["limit"]))]
        done = attempt in self.complete and offset + len(data) == len(text)
        headers = {
            "Content-Type": "text/plain", "X-Next-Offset": str(offset + len(data)),
            "X-Attempt": str(attempt), "X-Complete": "1" if done else "0",
        }  # fmt: skip
        return Answer(data, 200, headers)


def texts(chunks: list[LogChunk]) -> dict[int, str]:
    found: dict[int, str] = {}
    for chunk in chunks:
        found[chunk.attempt] = found.get(chunk.attempt, "") + str(chunk)
    return found


def serve(server: FakeServer, log: Log, *jobs: JobView | Answer) -> None:
    server.on("GET", "/jobs/j1/logs", log).on("GET", "/jobs/j1", *jobs)


def test_reads_what_there_is(server: FakeServer, client: Client) -> None:
    """Without following, the latest attempt is read to where it is now, and no further."""
    serve(server, Log({1: b"old", 2: "größe 12\n".encode()}), running(attempts=2))
    assert texts(list(client.logs("j1"))) == {2: "größe 12\n"}


def test_reads_an_attempt_before(server: FakeServer, client: Client) -> None:
    """An attempt may be named."""
    serve(server, Log({1: b"old", 2: b"new"}, {1}), running(attempts=2))
    assert texts(list(client.logs("j1", 0, attempt=1, follow=True))) == {1: "old"}


def test_the_task_is_passed_on(server: FakeServer, client: Client) -> None:
    """Each task has its own output."""
    serve(server, Log({1: b"x"}, {1}), ended())
    list(client.logs("j1", 3))
    assert {asked.query["task"] for asked in server.asked("GET", "/jobs/j1/logs")} == {"3"}


def test_what_is_no_text_is_marked(server: FakeServer, client: Client) -> None:
    """Bytes that are no UTF-8 are replaced, not refused, also at the very end."""
    serve(server, Log({1: b"a\xffb\xc3"}, {1}), ended())
    assert texts(list(client.logs("j1"))) == {1: "a\ufffdb\ufffd"}


def test_nothing_yet(server: FakeServer, client: Client) -> None:
    """A job that has not begun has no output."""
    serve(server, Log({}), job())
    assert list(client.logs("j1")) == []


@pytest.mark.parametrize("follow", [False, True])
def test_what_does_not_exist_is_an_error(follow: bool, server: FakeServer, client: Client) -> None:
    """A task or an attempt that the job does not have is not waited for."""
    serve(server, Log({}), ended())
    with pytest.raises(NotFound, match="no attempt 7"):
        list(client.logs("j1", attempt=7, follow=follow))


def test_follows_over_attempts_to_the_end(server: FakeServer, client: Client) -> None:
    """A preempted job goes on in another attempt, and so does its output."""
    log = Log({1: b"step 1\nstep 2\n"}, {1})

    def second_attempt(_: Request) -> Answer:
        log.attempts[2] = b"resumed\n"
        return Answer(running(attempts=2))

    def last_words(_: Request) -> Answer:
        log.attempts[2] = b"resumed\ndone\n"
        log.complete.add(2)
        return Answer(ended(attempts=2))

    serve(server, log)
    server.on("GET", "/jobs/j1", running(), job(attempts=1), second_attempt, last_words)
    assert texts(list(client.logs("j1", follow=True))) == {
        1: "step 1\nstep 2\n", 2: "resumed\ndone\n",
    }  # fmt: skip


def test_follows_a_job_that_waits(server: FakeServer, client: Client) -> None:
    """Following may begin before the job does."""
    serve(server, Log({1: b"hello"}, {1}), job(), ended())
    assert texts(list(client.logs("j1", follow=True))) == {1: "hello"}


def test_following_a_job_that_never_began_ends(server: FakeServer, client: Client) -> None:
    """A job cancelled in the queue has nothing to follow."""
    serve(server, Log({}), job(), job(state="CANCELLED"))
    assert list(client.logs("j1", follow=True)) == []


def test_an_attempt_that_wrote_nothing_is_passed_over(server: FakeServer, client: Client) -> None:
    """A launch that failed leaves no output behind; the next attempt is followed."""
    serve(server, Log({1: b"a", 3: b"c"}, {1, 3}))
    server.on("GET", "/jobs/j1", running(), running(attempts=3), ended(attempts=3))
    assert texts(list(client.logs("j1", follow=True))) == {1: "a", 3: "c"}


def test_following_outlasts_a_restart(server: FakeServer, client: Client) -> None:
    """A server that is away for a moment interrupts nothing."""
    log = Log({1: b"hello"}, {1})
    serve(server, log, running(), problem(503, "starting"), ended())
    server.on("GET", "/jobs/j1/logs", problem(503, "starting"), log)
    assert texts(list(client.logs("j1", follow=True))) == {1: "hello"}


def test_all_tasks_are_read_in_turns(server: FakeServer, client: Client) -> None:
    """Of each attempt, until the job has ended; a chunk says of which task it is."""
    server.on("GET", "/jobs/j1", running(tasks=2), ended(tasks=2))
    seen: dict[str, int] = {}

    def logs(request: Request) -> Answer:
        task, offset = request.query["task"], int(request.query["offset"])
        seen[task] = seen.get(task, 0) + 1
        text = b"a\n" if seen[task] < 3 else b""
        done = {"X-Complete": "1"} if seen[task] == 3 else {}
        return Answer(text, 200, {"X-Next-Offset": str(offset + len(text)), **done})

    server.on("GET", "/jobs/j1/logs", logs)
    chunks = list(client.all_logs("j1", follow=True))
    assert (
        sorted((chunk.task, chunk.text) for chunk in chunks) == [(0, "a\n")] * 2 + [(1, "a\n")] * 2
    )
    assert seen == {"0": 3, "1": 3}


def test_the_output_of_all_tasks_as_it_is_now(server: FakeServer, client: Client) -> None:
    """One task after the other, each to its end."""
    server.on("GET", "/jobs/j1", running(tasks=2))

    def logs(request: Request) -> Answer:
        text, offset = f"task {request.query['task']}\n".encode() * 9, int(request.query["offset"])
        piece = text[offset : offset + 5]
        return Answer(piece, 200, {"X-Next-Offset": str(offset + len(piece))})

    server.on("GET", "/jobs/j1/logs", logs)
    text = "".join(chunk.text for chunk in client.all_logs("j1"))
    assert text == "task 0\n" * 9 + "task 1\n" * 9
