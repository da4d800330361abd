"""How a runner fetches objects, whatever the store does."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from topmast.adapters.engines.far.runner import fetch as fetching
from topmast.adapters.engines.far.runner.fetch import CannotFetch, Fetch, Listing, file_below
from topmast.adapters.engines.far.runner.saving import merged

CONTENT = bytes(range(256)) * 40


class Store(ThreadingHTTPServer):
    """An object store with one object that does what is next on its list, and then gives it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.next: list[str] = []
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        what = self.server.next.pop(0) if self.server.next else "whole"
        wanted = self.headers["Range"] or ""
        self.server.asked.append(wanted)
        start = int(wanted[len("bytes=") : -1])
        if what.isdecimal():
            body = b"<Error><Code>SlowDown</Code><Message>secret=1</Message></Error>"
            self.send_response(int(what))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        body = CONTENT[start:]
        self.send_response(200 if what == "no ranges" else 206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if what == "breaks" else body)

    def log_message(self, *_: object) -> None:
        return


class FakeHome:
    """Lists two objects, each page with other URLs."""

    url = ""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    version = ""
    key = "k"
    pages = 0

    def __init__(self, ticket: Any) -> None:
        pass

    def call(self, path: str) -> tuple[int, bytes]:
        FakeHome.pages += 1
        start = int(path.rpartition("=")[2])
        objects = [
            {
                "name": name, "size_bytes": len(CONTENT), "sha256": self.sha256,
                "version": self.version, "url": f"{self.url}/{name}?secret={FakeHome.pages}",
            }
            for name in ("a", "b/c")
        ]  # fmt: skip
        page = {
            "key": self.key,
            "size_bytes": 2 * len(CONTENT),
            "count": 2,
            "objects": objects[start:],
        }
        return 200, json.dumps(page).encode()

    def hang_up(self) -> None:
        return


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    server = Store()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(FakeHome, "url", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(FakeHome, "pages", 0)
    monkeypatch.setattr(fetching, "Home", FakeHome)
    monkeypatch.setattr(fetching, "FETCHES_AT_ONCE", 1)
    monkeypatch.setattr(fetching, "BACKOFF_S", 0.0)
    yield server
    server.shutdown()


def run(folder: Path) -> list[int]:
    noted: list[int] = []
    listing = Listing(FakeHome({}), "words")  # type: ignore[arg-type]
    Fetch({}, listing, noted.append).run(folder)
    return noted


@pytest.mark.parametrize(
    ("story", "does", "requests", "pages"),
    [
        ("all goes well", [], 2, 1),
        ("the connection breaks twice", ["breaks", "breaks"], 4, 1),
        ("the store is busy", ["503", "429", "500"], 5, 1),
        ("the signature has expired", ["403"], 3, 2),
        (
            "it expires again and again, after some bytes each time",
            ["403", "breaks", "403", "breaks"],
            6,
            3,
        ),
    ],
)
def test_a_fetch_goes_on(
    store: Store, tmp_path: Path, story: str, does: list[str], requests: int, pages: int
) -> None:
    store.next = does
    noted = run(tmp_path / "data")
    assert (tmp_path / "data" / "a").read_bytes() == CONTENT
    assert (tmp_path / "data" / "b" / "c").read_bytes() == CONTENT
    assert noted[-1] == 2 * len(CONTENT)
    assert (len(store.asked), FakeHome.pages) == (requests, pages)
    if "breaks" in does:
        assert "bytes=1000-" in store.asked


def test_what_is_there_is_not_fetched_again(store: Store, tmp_path: Path) -> None:
    """An earlier runner was killed: one object is whole, and half of the other is there."""
    (tmp_path / "data" / "b").mkdir(parents=True)
    (tmp_path / "data" / "a").write_bytes(CONTENT)
    (tmp_path / "data" / "b" / "c").write_bytes(CONTENT[:5000])
    run(tmp_path / "data")
    assert store.asked == ["bytes=5000-"]
    assert (tmp_path / "data" / "b" / "c").read_bytes() == CONTENT


def test_what_an_earlier_fetch_left_damaged_is_fetched_anew(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"x" * 5000)
    run(tmp_path / "data")
    assert (tmp_path / "data" / "a").read_bytes() == CONTENT
    assert store.asked[:2] == ["bytes=5000-", "bytes=0-"]


@pytest.mark.parametrize(
    ("story", "does", "want"),
    [
        (
            "access is denied",
            ["403", "403"],
            "words: object a: the store refuses it: HTTP 403 SlowDown",
        ),
        ("it is missing", ["404"], "words: object a is not in the store"),
        ("it was changed", ["412"], "words: object a was changed since it was listed"),
        ("it is shorter now", ["416"], "words: object a was changed since it was listed"),
        ("it gives no parts", ["breaks", "no ranges"], "the store gives no part of an object"),
    ],
)
def test_what_cannot_go_on_says_why(
    store: Store, tmp_path: Path, story: str, does: list[str], want: str
) -> None:
    """Without the URL, which is a secret, and without what the store says beyond its code."""
    store.next = does
    with pytest.raises(CannotFetch, match=re.escape(want)) as raised:
        run(tmp_path / "data")
    assert "secret" not in str(raised.value)


def test_a_store_that_is_not_there_is_given_up(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeHome, "url", "http://127.0.0.1:1")
    monkeypatch.setattr(fetching, "FETCH_PATIENCE_S", 0.0)
    with pytest.raises(
        CannotFetch, match=r"words: object a: the store cannot be reached: .*refused"
    ):
        run(tmp_path / "data")


def test_another_checksum_is_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeHome, "sha256", "0" * 64)
    with pytest.raises(CannotFetch, match="its checksum is not that of the manifest"):
        run(tmp_path / "data")
    assert not (tmp_path / "data" / "a").exists()
    assert len(store.asked) == fetching.TRIES


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotFetch, match="cannot be the name of a file"):
        file_below(tmp_path, name)


def test_the_files_of_several_hosts_are_merged() -> None:
    """Rows are name, changed, mode, time, pieces."""

    def row(name: str, changed: bool, piece: str) -> list[Any]:
        return [name, changed, 0o644, 0, [[piece, 1]]]

    first = [row("both", True, "1"), row("old", False, "0"), row("one", False, "0")]
    second = [row("both", True, "2"), row("old", False, "0"), row("own", True, "2")]
    third = [row("both", False, "0"), row("old", True, "3"), row("one", False, "0")]
    found = {one[0]: one[4][0][0] for one in merged([first, second, third])}
    assert found == {"both": "1", "old": "3", "own": "2"}, "and 'one' was deleted by the second"
