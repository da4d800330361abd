"""Pages of people that log in at a real provider, whose login ends while pages are open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.test_standby_login import break_glass
from tests.support.live import Server, free_ports
from tests.support.openid import install, provider
from tests.support.weblab.stage import FLEET
from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]
REASON = "a reason that took long to type"
JOB = {"tenant": "vision", "resources": {"accelerators": "L4:1"}, "run": "sleep 3600"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on which ann, of the provider, may submit and hold jobs; it has one."""
    if why := missing():
        pytest.skip(why)
    if not install():
        pytest.skip("the provider cannot be installed: npm is missing, or has no registry")
    folder: Path = tmp_path_factory.mktemp("login")
    (port,) = free_ports(1)
    with provider(f"http://127.0.0.1:{port}/auth/callback") as issuer:
        oidc = {"issuer": issuer.issuer, "client_id": "topmast", "scopes": ["openid", "email"]}
        (folder / "accounts.yaml").write_text(json.dumps({"oidc": oidc}), "utf-8")
        own = ("--accounts", str(folder / "accounts.yaml"), "--everyone-is-trusted")
        server = Server(folder / "state", Path("src", FLEET), arguments=own, port=port)
        try:
            server.start()
            server.wait_ready()
            shown = {"Authorization": f"Bearer {break_glass(server.state)}"}
            role = {"subject": "user:ann@example.com", "role": "tenant-admin", "tenant": "vision"}
            with httpx.Client(base_url=f"{server.url}/api/v1", headers=shown) as chief:
                for path, body in (("/roles/grant", role), ("/jobs", {"job": JOB})):
                    assert chief.post(path, json=body).is_success
            yield server.url
        finally:
            server.end()


@contextmanager
def logged_in(chromium: Browser, url: str, path: str) -> Iterator[tuple[BrowserContext, Page]]:
    """A browser of ann, at a page."""
    context = chromium.new_context()
    try:
        page = context.new_page()
        page.goto(url + path)
        page.fill("input[name=login]", "ann")
        page.fill("input[name=password]", "anything")
        page.click("button[type=submit]")
        page.locator("input[name=login]").wait_for(state="detached")
        page.click("button[type=submit]")
        page.wait_for_url(url + path)
        yield context, page
    finally:
        context.close()


def end_of(context: BrowserContext, url: str) -> None:
    """The session of a browser is ended elsewhere: no page of it takes part."""
    done = context.request.post(f"{url}/auth/logout", data={}, headers={"Origin": url})
    assert done.status == 204, done.text()


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def test_a_login_that_ends_below_an_open_act_loses_nothing(chromium: Browser, url: str) -> None:
    """The page says so, leads to the login in another tab, and goes on when that is done."""
    with logged_in(chromium, url, "/?tenant=vision") as (context, page):
        page.get_by_label("Select j1", exact=True).check()
        page.get_by_role("button", name="Hold").click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_label("Reason").fill(REASON)
        expect(dialog).to_contain_text("It changes 1 job.")
        end_of(context, url)
        expect(page.locator("#link")).to_contain_text("Your login has ended.", timeout=30_000)
        dialog.get_by_role("button", name="Do it").click()
        expect(dialog).to_contain_text("Your login has ended. Log in again in another tab")
        with context.expect_page() as opened:
            dialog.get_by_role("link", name="Log in again in another tab").click()
        opened.value.wait_for_url(f"{url}/?tenant=vision")
        expect(dialog).to_contain_text("It changes 1 job.", timeout=30_000)
        expect(dialog.get_by_label("Reason")).to_have_value(REASON)
        dialog.get_by_role("button", name="Do it").click()
        expect(page.locator("tr[data-key=j1]")).to_contain_text(REASON)
        expect(page.locator("#link")).to_be_hidden()


def test_a_page_at_rest_goes_through_the_login_and_comes_back(chromium: Browser, url: str) -> None:
    """What is typed keeps it from that."""
    path = "/?tenant=vision&band=normal"
    with logged_in(chromium, url, path) as (context, page):
        page.evaluate("() => { window.before = true; }")
        page.locator("input[name=user]").fill("half typ")
        end_of(context, url)
        expect(page.locator("#link")).to_contain_text("Your login has ended.", timeout=30_000)
        expect(page.locator("input[name=user]")).to_have_value("half typ")
        page.locator("input[name=user]").fill("")
        page.wait_for_function("() => window.before === undefined", timeout=60_000)
        expect(page.locator(".me")).to_have_text("ann@example.com")
        assert page.url == url + path


def test_a_logout_ends_in_all_tabs_on_a_page_that_asks_for_no_login(
    chromium: Browser, url: str
) -> None:
    """The provider would let the browser in at once: then a logout would be none."""
    with logged_in(chromium, url, "/") as (context, page):
        others = [context.new_page() for _ in range(2)]
        for other, path in zip(others, ("/fleet", "/usage"), strict=True):
            other.goto(url + path)
        page.goto(f"{url}/account")
        page.get_by_role("button", name="Log out").click()
        page.locator("dialog[open]").get_by_role("button", name="Do it").click()
        for one in (page, *others):
            one.wait_for_url(f"{url}/auth/logged-out")
            expect(one.locator("h1")).to_have_text("Logged out")
        assert [one for one in context.cookies() if one["name"] == "__Host-topmast"] == []
        page.get_by_role("link", name="Log in again").click()
        expect(page.locator(".me")).to_have_text("ann@example.com")
        page.goto(f"{url}/auth/logged-out")
        assert page.url == f"{url}/"
