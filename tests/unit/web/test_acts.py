"""Which acts pages offer: to whom, on what, and in what state."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.support.entrance import FLEET, ROOT, URL, Entrance, entrance, run
from tests.unit.docs.pages import REPO
from tests.unit.web.support import local, submit
from topmast.model.access import Role
from topmast.model.states import JobState
from topmast.web.pages.job import verbs_for

VERBS = (REPO / "docs" / "reference" / "verbs.md").read_text("utf-8")


WEST: dict[str, Any] = {"clusters": {"west-a": {"hosts": [{"count": 2, "gpu": "A100", "gpus": 2}]}}}
TWO_REGIONS: dict[str, Any] = {**FLEET, "regions": {**FLEET["regions"], "west": WEST}}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """A little of everything: see `set_up`."""
    with entrance(tmp_path_factory.mktemp("acts"), TWO_REGIONS) as found:
        source = tmp_path_factory.mktemp("images")
        (source / "one").write_text("1")
        run(lambda: set_up(found, str(source)))
        yield found


async def set_up(door: Entrance, source: str) -> None:
    """j1 runs, s2 is a sweep of four jobs, j6 was cancelled, j7 is held; hosts, tenants, a dataset."""
    later_s = door.service.clock.now() + 3_600.0
    async with local(door) as client:
        await submit(client, name="first", labels={"team": "vision"})
        sweep = {"matrix": {"RATE": [0.1, 0.01], "SEED": [1, 2]}, "max_parallel": 1}
        await submit(client, name="rates", tenant="speech", sweep=sweep)
        for _ in range(2):
            await submit(client, resources={"accelerators": "H100:8"})
        for path, body in (
            ("jobs/cancel", {"jobs": ["j3", "j6"]}),
            ("jobs/hold", {"jobs": ["j7"]}),
            ("hosts/cordon", {"hosts": ["east-a-1"], "reason": "its fan is loud"}),
            ("reservations", {"hosts": ["east-a-1"], "until_s": later_s, "reason": "firmware"}),
            ("tenants/visio/pause", {"reason": "an audit"}),
            ("tenants/vision2/quota", {"quota": {"H100": 1}, "until_s": later_s}),
            ("datasets", {"name": "images", "region": "east", "source": source}),
            ("accounts", {"name": "ci", "tenant": "/"}),
            ("roles/grant", {"subject": "user:ann", "role": "viewer", "tenant": "/"}),
        ):
            answer = await client.post(f"/api/v1/{path}", json=body)
            assert answer.is_success, answer.text
        hook = {"url": "https://example.com/hook"}
        assert (await client.put("/api/v1/webhooks/ops", json=hook)).is_success


Offered = list[tuple[str, dict[str, Any]]]


def acts(text: str) -> Offered:
    """The acts that a page offers, with the words of their buttons."""
    found = re.findall(r'<button [^>]*data-act="([^"]*)">([^<]*)</button>', text)
    return [(words, json.loads(html.unescape(act))) for act, words in found]


def routes(offered: Offered) -> set[str]:
    """Their methods and addresses."""
    return {f"{act['method']} {act['url']}" for _, act in offered}


async def offered(client: httpx.AsyncClient, path: str) -> Offered:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return acts(answer.text)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/jobs/j1", {"Hold", "Suspend", "Preempt", "Requeue", "Change…", "Cancel"}),
        ("/fleet?host=east-a-0", {"Cordon", "Drain", "Uncordon", "Reserve…", "End"}),
        ("/fleet?cluster=east-a", {"Close…", "Reserve…"}),
        ("/tenants?tenant=vision", {"Pause…", "Quota for a while…"}),
        ("/tenants?tenant=visio", {"Resume", "Quota for a while…"}),
        ("/sweeps/s2", {"Hold", "Release", "Change…", "Cancel"}),
        ("/account", set()),
    ],
)
def test_an_administrator_is_offered_what_there_is_to_do(
    door: Entrance, path: str, want: set[str]
) -> None:
    """Each by a route of the REST interface."""

    async def story() -> None:
        async with local(door) as client:
            found = await offered(client, path)
        assert want <= {words for words, _ in found}
        assert all(act["url"].startswith("/api/v1/") for _, act in found)

    run(story)


@pytest.mark.parametrize(
    "path",
    ["/", "/jobs/j1", "/fleet?host=east-a-0", "/fleet?cluster=east-a", "/tenants?tenant=vision",
     "/sweeps/s2", "/system", "/data"],
)  # fmt: skip
def test_a_viewer_is_offered_nothing(door: Entrance, path: str) -> None:
    async def story() -> None:
        token = await door.token("looks", (Role.VIEWER, "/"))
        async with door.client(token) as client:
            assert await offered(client, f"{URL}{path}") == []

    run(story)


def test_the_state_of_a_job_says_what_can_be_done(door: Entrance) -> None:
    """To a job that ended well nothing; to one that is held, what lets it go."""

    async def story() -> None:
        job = (await door.service.story(ROOT, "j1")).job
        told = {state: verbs_for(replace(job, state=state.value)) for state in JobState}
        assert told[JobState.SUCCEEDED] == told[JobState.CANCELLING] == ()
        assert told[JobState.FAILED] == told[JobState.CANCELLED] == ("requeue",)
        assert told[JobState.PENDING] == ("hold", "edit", "cancel")
        assert told[JobState.RECOVERING] == ("hold", "requeue", "edit", "cancel")
        held = verbs_for(replace(job, state="PENDING", hold="by ann"))
        assert held == ("release", "edit", "cancel")
        stopped = verbs_for(replace(job, state="PENDING", hold="by ann", suspended=True))
        assert stopped == ("resume", "edit", "cancel")

    run(story)


PLACES = {
    "Queue": ["/"], "Job": ["/jobs/j1", "/jobs/j6", "/jobs/j7"], "Sweep": ["/sweeps/s2"],
    "Fleet": ["/fleet?host=east-a-0", "/fleet?host=east-a-1", "/fleet?cluster=west-a"],
    "Tenants": ["/tenants?tenant=visio", "/tenants?tenant=vision2"],
    "Data": ["/data?dataset=images"], "System": ["/system"], "Account": ["/account"],
}  # fmt: skip
"""Where a page shows its acts, in each state in which it has others."""
ROWS = re.findall(r"(?m)^\| [^|`]+ \| `([A-Z]+) ([^|`]+)` \| [^|]+ \| [^|]+ \| ([^|`]+) \|$", VERBS)


@pytest.mark.parametrize("page", PLACES)
def test_each_page_offers_the_acts_that_the_reference_says(door: Entrance, page: str) -> None:
    """All of them, and no other."""
    told = {
        re.sub(r"\\{[a-z]+\\}", "[^/]+", re.escape(f"{method} /api/v1{path}"))
        for method, path, pages in ROWS
        if page in pages.split(", ") and method != "GET"
    }

    async def story() -> None:
        token = await door.token("admin", (Role.ADMIN, "/"))
        shown: set[str] = set()
        async with door.client(token) as client:
            for path in PLACES[page]:
                shown |= routes(await offered(client, f"{URL}{path}"))
            if page == "Fleet":  # what opens a cluster is there when it is closed
                await client.post("/clusters/west-a/close", json={})
                shown |= routes(await offered(client, f"{URL}/fleet?cluster=west-a"))
                await client.post("/clusters/west-a/open", json={})
        shown.discard("POST /auth/logout")
        for route in told:
            assert any(re.fullmatch(route, one) for one in shown), route
        for one in shown:
            assert any(re.fullmatch(route, one) for route in told), one

    run(story)


def test_a_reservation_and_a_pause_are_told(door: Entrance) -> None:
    async def story() -> None:
        async with local(door) as client:
            fleet = (await client.get("/fleet")).text
            assert "firmware" in fleet
            assert "east-a-1" in fleet
            host = (await client.get("/fleet?host=east-a-1")).text
            assert re.search(
                r"It (is|will be) reserved from .* to .* \(w\d+\): no job starts", host
            )
            assert "reserved from" not in (await client.get("/fleet?host=east-a-0")).text
            tenants = (await client.get("/tenants?tenant=visio")).text
            assert "None of its jobs starts" in tenants
            assert "an audit" in tenants
            assert (await client.get("/tenants?tenant=nowhere")).status_code == 404

    run(story)


def test_the_fleet_says_by_whose_order_a_host_is_closed_and_why(door: Entrance) -> None:
    """At a glance, and in the host's row."""

    async def story() -> None:
        async with local(door) as client:
            text = (await client.get("/fleet")).text
            assert "east-a-1</a> (local cordoned it: its fan is loud)" in text
            row = re.search(r'data-key="host east-a-1">(.*?)</tr>', text, re.S)
            assert row is not None
            assert "<bdi>local cordoned it: its fan is loud</bdi>" in row[1]

    run(story)


def test_a_sweep_that_is_held_says_so(door: Entrance) -> None:
    """Where it is listed, on its own page, and at each of its jobs, also one that runs on."""

    async def story() -> None:
        async with local(door) as client:
            await client.post("/api/v1/jobs/hold", json={"jobs": ["s2"], "reason": "wrong data"})
            try:
                assert (await client.get("/api/v1/sweeps/s2")).json()["held"] == 3
                assert "3 held" in (await client.get("/sweeps")).text
                assert (
                    "<dt>Held</dt><dd>3 jobs, until released</dd>"
                    in (await client.get("/sweeps/s2")).text
                )
                states = {
                    job: (await client.get(f"/api/v1/jobs/{job}")).json()["state"]
                    for job in ("j2", "j4")
                }
                assert states == {"j2": "RUNNING", "j4": "PENDING"}
                listed = (await client.get("/?selector=sweep%3Ds2")).text
                told = dict(re.findall(r'<tr data-row data-key="(j\d+)">(.*?)</tr>', listed, re.S))
                assert "; when it stops: <bdi>held by" in told["j2"]
                assert ">Held</b>" in told["j4"]
            finally:
                await client.post("/api/v1/jobs/release", json={"jobs": ["s2"]})
            assert (await client.get("/api/v1/sweeps/s2")).json()["held"] == 0

    run(story)


def test_a_sweep_is_told_as_one(door: Entrance) -> None:
    """With how far it is, what varies, and its jobs."""

    async def story() -> None:
        async with local(door) as client:
            listed = (await client.get("/sweeps")).text
            assert '<a href="/sweeps/s2">' in listed
            one = (await client.get("/sweeps/s2")).text
            assert "at most 1 at a time" in one
            assert re.findall(r'<tr data-row data-key="(j\d+)"', one) == ["j2", "j3", "j4", "j5"]
            assert "<dt>Held</dt>" not in one
            job = (await client.get("/jobs/j3")).text
            assert '<a href="/sweeps/s2">s2</a>, index 1<' in job  # as s2[1] on the command line
            assert "label.team%3Dvision" in (await client.get("/jobs/j1")).text
            assert (await client.get("/sweeps/s9")).status_code == 404
        token = await door.token("only-vision", (Role.VIEWER, "vision"))
        async with door.client(token) as client:
            assert (await client.get(f"{URL}/sweeps/s2")).status_code == 404
            assert "s2" not in (await client.get(f"{URL}/sweeps")).text

    run(story)


def test_an_account_is_told_to_its_own_alone(door: Entrance) -> None:
    """Two callers that may do the same are not shown one another's, also as a fragment."""

    async def story() -> None:
        for name in ("one", "other"):
            token = await door.token(name, (Role.VIEWER, "/"))
            async with door.client(token, **{"Topmast-Fragment": "1"}) as client:
                text = (await client.get(f"{URL}/account")).text
            assert f"sa:{name}" in text
            assert token[-4:] in text
            assert ("sa:one" in text) == (name == "one")
        token = await door.token("manager", (Role.TENANT_ADMIN, "vision"))
        async with door.client(token) as client:
            found = await offered(client, f"{URL}/account")
        assert {"Log out", "Grant…", "New account…", "Revoke"} <= {words for words, _ in found}

    run(story)


def test_usage_is_told_as_csv_too(door: Entrance) -> None:
    """With the columns of the command line."""

    async def story() -> None:
        async with local(door) as client:
            answer = await client.get("/usage?by=tenant&period=24h&as=csv")
        assert answer.headers["content-type"].startswith("text/csv")
        head, *rows = answer.text.splitlines()
        assert head.startswith("tenant,attempts,held_gpu_h")
        assert {row.partition(",")[0] for row in rows} <= {"vision", "speech"}

    run(story)
