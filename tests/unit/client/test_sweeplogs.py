"""Reading the output of the jobs of a sweep."""

from msgspec.structs import replace

from tests.unit.cli.test_sweeps import SWEEP
from tests.unit.client.fake import Answer, FakeServer, Request, ended, job, running
from tests.unit.client.test_logs import Log
from topmast.client import Client
from topmast.model.views import JobPage, JobView


def serve(server: FakeServer, *looks: list[JobView]) -> None:
    """A sweep of the jobs j7, j8 and j9, as they stand at each look."""
    server.on("GET", "/sweeps/s7", Answer(replace(SWEEP, jobs=3)))
    pages = [Answer(JobPage(tuple(look), None, {}, 1)) for look in looks]
    server.on("GET", "/jobs", *pages)


def told(client: Client, *, follow: bool = False) -> list[tuple[int, str, int, str]]:
    """Index, job, attempt and text of all that is read."""
    chunks = client.sweep_logs("s7", follow=follow)
    return [(chunk.index, chunk.job, chunk.attempt, str(chunk)) for chunk in chunks]


def test_what_there_is_of_each_job_in_order(server: FakeServer, client: Client) -> None:
    """The latest attempt of those that have any; what has left the memory is asked for alone."""
    serve(server, [running("j8", attempts=2), job("j9")])
    server.on("GET", "/jobs/j7", ended("j7"))
    server.on("GET", "/jobs/j7/logs", Log({1: b"seven"}, {1}))
    server.on("GET", "/jobs/j8/logs", Log({1: b"old", 2: b"eight"}))
    assert told(client) == [(0, "j7", 1, "seven"), (1, "j8", 2, "eight")]
    assert server.requests[1].query["selector"] == "sweep=s7"


def test_following_goes_on_to_the_end_of_all(server: FakeServer, client: Client) -> None:
    """Over attempts, and also of jobs that began and ended between two looks."""
    log = Log({1: b"one ", 2: b"two"}, {1, 2}, most=100)
    whole = [running("j7"), job("j8"), ended("j9")]
    serve(server, whole, [running("j7", attempts=2), job("j8")], [running("j7", attempts=2)], [])
    server.on("GET", "/jobs/j7", ended("j7", attempts=2)).on("GET", "/jobs/j8", ended("j8"))
    server.on("GET", "/jobs/j7/logs", log)
    server.on("GET", "/jobs/j8/logs", Log({1: b"short"}, {1}))
    server.on("GET", "/jobs/j9/logs", Log({1: b"nine"}, {1}))
    found = told(client, follow=True)
    assert found[:2] == [(0, "j7", 1, "one "), (2, "j9", 1, "nine")]
    assert sorted(found[2:]) == [(0, "j7", 2, "two"), (1, "j8", 1, "short")]
    states = [request.query.get("state") for request in server.asked("GET", "/jobs")]
    assert states[0] is None
    assert set(states[1:]) == {"active"}


def test_a_following_reader_sees_what_is_written_last(server: FakeServer, client: Client) -> None:
    """What a job wrote between its last look and its end is read too."""
    texts = [b"a", b"ab", b"abc"]

    def log(request: Request) -> Answer:
        now = texts.pop(0) if len(texts) > 1 else texts[0]
        return Log({1: now}, {1} if now == b"abc" else set())(request)

    serve(server, [running("j7"), ended("j8"), ended("j9")], [running("j7")], [])
    server.on("GET", "/jobs/j7", ended("j7")).on("GET", "/jobs/j7/logs", log)
    assert "".join(text for _, _, _, text in told(client, follow=True)) == "abc"
