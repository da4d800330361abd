"""What requests may say in numbers and names, what HEAD answers, and what others' jobs count for."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.entrance import Entrance, entrance, run
from topmast.api.observing import LIVE, METRICS, READY
from topmast.fast.queue import GlobalQueue
from topmast.model.access import Caller, Principal, Role
from topmast.model.errors import TooMany
from topmast.model.units import show
from topmast.service import core, forecast, submitting, sweeps, verbs
from topmast.service.jobs_act import Target
from topmast.service.limits import Rate, Rates
from topmast.service.turns import ASKED_AT_ONCE, OneEach

ONE = {"run": "true", "resources": {"accelerators": "H100:1"}}
LONG = "k" * 64


@pytest.fixture(name="door", scope="module")
def door_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    with entrance(tmp_path_factory.mktemp("limits")) as door:
        yield door


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/audit?since=2&until=1", "until", "the period ends before it begins"),
        ("/audit?since=1e300", "since", "not a time"),
        ("/audit?until=-1e300", "until", "not a time"),
        ("/audit?until=nan", "until", "not a time"),
        ("/usage?since=2&until=1", "until", "the period ends before it begins"),
        ("/usage?until=1e308", "until", "not a time"),
        ("/usage?since=-1e308", "since", "not a time"),
        ("/usage?since=1e14", "since", "is in the future"),
        (f"/usage?by=label.{LONG}", "by", f"{show('label.' + LONG)} names no label"),
        ("/usage?by=label.a%20b", "by", "'label.a b' names no label"),
        (f"/jobs?selector=label.{LONG}=x", "selector", f"{show('label.' + LONG)} names no label"),
        ("/events?after=-1", "after", "must be 0 or more"),
        ("/events?after=1e300", "after", "must be a whole number"),
        (f"/events?after={10**30}", "after", "must be at most 1,000,000,000,000,000"),
        (f"/events?after={'9' * 5_000}", "after", "must be a whole number, not as long"),
        ("/jobs/j1/logs?offset=-1", "offset", "must be 0 or more"),
        (f"/jobs/j1/logs?offset={10**30}", "offset", "must be at most 1,000,000,000,000,000"),
        (f"/jobs/j1/logs?task={10**30}", "task", "must be at most 1,000,000,000,000,000"),
        ("/jobs/j1/logs?attempt=-2", "attempt", "must be 0 or more"),
        ("/jobs/j1/logs?task=4", "task", "the job has tasks 0 to 0"),
        ("/jobs?limit=0", "limit", "must be 1 or more"),
        ("/jobs?limit=x&fold=maybe", "limit", "must be a whole number"),
        ("/audit?since=soon", "since", "must be a number"),
    ],
)
def test_a_number_beyond_all_sense_is_refused_by_its_field(
    path: str, field: str, said: str, door: Entrance
) -> None:
    """And a time, a period or the key of a label that cannot be."""

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            await client.post("/jobs", json={"job": ONE | {"tenant": "vision"}})
            answer = await client.get(path)
            told = answer.json()
            assert (answer.status_code, told["field"], told["detail"]) == (422, field, said)

    run(story)


@pytest.mark.parametrize("name", [" ", "\t", "-", " ann", "ann "])
def test_a_user_has_a_name(name: str, door: Entrance) -> None:
    """No blanks around it, and not the sign that stands for nobody; a role has a user, too."""

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            for path, body in (
                ("/jobs", {"job": ONE | {"tenant": "vision"}}), ("/jobs/dry-run", {"job": ONE}),
                ("/jobs/bulk", {"jobs": [ONE]}), ("/jobs/cancel", {"jobs": ["j1"]}),
            ):  # fmt: skip
                answer = await client.post(path, json={**body, "user": name})
                assert (answer.status_code, answer.json()["field"]) == (422, "user"), path
            role = {"subject": f"user:{name}", "role": "viewer", "tenant": "/"}
            answer = await client.post("/roles/grant", json=role)
            assert (answer.status_code, answer.json()["field"]) == (422, "subject")

    run(story)


def test_head_is_answered_as_get_without_a_body(door: Entrance) -> None:
    """By every route that answers GET, by probes and by pages; only a login is not begun by it."""

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            sent = await client.post("/jobs", json={"job": ONE | {"tenant": "vision"}})
            job = sent.json()["id"]
            for path in ("/jobs", f"/jobs/{job}", "/regions", "/audit", "/whoami"):
                got, head = await client.get(path), await client.head(path)
                assert (got.status_code, head.status_code, head.content) == (200, 200, b""), path
                assert head.headers["content-type"] == got.headers["content-type"]
            assert (await client.head("/jobs/j99999")).status_code == 404
            assert (await client.head("/jobs?limti=3")).status_code == 422
            assert (await client.head("/jobs/cancel")).status_code == 404
            streams = await client.head("/events")
            assert streams.headers["content-type"].startswith("text/event-stream")
            assert (await client.head(f"/workdirs/sha256:{'0' * 64}")).status_code == 404
            root = str(client.base_url).removesuffix("/api/v1/")
            for path in ("/", "/fleet", LIVE, READY, METRICS):
                assert (await client.head(f"{root}{path}")).status_code == 200, path
            wrong = await client.put("/jobs")
            assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")
        async with door.client() as nobody:
            assert (await nobody.head("/jobs")).status_code == 401

    run(story)


def test_jobs_of_tenants_that_are_hidden_are_not_counted(door: Entrance) -> None:
    """Neither those of a region nor those of a cluster; their GPUs are told, as all may know."""

    async def story() -> None:
        admin = await door.token("chief", (Role.ADMIN, "/"))
        viewer = await door.token("sees", (Role.VIEWER, "vision"))
        async with door.client(admin) as client, door.client(viewer) as other:
            await client.post("/jobs/cancel", json={"selector": "state=active"})
            for tenant in ("vision", "speech", "speech"):
                sent = await client.post("/jobs", json={"job": ONE | {"tenant": tenant}})
                assert sent.status_code == 201, sent.text
            for path in ("regions", "clusters"):
                (own,) = (await other.get(f"/{path}")).json()[path]
                (every,) = (await client.get(f"/{path}")).json()[path]
                assert (own["running_jobs"], every["running_jobs"]) == (1, 3), path
                assert own["free_gpus"] == every["free_gpus"]

    run(story)


def test_a_selector_counts_as_what_it_costs(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever asks with it; a request without one goes on as before."""

    async def story() -> None:
        viewer = await door.token("looks", (Role.VIEWER, "vision"))
        admin = await door.token("asks", (Role.ADMIN, "/"))
        act = {"selector": "name=*a*b*c", "dry_run": True}
        async with door.client(admin) as client, door.client(viewer) as other:
            for _ in range(10):
                sent = await client.post("/jobs", json={"job": ONE | {"tenant": "vision"}})
                assert sent.status_code == 201, sent.text
            monkeypatch.setattr(core, "STEPS_PER_TAKE", 1e-6)
            looks = ("/jobs?selector=name=*a*b*c", "/jobs?state=active&selector=user=*a*b*c")
            codes = [(await other.get(looks[n % 2])).status_code for n in range(4)]
            assert codes[0] == 200
            assert codes[1:] == [429] * 3
            codes = [(await client.post("/jobs/cancel", json=act)).status_code for _ in range(4)]
            assert codes[0] == 200
            assert codes[1:] == [429] * 3

    run(story)


def test_what_jobs_wait_for_has_a_bound_and_counts(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait of each job is kept: a request may be small, and what it says large."""
    mine = ONE | {"tenant": "vision"}

    async def story() -> None:
        token = await door.token("waits", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client:
            first = (await client.post("/jobs", json={"job": mine | {"name": "first"}})).json()[
                "id"
            ]
            monkeypatch.setattr(submitting, "MAX_WAITS", 10)
            names = [f"w{i}" for i in range(5)]
            jobs = [mine | {"name": n, "depends_on": names[:i]} for i, n in enumerate(names)]
            sent = await client.post("/jobs/bulk", json={"jobs": jobs})
            assert len(sent.json()["ids"]) == 5
            more = mine | {"depends_on": ["w0"]}
            sweep = {"sweep": {"range": {"variable": "N", "from": 1, "to": 11}}}
            for path, body in (
                ("/jobs/bulk", {"jobs": [*jobs, more]}),
                ("/jobs", {"job": mine | sweep | {"depends_on": [first]}}),
            ):
                refused = await client.post(path, json=body)
                assert refused.status_code == 422, refused.text
                assert "wait for more than 10 others" in refused.text

    run(story)


def test_a_sweep_that_counts_more_than_the_burst_is_taken_once(door: Entrance) -> None:
    """Its size is paid off after, as that of many jobs in a request."""
    sweep = {"sweep": {"range": {"variable": "N", "from": 1, "to": 1000}}, "tenant": "vision"}

    async def story() -> None:
        token = await door.token("sweeps", (Role.SUBMITTER, "vision"))
        with door.limited(Rates(submit=Rate(1e-6, 3))):
            async with door.client(token) as client:
                body = {"job": ONE | sweep}
                codes = [(await client.post("/jobs", json=body)).status_code for _ in "ab"]
        assert codes == [201, 429]

    run(story)


SWEEP = {"sweep": {"range": {"variable": "N", "from": 1, "to": 100}}, "tenant": "vision"}


async def swept(client: httpx.AsyncClient) -> str:
    """A sweep of a hundred jobs, all held."""
    made = await client.post("/jobs", json={"job": ONE | SWEEP})
    found: str = made.json()["id"]
    await client.post("/jobs/hold", json={"jobs": [found]})
    return found


@pytest.mark.parametrize("wrong", [{}, {"zzz": 1}], ids=["well formed", "wrong"])
@pytest.mark.parametrize("by", ["name", "selector"])
def test_acts_at_the_same_time_pay_for_their_jobs_one_after_the_other(
    door: Entrance, monkeypatch: pytest.MonkeyPatch, by: str, wrong: dict[str, Any]
) -> None:
    """Each looks at all the jobs: else a burst of them would be under way before the first pays."""
    looks: list[int] = []
    targets = verbs.Verbs._targets

    async def look(*asked: Any) -> list[Target]:
        found = await targets(*asked)
        looks.append(len(found))
        return found

    monkeypatch.setattr(verbs.Verbs, "_targets", look)

    async def story() -> None:
        token = await door.token(f"acts-{by}-{len(wrong)}", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client:
            sweep = await swept(client)
            looks.clear()
            meant = {"jobs": [sweep]} if by == "name" else {"selector": f"sweep={sweep}"}
            body = {**meant, "dry_run": True, **wrong}
            with door.limited(Rates(submit=Rate(1e-6, 5))):
                asked = (client.post("/jobs/hold", json=body) for _ in range(4))
                codes = [answer.status_code for answer in await asyncio.gather(*asked)]
            assert looks == [100]
            # One that is wrong is looked at as well, and is as much too many.
            assert sorted(codes) == [422 if wrong else 200, 429, 429, 429]

    run(story)


def test_what_is_named_again_is_not_looked_at_again(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that is named a thousand times in a request is its jobs once."""
    asked: list[tuple[str, ...]] = []
    jobs_named = sweeps.jobs_named

    def look(queue: GlobalQueue, names: tuple[str, ...], *more: Any) -> Iterator[str]:
        asked.append(names)
        return jobs_named(queue, names, *more)

    monkeypatch.setattr(verbs, "jobs_named", look)

    async def story() -> None:
        async with door.client(await door.token("again", (Role.SUBMITTER, "vision"))) as client:
            sweep = await swept(client)
            asked.clear()
            body = {"jobs": [sweep, f"{sweep}[3]"] * 1_000, "dry_run": True}
            answer = await client.post("/jobs/hold", json=body)
            assert answer.json()["counts"]["unchanged"] == 100
            assert asked == [(sweep, f"{sweep}[3]")]

    run(story)


def test_a_request_is_about_so_many_jobs_at_most(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are named: a sweep counts as its jobs."""
    monkeypatch.setattr(verbs, "MAX_JOBS", 150)

    async def story() -> None:
        async with door.client(await door.token("most", (Role.SUBMITTER, "vision"))) as client:
            one, two = await swept(client), await swept(client)
            for meant, code in (
                ({"jobs": [one]}, 200),
                ({"jobs": [one, two]}, 422),
                ({"selector": f"sweep={one}"}, 200),
                ({"selector": "user=sa:most"}, 422),
                ({"jobs": [f"j{n}" for n in range(1, 152)]}, 422),
            ):
                answer = await client.post("/jobs/release", json={**meant, "dry_run": True})
                assert answer.status_code == code, (meant, answer.text)
                assert code == 200 or "more than 150 jobs" in answer.text

    run(story)


def test_jobs_count_by_how_long_they_are(door: Entrance) -> None:
    """All that they say is read, and kept: a few long ones are as much as many short ones, as are
    those of many groups, and those that are refused."""
    long = ONE | {"tenant": "vision", "run": "#" + 99_000 * "x"}
    mine = ONE | {"tenant": "vision"}
    sweep = {"sweep": {"range": {"variable": "N", "from": 1, "to": 40}}}
    group = {"run": "true", "resources": {"cpus": 0.01}}
    wide = {"tenant": "vision", "groups": [group | {"name": f"g{n}"} for n in range(50)]}
    wrong = mine | {"num_nodes": 0}
    asks: list[tuple[str, dict[str, Any], dict[str, Any], float]] = [
        ("/jobs", {"job": long | sweep}, {"job": mine | sweep}, 9.0),
        ("/jobs/bulk", {"jobs": [long] * 40}, {"jobs": [mine] * 40}, 9.0),
        ("/jobs", {"job": long}, {"job": mine}, 2.5),
        ("/jobs", {"job": wide}, {"job": mine}, 5.0),
        ("/jobs/bulk", {"jobs": [wide] * 2}, {"jobs": [mine] * 2}, 9.0),
        ("/jobs/bulk", {"jobs": [long] * 40 + [wrong]}, {"jobs": [mine, wrong]}, 9.0),
    ]

    async def story() -> None:
        for n, (path, body, short, burst) in enumerate(asks):
            ok = 422 if wrong in body.get("jobs", ()) else 201
            for name, sent, want in (("long", body, [ok, 429]), ("short", short, [ok, ok])):
                token = await door.token(f"{name}{n}", (Role.SUBMITTER, "vision"))
                with door.limited(Rates(submit=Rate(1e-6, burst))):
                    async with door.client(token) as client:
                        codes = [(await client.post(path, json=sent)).status_code for _ in "ab"]
                assert codes == want, (path, name)

    run(story)


def test_accounts_change_nothing_once_the_disk_has_only_what_running_jobs_need(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One account could else fill it, and the server of all would end. Jobs may be cancelled a
    while longer, and those that operate the fleet go on."""
    usage = namedtuple("usage", ("total", "free"))

    def leave(free_bytes: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**40, free_bytes))

    async def story() -> None:
        token = await door.token("fills", (Role.SUBMITTER, "vision"))
        operator = await door.token("operates", (Role.OPERATOR, "/"))
        async with door.client(token) as client, door.client(operator) as boss:
            mine = ONE | {"tenant": "vision"}
            jobs = [(await client.post("/jobs", json={"job": mine})).json()["id"] for _ in "abc"]
            keyed = {"Idempotency-Key": "once"}
            first = await client.post("/jobs", json={"job": mine}, headers=keyed)
            leave(2**30 - 1)
            again = await client.post("/jobs", json={"job": mine}, headers=keyed)
            assert (again.status_code, again.json()) == (201, first.json())
            for path, body in (
                ("/jobs", {"job": mine}), ("/jobs/bulk", {"jobs": [mine]}),
                ("/jobs/hold", {"jobs": jobs}), ("/jobs/requeue", {"jobs": jobs}),
            ):  # fmt: skip
                refused = await client.post(path, json=body)
                assert refused.status_code == 507, refused.text
                assert "takes no more jobs and changes: its disk would have" in refused.text
            done = await client.post("/jobs/cancel", json={"jobs": jobs[:1]})
            assert done.status_code == 200, done.text
            leave(2**29 - 1)
            for path, body in (("/jobs/cancel", {"jobs": jobs}), (f"/jobs/{jobs[1]}/cancel", {})):
                assert (await client.post(path, json=body)).status_code == 507
            again = await client.post("/jobs", json={"job": mine}, headers=keyed)
            assert (again.status_code, again.json()) == (201, first.json())
            assert (await client.get(f"/jobs/{jobs[1]}")).status_code == 200
            assert (await boss.post("/jobs/cancel", json={"jobs": jobs})).status_code == 200
            leave(2**30 + 1)
            assert (await client.post("/jobs", json={"job": mine})).status_code == 201

    run(story)


def test_refusals_are_short_lines_and_none_once_the_disk_is_almost_full(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each account could else write some a second; one line tells later how many there were."""
    usage = namedtuple("usage", ("total", "free"))

    def leave(free_bytes: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**40, free_bytes))

    async def story() -> None:
        token = await door.token("is-refused", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client, door.client() as stranger:
            cordon = {"hosts": ["east-a-0"], "reason": "x" * 1_000}

            async def refused(count: int) -> list[tuple[str, str]]:
                """The lines that are new after so many refusals of each of the two."""
                before = len(door.acts(outcome="refused"))
                for _ in range(count):
                    answer = await client.post("/hosts/cordon", json=cordon)
                    assert answer.status_code == 403, answer.text
                    assert (await stranger.get("/jobs")).status_code == 401
                    path = f"/datasets/{'d' * 3_000}"
                    assert (await client.delete(path)).status_code == 403
                found = door.acts(outcome="refused")
                new = found[: len(found) - before]
                assert all(len(line.object) <= 200 and len(line.outcome) < 1_100 for line in new)
                return [(line.verb, line.outcome) for line in reversed(new)]

            leave(2**29 + 1)
            written = await refused(1)
            assert len(written) == 2
            leave(2**29 - 1)
            assert await refused(3) == []
            leave(2**29 + 1)
            told = ("refuse", "refused: 6 requests, while the disk had no room for lines")
            assert await refused(1) == [told, *written]

    run(story)


def test_an_explanation_counts_as_what_it_costs(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of the processor are further questions; other accounts go on."""
    seconds = itertools.count(0.0, 60.0)

    async def story() -> None:
        tokens = [await door.token(name, (Role.SUBMITTER, "vision")) for name in ("dear", "fair")]
        mine = {"job": ONE | {"tenant": "vision"}}
        with door.limited(Rates(explain=Rate(1e-6, 3.0))):
            async with door.client(tokens[0]) as client, door.client(tokens[1]) as other:
                monkeypatch.setattr(time, "thread_time", lambda: 0.0)
                codes = [(await other.post("/jobs/dry-run", json=mine)).status_code for _ in "ab"]
                assert codes == [200, 200]
                monkeypatch.setattr(time, "thread_time", lambda: next(seconds))
                codes = [(await client.post("/jobs/dry-run", json=mine)).status_code for _ in "ab"]
                assert codes == [200, 429]

    run(story)


@pytest.mark.parametrize("path", ["/jobs?order=queue", "/jobs?fold=true", "/sweeps", "/tokens"])
def test_a_list_counts_as_what_it_costs(
    door: Entrance, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The time of the thread that decides; requests that come together pay one after the other."""
    seconds = itertools.count(0.0, 60.0)
    monkeypatch.setattr(time, "thread_time", lambda: next(seconds))

    async def story() -> None:
        token = await door.token(f"lists-{path[-4:]}", (Role.SUBMITTER, "vision"))
        with door.limited(Rates(list=Rate(1e-6, 5.0))):
            async with door.client(token) as client:
                answers = await asyncio.gather(*(client.get(path) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 429, 429, 429]

    run(story)


def test_what_is_refused_because_there_were_too_many_costs_nothing(door: Entrance) -> None:
    """Or else one that waits as long as it is told to would never get in."""
    long = {"jobs": [ONE | {"tenant": "vision", "run": "#" + 99_000 * "x"}] * 10}

    async def story() -> None:
        token = await door.token("patient", (Role.SUBMITTER, "vision"))
        with door.limited(Rates(submit=Rate(1e-6, 2.0))):
            async with door.client(token) as client:
                codes = [(await client.post("/jobs/bulk", json=long)).status_code for _ in "abc"]
                left = door.service.limits._left["sa:patient", "submit"][0]
        assert codes == [201, 429, 429]
        assert left > -10

    run(story)


def test_what_is_wrong_with_a_request_is_told_until_it_is_one_too_many(door: Entrance) -> None:
    """Of many jobs and of one, and of an act: an account in debt could else go on for ever."""
    mine = ONE | {"tenant": "vision"}
    asks: list[tuple[str, dict[str, Any]]] = [
        ("/jobs/bulk", {"jobs": [mine] * 2, "zzz": 1}),
        ("/jobs", {"job": mine, "zzz": 1}),
        ("/jobs/hold", {"jobs": ["j1"], "zzz": 1}),
    ]

    async def story() -> None:
        for n, (path, body) in enumerate(asks):
            token = await door.token(f"errs{n}", (Role.SUBMITTER, "vision"))
            with door.limited(Rates(submit=Rate(0.1, 3.0))):
                async with door.client(token) as client:
                    answers = [await client.post(path, json=body) for _ in range(5)]
            codes = [answer.status_code for answer in answers]
            assert codes[0] == 422, answers[0].text
            assert codes[-1] == 429, (path, codes)
            assert answers[0].json()["field"] == "zzz"
            assert int(answers[-1].headers["Retry-After"]) > 0

    run(story)


def test_a_hidden_job_that_is_waited_for_takes_as_long_as_one_that_is_not_there(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is asked for both."""
    asked: list[str] = []
    archived = door.service._archived

    def look(job: str) -> Any:
        asked.append(job)
        return archived(job)

    monkeypatch.setattr(door.service, "_archived", look)

    async def story() -> None:
        theirs = await door.token("theirs", (Role.SUBMITTER, "speech"))
        mine = await door.token("curious", (Role.SUBMITTER, "vision"))
        async with door.client(theirs) as client:
            made = await client.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            hidden = made.json()["id"]
        async with door.client(mine) as client:
            for job in (hidden, "j99999"):
                body = {"job": ONE | {"tenant": "vision", "depends_on": [job]}}
                assert (await client.post("/jobs", json=body)).status_code == 422
        assert asked == [hidden, "j99999"]

    run(story)


def test_an_account_has_one_explanation_made_at_a_time(door: Entrance) -> None:
    explaining, begun = door.service.explaining, list[str]()

    async def ask(name: str, end: asyncio.Event) -> None:
        async with explaining.turn(Caller(Principal(name))):
            begun.append(name)
            await end.wait()

    async def story() -> None:
        end = asyncio.Event()
        tasks = [asyncio.create_task(ask(name, end)) for name in ("sa:a", "sa:a", "sa:b")]
        await asyncio.sleep(0.1)
        assert begun == ["sa:a", "sa:b"]
        end.set()
        await asyncio.gather(*tasks)
        assert begun == ["sa:a", "sa:b", "sa:a"]

    run(story)


def test_requests_of_an_account_that_wait_for_one_another_have_a_bound() -> None:
    """Each holds a connection: one account could else take those of all."""
    each, begun = OneEach(), list[str]()

    async def ask(name: str, end: asyncio.Event) -> None:
        async with each.turn(Caller(Principal(name))):
            begun.append(name)
            await end.wait()

    async def story() -> None:
        end = asyncio.Event()
        tasks = [asyncio.create_task(ask("sa:a", end)) for _ in range(ASKED_AT_ONCE + 5)]
        tasks.append(asyncio.create_task(ask("sa:b", end)))
        await asyncio.sleep(0.1)
        assert begun == ["sa:a", "sa:b"]
        end.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [answer for answer in answers if answer is not None]
        assert len(refused) == 5
        assert {type(one) for one in refused} == {TooMany}
        await ask("sa:a", end)
        assert begun == ["sa:a", "sa:b", *["sa:a"] * ASKED_AT_ONCE]

    run(story)


def test_a_gang_of_very_many_unlike_tasks_is_placed_and_not_explained(door: Entrance) -> None:
    """The machines would stand still for seconds. One group alone is no trouble."""
    group = {"run": "true", "resources": {"cpus": 0.01}}
    many = [
        group | {"name": f"g{n}", "count": 2_501, "resources": {"cpus": 0.01 + n / 1000}}
        for n in range(4)
    ]

    async def story() -> None:
        token = await door.token("wide", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client:
            job = {"tenant": "vision", "groups": many}
            refused = await client.post("/jobs/dry-run", json={"job": job})
            assert refused.status_code == 413, refused.text
            assert "10,004 tasks in 4 groups are too many to explain" in refused.text
            sent = await client.post("/jobs", json={"job": job})
            assert sent.status_code == 201, sent.text
            name = sent.json()["id"]
            waits = (await client.get(f"/jobs/{name}")).json()["state"] in ("QUEUED", "PENDING")
            told = await client.get(f"/jobs/{name}/explain")
            assert told.status_code == (413 if waits else 200), told.text
            await client.post("/jobs/cancel", json={"jobs": [name]})

    run(story)


def test_no_forecast_copies_more_text_than_there_is_room_for(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of an explanation is told all the same."""

    async def story() -> None:
        token = await door.token("foresees", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client:
            mine = {"job": ONE | {"tenant": "vision"}}
            await client.post("/jobs", json=mine)
            told = (await client.post("/jobs/dry-run", json=mine)).json()
            assert told["expected_start"] is not None
            monkeypatch.setattr(forecast, "MOST_COPIED_BYTES", 3)
            told = (await client.post("/jobs/dry-run", json=mine)).json()
            assert (told["expected_start"], bool(told["summary"])) == (None, True)

    run(story)
