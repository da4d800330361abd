"""The past of a recorded simulation: any moment in the pages, and nothing that changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from topmast.adapters.store import existing_store, open_journal
from topmast.app.past import Moments, serve_past
from topmast.app.replay import replay_state
from topmast.cli.rootoptions import ReplayOptions
from topmast.experiments.run import RunOptions, simulate
from topmast.model.errors import InvalidInput, NotFound
from topmast.service.blobs import Blobs

FLEET = """
regions:
  east: {clusters: {east-a: {hosts: [{count: 2, gpu: H100, gpus: 4}]}}}
tenants: {vision: {quota: {H100: 8}}}
"""
TRACE = """job_id,submit_s,duration_s,gpus,tasks,tenant,user
first,0,100,4,1,vision,ann
wide,10,100,4,2,vision,bob
last,20,100,4,1,vision,ann
"""
PAGES = "/", "/fleet", "/tenants", "/data", "/usage", "/events", "/events?show=audit", "/system"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs on eight GPUs: the second waits for the first and the third."""
    folder = tmp_path_factory.mktemp("past")
    (folder / "fleet.yaml").write_text(FLEET, "utf-8")
    (folder / "jobs.csv").write_text(TRACE, "utf-8")
    options = RunOptions(
        trace=folder / "jobs.csv", format="topmast", fleet=folder / "fleet.yaml",
        profile="fifo-skip", overheads=False, record=folder / "state",
    )  # fmt: skip
    assert simulate(options)["finished"] == 3
    with pytest.raises(InvalidInput, match="has a journal already"):
        simulate(options)
    return folder / "state"


@pytest.fixture
def moments(state: Path, tmp_path: Path) -> Iterator[Moments]:
    journal = open_journal(existing_store(state), read_only=True)
    yield Moments(state, journal, Blobs(tmp_path))
    journal.close()


def ask(moments: Moments, path: str, method: str = "GET", **more: str) -> httpx.Response:
    """One request, or several with the same cookies: paths apart by blanks."""

    async def all_of_them() -> httpx.Response:
        transport = httpx.ASGITransport(moments)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for one in path.split(" "):
                answer = await client.request(method, one, headers=more)
            return answer

    return asyncio.run(all_of_them())


STORY = [
    ("the first runs, the second finds no room", 15.0, {"j1": "RUNNING", "j2": "PENDING"}),
    ("the third goes by", 50.0, {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING"}),
    ("then the second", 150.0, {"j1": "SUCCEEDED", "j2": "RUNNING", "j3": "SUCCEEDED"}),
]


@pytest.mark.parametrize(("story", "at_s", "want"), STORY, ids=[s for s, *_ in STORY])
def test_a_moment_is_as_it_was(
    moments: Moments, state: Path, story: str, at_s: float, want: dict[str, str]
) -> None:
    jobs = ask(moments, f"/api/v1/jobs?at={at_s}").json()["jobs"]
    found = {job["id"]: job["state"] for job in jobs}
    assert found == want, story
    assert found == {job.id: job.state for job in replay_state(state, at_s)["jobs"]}
    fleet = ask(moments, f"/api/v1/fleet/map?at={at_s}").json()
    assert set(fleet["jobs"]) == {job for job, said in want.items() if said == "RUNNING"}
    for page in PAGES:
        glue = "&" if "?" in page else "?"
        assert ask(moments, f"{page}{glue}at={at_s}").status_code == 200, page


@pytest.mark.parametrize("path", ["/?at=bad", "/replay?at=bad", "/jobs/j1?at=nan"])
def test_what_is_no_moment_is_said_in_a_page(moments: Moments, path: str) -> None:
    """With a way on; programs get the document of the fault."""
    answer = ask(moments, path)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "To the last moment of the replay" in answer.text
    assert "no time" in answer.text
    refused = ask(moments, "/api/v1/jobs?at=bad")
    assert refused.json()["field"] == "at"


def test_a_job_that_waited_has_its_reason_and_no_act(moments: Moments) -> None:
    """No journal has why a job waits: it is found out anew."""
    text = ask(moments, "/?at=50").text
    assert "Waiting for quota" in text
    assert "2 tasks with 4 GPUs of any model each must wait for quota" in text
    assert 'data-select="' not in text
    page = ask(moments, "/jobs/j2?at=50").text
    for act in ("Cancel", "Hold", "Requeue"):
        assert f">{act}</button>" not in page
    assert 'data-follows=""' in page


def test_nothing_of_the_future_is_shown(moments: Moments) -> None:
    """History, attempts and events end at the moment; so does the audit log."""
    story = ask(moments, "/api/v1/jobs/j1/story?at=50").json()
    assert [line["kind"] for line in story["history"]][-1] != "SUCCEEDED"
    assert story["attempts"] == []
    assert "SUCCEEDED" not in ask(moments, "/events?at=50").text
    assert "SUCCEEDED" in ask(moments, "/events?at=150").text
    later = ask(moments, "/api/v1/jobs/j1/story?at=150").json()
    assert len(later["attempts"]) == 1


def test_the_moment_is_kept_for_the_next_page(moments: Moments) -> None:
    """By a cookie; a page that names no moment and has no cookie shows the last."""
    assert "08s" not in ask(moments, "/fleet").text
    kept = ask(moments, "/?at=15 /api/v1/jobs").json()["jobs"]
    assert {job["state"] for job in kept} == {"RUNNING", "PENDING"}
    last = ask(moments, "/api/v1/jobs").json()["jobs"]
    assert {job["state"] for job in last} == {"SUCCEEDED"}


@pytest.mark.parametrize(
    ("text", "want"),
    [("1970-01-01T00:00:50", "1970-01-01T00:00:50"), ("-5", "1970-01-01T00:00:00"),
     ("1e12", "1970-01-01T00:03:40")],
)  # fmt: skip
def test_times_are_dates_or_seconds_and_stay_within_the_past(
    moments: Moments, text: str, want: str
) -> None:
    page = ask(moments, f"/?at={text}").text
    assert f'name="at" step="1" value="{want}"' in page


@pytest.mark.parametrize("text", ["yesterday", "nan", "1970-13-01"])
def test_what_is_no_time_is_refused(moments: Moments, text: str) -> None:
    assert ask(moments, f"/?at={text}").status_code == 422


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/v1/jobs"), ("POST", "/api/v1/jobs/j2/cancel"), ("DELETE", "/api/v1/jobs/j2"),
     ("POST", "/api/v1/hosts/east-a-0/drain"), ("POST", "/api/v1/whatif"),
     ("PUT", "/api/v1/workdirs/sha256:0")],
)  # fmt: skip
def test_every_act_is_refused(moments: Moments, method: str, path: str) -> None:
    answer = ask(moments, path, method, origin="http://127.0.0.1")
    assert answer.status_code == 403
    assert "nothing can be changed" in answer.json()["detail"]


def test_other_sites_and_names_are_refused(moments: Moments) -> None:
    """As by a server without login; and no cookie is set for them."""
    answer = ask(moments, "/?at=50", host="evil.example.com")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_steps_back_and_forth_agree(moments: Moments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from the snapshots that moments leave behind."""
    monkeypatch.setattr("topmast.app.past.SNAPSHOT_RECORDS", 1)
    monkeypatch.setattr("topmast.app.past.MOMENTS", 1)
    monkeypatch.setattr("topmast.app.past.SNAPSHOTS", 3)
    times_s = [150, 15, 50, 120, 50, 15, 150, 20, 99]
    found: dict[int, str] = {}
    for at_s in times_s:
        page = ask(moments, f"/api/v1/jobs?at={at_s}").text
        assert found.setdefault(at_s, page) == page


def test_only_loopback_is_served(state: Path) -> None:
    with pytest.raises(InvalidInput, match="not authenticated"):
        serve_past(ReplayOptions(state=state, serve=True, host="0.0.0.0"))


def test_a_folder_without_a_journal_has_no_past(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        serve_past(ReplayOptions(state=tmp_path, serve=True))
