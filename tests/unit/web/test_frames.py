"""Open pages share their content, if their readers may see the same, and are told when to ask."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from httpx import ASGITransport

from tests.support.entrance import ROOT, URL, Entrance, entrance
from tests.unit.web.support import local, submit
from topmast.model.access import Role
from topmast.web import frames
from topmast.web.routes import Drawing

PART = {"Topmast-Fragment": "1"}
NOW = PART | {"Cache-Control": "no-cache"}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """How many pages were drawn; contents serve for 15 s, so that no test depends on its pace."""
    count, draw = SimpleNamespace(pages=0), Drawing.page

    def counted(*given: object) -> object:
        count.pages += 1
        return draw(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Drawing, "page", counted)
    monkeypatch.setattr(frames, "LEAST_S", 60.0)
    return count


def test_a_content_is_drawn_once_for_all_readers(tmp_path: Path, drawn: SimpleNamespace) -> None:
    """They learn when to ask again, and that something has happened; a whole page is always new."""

    async def story(door: Entrance) -> None:
        async with local(door) as client:
            answers = await asyncio.gather(*(client.get("/", headers=PART) for _ in range(9)))
            assert drawn.pages == 1
            assert len({answer.text for answer in answers}) == 1
            assert 1_000 < int(answers[0].headers["Topmast-Rest"]) <= 15_000
            numbers = {answer.headers["X-Request-Id"] for answer in answers}
            assert len(numbers) == 9, "each answer has the number of its own request alone"
            quiet = [await client.get("/", headers=NOW) for _ in range(20)]
            assert any("Topmast-Behind" not in answer.headers for answer in quiet)
            job = await submit(client, "ann")
            late = await client.get("/", headers=PART)
            assert late.headers["Topmast-Behind"] == "1"
            assert job not in late.text
            assert f">{job}<" in (await client.get("/")).text
            other = await client.get("/?state=all", headers=PART)
            assert f">{job}<" in other.text, "another address is another content"

    with entrance(tmp_path) as door:
        asyncio.run(story(door))


def test_what_a_reader_has_just_done_is_seen_at_once(
    tmp_path: Path, drawn: SimpleNamespace
) -> None:
    """Its page asks for what is drawn from now on, and then others have it too."""

    async def story(door: Entrance) -> None:
        async with local(door) as client:
            await client.get("/", headers=PART)
            job = await submit(client, "ann")
            assert f">{job}<" in (await client.get("/", headers=NOW)).text
            after = await client.get("/", headers=PART)
            assert f">{job}<" in after.text
            assert drawn.pages == 2

    with entrance(tmp_path) as door:
        asyncio.run(story(door))


def test_readers_share_with_those_alone_that_may_see_the_same(
    tmp_path: Path, drawn: SimpleNamespace
) -> None:
    """Two with the same role do; one of another tenant does not; a lost role counts at once."""

    async def story(door: Entrance) -> None:
        ann = await door.token("ann", (Role.VIEWER, "vision"))
        bob = await door.token("bob", (Role.VIEWER, "vision"))
        eve = await door.token("eve", (Role.VIEWER, "speech"))
        boss = await door.token("boss", (Role.ADMIN, "/"))
        async with httpx.AsyncClient(transport=ASGITransport(door.app), base_url=URL) as client:

            async def page(token: str) -> httpx.Response:
                shown = {"Authorization": f"Bearer {token}"}
                return await client.get("/", headers=PART | shown)

            async with door.client(boss) as chief:
                job = {"run": "true", "tenant": "vision", "name": "secret-name"}
                resources = {"accelerators": "H100:1"}
                made = await chief.post("/jobs", json={"job": job | {"resources": resources}})
                assert made.status_code == 201, made.text
            assert "secret-name" in (await page(ann)).text
            assert "secret-name" in (await page(bob)).text
            assert drawn.pages == 1
            assert "secret-name" not in (await page(eve)).text
            assert drawn.pages == 2
            await door.service.directory.revoke(ROOT, "sa:bob", "viewer", "vision")
            assert (await page(bob)).status_code == 403
            assert (await page(ann)).status_code == 200

    with entrance(tmp_path) as door:
        asyncio.run(story(door))
