"""What people try at the door: other proofs, other names, other pages, and the last moments of a right."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from tests.support.entrance import ROOT, URL, Entrance, entrance, run
from topmast.accounts import new_token
from topmast.adapters.oidc import OpenId
from topmast.api import create_api
from topmast.api.guard import MISTYPED, Head, LoginGate, Refusal
from topmast.api.observing import LIVE, READY, STARTED
from topmast.app.login import OPEN_PATHS
from topmast.model.access import Role
from topmast.model.files import accountsfile
from topmast.model.messages import TokenKind
from topmast.service.access import act
from topmast.service.limits import Rate, Rates

ONE = {"run": "true", "resources": {"accelerators": "H100:1"}}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """The control plane of this file."""
    with entrance(tmp_path_factory.mktemp("attacks")) as found:
        yield found


async def status(door: Entrance, token: str, path: str = "/jobs", **headers: str) -> int:
    """How a request is answered."""
    async with door.client(token, **headers) as client:
        return (await client.get(path)).status_code


def test_no_other_token_is_taken(door: Entrance) -> None:
    """Made up with a right checksum, mistyped, of another kind, expired, revoked, of an account that is gone."""

    async def story() -> None:
        directory = door.service.directory
        good = await door.token("good", (Role.VIEWER, "vision"))
        assert await status(door, good) == 200
        mistyped = good[:10] + ("a" if good[10] != "a" else "b") + good[11:]
        brief = await directory.issue(act(ROOT, "create-token"), TokenKind.SERVICE, "sa:good", 0.0)
        await door.token("gone", (Role.ADMIN, "/"))
        gone = await directory.create_token(ROOT, account="gone")
        await directory.remove_account(ROOT, "gone")
        again = await door.token("gone", (Role.ADMIN, "/"))
        for kind, token in (
            ("made up", new_token(TokenKind.SERVICE, b"0" * 24)),
            ("mistyped", mistyped),
            ("of another kind", good.replace("tm_sa_", "tm_pat_")),
            ("longer", good + "A"),
            ("a digest", directory.state.tokens[brief.view.id].digest),
            ("an id", brief.view.id),
            ("expired", brief.token),
            ("of an account that is gone, and came back", gone.token),
            ("empty", ""),
        ):
            assert await status(door, "", Authorization=f"Bearer {token}") == 401, kind
        assert await status(door, again) == 200

    run(story)


@pytest.mark.parametrize("has_provider", [True, False])
def test_a_slip_is_told_and_nothing_of_tokens_that_there_are(
    has_provider: bool, door: Entrance
) -> None:
    """A wrong checksum is a slip. Unknown, expired and revoked are one answer, for a guess is each."""
    gate = LoginGate(door.service.logins, URL, (), (), OPEN_PATHS, has_provider=has_provider)

    async def story() -> None:
        directory = door.service.directory
        good = await door.token("good", (Role.VIEWER, "vision"))
        issue = partial(directory.issue, act(ROOT, "create-token"), TokenKind.SERVICE, "sa:good")
        expired, revoked = await issue(0.0), await issue(60.0)
        await directory.revoke_token(ROOT, revoked.view.id)
        useless = {await refused(gate, one) for one in (
            new_token(TokenKind.SERVICE, b"0" * 24), expired.token, revoked.token,
        )}  # fmt: skip
        slips = {await refused(gate, one) for one in (good[:-1], good + "A", good.swapcase())}
        assert useless == {("the token is unknown, expired or revoked", gate_ways)}
        assert slips == {(MISTYPED, "copy all of it again")}
        assert await refused(gate, "") == ("this server asks for a login", gate_ways)

    gate_ways = "topmast login, or a token"
    if not has_provider:
        gate_ways = "a token: topmast login --token-stdin, or TOPMAST_TOKEN"
    run(story)


async def refused(gate: LoginGate, token: str) -> tuple[str, str]:
    """What a request with this token is told."""
    shown = {"authorization": f"Bearer {token}"} if token else {}
    head = Head("GET", "/jobs", {"host": "localhost", **shown}, "https", "", "192.0.2.7", "r1")
    with pytest.raises(Refusal) as found:
        await gate.caller(head)
    return found.value.detail, found.value.remedy


PROBES = {LIVE, READY, STARTED}
"""Who asks whether the server lives has no account."""


def test_without_a_proof_nothing_answers(door: Entrance) -> None:
    """Neither a route by another method, nor what is not there, nor the schema: only login and probes."""

    async def story() -> None:
        paths = {route.path for route in door.routes()} | door.others()
        paths |= {"/", "/api/v1", "/api/v1/nothing", "/docs", "/metrics", "/API/V1/jobs", "/auth"}
        methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
        async with door.client() as client:
            for path in sorted(path for path in paths if not path.startswith(OPEN_PATHS)):
                for method in methods:
                    answer = await client.request(method, f"{URL}{path}", json={})
                    if path not in PROBES:
                        assert answer.status_code == 401, (method, path, answer.status_code)
                    elif method not in ("GET", "HEAD"):
                        assert answer.status_code in (401, 405), (method, path, answer.status_code)
            assert paths >= PROBES

    run(story)


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ([("Authorization", "Bearer GOOD"), ("authorization", "Bearer x")], 400),
        ([("Cookie", "__Host-topmast=GOOD"), ("Cookie", "a=b")], 400),
        ([("Authorization", "Bearer GOOD"), ("Cookie", "__Host-topmast=x")], 200),
        ([("Authorization", "Bearer x"), ("Cookie", "__Host-topmast=GOOD")], 401),
        ([("Authorization", "Bearer GOOD, Bearer x")], 401),
        ([("Authorization", "GOOD")], 401),
        ([("X-Authorization", "Bearer GOOD"), ("X-Topmast-User", "root")], 401),
        ([("Cookie", "topmast=GOOD")], 401),
        ([("Cookie", "x__Host-topmast=GOOD")], 401),
        ([("X-Forwarded-Host", "topmast.example.com"), ("Host", "evil.example.com")], 403),
        ([("Authorization", "Bearer GOOD"), ("Host", "topmast.example.com:443@evil")], 403),
        ([("Authorization", "Bearer GOOD"), ("X-HTTP-Method-Override", "DELETE")], 200),
    ],
)
def test_headers_prove_what_they_prove(
    door: Entrance, headers: list[tuple[str, str]], want: int
) -> None:
    """One proof, in its one place."""

    async def story() -> None:
        good = await door.token("headers", (Role.VIEWER, "vision"))
        given = [(name, value.replace("GOOD", good)) for name, value in headers]
        async with door.client() as client:
            assert (await client.get("/jobs", headers=given)).status_code == want

    run(story)


def test_names_that_begin_alike_are_other_tenants(door: Entrance) -> None:
    """A role at vision says nothing about vision2 or visio, in whatever way these are written."""

    async def story() -> None:
        boss = await door.token("boss", (Role.TENANT_ADMIN, "vision"))
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            for tenant in ("vision2", "visio"):
                sent = await client.post("/jobs", json={"job": ONE | {"tenant": tenant}})
                assert sent.status_code == 201, sent.text
        async with door.client(boss) as client:
            for tenant in ("vision2", "visio", "vision/../vision2", "Vision", "", "/", "root"):
                sent = await client.post("/jobs", json={"job": ONE | {"tenant": tenant}})
                assert sent.status_code == 422, (tenant, sent.text)
                role = {"subject": "user:x", "role": "viewer", "tenant": tenant}
                answer = await client.post("/roles/grant", json=role)
                assert answer.status_code in (403, 422), (tenant, answer.text)
                made = await client.post("/accounts", json={"name": "x", "tenant": tenant})
                assert made.status_code in (403, 422), (tenant, made.text)
            names = {row["name"] for row in (await client.get("/tenants")).json()["tenants"]}
            assert names == {"vision", "nlp"}
            for route, rows in (("/jobs", "jobs"), ("/audit", "acts")):
                for tenant in ("", "*", "vision"):
                    found = (await client.get(f"{route}?tenant={tenant}")).json().get(rows, [])
                    assert {row["tenant"] for row in found} <= {"vision", "nlp"}, (route, tenant)
                absent = await client.get(f"{route}?tenant=vision9")
                assert absent.is_error
                for tenant in ("vision2", "visio"):
                    hidden = await client.get(f"{route}?tenant={tenant}")
                    said = hidden.text.replace(repr(tenant), "'vision9'")
                    assert (hidden.status_code, said) == (absent.status_code, absent.text)

    run(story)


def test_a_role_that_is_revoked_ends_what_its_stream_shows(door: Entrance) -> None:
    """One of two roles: the other tenant's events alone. The last: the end, within five seconds."""

    async def story() -> None:
        directory = door.service.directory
        token = await door.token("eyes", (Role.VIEWER, "vision"), (Role.VIEWER, "speech"))
        caller = directory.caller(token)
        assert caller is not None
        heard: list[str] = []

        async def read() -> None:
            async for batch in door.service.events(
                caller, door.service.event_stream.last_seq, list
            ):
                heard.extend(event.job for event in batch if event.job)

        async def send(tenant: str) -> str:
            async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
                sent = await client.post("/jobs", json={"job": ONE | {"tenant": tenant}})
                return str(sent.json()["id"])

        reading = asyncio.create_task(read())
        first = await send("speech")
        await _until(lambda: first in heard)
        await directory.revoke(ROOT, "sa:eyes", "viewer", "speech")
        hidden, seen = await send("speech"), await send("vision")
        await _until(lambda: seen in heard)
        assert hidden not in heard
        await directory.revoke(ROOT, "sa:eyes", "viewer", "vision")
        await asyncio.wait_for(reading, 5.0)

    run(story)


async def _until(what: object) -> None:
    assert callable(what)
    deadline_s = time.monotonic() + 20.0
    while not what():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


def test_one_reader_leaves_streams_to_others(door: Entrance) -> None:
    """A part of all streams is the most of one principal."""

    async def story() -> None:
        door_app = create_api(door.service, gate=door.gate, most_streams=8)
        greedy = await door.token("greedy", (Role.VIEWER, "vision"))
        shown = {"Authorization": f"Bearer {greedy}"}
        transport = _Open(door_app)
        assert await transport.begin(shown) == 200
        assert await transport.begin(shown) == 429
        other = await door.token("modest", (Role.VIEWER, "vision"))
        assert await transport.begin({"Authorization": f"Bearer {other}"}) == 200
        await transport.close()

    run(story)


class _Open:
    """Streams that stay open: the transport of httpx waits for the end of an answer."""

    def __init__(self, app: object) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, headers: dict[str, str]) -> int:
        """The status of one more."""
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, object]:
            for message in asked:
                return dict(message)
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start" and not begun.done():
                begun.set_result(int(str(message["status"])))

        given = [(b"host", b"topmast.example.com")]
        given += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "https", "path": "/api/v1/events", "raw_path": b"/api/v1/events",
            "query_string": b"", "root_path": "", "headers": given, "client": ("10.0.0.7", 1),
            "server": ("10.0.0.1", 443),
        }  # fmt: skip
        assert callable(self._app)
        self._tasks.append(asyncio.ensure_future(self._app(scope, receive, send)))
        return await asyncio.wait_for(begun, 20)

    async def close(self) -> None:
        """The readers go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def test_refusals_are_limited_like_other_acts(door: Entrance) -> None:
    """Each is a line of the audit log: a principal cannot fill it."""

    async def story() -> None:
        viewer = await door.token("noise", (Role.VIEWER, "vision"))
        with door.limited(Rates(refused=Rate(0.1, 3))):
            async with door.client(viewer) as client:
                answers = [await client.post("/jobs", json={"job": ONE}) for _ in range(6)]
            assert [answer.status_code for answer in answers] == [403] * 3 + [429] * 3
            assert len(door.acts(actor="sa:noise", outcome="refused")) == 3

    run(story)


def test_the_audit_log_keeps_little_of_a_strangers_path(door: Entrance) -> None:
    """It is the only text that comes from a caller without any proof."""

    async def story() -> None:
        assert await status(door, "x", f"/jobs/{'j' * 5000}") == 401
        line = door.acts(verb="login")[0]
        assert (len(line.object), line.actor) == (200, "")

    run(story)


class _Provider(httpx.AsyncBaseTransport):
    """A provider that says where it is, and begins logins of devices that nobody confirms."""

    def __init__(self, says: str = "authorization_pending", interval_s: float = 60) -> None:
        self.asked: list[str] = []
        """The path of each request."""
        self.says, self.interval_s = says, interval_s

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Its description, a code, or no answer yet."""
        self.asked.append(request.url.path)
        issuer = "https://id.example.com"
        code = {"device_code": "d", "user_code": "AB", "verification_uri": f"{issuer}/enter"}
        if request.url.path == "/device_authorization_endpoint":
            return httpx.Response(200, json={**code, "interval": self.interval_s})
        if request.url.path == "/token_endpoint":
            return httpx.Response(400, json={"error": self.says})
        kinds = ("authorization", "token", "device_authorization")
        names = ("jwks_uri", *(f"{kind}_endpoint" for kind in kinds))
        return httpx.Response(200, json={"issuer": issuer, **{n: f"{issuer}/{n}" for n in names}})


def test_a_return_without_the_cookie_of_its_login_is_refused(door: Entrance) -> None:
    """Whatever state it names, of whatever characters; attempts are limited by address."""

    async def story() -> None:
        provider = accountsfile.Provider("https://id.example.com", "topmast")
        back = f"{URL}/auth/callback"
        openid = OpenId(provider, "", back, time.time, time.monotonic, _Provider())
        app = create_api(door.service, gate=door.gate, openid=openid)
        transport = httpx.ASGITransport(app, client=("10.0.0.9", 1))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as browser:
            begun = await browser.get("/auth/login")
            assert begun.headers["location"].startswith("https://id.example.com/")
            cookie = begun.headers["set-cookie"]
            assert all(word in cookie for word in ("__Host-", "Secure", "HttpOnly", "Path=/"))
            for state in ("x", "\u00e9", "%ff", ""):
                answer = await browser.get(f"/auth/callback?code=x&state={state}")
                assert answer.status_code == 403, answer.text
            # The burst of a server; however slow this machine is, none comes back before the end.
            left = Rates().login.burst
            rates = replace(door.service.limits.rates, login=Rate(1e-6, left))
            with door.limited(rates):
                codes = [(await browser.get("/auth/login")).status_code for _ in range(30)]
            assert codes == [302] * int(left) + [429] * (30 - int(left))

    run(story)


def test_polls_without_pause_ask_the_provider_once(door: Entrance) -> None:
    """A question to it costs far more than a request, and a login under way has proved nothing."""

    async def story() -> None:
        known, asked = accountsfile.Provider("https://id.example.com", "topmast"), _Provider()
        openid = OpenId(known, "", f"{URL}/auth/callback", time.time, time.monotonic, asked)
        app = create_api(door.service, gate=door.gate, openid=openid)
        transport = httpx.ASGITransport(app, client=("10.0.0.11", 1))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as shell:
            device = (await shell.post("/auth/device", json={})).json()["device"]
            polls = [shell.post("/auth/device/token", json={"device": device}) for _ in range(50)]
            codes = [answer.status_code for answer in await asyncio.gather(*polls)]
        assert codes == [202] * 50
        assert asked.asked.count("/token_endpoint") == 1

    run(story)


def test_a_provider_that_asks_for_it_is_asked_less_often() -> None:
    """Five seconds more each time, as RFC 8628 has it (section 3.5)."""

    async def story() -> None:
        known = accountsfile.Provider("https://id.example.com", "topmast")
        slow = _Provider("slow_down", 2.0)
        openid = OpenId(known, "", f"{URL}/auth/callback", time.time, time.monotonic, slow)
        device = await openid.begin_device()
        waits_s = [device.interval_s]
        for _ in range(2):
            assert await openid.poll_device(device) is None
            waits_s.append(device.interval_s)
        assert waits_s == [2.0, 7.0, 12.0]

    run(story)


def test_output_that_does_not_come_holds_up_nothing_else(tmp_path: Path) -> None:
    """A region that does not answer, with many readers: figures and other proofs come all the same."""

    async def story(door: Entrance) -> None:
        released, asked, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

        def silent(*_: object) -> None:
            loop.call_soon_threadsafe(asked.set)
            released.wait(60)

        token = await door.token("reader", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client:
            sent = (await client.post("/jobs", json={"job": {**ONE, "tenant": "vision"}})).json()
            job = f"/jobs/{sent['id']}"
            while not (await client.get(job)).json()["cluster"]:
                pass  # each request waits for the loop
            door.service.read_log = silent
            reads = [asyncio.create_task(client.get(f"{job}/logs")) for _ in range(40)]
            try:
                async with asyncio.timeout(20):
                    await asked.wait()
                    text = await door.system.metrics.text()
                    assert b"topmast_" in text
                    assert await status(door, new_token(TokenKind.PERSONAL, b"1" * 24)) == 401
            finally:
                released.set()
            assert {answer.status_code for answer in await asyncio.gather(*reads)} == {200}

    with entrance(tmp_path) as door:
        run(lambda: story(door))
