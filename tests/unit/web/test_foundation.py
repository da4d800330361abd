"""What every page has: its permission, its headers, its fragment, and text that stays text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.entrance import ROOT, URL, Entrance, entrance, run
from tests.unit.web.support import JOB, local
from topmast.model.access import Role
from topmast.web.assets import FOLDER, TYPES, assets
from topmast.web.registry import all_pages
from topmast.web.words import as_json, spaced

HOSTILE = [
    "<script>alert(1)</script>",
    "x" * 200,
    "\u202eevil\u202c",
    "\x1b[31mred",
    "</script><b>",
    "'\"&{{7*7}}",
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """A control plane with login."""
    with entrance(tmp_path_factory.mktemp("web")) as found:
        yield found


def test_no_two_pages_have_one_path_or_one_place() -> None:
    """The registry is a list of files: nothing but this keeps two of them apart."""
    paths = [page.path for page in all_pages()]
    places = [page.place for page in all_pages() if page.place is not None]
    assert (len(set(paths)), len(set(places))) == (len(paths), len(places))
    assert paths[0] == "/", "the queue comes first"


def test_pages_are_strict_about_what_they_load(door: Entrance) -> None:
    """No inline script or style, on loopback too, and nothing of another host."""

    async def story() -> None:
        async with local(door) as client:
            for page in (page for page in all_pages() if "{" not in page.path):
                answer = await client.get(page.path)
                assert answer.status_code == 200, answer.text
                policy = answer.headers["content-security-policy"]
                assert "default-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["cache-control"] == "no-store"
                assert " style=" not in answer.text
                assert " onclick=" not in answer.text
                assert "://" not in answer.text.replace("http://www.w3.org/", "")
                for piece in answer.text.split("<script")[1:]:
                    head = piece.partition(">")[0]
                    assert "src=" in head or "application/json" in head, piece[:80]

    run(story)


def test_a_fragment_is_the_content_alone(door: Entrance) -> None:
    """What an open page asks for; it says which version of the files it is drawn for."""

    async def story() -> None:
        async with local(door) as client:
            whole = (await client.get("/")).text
            part = await client.get("/", headers={"Topmast-Fragment": "1"})
            assert "<!doctype html>" in whole
            assert part.text.lstrip().startswith("<main")
            assert "<nav" not in part.text
            assert assets().tag in part.text
            assert part.headers["vary"] == "Topmast-Fragment"

    run(story)


def test_files_are_named_by_their_content(door: Entrance) -> None:
    """They are kept for ever; another version is another address; nothing else is given out."""

    async def story() -> None:
        async with local(door) as client:
            at = f"/static/{assets().tag}"
            for name in assets().files:
                answer = await client.get(f"{at}/{name}")
                assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (
                    200,
                    True,
                )
            for gone in (
                "/static/0/app.js",
                f"{at}/no.js",
                f"{at}/%2e%2e/page.py",
            ):
                assert (await client.get(gone)).status_code == 404
        others = {file.suffix for file in FOLDER.rglob("*") if file.is_file()} - set(TYPES)
        assert others <= {".md", ".ts"}, "they are for developers"

    run(story)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_as_they_are(door: Entrance, name: str) -> None:
    """Text of users stays text, and turns no other text around: such a character has a mark.

    A request cannot name such a user any more; journals may.
    """
    acting = re.compile("[\x1b\u202a-\u202e]")
    straight = acting.sub("\ufffd", name)

    async def story() -> None:
        async with local(door) as client:
            await door.service.submit(ROOT, JOB, name, "", "")
            text = (await client.get("/")).text
            assert (
                f"<bdi>{html.escape(straight).replace('&#x27;', '&#39;').replace('&quot;', '&#34;')}</bdi>"
                in text
            )
            assert acting.search(text) is None
            assert "<script>alert" not in text
            assert "</script><b>" not in text

    run(story)


def test_data_for_scripts_cannot_end_its_element() -> None:
    """Whatever a job is called."""
    text = as_json({"name": "</script><!--<script>&"})
    assert not {"<", ">", "&"} & set(text)


def test_tokens_are_read_as_words() -> None:
    """As people say them."""
    assert spaced("WaitingForQuota") == "Waiting for quota"
    assert spaced("") == ""


def test_a_person_without_a_login_is_sent_to_it(door: Entrance) -> None:
    """And comes back to the page; programs are told 401 as before, and so is who cannot log in."""

    async def story() -> None:
        async with door.client(Accept="text/html,*/*") as client:
            alone = await client.get(f"{URL}/jobs/j1?tab=logs")
            assert (alone.status_code, alone.headers["content-type"][:9]) == (401, "text/html")
            assert alone.headers["www-authenticate"] == "Bearer"
            for word in ("asks for a login", "TOPMAST_TOKEN", "--accounts", "oidc"):
                assert word in alone.text
            plain = await client.get(f"{URL}/", headers={"Accept": "application/json"})
            assert plain.json()["remedy"].startswith("a token: ")
            door.guard.login = "/auth/login"
            try:
                sent = await client.get(f"{URL}/jobs/j1?tab=logs")
                assert sent.status_code == 302
                assert sent.headers["location"] == "/auth/login?next=%2Fjobs%2Fj1%3Ftab%3Dlogs"
                assert (await client.get("/jobs")).status_code == 401
                assert (await client.get(f"{URL}/", headers={"Accept": "*/*"})).status_code == 401
            finally:
                door.guard.login = ""

    run(story)


def test_a_link_on_another_site_opens_a_page_and_nothing_else(door: Entrance) -> None:
    """People paste links to jobs into a chat; no other site reads, frames or posts."""

    async def story() -> None:
        token = await door.token("linked", (Role.VIEWER, "vision"))
        follow = {
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        }
        cookie = {"Cookie": f"__Host-topmast={token}"}
        cases = [
            ("a link to a page", "GET", "/", {}, 200),
            ("a frame", "GET", "/", {"Sec-Fetch-Dest": "iframe"}, 403),
            ("a script's request", "GET", "/", {"Sec-Fetch-Mode": "cors"}, 403),
            ("a link to REST", "GET", "/api/v1/jobs", {}, 403),
            ("a form", "POST", "/", {}, 403),
            ("a form for REST", "POST", "/api/v1/jobs/cancel", {}, 403),
        ]  # fmt: skip
        for story_of, method, path, more, want in cases:
            async with door.client(**cookie, **(follow | more)) as client:
                answer = await client.request(method, f"{URL}{path}")
            assert answer.status_code == want, (story_of, answer.text)
        async with local(door) as client:
            assert (await client.get("/", headers=follow)).status_code == 200
            evil = follow | {"Host": "evil.example.com"}
            assert (await client.get("/", headers=evil)).status_code == 403

    run(story)


def test_a_browser_that_asks_for_what_is_not_there_gets_a_page(door: Entrance) -> None:
    """As for a job that is not there; programs get a problem document."""

    async def story() -> None:
        async with local(door) as client:
            for path in ("/nope", "/jobs/j99"):
                lost = await client.get(path, headers={"Accept": "text/html,*/*"})
                assert (lost.status_code, lost.headers["content-type"][:9]) == (404, "text/html")
                assert "To the queue" in lost.text
            for path, accept in (("/nope", "*/*"), ("/api/v1/nope", "text/html")):
                told = await client.get(path, headers={"Accept": accept})
                assert (told.status_code, told.json()["title"]) == (404, "Not found")

    run(story)


def test_what_goes_wrong_is_a_page(tmp_path: Path, door: Entrance) -> None:
    """With the status that REST has for it."""

    async def story() -> None:
        token = await door.token("nowhere")
        async with door.client(token) as client:
            answer = await client.get(f"{URL}/")
            assert (answer.status_code, answer.headers["content-type"][:9]) == (403, "text/html")
            assert "has no role" in answer.text
            main = answer.text.partition("<main")[2].partition("</main>")[0]
            assert "href=" not in main, "a link to what is refused as well"
            assert "No page is open to" in main
            assert "/auth/logout" in main
        data = await door.token("data", (Role.VIEWER, "vision"))
        async with door.client(data) as client:
            answer = await client.get(f"{URL}/whatif")
            assert answer.status_code == 403
            assert "To the queue" in answer.text
            assert "/auth/logout" not in answer.text
        async with local(door) as client:
            wrong = await client.get("/?state=SLEEPING")
            assert wrong.status_code == 422
            assert "unknown state" in wrong.text

    run(story)
