"""A mover of a leader that was replaced changes nothing more, wherever in its work it was halted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.contract.test_mover import PATH, TREE, Moving, blocks, read, size, until, write
from topmast.adapters.objects import region
from topmast.adapters.objects.fence import Term
from topmast.model.errors import Unavailable
from topmast.model.messages import CopyDone, ReplicaDeleted

OTHERS = {"one": b"another dataset", "two": b"2" * 4096}
OLD, NEW = Term("db", 5), Term("db", 6)


@pytest.fixture(params=["directories", "buckets"])
def places(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Two stores of one kind."""
    if request.param == "directories":
        return str(tmp_path / "east"), str(tmp_path / "west")
    buckets = {"s3://east": MemoryStore(), "s3://west": MemoryStore()}
    monkeypatch.setattr(region, "from_url", buckets.__getitem__)
    return "s3://east", "s3://west"


def test_a_leader_that_was_replaced_changes_no_store(
    places: tuple[str, str], tmp_path: Path
) -> None:
    """From the first change of the next leader on; nothing is told of what it would have done."""
    old, new = (Moving(*places, term=term) for term in (OLD, NEW))
    try:
        old.mover.put_directory("east", PATH, write(tmp_path / "files", TREE))
        old.mover.put_directory("east", "vision/copied", write(tmp_path / "c", OTHERS))
        assert old.copy("c1") == CopyDone("c1", size(TREE))
        old.news.clear()
        new.mover.put_directory("west", "vision/more", write(tmp_path / "more", OTHERS))
        old.mover.delete_replica("imagenet", "west", PATH)
        old.order("c2", path="vision/copied")
        with pytest.raises(Unavailable):
            old.mover.put_directory("west", "vision/other", write(tmp_path / "o", OTHERS))
        old.mover.close()
        assert not old.news
        assert old.mover.measure("west", "vision/copied") == 0
        assert old.mover.measure("west", PATH) == size(TREE)
        assert old.mover.measure("west", "vision/other") == 0
        new.mover.delete_replica("imagenet", "west", PATH)
        assert new.deletion() == ReplicaDeleted("west", PATH)
    finally:
        old.mover.close()
        new.mover.close()


def test_leaders_of_another_database_begin_anew(places: tuple[str, str], tmp_path: Path) -> None:
    """A database that was restored counts its leaders from a lower number on."""
    before = Moving(*places, term=Term("db", 90))
    before.mover.put_directory("east", PATH, write(tmp_path / "files", TREE))
    before.mover.close()
    after = Moving(*places, term=Term("restored", 2))
    assert after.copy("c1") == CopyDone("c1", size(TREE))
    after.mover.close()


SCRIPT = """
    import signal, structlog, sys, threading
    from topmast.adapters.clock import SystemClock
    from topmast.adapters.objects import StoreMover, region
    from topmast.adapters.objects.fence import Term

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    top, halts_in = sys.argv[1:]
    counted = 0

    def halt():
        global counted
        counted += 1
        if counted == 3:
            print("halted", flush=True)
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread, not the next

    heed = region._heed
    if halts_in == "before":
        region._heed = lambda event: (heed(event), halt())
    else:
        unlink = region.Path.unlink
        region.Path.unlink = lambda path, **more: (halt(), unlink(path, **more))[1]
    mover = StoreMover({"west": top}, clock=SystemClock(), term=Term("db", 5))
    mover.open(lambda message: print(message, flush=True))
    mover.delete_replica("imagenet", "west", "vision/imagenet")
    mover._lanes.submit(("west", "vision/imagenet"), int).result()  # after what is in this lane
    mover.close()
    print("closed", flush=True)
"""


@contextmanager
def halted(top: Path, halts_in: str) -> Iterator[subprocess.Popen[str]]:
    """The process of an old leader that was halted in the middle of a deletion."""
    words = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(top), halts_in]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "halted\n"
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("halts_in", ["before", "within"])
def test_a_deletion_that_was_halted_for_long_deletes_nothing_of_the_next_replica(
    halts_in: str, tmp_path: Path
) -> None:
    """Before a change: it is refused when it goes on. Within one: its process is ended first."""
    top = tmp_path / "west"
    whole = blocks(6, 1000)
    made = Moving(str(tmp_path / "east"), str(top), term=Term("db", 4))
    made.mover.put_directory("west", PATH, write(tmp_path / "files", whole))
    made.mover.close()
    with halted(top, halts_in) as process:
        new = Moving(str(tmp_path / "east"), str(top), term=NEW)
        new.mover.delete_replica("imagenet", "west", PATH)
        assert new.deletion() == ReplicaDeleted("west", PATH)
        new.mover.put_directory("west", PATH, tmp_path / "files")
        if process.poll() is None:
            os.kill(process.pid, signal.SIGCONT)
        told = process.communicate(timeout=60)[0]
        assert told == ("closed\n" if halts_in == "before" else "")
        assert (process.returncode == -signal.SIGKILL) is (halts_in == "within")
        assert read(top / PATH) == whole
        assert new.mover.measure("west", PATH) == size(whole)
        new.mover.close()
