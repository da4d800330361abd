"""Processes that read archives: they say what the server would, and are none it would miss."""

import gc
import io
import os
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
