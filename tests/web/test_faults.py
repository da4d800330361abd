"""Pages that stay open while the leader is lost, and while what their reader may do is changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_standby_login import Side, break_glass
from tests.integration.test_standby_reads import JOB
from tests.support import postgresql
from tests.support.live import eventually
from tests.support.weblab.tools import missing

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(600)]
FORGOTTEN_S = 20.0
"""So soon, without any event, an open page shows nothing that its reader may not see any more."""


class Door:
    """The one address that people have: what comes there goes to the server it is set to."""

    def __init__(self) -> None:
        self.to = 0
        """The port of that server."""
        self.port = 0

    @property
    def url(self) -> str:
        """What people call it."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await server.serve_forever()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            onward = await asyncio.open_connection("127.0.0.1", self.to)
            await asyncio.gather(_pour(reader, onward[1]), _pour(onward[0], writer))
        writer.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def door() -> Iterator[Door]:
    """Open until the block ends."""
    found, ready, loop = Door(), threading.Event(), asyncio.new_event_loop()
    task = loop.create_task(found.serve(ready))

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)


class Pair:
    """A leader and a standby on one database, and accounts that may submit.

    People reach both by the ``address``, which the servers are told: no other site's page may act.
    """

    def __init__(self, first: Side, second: Side, address: Door) -> None:
        self.first, self.second, self.address = first, second, address
        self.chief = ""

    def account(self, name: str, role: str) -> str:
        """A new account's token."""
        made = self.first.post("/accounts", self.chief, {"name": name, "tenant": "default"})
        assert made.status_code == 201, made.text
        self.role("grant", name, role)
        return str(self.first.post("/tokens", self.chief, {"account": name}).json()["token"])

    def role(self, verb: str, name: str, role: str) -> None:
        """Grant or revoke it."""
        grant = {"subject": f"sa:{name}", "role": role, "tenant": "default"}
        answer = self.first.post(f"/roles/{verb}", self.chief, grant)
        assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if why := missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp("faults")
    with postgresql.server() as store, door() as address:
        if store is None:
            pytest.skip("PostgreSQL is not installed")
        own = ("--public-url", address.url, "--everyone-is-trusted")
        found = Pair(Side(folder / "a", store, *own), Side(folder / "b", store, *own), address)
        address.to = found.first.server.port
        try:
            found.first.start()
            found.chief = break_glass(found.first.state)
            eventually(lambda: found.first.leads(found.chief), "the first leads")
            yield found
        finally:
            found.first.server.end()
            if found.second.server.log.exists():
                found.second.server.end()


@contextmanager
def page_of(chromium: Browser, token: str) -> Iterator[Page]:
    """A tab of the account that a token is of."""
    context = chromium.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
    try:
        yield context.new_page()
    finally:
        context.close()


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def test_what_a_reader_may_no_longer_do_goes_from_an_open_page(
    pair: Pair, chromium: Browser
) -> None:
    """An act that is open is refused in words; then none is offered; in the end nothing is shown."""
    token = pair.account("hand", "submitter")
    job = pair.first.post("/jobs", token, JOB).json()["id"]
    with page_of(chromium, token) as page:
        page.goto(pair.address.url)
        page.get_by_label(f"Select {job}", exact=True).check()
        page.get_by_role("button", name="Hold").click()
        dialog = page.locator("dialog[open]")
        expect(dialog.get_by_role("button", name="Do it")).to_be_enabled()
        pair.role("grant", "hand", "viewer")
        pair.role("revoke", "hand", "submitter")
        dialog.get_by_role("button", name="Do it").click()
        expect(dialog).to_contain_text("Refused: ")
        expect(dialog).to_contain_text("jobs.edit")
        dialog.get_by_role("button", name="Not now").click()
        expect(page.locator("[data-act], [data-select]")).to_have_count(0)
        expect(page.locator(f'tr[data-key="{job}"]')).to_be_visible()
        pair.role("revoke", "hand", "viewer")
        expect(page.locator("main")).to_contain_text(
            "has no role with the permission jobs.view", timeout=1_000 * FORGOTTEN_S
        )
        expect(page.locator("tr[data-row]")).to_have_count(0)


def test_an_open_page_goes_over_to_the_next_leader(pair: Pair, chromium: Browser) -> None:
    """It says that the leader is away, keeps what is typed, and shows what came meanwhile."""
    token = pair.account("eyes", "submitter")
    old = pair.first.post("/jobs", token, JOB).json()["id"]
    pair.second.start()
    with page_of(chromium, token) as page:
        page.goto(pair.address.url)
        row = page.get_by_label(f"Select {old}", exact=True)
        row.check()
        page.locator("input[name=tenant]").fill("half fil")
        pair.first.server.kill()
        expect(page.locator("#link")).to_contain_text("does not answer", timeout=20_000)
        expect(row).to_be_checked()
        eventually(lambda: pair.second.leads(token), "the second leads")
        new = pair.second.post("/jobs", token, JOB).json()["id"]
        pair.address.to = pair.second.server.port
        expect(page.get_by_label(f"Select {new}", exact=True)).to_be_visible(timeout=20_000)
        expect(page.locator("#link")).to_be_hidden()
        expect(row).to_be_checked()
        expect(page.locator("input[name=tenant]")).to_have_value("half fil")
        page.locator("input[name=tenant]").fill("default")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_label(f"Select {old}", exact=True)).to_be_visible()
