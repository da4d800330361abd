"""What each role may do, on every route: declared, refused, audited, and blind to other tenants."""

from __future__ import annotations

import asyncio
import hashlib
import html
import io
import json
import re
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.responses import Response
from msgspec.structs import replace

from tests.support.entrance import ROOT, URL, Entrance, entrance, run
from tests.support.live import live
from topmast.accounts import Token
from topmast.api import AUTH_PREFIX
from topmast.api.observing import METRICS, PROBES
from topmast.client import accounts
from topmast.model.access import ALLOWED, FLEET_WIDE, Caller, Permission, Role
from topmast.model.files.jobfile import faults_in_fleet
from topmast.model.messages import TokenKind
from topmast.ports import Act, ActFilter
from topmast.routing import declared, declared_verb, guarded_router, needs
from topmast.service import account_room
from topmast.service.access import act
from topmast.service.accounts import Directory
from topmast.service.audit_filter import VERBS, check_filter
from topmast.service.limits import Rate, Rates
from topmast.web import STATIC
from topmast.web.registry import all_pages
from topmast.web.routes import LEADS_TO, LOGGED_OUT

pytestmark = pytest.mark.always


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """The control plane of this file."""
    with entrance(tmp_path_factory.mktemp("access")) as found:
        yield found


def packed() -> bytes:
    """A work folder as it is uploaded."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return out.getvalue()


WORKDIR = packed()
DIGEST = f"sha256:{hashlib.sha256(WORKDIR).hexdigest()}"
ONE = {"run": "true", "resources": {"accelerators": "H100:1"}}
DATASET = {"name": "images", "region": "east", "source": "FOLDER"}
ONLY_REFUSED = {
    "DELETE /datasets/{name}/replicas/{region}", "POST /webhooks/{name}/test", "POST /whatif",
    "GET /whatif/{number}", "POST /jobs/{job}/exec", "GET /jobs/{job}/exec/{id}",
    "POST /jobs/{job}/exec/{id}/input", "POST /jobs/{job}/exec/{id}/end",
}  # fmt: skip
"""There is one replica, and it may not go; nothing receives the message; this server runs no what-ifs,
and its engine no commands.
"""
OF_AN_ACT = {"POST /jobs/{job}/exec/{id}/input", "POST /jobs/{job}/exec/{id}/end"}
"""They belong to an act that was audited as a whole when it began."""
READS_BY_POST = {"POST /jobs/dry-run", "POST /fleet/diff", "POST /whatif", *OF_AN_ACT}

TOMORROW_S = time.time() + 86_400.0
NAMES = {"/accounts": "ci", "/reservations": "w1"}
"""What routes are tried with that have a name in their path: by its beginning, else the dataset."""
CALLS: dict[str, dict[str, Any]] = {
    "POST /jobs": {"json": {"job": ONE | {"tenant": "vision"}}},
    "POST /jobs/bulk": {"json": {"jobs": [ONE | {"tenant": "vision"}] * 2}},
    "POST /jobs/dry-run": {"json": {"job": ONE | {"tenant": "vision"}}},
    "POST /jobs/{job}/cancel": {"json": {}},
    "POST /fleet/diff": {"json": {"tenants": {"vision": {}, "nlp": {}, "speech": {}}}},
    "POST /fleet/apply": {
        "json": {
            "tenants": {
                "vision": {"quota": {"H100": 2}},
                "nlp": {"parent": "vision"},
                "other": {},
                "speech": {"quota": {"H100": 2}},
            }
        }
    },
    "POST /jobs/edit": {"json": {"jobs": ["j1"], "changes": {"priority": "high"}}},
    "POST /jobs/hold": {"json": {"jobs": ["j1"]}},
    "POST /jobs/release": {"json": {"jobs": ["j1"]}},
    "POST /jobs/suspend": {"json": {"jobs": ["j1"]}},
    "POST /jobs/resume": {"json": {"jobs": ["j1"]}},
    "POST /jobs/preempt": {"json": {"jobs": ["j1"]}},
    "POST /jobs/requeue": {"json": {"jobs": ["j1"]}},
    "POST /jobs/cancel": {"json": {"jobs": ["j1"]}},
    "POST /jobs/{job}/exec": {"json": {"command": ["true"]}},
    "POST /jobs/{job}/exec/{id}/input": {"content": b"typed"},
    "POST /jobs/{job}/exec/{id}/end": {},
    "PUT /workdirs/{digest}": {"content": WORKDIR, "headers": {"Content-Type": "application/gzip"}},
    "POST /hosts/{host}/cordon": {"json": {}},
    "POST /hosts/{host}/uncordon": {"json": {}},
    "POST /hosts/{host}/drain": {"json": {}},
    "POST /hosts/cordon": {"json": {"hosts": ["east-a-0"]}},
    "POST /hosts/uncordon": {"json": {"hosts": ["east-a-0"]}},
    "POST /hosts/drain": {"json": {"hosts": ["east-a-0"]}},
    "POST /clusters/close": {"json": {"clusters": ["east-a"]}},
    "POST /clusters/open": {"json": {"selector": "cluster=east-a"}},
    "POST /clusters/{cluster}/close": {"json": {}},
    "POST /clusters/{cluster}/open": {"json": {}},
    "POST /reservations": {"json": {"cluster": "east-a", "until_s": TOMORROW_S}},
    "POST /reservations/{name}/end": {"json": {}},
    "POST /tenants/{tenant}/quota": {"json": {"quota": {"H100": 1}, "until_s": TOMORROW_S}},
    "POST /tenants/{tenant}/quota/end": {"json": {}},
    "POST /tenants/pause": {"json": {"tenants": ["vision"]}},
    "POST /tenants/resume": {"json": {"selector": "tenant=vision"}},
    "POST /tenants/{tenant}/pause": {"json": {}},
    "POST /tenants/{tenant}/resume": {"json": {}},
    "POST /datasets": {"json": DATASET},
    "POST /datasets/{name}/replicas": {"json": {"region": "east"}},
    "POST /tokens": {"json": {"account": "ci"}},
    "POST /accounts": {"json": {"name": "other", "tenant": "vision"}},
    "POST /roles/grant": {"json": {"subject": "user:z", "role": "viewer", "tenant": "vision"}},
    "PUT /profile": {"json": {"profile": "fifo"}},
    "POST /whatif": {"json": {"for_s": 60.0}},
    "PUT /webhooks/{name}": {"json": {"url": "https://127.0.0.1:1/hook"}},
    "POST /webhooks/{name}/test": {"json": {}},
    "POST /roles/revoke": {"json": {"subject": "user:z", "role": "viewer", "tenant": "vision"}},
}
"""A request that works, for each route that takes more than a path."""
LAST = ["DELETE /webhooks/{name}", "DELETE /datasets/{name}/replicas/{region}", "DELETE /datasets/{name}",
        "DELETE /accounts/{name}", "GET /events"]  # fmt: skip
"""What is tried when all else was, in this order."""


FILES = f"{URL}{STATIC}/{{tag}}/{{name:path}}"
"""Those of the pages."""


def name_of(route: Any) -> str:
    """A route as it is called: those of the interface by their path below it, pages by their URL."""
    (method,) = route.methods
    if not route.include_in_schema:
        return f"{method} {URL}{route.path}"
    return f"{method} {route.path.removeprefix('/api/v1')}"


def test_a_route_without_a_permission_cannot_be_made() -> None:
    """To forget it is an error at the start, not an open door."""
    router = guarded_router()

    async def forgotten() -> None: ...

    with pytest.raises(TypeError, match=r"forgotten declares no permission"):
        router.get("/forgotten")(forgotten)


def test_a_route_that_may_change_something_without_a_verb_cannot_be_made() -> None:
    """Its refusals would be in the audit log under another name than what it does."""
    router = guarded_router()

    @needs(Permission.SELF)
    async def forgotten() -> Response:
        return Response()

    router.get("/looks")(forgotten)
    for method in (router.post, router.put, router.patch, router.delete):
        with pytest.raises(TypeError, match=r"forgotten declares no verb"):
            method("/forgotten")(forgotten)


def test_each_route_that_changes_something_declares_a_verb_of_the_log(door: Entrance) -> None:
    """And each verb is that of a route, but for those of logins and of what a request asks for besides."""
    verbs = {
        name_of(route): declared_verb(route.endpoint, route.methods)
        for route in door.routes()
        if declared(route.endpoint) is not None
    }
    changing = {name for name in verbs if name.split()[0] not in ("GET", "HEAD")}
    assert len(changing) > 40
    assert {name for name, verb in verbs.items() if verb} <= changing
    silent = {name for name in changing if not verbs[name]}
    assert silent == {"POST /jobs/dry-run", "POST /fleet/diff", *OF_AN_ACT}
    besides = {"login", "logout", "refuse", "drain-tenant"}
    assert {verbs[name] for name in changing - silent} == set(VERBS) - besides


def test_each_route_declares_one_permission(door: Entrance) -> None:
    """Routes that are open to all take part in logging in, or give files that are for all the same."""
    names = {name_of(route): declared(route.endpoint) for route in door.routes()}
    assert len(names) > 40
    known = {path.removeprefix("/api/v1").removeprefix("/auth") for path in door.paths()}
    machines = (METRICS, *PROBES)
    shown = {
        f"{URL}{path}" for path in (*(page.path for page in all_pages()), *LEADS_TO, *machines)
    } | {FILES, f"{URL}{LOGGED_OUT}"}
    assert {name.split()[1] for name in names} == known | shown
    assert door.others() == {
        "/openapi.json", "/{region}", "/{region}/books", "/{region}/log", "/{region}/exec",
        "/{region}/datasets/{name:path}", "/{region}/workdirs/{digest}",
    }, "the schema, and links between processes, which have a token of their own"  # fmt: skip
    open_to_all = {name for name, found in names.items() if found is None}
    assert open_to_all == {
        "GET /login", "GET /callback", "POST /device", "POST /device/token", "POST /logout",
        f"GET {FILES}", f"GET {URL}{LOGGED_OUT}", *(f"GET {URL}{probe}" for probe in PROBES),
    }  # fmt: skip
    needs_body = {n for n, p in names.items() if p and n.split()[0] in ("POST", "PUT")}
    assert needs_body == set(CALLS)


def test_every_route_asks_for_a_login_for_a_role_and_audits_changes_once(
    door: Entrance, tmp_path: Path
) -> None:
    """Anonymous: 401. Without the permission: 403, audited. With it: done, and each change one line."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a")
    CALLS["POST /datasets"] = {"json": DATASET | {"source": str(tmp_path / "source")}}

    async def story() -> None:
        await door.service.directory.add_account(ROOT, "ci", "vision")
        admin = await door.token("chief", (Role.ADMIN, "/"))
        lesser: dict[Role, str] = {
            role: await door.token(f"a-{role}", (role, "vision" if role in ROOTLESS else "/"))
            for role in Role if role is not Role.ADMIN
        }  # fmt: skip
        async with door.client(admin) as client:
            job = (await client.post("/jobs", **CALLS["POST /jobs"])).json()["id"]
            swept = {"job": ONE | {"tenant": "vision", "sweep": {"matrix": {"X": [1, 2]}}}}
            answer = await client.post("/jobs", json=swept)
            assert answer.status_code == 201, answer.text
            sweep = answer.json()["id"]
            token = (await client.post("/tokens", json={"account": "ci"})).json()["view"]["id"]
        fill = {
            "job": job, "host": "east-a-0", "tenant": "vision", "digest": DIGEST, "region": "east", "token": token,
            "sweep": sweep, "number": "1", "cluster": "east-a", "id": "none",
        }  # fmt: skip
        routes = [r for r in door.routes() if declared(r.endpoint) is not None]
        routes.sort(key=lambda r: LAST.index(name_of(r)) if name_of(r) in LAST else -1)
        for route in routes:
            await try_route(door, route, fill, admin, lesser)

    run(story)


ROOTLESS = (Role.VIEWER, Role.SUBMITTER, Role.TENANT_ADMIN)


def test_figures_are_for_roles_at_the_root_and_probes_for_all(door: Entrance) -> None:
    """Figures count the jobs of all tenants: a role below the root is refused, and that is audited."""

    async def story() -> None:
        seen = [role for role in ROOTLESS if Permission.USAGE_VIEW in ALLOWED[role]]
        assert seen
        for role in seen:
            token = await door.token(f"below-{role}", (role, "vision"))
            before = len(door.acts())
            async with door.client(token) as client:
                answer = await client.get(f"{URL}{METRICS}")
            assert (answer.status_code, "topmast_" in answer.text) == (403, False), role
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.actor, line.outcome[:8]) == (f"sa:below-{role}", "refused:")
        async with door.client(await door.token("scrapes", (Role.VIEWER, "/"))) as client:
            answer = await client.get(f"{URL}{METRICS}")
            assert (answer.status_code, "topmast_gpus{" in answer.text) == (200, True)
        async with door.client() as stranger:
            assert (await stranger.get(f"{URL}{METRICS}")).status_code == 401
            for probe in PROBES:
                answer = await stranger.get(f"{URL}{probe}")
                assert (answer.status_code, answer.text) == (200, "ok\n"), probe

    run(story)


async def try_route(
    door: Entrance, route: Any, fill: dict[str, str], admin: str, lesser: dict[Role, str]
) -> None:
    """One route, as each kind of caller."""
    name = name_of(route)
    method, path = name.split()
    given = CALLS.get(name, {})
    named = next((name for begin, name in NAMES.items() if path.startswith(begin)), "images")
    for field, value in {**fill, "name": named}.items():
        path = path.replace(f"{{{field}}}", value)
    permission = declared(route.endpoint)
    assert permission is not None
    async with door.client() as stranger:
        answer = await stranger.request(method, path, **given)
        assert answer.status_code == 401, name
    refused: list[str] = []
    for role, token in lesser.items():
        if permission in ALLOWED[role]:
            continue
        before = len(door.acts())
        async with door.client(token) as client:
            answer = await client.request(method, path, **given)
        assert answer.status_code == 403, (name, role, answer.text)
        (line,) = door.acts()[: len(door.acts()) - before]
        assert (line.actor, line.outcome[:8]) == (f"sa:a-{role}", "refused:"), name
        check_filter(ActFilter(verb=line.verb))
        refused.append(line.verb)
    if name == "GET /events":
        return
    before = len(door.acts())
    async with door.client(admin) as client:
        answer = await client.request(method, path, **given)
    works = name not in ONLY_REFUSED
    assert (answer.status_code < 400) == works, (name, answer.text)
    added = door.acts()[: len(door.acts()) - before]
    changes = method not in ("GET", "HEAD") and name not in READS_BY_POST
    assert [line.actor for line in added] == ["sa:chief"] * changes, (name, added)
    if changes:
        check_filter(ActFilter(verb=added[0].verb))  # so that it can be asked for
        assert added[0].outcome.split(":")[0] in (("done", "unchanged") if works else ("refused",))
        assert added[0].request == answer.headers["x-request-id"]
        # One filter finds both.
        assert {declared_verb(route.endpoint, route.methods), *refused} == {added[0].verb}, name


def test_a_folder_of_the_server_is_no_source_for_an_operator(tmp_path: Path) -> None:
    """It could be one with keys. What lies in a store may be entered, and an administrator may copy."""

    async def story(door: Entrance) -> None:
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys" / "id").write_text("private")
        wanted = {"name": "keys", "region": "east", "source": str(tmp_path / "keys")}
        async with door.client(await door.token("o", (Role.OPERATOR, "/"))) as operator:
            for also in ({}, {"dry_run": True}):
                refused = await operator.post("/datasets", json=wanted | also)
                assert refused.status_code == 403, refused.text
                told = refused.json()
                assert told["detail"].startswith("source: sa:o has no role with the permission")
                assert "roles grant sa:o admin /" in told["remedy"]
                assert told["remedy"].endswith(
                    "into the store of the region, and leave out the source"
                )
            (line,) = door.acts(actor="sa:o", outcome="refused")[:1]
            assert "fleet.build" in line.outcome
            (tmp_path / "stores" / "east" / "there").mkdir(parents=True)
            (tmp_path / "stores" / "east" / "there" / "a").write_text("a")
            entered = {"name": "there", "region": "east", "path": "there"}
            answer = await operator.post("/datasets", json=entered)
            assert answer.status_code == 201, answer.text
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as admin:
            assert (await admin.post("/datasets", json=wanted)).status_code == 201

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_what_belongs_to_another_tenant_is_not_there(tmp_path: Path) -> None:
    """404 for each object of another; lists, counts, events, usage and texts say nothing of it."""

    async def story(door: Entrance) -> None:
        vision = await door.token("v", (Role.SUBMITTER, "vision"))
        speech = await door.token("s", (Role.SUBMITTER, "speech"))
        both = [ONE | {"tenant": "speech", "name": f"secret{n}"} for n in range(4)]
        async with door.client(speech) as other:
            theirs = (await other.post("/jobs/bulk", json={"jobs": both})).json()["ids"]
        async with door.client(await door.token("o", (Role.OPERATOR, "/"))) as operator:
            kept = {"hosts": ["east-a-0"], "until_s": TOMORROW_S, "tenants": ["vision", "speech"]}
            assert (await operator.post("/reservations", json=kept)).status_code == 201
        async with door.client(vision) as client:
            (window,) = (await client.get("/reservations")).json()["reservations"]
            assert window["tenants"] == ["vision", "(another tenant)"]
            made = await client.post("/jobs", json={"job": ONE | {"tenant": "vision"}})
            mine = made.json()["id"]
            await asyncio.sleep(0.2)
            for job in theirs:
                for route in (r for r in door.routes() if "{job}" in r.path):
                    method, path = name_of(route).split()
                    path = path.replace("{job}", job)
                    answer = await client.request(method, path, **CALLS.get(name_of(route), {}))
                    assert answer.status_code == 404
                    assert f"no job '{job}'" in html.unescape(answer.text)
            page = (await client.get("/jobs")).json()
            assert [job["id"] for job in page["jobs"]] == [mine]
            assert (page["total"], sum(page["counts"].values())) == (1, 1)
            assert sum((await client.get("/health")).json()["jobs"].values()) == 1
            tenants = {row["name"] for row in (await client.get("/tenants")).json()["tenants"]}
            assert tenants == {"vision", "nlp"}
            usage = (await client.get("/usage")).json()["usage"]
            assert {row["key"] for row in usage} <= {"vision"}
            explained = await client.get(f"/jobs/{mine}/explain")
            assert explained.json()["reason"] == "InsufficientCapacity", explained.text
            shown = [
                explained,
                *[await client.get(f"/{what}") for what in ("hosts", "regions", "jobs")],
            ]
            shown.append(await client.get(f"/jobs/{mine}/story"))
            shown.append(await client.get("/hosts/east-a-0/drain"))
            for answer in shown:
                for told in (*theirs, "secret[0-9]", "speech", "sa:s"):
                    found = re.search(rf"\b{told}\b", answer.text)
                    assert found is None, (answer.url, told, answer.text)
            assert "a job of another tenant (1 GPUs, normal)" in shown[1].text
            unknown = await client.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            assert (unknown.status_code, unknown.json()["detail"]) == (
                422,
                "unknown tenant 'speech'",
            )
        heard = await first_events(door, vision)
        assert {event["job"] for event in heard} == {mine}, heard

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_nobody_reads_in_their_own_words_which_jobs_and_tenants_there_are(tmp_path: Path) -> None:
    """Names, labels, datasets and reasons come back as they were written, whatever they name."""

    async def story(door: Entrance) -> None:
        theirs = ONE | {"tenant": "speech", "priority": "critical"}
        async with door.client(await door.token("s", (Role.SUBMITTER, "speech"))) as other:
            hidden = (await other.post("/jobs", json={"job": theirs})).json()["id"]
        reason = f"tenant speech, tenant nosuch is paused; the quota of speech; {hidden} j77"
        labels = {"a": hidden, "b": "j77"}
        own = ONE | {"tenant": "vision", "labels": labels}
        told = []
        async with door.client(await door.token(hidden, (Role.SUBMITTER, "vision"))) as client:
            for named in (hidden, "j77"):
                job_file = own | {"name": named, "datasets": [named]}
                made = await client.post("/jobs", json={"job": job_file})
                job = made.json()["id"]
                held = await client.post("/jobs/hold", json={"jobs": [job], "reason": reason})
                (view,) = held.json()["jobs"]
                assert (view["name"], view["labels"]) == (named, labels)
                assert (view["user"], view["datasets"]) == (f"sa:{hidden}", [named])
                assert view["hold"] == f"held by sa:{hidden}: {reason}"
                story = (await client.get(f"/jobs/{job}/story")).json()
                texts = [line["text"] for line in story["history"]]
                assert f"submitted by sa:{hidden} for tenant vision, band normal" in texts
                assert texts[-1] == f"held by sa:{hidden}: {reason}"
                explained = (await client.get(f"/jobs/{job}/explain")).json()
                first, more = explained["summary"].split("; besides, ")
                assert first.endswith(f": held by sa:{hidden}: {reason}")
                assert more.endswith("does not have: a job of another tenant")
                await client.post("/jobs/release", json={"jobs": [job]})
                waits = (await client.get(f"/jobs/{job}/explain")).text
                told.append(waits.replace(f'"{job}"', "").replace(named, "X"))
                ended = await client.post("/jobs/cancel", json={"jobs": [job], "reason": reason})
                assert ended.json()["jobs"][0]["cause"] == f"cancelled by sa:{hidden}: {reason}"
        viewer = door.service.directory.caller(await door.token("v", (Role.VIEWER, "vision")))
        assert viewer is not None
        heard = door.service.recent_events(viewer, 50, "CANCELLED")
        assert [one.text for one in heard] == [f"cancelled by sa:{hidden}: {reason}"] * 2
        first, second = (re.sub(r'"[a-z]+_event":\d+', "", one) for one in told)
        assert first == second

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_the_audit_log_tells_a_tenants_people_nothing_of_other_tenants(tmp_path: Path) -> None:
    """Roles elsewhere, whom an operator selected besides, and for whose job one had to stop."""

    async def story(door: Entrance) -> None:
        await door.service.directory.add_account(ROOT, "both", "vision")
        chief = await door.token("chief", (Role.ADMIN, "/"))
        boss = await door.token("boss", (Role.TENANT_ADMIN, "vision"))
        async with door.client(chief) as client:
            for tenant in ("speech", "vision"):
                role = {"subject": "sa:both", "role": "viewer", "tenant": tenant}
                answer = await client.post("/roles/grant", json=role)
                assert answer.status_code == 201, answer.text
                job = ONE | {"tenant": tenant, "name": f"secret-{tenant}"}
                assert (await client.post("/jobs", json={"job": job})).status_code == 201
            many = {"selector": "tenant=vision,tenant=speech,name=secret-speech,name=secret-vision"}
            answer = await client.post("/jobs/hold", json=many | {"reason": "j77"})
            assert len(answer.json()["jobs"]) == 2, answer.text
        async with door.client(boss) as client:
            own = {"selector": "name=secret-vision", "reason": "mine"}
            assert (await client.post("/jobs/cancel", json=own)).status_code == 200
            lines = (await client.get("/audit")).json()["acts"]
        by_verb = {(line["verb"], line["actor"]): line for line in lines}
        granted = by_verb["grant-role", "sa:chief"]
        assert (granted["before"], granted["after"]["roles"]) == (
            {"roles": []},
            [["viewer", "vision"]],
        )
        held = by_verb["hold", "sa:chief"]["after"]
        assert held["hold"] == "held by sa:chief: j77"
        assert held["reason"] == "j77"
        assert by_verb["cancel", "sa:boss"]["after"]["selector"] == own["selector"]
        assert "speech" not in json.dumps(lines)
        async with door.client(chief) as client:
            whole = (await client.get("/audit?verb=hold")).json()["acts"]
            assert {line["after"]["selector"] for line in whole} == {many["selector"]}

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_a_sweep_of_another_tenant_is_not_there(tmp_path: Path) -> None:
    """Answers say no more of it than of one that there is not: no size, and no job's id."""

    async def story(door: Entrance) -> None:
        vision = await door.token("v", (Role.SUBMITTER, "vision"))
        speech = await door.token("s", (Role.SUBMITTER, "speech"))
        swept = {"job": ONE | {"tenant": "speech", "sweep": {"matrix": {"X": [1, 2, 3]}}}}
        async with door.client(speech) as other:
            sweep = (await other.post("/jobs", json=swept)).json()["id"]
            assert (await other.get(f"/jobs/{sweep}[2]")).status_code == 200
        async with door.client(vision) as client:
            for route in (r for r in door.routes() if "{job}" in r.path):
                method, path = name_of(route).split()
                for job in (f"{sweep}[2]", f"{sweep}[3]", "s999[2]", sweep, "s999"):
                    at, given = path.replace("{job}", job), CALLS.get(name_of(route), {})
                    answer = await client.request(method, at, **given)
                    assert answer.status_code == 404
                    kind = "job" if "[" in job else "sweep"
                    assert f"no {kind} '{job}'" in html.unescape(answer.text), (method, at)
            named = [sweep, f"{sweep}[2]", f"{sweep}[3]", "s999", "s999[2]"]
            for verb in ("cancel", "hold", "requeue", "edit"):
                body = {"jobs": named} | (
                    {"changes": {"priority": "low"}} if verb == "edit" else {}
                )
                for dry_run in (True, False):
                    answer = await client.post(f"/jobs/{verb}", json=body | {"dry_run": dry_run})
                    assert [one["why"] for one in answer.json()["effects"]] == [
                        f"no {'job' if '[' in name else 'sweep'} '{name}'" for name in named
                    ], answer.text
                line = door.acts()[0]
                assert (line.verb, line.object) == (verb, ",".join(named))
                assert line.outcome.startswith("refused: sa:v has no role"), line
            await client.post("/jobs/hold", json={"jobs": ["s999", "s999[2]"]})
            assert door.acts()[0].outcome == "refused: no such job"
        async with door.client(speech) as other:
            assert (await other.get(f"/sweeps/{sweep}")).json()["held"] == 0
            answer = await other.post("/jobs/hold", json={"jobs": [sweep]})
            assert len(answer.json()["effects"]) == 3

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_beside_a_fault_of_form_what_is_hidden_reads_as_absent(tmp_path: Path) -> None:
    """Jobs, sweeps and tenants of others, to the last letter."""

    async def story(door: Entrance) -> None:
        theirs = ONE | {"tenant": "speech"}
        async with door.client(await door.token("s", (Role.SUBMITTER, "speech"))) as other:
            job = (await other.post("/jobs", json={"job": theirs})).json()["id"]
            swept = {"job": theirs | {"sweep": {"matrix": {"X": [1, 2]}}}}
            sweep = (await other.post("/jobs", json=swept)).json()["id"]
        async with door.client(await door.token("v", (Role.TENANT_ADMIN, "vision"))) as client:
            wrong = {"num_nodes": 0, "run": "x"}
            bad = {"changes": {"priority": "hgh"}}
            for path, body in (
                ("/jobs", lambda name: {"job": wrong | {"tenant": name}}),
                ("/jobs", lambda name: {"job": wrong | {"depends_on": [name]}}),
                ("/jobs/edit", lambda name: {"jobs": [name], **bad}),
                ("/jobs/edit", lambda name: {"selector": f"tenant={name}", **bad}),
                ("/jobs/edit", lambda name: {"selector": f"sweep={name}", **bad}),
                ("/tenants/pause", lambda name: {"tenants": [name], "drain": 3}),
            ):
                for hidden, absent in ((job, "j998"), (sweep, "s998"), ("speech", "speexh")):
                    one, two = [
                        await client.post(path, json=body(name)) for name in (hidden, absent)
                    ]
                    assert one.status_code == two.status_code == 422, one.text
                    assert len(one.json()["errors"]) == 2, one.text
                    assert one.text.replace(hidden, "X") == two.text.replace(absent, "X")

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_events_hide_who_acted_for_another_tenant_and_why(tmp_path: Path) -> None:
    """A quota for a while and a reservation, when they begin and when they are ended."""

    async def story(door: Entrance) -> None:
        directory = door.service.directory
        vision = directory.caller(await door.token("v", (Role.VIEWER, "vision")))
        speech = directory.caller(await door.token("s", (Role.VIEWER, "speech")))
        assert vision is not None
        assert speech is not None
        async with door.client(await door.token("o", (Role.ADMIN, "/"))) as admin:
            quota = {"quota": {"H100": 1}, "until_s": TOMORROW_S, "reason": "plan"}
            kept = {"hosts": ["east-a-0"], "until_s": TOMORROW_S, "tenants": ["speech"]}
            answer = await admin.post("/tenants/speech/quota", json=quota)
            assert answer.status_code < 300, answer.text
            await admin.post("/tenants/speech/quota/end", json={"reason": "plan"})
            answer = await admin.post("/reservations", json=kept | {"reason": "plan"})
            name = answer.json()["name"]
            answer = await admin.post(f"/reservations/{name}/end", json={"reason": "plan"})
            assert answer.status_code == 200, answer.text
        kinds = ("quota-set", "quota-over", "hosts-reserved", "reservation-over")
        hidden, shown = (
            [one.text for kind in kinds for one in door.service.recent_events(caller, 10, kind)]
            for caller in (vision, speech)
        )
        assert hidden == [
            "1 H100 for tenant (another tenant) for a while",
            "tenant (another tenant) has the quota of the fleet again",
            "host east-a-0 is reserved",
            f"reservation {name} is over",
        ]
        assert all("sa:o" in text and text.endswith(": plan") for text in shown), shown
        assert len(shown) == len(kinds)

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_a_token_that_may_only_submit_submits(door: Entrance) -> None:
    """It need not see jobs for that, and sees none; other tenants stay unknown to it."""

    async def story() -> None:
        await door.token("robot", (Role.SUBMITTER, "vision"))
        made = await door.service.directory.create_token(
            ROOT, account="robot", scopes=["jobs.submit"]
        )
        async with door.client(made.token) as client:
            for body in ({"job": ONE | {"tenant": "vision"}}, {"job": ONE}):
                answer = await client.post("/jobs", json=body)
                assert answer.status_code == 201, answer.text
            many = await client.post("/jobs/bulk", json={"jobs": [ONE | {"tenant": "vision"}]})
            assert many.status_code == 201, many.text
            other = await client.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            assert other.status_code == 422
            assert (await client.get("/jobs")).json().get("jobs", []) == []

    run(story)


def test_what_a_role_forbids_is_audited_where_the_answer_conceals_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant or job that the caller may not see is not there, and the log says what was tried."""

    async def story(door: Entrance) -> None:
        vision = await door.token("v", (Role.SUBMITTER, "vision"))
        speech = await door.token("s", (Role.SUBMITTER, "speech"))
        both = [ONE | {"tenant": "speech"}] * 4
        async with door.client(speech) as other:
            theirs = (await other.post("/jobs/bulk", json={"jobs": both})).json()["ids"]
        async with door.client(vision) as client:
            unknown = await client.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            assert unknown.status_code == 422
            assert door.acts()[0].outcome.startswith("refused: sa:v has no role"), door.acts()[0]
            assert door.acts()[0].outcome.endswith("for tenant speech")
            # Whichever of its faults is told first.
            monkeypatch.setattr(
                "topmast.service.admission.faults_in_fleet",
                lambda *given: reversed([*faults_in_fleet(*given)]),
            )
            no_model = {"run": "true", "resources": {"accelerators": "Z9:1"}, "tenant": "speech"}
            answer = await client.post("/jobs", json={"job": no_model})
            assert len(answer.json()["errors"]) == 2
            assert door.acts()[0].outcome.endswith("for tenant speech")
            answer = await client.post("/jobs/cancel", json={"jobs": theirs})
            assert {one["why"] for one in answer.json()["effects"]} == {
                f"no job '{job}'" for job in theirs
            }
            line = door.acts()[0]
            assert (line.verb, line.object) == ("cancel", f"{theirs[0]}..{theirs[-1]}")
            assert line.outcome.startswith("refused: sa:v has no role with the permission")
            answer = await client.post(f"/jobs/{theirs[0]}/cancel", json={})
            assert answer.status_code == 404
            line = door.acts()[0]
            assert (line.verb, line.object) == ("cancel", theirs[0])
            assert line.outcome.startswith("refused: sa:v has no role")
            await client.post("/jobs/hold", json={"jobs": ["j999", "what"]})
            line = door.acts()[0]
            assert (line.object, line.outcome) == ("j999,what", "refused: no such job")

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_the_limit_on_refusals_tells_nothing_of_which_tenants_there_are(door: Entrance) -> None:
    """One that is hidden and one that there is not are counted alike; the log has the first alone."""

    async def story() -> None:
        admin = await door.token("t", (Role.TENANT_ADMIN, "vision"))
        rates = door.service.limits.rates
        with door.limited(rates):
            for method, path, body in (
                ("GET", "/jobs?tenant={}", None),
                ("POST", "/jobs", {"job": ONE | {"tenant": "{}"}}),
                ("POST", "/jobs/dry-run", {"job": ONE | {"tenant": "{}"}}),
                ("POST", "/jobs/bulk", {"jobs": [ONE, ONE | {"tenant": "{}"}]}),
                ("POST", "/jobs/cancel", {"selector": "tenant={}"}),
                ("GET", "/audit?tenant={}", None),
                ("GET", f"{URL}/events?show=audit&tenant={{}}", None),
            ):
                counted = []
                for tenant in ("speech", "speach"):
                    body_of = (
                        None if body is None else json.loads(json.dumps(body).replace("{}", tenant))
                    )
                    # Each begins with a full burst.
                    door.service.set_limits(replace(rates, refused=Rate(1e9, 2)))
                    door.service.limits.take_of("sa:t", "refused", 0)
                    door.service.set_limits(replace(rates, refused=Rate(1e-6, 2)))
                    before = len(door.acts(actor="sa:t"))
                    async with door.client(admin) as client:
                        answers = [
                            await client.request(method, path.format(tenant), json=body_of)
                            for _ in range(4)
                        ]
                    codes = [answer.status_code for answer in answers]
                    assert codes == [422, 422, 429, 429], (path, tenant, answers[0].text)
                    counted.append(len(door.acts(actor="sa:t")) - before)
                assert counted == [2, 0], path
            chief = await door.token("chief", (Role.ADMIN, "/"))
            async with door.client(chief) as client:
                codes = [(await client.get("/jobs?tenant=speach")).status_code for _ in range(4)]
            assert codes == [422] * 4, "nothing is hidden from it"

    run(story)


async def first_events(door: Entrance, token: str) -> list[dict[str, Any]]:
    """What the stream has to tell the owner of a token so far."""
    caller = door.service.directory.caller(token)
    assert caller is not None
    stream = door.service.events(caller, 0, list)
    batch = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    return [json.loads(json.dumps({"job": e.job, "text": e.text})) for e in batch if e.job]


def test_a_principal_acts_in_its_own_name(door: Entrance) -> None:
    """To name another user, or to cancel another's job, is a permission of its own."""

    async def story() -> None:
        ann = await door.token("ann", (Role.SUBMITTER, "vision"))
        bob = await door.token("bob", (Role.SUBMITTER, "vision"))
        boss = await door.token("boss", (Role.TENANT_ADMIN, "vision"))
        job = {"job": ONE | {"tenant": "vision"}}
        async with door.client(ann) as a, door.client(bob) as b, door.client(boss) as c:
            first = (await a.post("/jobs", json=job)).json()["id"]
            assert (await b.get(f"/jobs/{first}")).json()["user"] == "sa:ann"
            assert (await a.post("/jobs", json={**job, "user": "sa:bob"})).status_code == 403
            assert (await b.post(f"/jobs/{first}/cancel", json={})).status_code == 403
            second = (await c.post("/jobs", json={**job, "user": "sa:bob"})).json()["id"]
            assert (await a.get(f"/jobs/{second}")).json()["user"] == "sa:bob"
            assert (await b.post(f"/jobs/{second}/cancel", json={})).status_code == 202
            assert (await c.post(f"/jobs/{first}/cancel", json={})).status_code == 202
            cause = (await a.get(f"/jobs/{first}")).json()["cause"]
            assert cause == "cancelled by sa:boss"

    run(story)


def test_the_same_key_of_two_principals_is_two_keys(door: Entrance) -> None:
    """A key makes repetitions of its sender harmless; it gives away nothing of another's jobs."""

    async def story() -> None:
        ann = await door.token("k1", (Role.SUBMITTER, "vision"))
        bob = await door.token("k2", (Role.SUBMITTER, "vision"))
        job, key = {"job": ONE | {"tenant": "vision"}}, {"Idempotency-Key": "one"}
        async with door.client(ann, **key) as a, door.client(bob, **key) as b:
            ids = [(await c.post("/jobs", json=job)).json()["id"] for c in (a, a, b)]
        assert ids[0] == ids[1] != ids[2]

    run(story)


def test_all_that_is_wrong_with_a_request_is_told_at_once(door: Entrance) -> None:
    """Of bodies and of parameters: a field each; the fields that a body lacks, too."""

    async def story() -> None:
        admin = await door.token("teller", (Role.ADMIN, "/"))
        async with door.client(admin) as client:
            for method, path, body, fields in (
                ("POST", "/tokens", {"account": "teller", "ttl_s": 1, "scopes": ["x", "jobs.view", "y"]},
                 {"ttl_s", "scopes[0]", "scopes[2]"}),
                ("POST", "/accounts", {}, {"name", "tenant"}),
                ("POST", "/accounts", {"name": "a b", "tenant": "mars"}, {"name", "tenant"}),
                ("POST", "/roles/grant", {"subject": "eve", "role": "king", "tenant": "mars"},
                 {"subject", "role", "tenant"}),
                ("PUT", "/webhooks/ops", {"url": "ftp://x", "secret": "s", "events": ["NO"],
                                          "template": "t", "frob": 1, "reason": 2},
                 {"url", "secret", "events[0]", "template", "frob", "reason"}),
                ("PUT", "/webhooks/ops", {"url": "https://x.example/", "tenants": ["m", "n"]},
                 {"tenants[0]", "tenants[1]"}),
                ("POST", "/datasets", {"name": "a b", "region": "mars", "path": "../x",
                                       "min_replicas": 0, "frob": 1},
                 {"name", "region", "path", "min_replicas", "frob"}),
                ("POST", "/datasets", {"name": "a b", "region": "mars", "source": "here"},
                 {"name", "region", "source"}),
                ("POST", "/datasets", {"name": "x", "region": "east", "source": "/", "frob": 1},
                 {"source", "frob"}),
                ("POST", "/reservations", {"until_s": 1, "from_s": 2}, {"hosts", "until_s"}),
                ("POST", "/jobs", {"job": {"runn": "x", "num_nodes": 0}, "user": 5, "frob": 1},
                 {"frob", "user", "runn", "run", "num_nodes"}),
                ("POST", "/tenants/vision/quota", {}, {"quota", "until_s"}),
            ):  # fmt: skip
                answer = await client.request(method, path, json=body)
                told = answer.json()
                assert answer.status_code == 422, (path, told)
                assert {one["field"] for one in told.get("errors", [told])} == fields, told
            told = (await client.get("/audit?limit=x&since=y")).json()
            assert {one["field"] for one in told["errors"]} == {"limit", "since"}

    run(story)


def test_a_refusal_names_the_least_role_that_would_do_and_where(door: Entrance) -> None:
    """And no tenant that the caller may not see; what the remedy says, helps."""

    async def story() -> None:
        tokens = {
            "sees": await door.token("sees", (Role.VIEWER, "vision")),
            "below": await door.token("below", (Role.VIEWER, "nlp")),
            "boss": await door.token("adm", (Role.TENANT_ADMIN, "vision")),
            "two": await door.token("two", (Role.VIEWER, "vision"), (Role.VIEWER, "speech")),
            "sub": await door.token("sub", (Role.SUBMITTER, "vision")),
        }
        job = {"job": ONE | {"tenant": "nlp"}}
        grant = {"subject": "user:eve", "role": "operator", "tenant": "/"}
        lacks = "has no role with the permission"
        for name, path, body, detail, remedy in (
            ("sees", "/jobs", job, f"sa:sees {lacks} jobs.submit",
             "submitter vision; under another name it takes tenant-admin"),
            ("sees", "/jobs/cancel", {"jobs": ["j1"]}, f"sa:sees {lacks} jobs.cancel",
             "submitter vision; for jobs of others it takes tenant-admin"),
            ("two", "/accounts", {"name": "x", "tenant": "nlp"}, f"sa:two {lacks} accounts.edit",
             "tenant-admin"),
            ("sub", "/roles/grant", {**grant, "role": "admin"}, f"sa:sub {lacks} accounts.edit",
             "tenant-admin vision; to grant operator or admin it takes admin"),
            ("sub", "/jobs", {**job, "user": "eve"}, f"sa:sub {lacks} jobs.others for tenant "
             "vision/nlp", "tenant-admin vision/nlp"),
            ("below", "/hosts/east-a-0/cordon", {}, f"sa:below {lacks} fleet.operate",
             "operator /"),
            ("boss", "/roles/grant", grant, "sa:adm has no role with the permission "
             "accounts.edit at the root of the tenants", "admin /"),
            ("boss", "/roles/grant", {**grant, "role": "viewer", "subject": "sa:none"},
             "sa:adm has no role with the permission accounts.edit at the root of the tenants",
             "tenant-admin /"),
        ):  # fmt: skip
            async with door.client(tokens[name]) as client:
                answer = await client.post(path, json=body)
            told = answer.json()
            assert (answer.status_code, told["detail"]) == (403, detail)
            subject, (role, _, place) = detail.split()[0], remedy.partition(" ")
            command = f": topmast roles grant {subject} {role} {place}"
            asked = f" at the tenant that it is about: topmast roles grant sa:two {role} TENANT"
            asked += "; to grant operator or admin it takes admin"
            command = command if place else asked
            assert told["remedy"] == f"ask for {role}{command}"
        both = await door.token("both", (Role.VIEWER, "speech"), (Role.SUBMITTER, "nlp"))
        async with door.client(both) as client:
            told = (await client.post("/jobs", json={**job, "user": "eve"})).json()
        assert "vision" not in str(told), "a tenant above that the caller does not see"
        assert told["remedy"].endswith("sa:both tenant-admin nlp")
        narrow = await door.service.directory.create_token(
            ROOT, account="sub", scopes=("jobs.view",)
        )
        async with door.client(narrow.token) as client:
            told = (await client.post("/jobs", json=job)).json()
        assert told["remedy"] == "use a token with the scope jobs.submit, or one without scopes"
        await door.token("narrow", (Role.ADMIN, "/"))
        narrow = await door.service.directory.create_token(
            ROOT, account="narrow", scopes=("accounts.edit", "accounts.view")
        )
        for token, want in (
            (narrow.token, "use a token without scopes"),
            (tokens["boss"], "ask for admin: topmast roles grant sa:adm admin /"),
        ):
            async with door.client(token) as client:
                told = (await client.post("/roles/grant", json=grant)).json()
                assert told["remedy"] == want, "no role that could not do it either"

    run(story)


def test_a_login_without_a_provider_says_how_to_use_a_token(door: Entrance) -> None:
    """And not only that there is another way."""

    async def story() -> None:
        async with door.client() as client:
            told = await client.post(f"{URL}/auth/device", json={})
        assert (told.status_code, "topmast login --token-stdin" in told.text) == (404, True)

    run(story)


def test_no_caller_grants_above_the_own_role(door: Entrance) -> None:
    """Not to others, not by a token of a stronger account, not at another tenant."""

    async def story() -> None:
        boss = await door.token("lead", (Role.TENANT_ADMIN, "vision"))
        await door.service.directory.add_account(ROOT, "strong", "vision")
        await door.service.directory.grant(ROOT, "sa:strong", "admin", "/")
        async with door.client(boss) as client:
            for role, tenant, status in (
                ("viewer", "nlp", 201), ("tenant-admin", "vision/nlp", 201),
                ("tenant-admin", "vision", 201), ("operator", "/", 403), ("admin", "/", 403),
                ("viewer", "/", 403), ("viewer", "speech", 422), ("viewer", "nlp/vision", 422),
                ("king", "nlp", 422),
            ):  # fmt: skip
                body = {"subject": "user:eve", "role": role, "tenant": tenant}
                answer = await client.post("/roles/grant", json=body)
                assert answer.status_code == status, (role, tenant, answer.text)
            answer = await client.post("/tokens", json={"account": "strong"})
            assert (answer.status_code, "above the own role" in answer.text) == (403, True)
            assert (
                await client.post("/accounts", json={"name": "x", "tenant": "speech"})
            ).status_code == 422
            assert (await client.delete("/accounts/chief")).status_code == 404

    run(story)


def test_an_account_that_is_above_the_own_role_keeps_its_tokens_and_stays(door: Entrance) -> None:
    """To remove it would take a role away that its administrator may not revoke."""

    async def story() -> None:
        directory = door.service.directory
        boss = await door.token("boss", (Role.TENANT_ADMIN, "vision"))
        await directory.add_account(ROOT, "op", "vision")
        token = (await directory.create_token(ROOT, account="op")).view.id
        await directory.grant(ROOT, "sa:op", "viewer", "vision")
        await directory.grant(ROOT, "sa:op", "operator", "/")
        async with door.client(boss) as client:
            for path in ("/accounts/op", f"/tokens/{token}"):
                refused = await client.delete(path)
                why = "sa:op is operator, above the own role"
                assert (refused.status_code, refused.json()["detail"]) == (403, why), path
            await directory.revoke(ROOT, "sa:op", "operator", "/")
            assert (await client.delete(f"/tokens/{token}")).status_code == 200
            assert (await client.delete("/accounts/op")).status_code == 200

    run(story)


def test_a_token_is_good_for_its_scopes_and_until_it_is_revoked(door: Entrance) -> None:
    """Scopes narrow the roles of its owner; a token cannot make one that is good for more."""

    async def story() -> None:
        directory = door.service.directory
        await door.token("narrow", (Role.SUBMITTER, "vision"))
        scopes = [Permission.JOBS_VIEW, Permission.SELF]
        made = await directory.create_token(ROOT, account="narrow", scopes=scopes)
        async with door.client(made.token) as client:
            assert (await client.get("/jobs")).status_code == 200
            refused = await client.post("/jobs", json={"job": ONE})
            why = "this token's scopes do not include jobs.submit"
            assert (refused.status_code, refused.json()["detail"]) == (403, why)
            assert (await client.get("/hosts")).status_code == 403
            assert (await client.get("/whoami")).json()["scopes"] == ["jobs.view", "self"]
            await directory.revoke_token(ROOT, made.view.id)
            assert (await client.get("/jobs")).status_code == 401
        async with door.client(made.token[:-1] + "x") as client:
            assert (await client.get("/jobs")).status_code == 401
        person = await directory.issue(
            act_of_root(), TokenKind.PERSONAL, "user:zoe", 600.0, (Permission.SELF,)
        )
        async with door.client(person.token) as client:
            told = (await client.get("/whoami")).json()
            assert (told["subject"], told["roles"]) == ("user:zoe", []), "with any valid token"
            assert (await client.get("/tokens")).status_code == 403
        await directory.grant(ROOT, "user:zoe", "viewer", "nlp")
        async with door.client(person.token) as client:
            own = (await client.post("/tokens", json={"label": "x"})).json()
            assert own["view"]["scopes"] == ["self"]
            answer = await client.post("/tokens", json={"scopes": ["jobs.view"]})
            assert answer.status_code == 403

    run(story)


def act_of_root() -> Act:
    """An act of the administrator."""
    return act(ROOT, "login")


def test_a_proof_that_ends_while_a_body_is_sent_is_good_for_nothing(door: Entrance) -> None:
    """A body may take hours: a thief could hold requests open until the token is revoked."""

    async def story() -> None:
        directory = door.service.directory
        for change, want in (("none", 201), ("token", 401), ("role", 403), ("account", 401)):
            await directory.add_account(ROOT, change, "/")
            await directory.grant(ROOT, f"sa:{change}", Role.ADMIN, "/")
            made = await directory.create_token(ROOT, account=change)

            async def body(change: str = change, token: str = made.view.id) -> AsyncIterator[bytes]:
                yield b'{"subject": "user:evil", "role": "admin", '
                if change == "token":
                    await directory.revoke_token(ROOT, token)
                if change == "role":
                    await directory.revoke(ROOT, f"sa:{change}", Role.ADMIN, "/")
                if change == "account":
                    await directory.remove_account(ROOT, change)
                yield b'"tenant": "/"}'

            kind = {"Content-Type": "application/json"}
            async with door.client(made.token) as client:
                sent = await client.post("/roles/grant", content=body(), headers=kind)
                assert sent.status_code == want, (change, sent.text)
            if want == 201:
                await directory.revoke(ROOT, "user:evil", Role.ADMIN, "/")
        subjects = [view.subject for view in directory.roles(ROOT)]
        assert ("sa:none" in subjects, "user:evil" in subjects) == (True, False)

    run(story)


def test_a_tenant_has_as_many_accounts_tokens_and_roles_as_it_leaves_free(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its administrator may else make so many that nothing is left for others, and memory is full."""

    async def story() -> None:
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        other = door.client(await door.token("other", (Role.TENANT_ADMIN, "speech")))
        counts = door.service.directory.state.count_at
        before = counts["vision"] + counts.get("nlp", 0)
        monkeypatch.setattr(account_room, "MOST_KEPT", sum(counts.values()) + before + 10)

        async def add(client: httpx.AsyncClient, path: str, **body: str) -> httpx.Response:
            return await client.post(path, json=body)

        for made in range(20):
            sent = await add(boss, "/accounts", name=f"a{made}", tenant="vision")
            if not sent.is_success:
                break
        assert made == 5
        told = sent.json()["detail"]
        assert sent.status_code == 409
        assert told == (
            f"there are {sum(counts.values())} service accounts, tokens of these and roles, "
            f"{before + made} of tenant vision, and no room for more there: at most "
            f"{account_room.MOST_KEPT}, and no account and no tenant may have more than it leaves "
            "free (remove those of no use: topmast accounts remove, tokens revoke, roles revoke)"
        )
        role = {"subject": "sa:a0", "role": "viewer", "tenant": "vision"}
        for path, body in (
            ("/tokens", {"account": "a0"}), ("/roles/grant", role),
            ("/accounts", {"name": "new", "tenant": "vision", "dry_run": True}),
        ):  # fmt: skip
            assert (await boss.post(path, json=body)).status_code == 409, path
        assert (await add(boss, "/accounts", name="a0", tenant="vision")).is_success, "there is one"
        assert (await boss.delete("/accounts/a1")).is_success
        assert (await boss.post("/roles/grant", json=role)).is_success
        assert (await boss.post("/roles/grant", json=role)).is_success, "it has it"
        assert (await add(other, "/accounts", name="theirs", tenant="speech")).is_success

    run(story)


def test_lists_of_tokens_accounts_and_roles_have_pages(door: Entrance) -> None:
    """Page by page they are what they are at once, also if the last one seen is gone by then."""

    async def story() -> None:
        boss = door.client(await door.token("pager", (Role.ADMIN, "/")))
        for number in range(3):
            await door.token(f"page{number}", (Role.VIEWER, "vision"), (Role.VIEWER, "/"))
        for name, key in (("tokens", "id"), ("accounts", "name"), ("roles", "subject")):
            whole = (await boss.get(f"/{name}")).json()
            assert whole["next_cursor"] is None
            found, sizes, asked = (
                list[dict[str, str]](),
                list[int](),
                dict[str, Any](limit=2, cursor=""),
            )
            while asked["cursor"] is not None:
                page = (await boss.get(f"/{name}", params=asked)).json()
                found, asked["cursor"] = found + page[name], page["next_cursor"]
                sizes.append(len(page[name]))
            assert [one[key] for one in found] == [one[key] for one in whole[name]]
            assert set(sizes[:-1]) == {2}, (name, sizes)
            assert len(whole[name]) > 2
        first = (await boss.get("/tokens", params={"limit": 1})).json()
        last = (await boss.get("/tokens", params={"limit": 1000})).json()["tokens"][-1]
        assert last != first["tokens"][0]
        mine = (await boss.get("/accounts", params={"limit": 1, "cursor": "page0"})).json()
        assert mine["accounts"][0]["name"] == "page1"
        assert (await boss.delete("/accounts/page0")).is_success
        after = (await boss.get("/accounts", params={"limit": 1, "cursor": "page0"})).json()
        assert after == mine
        for name in ("tokens", "roles"):
            wrong = await boss.get(f"/{name}", params={"cursor": "x"})
            assert (wrong.status_code, wrong.json()["field"]) == (422, "cursor"), wrong.text
            wrong = await boss.get(f"/{name}", params={"limit": 1_001})
            assert wrong.status_code == 422

    run(story)


def test_a_list_of_own_tokens_costs_as_much_as_there_are(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a server can be a hundred thousand, and a page is made while others wait."""
    looks: list[str] = []
    sees = Directory._sees_token

    def look(directory: Directory, caller: Caller, token: Token) -> bool:
        looks.append(token.subject)
        return sees(directory, caller, token)

    monkeypatch.setattr(Directory, "_sees_token", look)

    async def story() -> None:
        tokens = [await door.token(f"own{n}", (Role.SUBMITTER, "vision")) for n in range(3)]
        found = (await door.client(tokens[0]).get("/tokens")).json()["tokens"]
        assert [one["subject"] for one in found] == looks == ["sa:own0"]

    run(story)


def test_a_client_fetches_lists_of_accounts_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All, or as many as are asked for."""
    monkeypatch.setattr(accounts, "PAGE", 2)
    with live(
        tmp_path,
        "regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}\n",
    ) as (
        _,
        client,
    ):
        for name in "abcde":
            client.add_account(name, "/")
            client.grant(f"sa:{name}", "viewer", "/")
        for most, want in ((0, "abcde"), (1, "a"), (3, "abc"), (4, "abcd"), (9, "abcde")):
            assert "".join(one.name for one in client.accounts(limit=most)) == want
            assert "".join(one.subject[3:] for one in client.roles(limit=most)) == want


def test_an_open_stream_ends_soon_after_its_token_is_revoked(door: Entrance) -> None:
    """Within five seconds, whatever happens meanwhile."""

    async def story() -> None:
        directory = door.service.directory
        await door.token("reader", (Role.VIEWER, "vision"))
        made = await directory.create_token(ROOT, account="reader")
        caller = directory.caller(made.token)
        assert caller is not None
        last = door.service.event_stream.last_seq

        async def read() -> None:
            async for _ in door.service.events(caller, last, list):
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        assert not reading.done()
        await directory.revoke_token(ROOT, made.view.id)
        await asyncio.wait_for(reading, 5.0)

    run(story)


UNCOUNTED = OF_AN_ACT | {"POST /whatif"}
"""Parts of a command that was counted when it began; a server that runs no what-ifs refuses them first."""


def test_every_route_that_changes_something_is_limited(door: Entrance) -> None:
    """Also those of operators and administrators, and what asks a database: 429, and nothing done."""

    async def story() -> None:
        token = await door.token("hasty", (Role.ADMIN, "/"))
        for kind in ("submit", "explain", "list"):
            door.service.limits.take_of("sa:hasty", kind, 1e9)
        fill = {
            "job": "j1", "host": "east-a-0", "tenant": "vision", "digest": DIGEST, "region": "east",
            "token": "t1", "name": "images", "cluster": "east-a",
        }  # fmt: skip
        async with door.client(token) as client:
            for route in door.routes():
                name = name_of(route)
                method, path = name.split()
                counted = method not in ("GET", "HEAD") and declared(route.endpoint) is not None
                if name in UNCOUNTED or not (
                    counted or name in ("GET /jobs/{job}/story", "GET /audit")
                ):
                    continue
                answer = await client.request(method, path.format(**fill), **CALLS.get(name, {}))
                assert answer.status_code == 429, (name, answer.text)
        assert door.acts(actor="sa:hasty") == []

    run(story)


def test_what_a_changing_route_does_not_take_is_refused(door: Entrance) -> None:
    """A dry run that is misspelt, misplaced or given twice would be the act: 422, nothing done."""

    async def story() -> None:
        token = await door.token("careful", (Role.ADMIN, "/"))
        fill = {
            "job": "j1", "host": "east-a-0", "tenant": "vision", "digest": DIGEST, "region": "east",
            "token": "t1", "name": "images", "cluster": "east-a", "id": "e1",
        }  # fmt: skip
        tried: list[str] = []
        async with door.client(token) as client:
            for route in door.routes():
                method, path = name_of(route).split()
                given = CALLS.get(name_of(route), {})
                if method in ("GET", "HEAD"):
                    continue
                tried.append(path)
                if declared(route.endpoint) is None:
                    path = f"{URL}{AUTH_PREFIX}{path}"
                tries: list[tuple[str, dict[str, Any], str]] = [
                    ("?dryrun=true", given, "dryrun"), ("?dry-run=true", given, "dry-run"),
                ]  # fmt: skip
                if method == "DELETE":
                    tries.append(("?dry_run=true&dry_run=false", {}, "dry_run"))
                else:
                    tries.append(("?dry_run=true", given, "dry_run"))
                if "requestBody" not in (route.openapi_extra or {}):
                    tries.append(("", {"json": {"dry_run": True}}, "body"))
                    tries.append(("", {"content": chunks()}, "body"))
                for query, sent, field in tries:
                    answer = await client.request(method, path.format(**fill) + query, **sent)
                    assert answer.status_code == 422, (method, path, query, answer.text)
                    problem = answer.json()
                    assert problem["field"] == field, (method, path, query, problem)
                    assert problem["remedy"], (method, path, query)
            assert {"/jobs", "/jobs/{job}/cancel", "/accounts/{name}", "/logout"} <= set(tried)
            await door.service.directory.add_account(ROOT, "kept", "vision")
            misspelt = (await client.delete("/accounts/kept?dryrun=true")).json()
            assert misspelt["remedy"] == "did you mean 'dry_run'?"
            told = (await client.request("DELETE", "/accounts/kept", json={"dry_run": True})).json()
            assert told["remedy"] == "known parameters: reason, dry_run"
            assert "kept" in door.service.directory.state.accounts
            assert (await client.delete("/accounts/kept?dry_run=true")).status_code == 200
        assert door.acts(actor="sa:careful") == []

    run(story)


async def chunks() -> AsyncIterator[bytes]:
    """A body of no length that is told."""
    yield b'{"dry_run": true}'


def test_many_tenants_or_clusters_are_one_request(door: Entrance) -> None:
    """They are not left half done for a limit."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        with door.limited(Rates(*(Rate(0.001, 3.2) for _ in range(4)))):
            async with door.client(token) as client:
                everyone = {"selector": "tenant=*"}
                answer = await client.post("/tenants/pause", json=everyone)
                assert len(answer.json()["tenants"]) >= 4, answer.text
                assert (await client.post("/tenants/resume", json=everyone)).status_code == 200
                closed = {"clusters": ["east-a"], "dry_run": True}
                assert (await client.post("/clusters/close", json=closed)).status_code == 200
                assert (await client.post("/clusters/close", json=closed)).status_code == 429

    run(story)


def test_each_principal_has_limits_of_its_own(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 says when to try again; others are not affected."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)  # no question is a long one

    async def story() -> None:
        greedy = await door.token("greedy", (Role.SUBMITTER, "vision"))
        other = await door.token("modest", (Role.SUBMITTER, "vision"))
        with door.limited(Rates(*(Rate(0.1, 2) for _ in range(4)))):
            for method, path, body in (
                ("POST", "/jobs", {"job": ONE | {"tenant": "vision"}}),
                ("POST", "/jobs/dry-run", {"job": ONE | {"tenant": "vision"}}),
                ("GET", "/jobs", None),
            ):
                async with door.client(greedy) as client:
                    answers = [await client.request(method, path, json=body) for _ in range(3)]
                assert [answer.status_code < 300 for answer in answers] == [True, True, False]
                assert answers[2].status_code == 429
                assert 1 <= int(answers[2].headers["retry-after"]) <= 10
                async with door.client(other) as client:
                    assert (await client.request(method, path, json=body)).status_code < 300
            async with door.client("tm_pat_wrong") as client:
                codes = [(await client.get("/jobs")).status_code for _ in range(3)]
            assert codes == [401, 401, 429]

    run(story)


def test_the_gate_checks_names_pages_and_headers(door: Entrance) -> None:
    """A cookie alone is no leave for pages of other sites; headers that decide come once."""

    async def story() -> None:
        token = await door.token("page", (Role.SUBMITTER, "vision"))
        body = {"job": ONE | {"tenant": "vision"}}
        cookie = f"__Host-topmast={token}"
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "https://topmast.example.com"}
        cases: list[tuple[str, dict[str, str], int]] = [
            ("GET", {"Cookie": cookie}, 200),
            ("GET", {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}, 403),
            ("POST", {"Cookie": cookie, **own}, 201),
            ("POST", {"Cookie": cookie}, 403),
            ("POST", {"Cookie": cookie, "Sec-Fetch-Site": "same-site"}, 403),
            ("POST", {"Cookie": cookie, "Origin": "https://evil.example.com"}, 403),
            ("GET", {"Authorization": f"Bearer {token}", "Host": "evil.example.com"}, 403),
            ("GET", {"Authorization": f"Basic {token}"}, 401),
            ("POST", {"Authorization": f"Bearer {token}"}, 201),
            ("POST", {"Authorization": f"Bearer {token}", **own}, 201),
            (
                "POST",
                {"Authorization": f"Bearer {token}", "Origin": "https://evil.example.com"},
                403,
            ),
            ("POST", {"Authorization": f"Bearer {token}", "Sec-Fetch-Site": "cross-site"}, 403),
            ("GET", {"Authorization": f"Bearer {token}", "Origin": "null"}, 403),
            ("GET", {"Authorization": f"Bearer {token}"}, 200),
        ]
        for method, headers, status in cases:
            async with door.client(**headers) as client:
                answer = await client.request(
                    method, "/jobs", json=body if method == "POST" else None
                )
            assert answer.status_code == status, (method, headers, answer.text)
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        async with door.client() as client:
            doubled = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")]
            assert (await client.get("/jobs", headers=doubled)).status_code == 400

    run(story)


def test_the_audit_log_shows_a_tenants_administrator_its_tenant(door: Entrance) -> None:
    """Filters narrow it, and no filter widens it."""

    async def story() -> None:
        await door.service.directory.add_account(ROOT, "aud", "speech")
        boss = await door.token("auditor", (Role.TENANT_ADMIN, "vision"))
        async with door.client(boss) as client:
            await client.post("/jobs", json={"job": ONE | {"tenant": "vision"}})
            acts = (await client.get("/audit")).json()["acts"]
            assert {act["tenant"] for act in acts} <= {"vision", "nlp"}
            mine = (await client.get("/audit?verb=submit&actor=sa:auditor&limit=1")).json()
            assert [act["after"]["users"] for act in mine["acts"]] == [["sa:auditor"]]
            assert (await client.get("/audit?outcome=ref")).status_code == 200
            assert (await client.get("/audit?outcome=refused: no")).status_code == 200
            assert (await client.get("/audit?actor=budget")).status_code == 200
            wrong = await client.get("/audit?actor=auditor")
            assert (wrong.status_code, wrong.json()["remedy"]) == (
                422,
                "user:auditor or sa:auditor",
            )
            wrong = await client.get("/audit?outcome=refusd&since=nan")
            assert wrong.status_code == 422
            assert [told["field"] for told in wrong.json()["errors"]] == ["since", "outcome"]
            assert (await client.get("/audit?verb=GET /api/v1/webhooks")).status_code == 200
            wrong = await client.get("/audit?verb=bathe")
            assert wrong.json()["remedy"].startswith("one of: submit, cancel, hold")
            assert wrong.json()["remedy"].endswith("set profile, reprioritize")
            (job,) = [act["object"] for act in mine["acts"]]
            edit = {"jobs": [job], "changes": {"priority": "low"}}
            assert (await client.post("/jobs/edit", json=edit)).status_code == 200
            found = [
                (await client.get(f"/audit?verb={verb}")).json()["acts"]
                for verb in ("edit", "reprioritize")
            ]
            assert found[0] == found[1] != []
            wrong = await client.get("/audit?verb=cancle")
            assert (wrong.status_code, wrong.json()["field"], wrong.json()["remedy"]) == (
                422, "verb", "did you mean 'cancel'?"
            )  # fmt: skip

    run(story)


def test_a_tenant_that_there_is_not_is_told_from_one_without_jobs(tmp_path: Path) -> None:
    """For jobs and the audit log; one that the caller may not see is answered as one that is not."""

    async def story(door: Entrance) -> None:
        boss = await door.token("lister", (Role.TENANT_ADMIN, "vision"), (Role.VIEWER, "visio"))
        for path in ("/jobs", "/audit"):
            async with door.client(boss) as client:
                assert (await client.get(f"{path}?tenant=nlp")).status_code == 200
                told = {}
                for name in ("speech", "speesh"):
                    answer = await client.get(f"{path}?tenant={name}")
                    assert answer.status_code == 422
                    told[name] = answer.text.replace(name, "NAME")
                    noted = f"refused: sa:lister has no role with .* for tenant {name}"
                    assert bool(re.match(noted, door.acts()[0].outcome)) == (name == "speech")
                assert told["speech"] == told["speesh"]
                answer = await client.get(f"{path}?tenant=visoin")
                assert answer.json()["remedy"] == "did you mean 'vision'?"
                assert answer.json()["field"] == "tenant"
                seen = await client.get(f"{path}?tenant=visio")
                assert seen.status_code == (200 if path == "/jobs" else 403)
        async with door.client(await door.token("lists", (Role.ADMIN, "/"))) as client:
            assert (await client.get("/jobs?tenant=vision2")).json()["jobs"] == []
            assert (await client.get("/jobs?tenant=speesh")).status_code == 422

    with entrance(tmp_path) as door:
        run(lambda: story(door))


def test_what_all_may_see_is_declared(door: Entrance) -> None:
    """Permissions that no tenant owns are those of things that no tenant owns."""
    assert {Permission.FLEET_VIEW, Permission.DATA_VIEW, Permission.SELF} == FLEET_WIDE
