"""Processes that read archives: they say what the server would, and are none it would miss."""

import gc
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from tests.support.live import eventually, is_alive, kill
from topmast.adapters import archive, archive_readers
from topmast.adapters.archive_readers import Readers
from topmast.adapters.engines.local.processes import children

USED = """
import sys, time
from topmast.adapters.archive_readers import Readers
readers = Readers()
readers.fault(b"")
sys.stdout.write(f"{readers._idle[0].pid}\\n")
sys.stdout.flush()
time.sleep(600)
"""


def packed(*names: str) -> bytes:
    """An archive of empty files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return out.getvalue()


MANY = packed(*[f"file-{number}" for number in range(10_000)])
"""Tenths of a second to read."""


def idle(readers: Readers) -> list[int]:
    return [reader.pid for reader in readers._idle]


def test_a_process_finds_what_is_wrong_with_one_archive_after_the_other() -> None:
    """It is the same process, and its time is told: the account pays for it."""
    readers = Readers()
    found: set[int] = set()
    for content in (packed("a", "b"), b"", packed("../a"), b"\x1f\x8b123", packed("\udcff/../ä")):
        wrong, took_s = readers.fault(content)
        assert wrong == archive.fault(content)
        assert 0.0 < took_s < 1.0
        found.update(idle(readers))
    assert len(found) == 1
    assert readers.fault(MANY)[1] > 0.05


def test_as_many_read_as_are_asked_at_the_same_time() -> None:
    """And then wait for more, without the descriptors of the process that began them."""
    readers = Readers()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        threads = [threading.Thread(target=readers.fault, args=(MANY,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(idle(readers))) == 3
    for pid in idle(readers):
        opened = {int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()}
        assert opened == {0, 1, 2}
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpgid(pid) != os.getpgid(0), "Ctrl-C is for the server"


def test_an_archive_is_read_although_its_process_is_ended() -> None:
    """While it waits, or in the midst, as when memory is short."""
    readers = Readers()
    threads = [threading.Thread(target=readers.fault, args=(MANY,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pid in idle(readers):
        os.kill(pid, 9)
    assert readers.fault(b"")[0] == archive.fault(b"")
    before, found = set(children(os.getpid())), list[str]()
    reading = threading.Thread(target=lambda: found.append(readers.fault(MANY)[0]))
    ended = idle(readers)[-1]
    reading.start()
    eventually(lambda: not readers._idle or ended not in idle(readers), "it reads")
    os.kill(ended, 9)
    reading.join()
    assert found == [""]
    assert ended in before
    assert ended not in idle(readers)


def test_what_ends_every_process_that_reads_it_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive_readers, "LAUNCH", "import os; os._exit(9)")
    with pytest.raises(ChildProcessError, match="the processes that read archives are ended"):
        Readers().fault(MANY)


def test_processes_end_with_what_uses_them() -> None:
    readers = Readers()
    readers.fault(b"")
    (pid,) = idle(readers)
    assert is_alive(pid)
    del readers
    gc.collect()
    assert not is_alive(pid)


@pytest.mark.parametrize("is_killed", [True, False])
def test_processes_end_with_the_process_that_uses_them(is_killed: bool) -> None:
    """However that ends."""
    with subprocess.Popen([sys.executable, "-c", USED], stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        pid = int(user.stdout.readline())
        assert is_alive(pid)
        if is_killed:
            kill(user.pid)
        else:
            user.terminate()
        user.wait()
        eventually(lambda: not is_alive(pid), "it has ended", 10.0)


def test_reading_leaves_the_interpreter_to_others() -> None:
    """A thread of this process would get it anew for some milliseconds only, again and again."""
    readers = Readers()
    readers.fault(b"")
    begun_s = time.thread_time()
    _, took_s = readers.fault(MANY)
    assert time.thread_time() - begun_s < took_s / 3


def busy(readers: Readers) -> list[int]:
    return [reader.pid for reader in readers._busy]


def asked(readers: Readers, content: bytes) -> tuple[threading.Thread, list[object]]:
    """A thread that asks, once its process has what it reads; and what comes of it."""
    found: list[object] = []

    def ask() -> None:
        try:
            found.append(readers.fault(content))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: busy(readers), "it is asked")
    return thread, found


def test_a_process_that_hangs_is_ended_and_another_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is halted keeps no upload, and no thread, for ever."""
    monkeypatch.setattr(archive_readers, "LONGEST_S", 3.0)
    readers = Readers()
    readers.fault(b"")
    (halted,) = idle(readers)
    os.kill(halted, signal.SIGSTOP)
    wrong, _ = readers.fault(packed("a"))
    assert wrong == ""
    assert idle(readers) != [halted]
    assert not is_alive(halted)


def test_what_is_read_while_this_is_closed_is_refused_at_once() -> None:
    """A server that stops does not wait for an archive of minutes, nor begins another process."""
    readers = Readers()
    readers.fault(b"")
    os.kill(idle(readers)[0], signal.SIGSTOP)  # it would never answer
    thread, found = asked(readers, MANY)
    (reader,) = busy(readers)
    readers.close()
    thread.join(10.0)
    assert not thread.is_alive()
    assert isinstance(found[0], ChildProcessError)
    assert not is_alive(reader)
    with pytest.raises(ChildProcessError):
        readers.fault(packed("a"))
    assert (idle(readers), busy(readers)) == ([], [])


READS_LONG = """
from topmast.adapters import archive_readers
def long(content):
    while True:
        pass
archive_readers.archive.fault = long
archive_readers.main()
"""


def test_a_process_that_reads_ends_with_the_server_at_once() -> None:
    """It does not first read to the end what nothing waits for."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVES, READS_LONG], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    reader = int(server.stdout.readline())
    try:
        assert is_alive(reader)
        server.kill()
        server.wait()
        eventually(lambda: not is_alive(reader), "it ends too", 10.0)
    finally:
        if is_alive(reader):
            kill(reader)


SERVES = """
import struct, subprocess, sys, time
reader = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
reader.stdin.write(struct.pack("=Q", 1) + b"x")
reader.stdin.flush()
time.sleep(2.0)
sys.stdout.write(f"{reader.pid}\\n")
sys.stdout.flush()
time.sleep(600)
"""
