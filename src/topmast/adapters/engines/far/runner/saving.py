"""The folder for checkpoints of one attempt on one host, when checkpoints are kept in a bucket."""

from __future__ import annotations

import hashlib
import http.client as http_client
import json
import os
import shutil
import stat
import threading
import time
import urllib.parse as urls
import urllib.request as web
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topmast.adapters.engines.far.runner.cache import (
    read_json,
)
from topmast.adapters.engines.far.runner.calls import (
    Home,
)
from topmast.adapters.engines.far.runner.fetch import (
    CannotFetch,
    Fetch,
    Listing,
    ask,
    file_below,
    words_of,
)
from topmast.adapters.engines.far.runner.processes import (
    BACKOFF_S,
    CALL_S,
    HUNG_UP,
    Json,
    now_s,
)

CHECKPOINT = ":checkpoint"
"""In the place of a dataset's name."""
SAVES_AT_ONCE = 4
SAVE_PATIENCE_S = 60.0
SAVE_TRIES = 3
SAVE_AGAIN_S = 10.0


class CannotSave(Exception):
    """A checkpoint cannot be brought to the bucket; the text says why, without any URL."""


class Saving:
    """Restores the folder before the tasks begin, and saves it when it is asked to, and at the end.

    A row of a table is ``[name, changed, mode, mtime_ns, [[sha256, bytes], ...]]``.
    """

    def __init__(self, caller: Any) -> None:
        self._caller = caller
        self._ticket = caller.ticket
        self._piece_bytes = caller.plan["data"]["piece_bytes"]
        self._through_home = caller.plan["data"]["through_home"]
        self.folder = Path(caller.folder) / "checkpoint"
        self._note = Path(caller.folder) / "restored.json"
        self._rows: dict[str, tuple[list[int], Json]] = {}
        """What is known of a file that has this size and time."""
        self._there: set[str] = set()
        """Pieces that are in the bucket."""
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._wanted = threading.Event()
        self._number = self._done = 0
        self.ready = False
        self.trouble = ""

    @property
    def dir(self) -> Path:
        """Where tasks save."""
        return self.folder / str(self._caller.plan["data"]["checkpoint"])

    # --- restoring --------------------------------------------------------------------------------

    def restore(self, say: Any) -> None:
        """Have the last checkpoint in the folder; raises CannotFetch, OSError."""
        home = Home(self._ticket)
        tables = json.loads(ask(home, "saved", "the checkpoint"))["tables"]
        for left in (self.folder, self.folder.with_name("pieces")):
            shutil.rmtree(str(left), ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        if tables:
            listing = Listing(home, CHECKPOINT)

            def note(done_bytes: int) -> None:
                say(f"fetching the checkpoint: {100 * done_bytes // max(1, listing.size_bytes)}%")

            pieces = self.folder.with_name("pieces")
            Fetch(self._ticket, listing, note).run(pieces)
            self._assemble(pieces, [rows_of(pieces, table) for table in tables])
            shutil.rmtree(str(pieces), ignore_errors=True)
        self.dir.mkdir(parents=True, exist_ok=True)
        note_text = json.dumps({"rows": self._rows, "there": sorted(self._there)})
        self._note.write_text(note_text)

    def resume(self) -> None:
        """Know again what was restored: this caller replaces one that was killed."""
        noted = read_json(self._note) or {"rows": {}, "there": []}
        self._rows = {name: (seen, row) for name, (seen, row) in noted["rows"].items()}
        self._there = set(noted["there"])
        self.begin()

    def _assemble(self, pieces: Path, tables: list[list[Json]]) -> None:
        for row in merged(tables):
            name, _, mode, mtime_ns, parts = row
            file = file_below(self.folder, name)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_ISLNK(mode):
                file.symlink_to((pieces / parts[0][0]).read_text())
            else:
                with file.open("xb") as out:
                    for sha, _size in parts:
                        with (pieces / sha).open("rb") as piece:
                            shutil.copyfileobj(piece, out, 1 << 20)
                file.chmod(stat.S_IMODE(mode))
                os.utime(str(file), ns=(mtime_ns, mtime_ns))
            self._rows[name] = (seen_of(file), [name, False, mode, mtime_ns, parts])
            self._there.update(sha for sha, _size in parts)

    # --- saving -----------------------------------------------------------------------------------

    def want(self, number: int) -> None:
        """Home asks for a round."""
        if number > self._number:
            self._number = number
            self._wanted.set()

    def begin(self) -> None:
        """The folder is restored: from now on save it whenever it is wanted, and at the end."""
        self.ready = True
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while self._done < self._number:
                number = self._number
                self._say(self.save(number, final=False))
                if self.trouble:
                    time.sleep(SAVE_AGAIN_S)
                else:
                    self._done = number

    def save(self, number: int, *, final: bool) -> str:
        """Bring what the folder holds to the bucket; returns why that failed."""
        with self._alone:
            home = Home(self._ticket)
            try:
                for _ in range(SAVE_TRIES):
                    missing = self._try(home, number, final)
                    if not missing:
                        return ""
                    self._there.difference_update(missing)
                    self._rows.clear()
                raise CannotSave("what was written to the bucket is not there")
            except (CannotSave, CannotFetch, OSError, http_client.HTTPException) as error:
                return f"the checkpoint is not saved: {error}"
            finally:
                home.hang_up()

    def _try(self, home: Home, number: int, final: bool) -> list[str]:
        rows = self._save_files()
        table = self._save_bytes(home, json.dumps(rows).encode())
        said = {**self._caller.me, "number": number, "final": final, "table": table}
        answer = self._insist(home, "saved", json.dumps(said).encode())
        missing: list[str] = json.loads(answer)["missing"]
        return missing

    def _save_files(self) -> list[Json]:
        names = iter(sorted(self._names()))
        rows: dict[str, Json] = {}
        self._errors = []
        threads = [
            threading.Thread(target=self._save_some, args=(names, rows))
            for _ in range(SAVES_AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return [rows[name] for name in sorted(rows)]

    def _names(self) -> Iterator[str]:
        for above, folders, files in os.walk(str(self.folder)):
            links = [name for name in folders if (Path(above) / name).is_symlink()]
            for name in (*files, *links):
                file = Path(above) / name
                if file.is_symlink() or stat.S_ISREG(file.lstat().st_mode):
                    yield str(file.relative_to(self.folder))

    def _save_some(self, names: Iterator[str], rows: dict[str, Json]) -> None:
        home = Home(self._ticket)
        try:
            while not self._errors:
                with self._lock:
                    name = next(names, None)
                if name is None:
                    return
                try:
                    rows[name] = self._save_file(home, name)
                except FileNotFoundError:
                    continue  # the program deleted it meanwhile
        except BaseException as error:
            self._errors.append(error)
        finally:
            home.hang_up()

    def _save_file(self, home: Home, name: str) -> Json:
        file = self.folder / name
        seen, known = seen_of(file), self._rows.get(name)
        if known is not None and known[0] == seen:
            return known[1]
        mode = file.lstat().st_mode
        pieces: list[Json] = []
        if stat.S_ISLNK(mode):
            pieces = self._save_bytes(home, os.fsencode(os.readlink(str(file))))
        else:
            with file.open("rb") as source:
                while True:
                    data = source.read(self._piece_bytes)
                    if not data:
                        break
                    pieces += self._save_bytes(home, data)
        row = [name, True, mode, seen[1], pieces]
        self._rows[name] = (seen, row)
        return row

    def _save_bytes(self, home: Home, data: bytes) -> list[Json]:
        """Have bytes in the bucket; returns the pieces that they are."""
        pieces = []
        for start in range(0, len(data), self._piece_bytes):
            piece = data[start : start + self._piece_bytes]
            sha = hashlib.sha256(piece).hexdigest()
            if sha not in self._there:
                self._write(home, sha, piece)
                self._there.add(sha)
            pieces.append([sha, len(piece)])
        return pieces

    def _write(self, home: Home, sha: str, piece: bytes) -> None:
        query = "piece?" + urls.urlencode({"sha256": sha})
        if self._through_home:
            self._insist(home, query, piece)
            return
        began_s = now_s()
        while True:
            url = json.loads(self._insist(home, query, None))["url"]
            kind = {"Content-Type": "application/octet-stream"}
            asked = web.Request(url, piece, kind, method="PUT")  # noqa: S310
            try:
                with web.urlopen(asked, timeout=CALL_S):  # noqa: S310
                    return
            except (OSError, http_client.HTTPException) as error:
                said, final = words_of(error)
            if final or now_s() - began_s > SAVE_PATIENCE_S:
                raise CannotSave(f"the bucket refuses it: {said}")
            time.sleep(BACKOFF_S)

    def _insist(self, home: Home, path: str, body: bytes | None) -> bytes:
        began_s = now_s()
        while True:
            try:
                status, answer = home.call(path, body)
            except (OSError, http_client.HTTPException):
                status, answer = 0, b""
            if status == 200:
                return answer
            if status == 422 or status in HUNG_UP:
                raise CannotSave(answer.decode(errors="replace") or f"home refuses it ({status})")
            if now_s() - began_s > SAVE_PATIENCE_S:
                raise CannotSave("home does not answer")
            time.sleep(BACKOFF_S)

    def _say(self, trouble: str) -> None:
        """Tell people when it fails, and when it does not any more."""
        if trouble != self.trouble:
            self.trouble = trouble
            self._caller.say(trouble)


def seen_of(file: Path) -> list[int]:
    """What changes with the content of a file."""
    seen = file.lstat()
    return [seen.st_size, seen.st_mtime_ns, seen.st_ino]


def rows_of(pieces: Path, table: Json) -> list[Json]:
    """The rows of a table that was fetched."""
    rows: list[Json] = json.loads(b"".join((pieces / sha).read_bytes() for sha, _size in table))
    return rows


def merged(tables: list[list[Json]]) -> list[Json]:
    """The files of a checkpoint that several hosts saved, each with the folder that it had.

    What a host changed counts, the first that did; what none changed and one deleted is gone.
    """
    by_name: dict[str, list[Json]] = {}
    for rows in tables:
        for row in rows:
            by_name.setdefault(row[0], []).append(row)
    found = []
    for name in sorted(by_name):
        changed = [row for row in by_name[name] if row[1]]
        if changed or len(by_name[name]) == len(tables):
            found.append((changed or by_name[name])[0])
    return found
