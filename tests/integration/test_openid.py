"""Logging in at a real provider: by a browser, and from a command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.test_schema import tried
from tests.support.entrance import ROOT, URL, Entrance, entrance, run
from tests.support.live import live
from tests.support.openid import Browser, Provider, install, provider
from topmast.adapters.oidc import OpenId
from topmast.api import create_api
from topmast.api.login import MOST_TABS
from topmast.model import account_views as v
from topmast.model.files import accountsfile
from topmast.web import routes as pages_of

pytestmark = pytest.mark.always

BACK = f"{URL}/auth/callback"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    """The provider of this file."""
    if not install():
        pytest.skip("the provider cannot be installed: npm is missing, or has no registry")
    with provider(BACK) as found:
        yield found


def with_provider(door: Entrance, issuer: Provider, client: str = "topmast") -> Entrance:
    """The same entrance, with a provider to log in with."""
    known = accountsfile.Provider(issuer.issuer, client, scopes=("openid", "email", "groups"))
    secret = "a secret of the provider: 5+5 is 50% of 20" if client == "secretive" else ""
    openid = OpenId(known, secret, BACK, time.time, time.monotonic)
    door.app = create_api(door.service, gate=door.gate, openid=openid, pages=pages_of(door.service))
    return door


@pytest.fixture(scope="module")
def door(issuer: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """A control plane where people log in."""
    with entrance(tmp_path_factory.mktemp("openid")) as found:
        yield with_provider(found, issuer)


async def at_provider(name: str, url: str, address: str = "", text: str = "") -> str:
    """What a person does with a browser."""
    return await asyncio.to_thread(lambda: Browser(name).until(url, address=address, text=text))


def pages(door: Entrance) -> httpx.AsyncClient:
    """A browser at the server itself, which keeps cookies."""
    transport = httpx.ASGITransport(door.app, client=("10.0.0.9", 1))
    return httpx.AsyncClient(transport=transport, base_url=URL)


async def log_in(door: Entrance, browser: httpx.AsyncClient, name: str) -> httpx.Response:
    """From the server to the provider and back."""
    begun = await browser.get("/auth/login?next=/queue")
    assert begun.status_code == 302
    back = urlsplit(await at_provider(name, begun.headers["location"], address=BACK))
    return await browser.get(f"{back.path}?{back.query}")


def test_a_browser_logs_in_and_out(door: Entrance) -> None:
    """The session is a cookie; the groups of the provider become roles; its end is its end."""

    async def story() -> None:
        await door.service.directory.grant(ROOT, "group:ml", "submitter", "vision")
        async with pages(door) as browser:
            done = await log_in(door, browser, "ann")
            assert (done.status_code, done.headers["location"]) == (303, "/queue")
            cookie = next(c for c in done.headers.get_list("set-cookie") if "topmast=" in c)
            for part in ("__Host-topmast=tm_ses_", "HttpOnly", "Secure", "SameSite=lax", "Path=/"):
                assert part in cookie
            me = (await browser.get("/api/v1/whoami")).json()
            assert (me["subject"], me["via"]) == ("user:ann@example.com", "session")
            assert me["groups"] == ["ml", "staff"]
            assert [role["role"] for role in me["roles"]] == ["submitter"]
            own = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
            job = {"job": {"run": "true", "tenant": "vision"}}
            assert (await browser.post("/api/v1/jobs", json=job)).status_code == 403
            sent = await browser.post("/api/v1/jobs", json=job, headers=own)
            assert sent.status_code == 201
            kept = browser.cookies.get("__Host-topmast")
            assert (await browser.post("/auth/logout", json={}, headers=own)).status_code == 204
            again = await browser.get(
                "/api/v1/whoami", headers={"Cookie": f"__Host-topmast={kept}"}
            )
            assert again.status_code == 401
        verbs = [act.verb for act in door.acts(actor="user:ann@example.com")]
        assert verbs == ["logout", "submit", "login"]

    run(story)


def test_a_return_that_belongs_to_no_login_is_refused(door: Entrance) -> None:
    """Of another browser, with another state, twice, or with an error of the provider."""

    async def story() -> None:
        async with pages(door) as browser, pages(door) as thief:
            begun = await browser.get("/auth/login?next=//evil.example.com")
            back = urlsplit(await at_provider("ann", begun.headers["location"], address=BACK))
            stolen = f"{back.path}?{back.query}"
            assert (await thief.get(stolen)).status_code == 403
            wrong = await browser.get("/auth/callback?state=other&code=x")
            assert wrong.status_code == 403
            page = await browser.get("/auth/callback?error=<b>no", headers={"Accept": "text/html"})
            assert (page.status_code, page.headers["content-type"][:9]) == (403, "text/html")
            assert "the provider says: &lt;b&gt;no; begin again at /auth/login" in page.text
            done = await browser.get(stolen)
            assert (done.status_code, done.headers["location"]) == (303, "/")
            assert (await browser.get(stolen)).status_code == 403
        lines = door.acts(verb="login", outcome="refused")
        refused = [line.outcome for line in lines if line.object == "/auth/callback"]
        assert len(refused) == 4
        assert any("the provider says" in outcome for outcome in refused)

    run(story)


def test_two_tabs_of_a_browser_log_in_at_the_same_time(door: Entrance) -> None:
    """Both were open when the session ended; each returns to its page, in whatever order."""

    async def story() -> None:
        async with pages(door) as browser:
            tabs = [await browser.get(f"/auth/login?next=/{page}") for page in ("fleet", "usage")]
            for tab, page in zip(tabs, ("/fleet", "/usage"), strict=True):
                back = urlsplit(await at_provider("ann", tab.headers["location"], address=BACK))
                done = await browser.get(f"{back.path}?{back.query}")
                assert done.status_code == 303, done.text
                assert done.headers["location"] == page
            assert list(browser.cookies) == ["__Host-topmast"]
            for _ in range(MOST_TABS + 3):
                await browser.get("/auth/login")
            assert len(browser.cookies) == 1 + MOST_TABS

    run(story)


def test_a_command_line_logs_in_by_a_code(door: Entrance) -> None:
    """The token comes when a person has confirmed the code, wherever the browser is."""

    async def story() -> None:
        async with pages(door) as shell:
            answer = await shell.post("/auth/device", json={})
            begun = v.DeviceLogin(**answer.json())
            assert "device_code" not in answer.text
            ask = {"device": begun.device}
            assert (await shell.post("/auth/device/token", json=ask)).status_code == 202
            await at_provider("ann", begun.whole_url, text="Sign-in Success")
            # Too soon: a poll before the interval is over reaches no provider.
            assert (await shell.post("/auth/device/token", json=ask)).status_code == 202
            await asyncio.sleep(begun.interval_s)
            made = await shell.post("/auth/device/token", json=ask)
            assert made.status_code == 201
            token = made.json()["token"]
            assert token.startswith("tm_pat_")
            assert (await shell.post("/auth/device/token", json=ask)).status_code == 404
        async with door.client(token) as client:
            assert (await client.get("/whoami")).json()["subject"] == "user:ann@example.com"

    run(story)


LIVE = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
tenants: {vision: {quota: {H100: 1}}}
"""


def test_the_command_logs_in_and_out_at_a_real_server(issuer: Provider, tmp_path: Path) -> None:
    """`topmast login` prints where to go, waits, keeps the token for its owner alone; `logout` ends it.

    A provider that is silent meanwhile does not end the login.
    """
    accounts = tmp_path / "accounts.yaml"
    scopes = "[openid, email, groups]"
    accounts.write_text(
        f"oidc: {{issuer: '{issuer.issuer}', client_id: topmast, scopes: {scopes}}}\n"
    )
    with live(tmp_path, LIVE, arguments=("--accounts", str(accounts))) as (server, _):
        shell = Shell(server.url, tmp_path / "config")
        assert shell.run("whoami", want_code=1).stderr.startswith("topmast: ")
        with shell.begin("login") as login:
            assert login.stderr is not None
            words = login.stderr.readline().split()
            assert (words[0], words[2:5]) == ("Open", ["and", "enter", words[-1]])
            issuer.halt()
            try:
                said = login.stderr.readline()
            finally:
                issuer.go_on()
            assert "the provider of logins" in said
            assert said.endswith("; the login goes on\n")
            Browser("ann").until(words[1], text="Sign-in Success")
            said, _ = login.communicate(timeout=60)
        assert login.returncode == 0
        assert said.startswith("user:ann@example.com is logged in until ")
        kept = tmp_path / "config" / "topmast" / "tokens.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert list(json.loads(kept.read_text())) == [server.url]
        me = json.loads(shell.run("whoami", "--json").stdout)
        assert (me["subject"], me["groups"]) == ("user:ann@example.com", ["ml", "staff"])
        assert shell.run("logout").stdout == f"logged out of {server.url}\n"
        assert json.loads(kept.read_text()) == {}
        assert shell.run("whoami", want_code=1).stdout == ""


class Shell:
    """A shell of a person that keeps its tokens in a folder."""

    def __init__(self, url: str, config: Path) -> None:
        self._url = url
        self._environment = {**os.environ, "XDG_CONFIG_HOME": str(config)}
        self._environment.pop("TOPMAST_TOKEN", None)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        command = [sys.executable, "-m", "topmast.app", *words, "--server", self._url]
        return subprocess.Popen(
            command, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )  # fmt: skip

    def run(self, *words: str, want_code: int = 0) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        with self.begin(*words) as begun:
            out, err = begun.communicate(timeout=60)
        assert begun.returncode == want_code, (out, err)
        return subprocess.CompletedProcess(words, begun.returncode, out, err)


def test_a_person_without_groups_has_its_own_roles_alone(door: Entrance) -> None:
    """The claim may be missing; an address that is not verified is no name."""

    async def story() -> None:
        await door.service.directory.grant(ROOT, "user:bob@example.com", "viewer", "speech")
        async with pages(door) as browser:
            assert (await log_in(door, browser, "bob")).status_code == 303
            me = (await browser.get("/api/v1/whoami")).json()
            assert (me["groups"], [role["tenant"] for role in me["roles"]]) == ([], ["speech"])
        async with pages(door) as browser:
            answer = await log_in(door, browser, "eve")
            assert (answer.status_code, "verified" in answer.json()["detail"]) == (403, True)
        assert "verified" in door.acts(verb="login", outcome="refused")[0].outcome

    run(story)


def test_sessions_outlive_the_provider(tmp_path: Path, issuer: Provider) -> None:
    """While it is away nothing new can be proved, and those that are logged in work on."""

    async def story(door: Entrance) -> None:
        await door.service.directory.grant(ROOT, "group:ml", "submitter", "vision")
        async with pages(door) as browser, pages(with_provider(door, issuer)) as late:
            assert (await log_in(door, browser, "ann")).status_code == 303
            issuer.stop()
            try:
                assert (await browser.get("/api/v1/jobs")).status_code == 200
                assert (await late.get("/auth/login")).status_code == 503
                assert (await late.post("/auth/device", json={})).status_code == 503
            finally:
                await asyncio.to_thread(issuer.start)
            assert (await log_in(door, late, "ann")).status_code == 303

    with entrance(tmp_path) as door:
        run(lambda: story(with_provider(door, issuer)))


def test_a_client_with_a_secret_and_claims_in_the_user_info(tmp_path: Path) -> None:
    """Some providers put name and groups there alone."""
    if not install():
        pytest.skip("the provider cannot be installed: npm is missing, or has no registry")

    async def story(door: Entrance) -> None:
        async with pages(door) as browser:
            assert (await log_in(door, browser, "ann")).status_code == 303
            groups = door.service.directory.state.people["user:ann@example.com"].groups
            assert groups == ("ml", "staff")

    with provider(BACK, in_userinfo=True) as issuer, entrance(tmp_path) as door:
        run(lambda: story(with_provider(door, issuer, "secretive")))


def test_no_request_of_a_login_is_answered_with_a_fault_of_the_server(door: Entrance) -> None:
    """Whatever is sent to the routes that people log in by, with a provider behind them."""
    assert tried(door, "", {}, below="/auth", least=40) == []
