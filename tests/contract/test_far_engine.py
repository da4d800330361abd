"""A far engine with the real runner, whatever is done to its processes; hosts are names here."""

import asyncio
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.contract.engines import (
    HOSTS,
    Rig,
    alive_of,
    eventually,
    far_with,
    of_folder,
    opened,
    order,
    scripts_of,
)
from tests.support.processlauncher import ProcessLauncher
from topmast.adapters.engines.far.home import CALLS_OF_A_HOST
from topmast.adapters.engines.far.home import Home as HomeSide
from topmast.adapters.engines.far.listener import Call, Reply
from topmast.adapters.engines.far.runner.calls import Home
from topmast.model.messages import (
    HostClosed,
    Message,
    TaskEvicted,
    TaskExited,
    TaskLost,
    TaskStarted,
)

LEASE_S = 12.0
STUBBORN = "trap '' TERM\n(trap '' TERM; setsid sleep 1000 &)\necho up\nwhile true; do sleep 0.05 || true; done"


class Watched(Rig):
    """A rig that finds the processes of a runner."""

    def keeper(self, job: str) -> psutil.Process:
        """The process that the scheduler started for a job."""
        for file in (self.folder / "scheduler" / "parts").glob("*.json"):
            record = json.loads(file.read_text())
            if f"-{job}-" in record["name"]:
                (runner,) = record["runners"].values()
                return psutil.Process(runner["pid"])
        raise AssertionError(f"{job} has no runner")

    def caller(self, job: str) -> psutil.Process:
        """The first child of the keeper."""
        return min(self.keeper(job).children(), key=lambda process: process.create_time())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Watched]:
    """An engine whose leases are short."""
    with opened(lambda rig: far_with(rig, lease_s=LEASE_S), tmp_path, Watched) as rig:
        assert isinstance(rig, Watched)
        yield rig


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "full", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def started(rig: Watched, job: str, script: str = STUBBORN, tasks: int = 1) -> None:
    rig.engine.start_gang(order(job, script, tasks=tasks))
    for rank in range(tasks):
        rig.says(job, "up", rank)


def told(rig: Rig, job: str) -> list[Message]:
    news: list[Message] = []
    for kind in (TaskExited, TaskLost, TaskEvicted):
        news += rig.news.all(kind, job=job)
    return news


def kill_all(rig: Watched, job: str) -> None:
    """Both processes of a runner at once, as when a node's memory is full."""
    keeper = rig.keeper(job)
    caller = rig.caller(job)
    keeper.suspend()
    caller.kill()
    keeper.kill()


FAULTS: dict[str, tuple[Callable[[Watched, str], None], str]] = {
    "k1": (lambda rig, job: rig.keeper(job).kill(), "its runner was killed"),
    "k2": (lambda rig, job: rig.keeper(job).suspend(), "its runner was"),
    "k4": (lambda rig, job: supervisor(rig, job).kill(), "its supervisor was killed"),
    "k5": (kill_all, "the scheduler ended it"),
}


def supervisor(rig: Watched, job: str) -> psutil.Process:
    return max(rig.keeper(job).children(), key=lambda process: process.create_time())


def test_dead_means_dead_whatever_is_killed_or_frozen(rig: Watched) -> None:
    """Each is told as lost, soon after the lease at the latest, and then nothing of it lives."""
    for job in FAULTS:
        started(rig, job)
    for job, (strike, _) in FAULTS.items():
        strike(rig, job)
    for job, (_, want_error) in FAULTS.items():
        eventually(lambda job=job: told(rig, job), f"{job} is told")  # type: ignore[misc]
        (end,) = told(rig, job)
        assert isinstance(end, TaskLost), end
        assert want_error in end.error, job
        assert not alive_of(rig, job), job


def test_the_first_process_of_a_container_that_stands_still_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL from within does nothing to it, and what loses its parent goes to it, with no mark.

    A task can have it stand still (ptrace), and so can an administrator.
    """
    container = ("unshare", "--pid", "--fork", "--mount-proc")
    tries = [*container, "true"]
    if shutil.which("unshare") is None or subprocess.run(tries, check=False).returncode:
        pytest.skip("making a namespace of processes is not permitted here")
    monkeypatch.setattr(ProcessLauncher, "container", container)
    stray = "setsid env -i PATH=$PATH bash -c 'trap \"\" TERM; while true; do sleep 0.05; done'"
    with opened(lambda rig: far_with(rig, lease_s=LEASE_S), tmp_path, Watched) as rig:
        assert isinstance(rig, Watched)
        started(rig, "j1", f"({stray} >/dev/null 2>&1 &)\necho up\nsleep 1000")
        (first,) = rig.keeper("j1").children()
        namespace = Path(f"/proc/{first.pid}/ns/pid").readlink()

        def strays() -> list[psutil.Process]:
            found = []
            for one in living_in(namespace):
                with suppress(psutil.Error):  # it has ended since
                    if "trap" in " ".join(one.cmdline()):
                        found.append(one)
            return found

        eventually(strays, "it has left nothing that could live on")
        first.suspend()
        lost = rig.news.wait(TaskLost, job="j1")
        left = strays()
        first.resume()
        assert lost.error == "its runner was killed"
        assert not left
        eventually(lambda: not first.is_running(), "the container ends")


def living_in(namespace: Path) -> list[psutil.Process]:
    """The processes of a namespace of processes."""
    found = []
    for one in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            is_there = Path(f"/proc/{one.pid}/ns/pid").readlink() == namespace
            if is_there and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def test_a_runner_that_is_killed_while_it_claims_is_told_to_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is granted, and what would have run the tasks is dead by then."""
    asked, go_on = threading.Event(), threading.Event()
    answer = HomeSide.answer

    async def late(home: HomeSide, call: Call) -> Reply:
        reply = await answer(home, call)
        if call.name == "claim":
            asked.set()
            await asyncio.to_thread(go_on.wait, 60)
        return reply

    monkeypatch.setattr(HomeSide, "answer", late)
    with opened(lambda rig: far_with(rig, lease_s=LEASE_S), tmp_path, Watched) as rig:
        assert isinstance(rig, Watched)
        rig.engine.start_gang(order("j1", "sleep 1000"))
        assert asked.wait(60)
        keeper = rig.keeper("j1")
        caller = rig.caller("j1")
        keeper.kill()
        eventually(lambda: caller.ppid() != keeper.pid, "the caller is on its own")
        time.sleep(1.0)  # it has looked whether anything is left
        go_on.set()
        assert "runner was killed" in rig.news.wait(TaskLost, job="j1").error
        eventually(lambda: not caller.is_running(), "the caller ends")
        assert not alive_of(rig, "j1")


@pytest.mark.parametrize("strike", ["kill", "suspend"])
def test_a_caller_that_fails_is_replaced(tmp_path: Path, strike: str) -> None:
    """The task runs on, its output arrives, and orders reach it."""
    script = "trap 'echo saved; exit 5' TERM\necho up\nwhile true; do sleep 0.05; done"
    with opened(lambda rig: far_with(rig, lease_s=40.0), tmp_path, Watched) as rig:
        assert isinstance(rig, Watched)
        started(rig, "j1", script)
        before = rig.caller("j1")
        getattr(before, strike)()
        eventually(lambda: before.pid not in [p.pid for p in rig.keeper("j1").children()], "gone")
        eventually(lambda: len(rig.keeper("j1").children()) == 2, "there is another")
        rig.engine.stop("j1", 1, 20.0)
        assert rig.end_of("j1").code == 5
        assert rig.log("j1").endswith("saved\n")
        assert not rig.broken


def test_the_scheduler_may_end_a_runner(rig: Watched) -> None:
    """Its tasks have their grace, and it is told that they were evicted."""
    script = "trap 'sleep 0.3; echo saved; exit 0' TERM\necho up\nwhile true; do sleep 0.05; done"
    started(rig, "j1", script, tasks=2)
    for file in (rig.folder / "scheduler" / "parts").glob("*.json"):
        for runner in json.loads(file.read_text())["runners"].values():
            os.kill(runner["pid"], signal.SIGTERM)
    for rank in (0, 1):
        evicted = rig.news.wait(TaskEvicted, job="j1", rank=rank)
        assert "the scheduler" in evicted.why
        assert rig.log("j1", rank).endswith("saved\n")


def test_an_eviction_is_told_though_a_stop_is_ordered_meanwhile(rig: Watched) -> None:
    """Peers give up at once, so that a gang is often stopped before its eviction is told."""
    script = "trap 'echo ends; sleep 1; exit 0' TERM\necho up\nwhile true; do sleep 0.05; done"
    started(rig, "j1", script)
    (file,) = (rig.folder / "scheduler" / "parts").glob("*.json")
    for runner in json.loads(file.read_text())["runners"].values():
        os.kill(runner["pid"], signal.SIGTERM)
    rig.says("j1", "ends")
    rig.engine.stop("j1", 1, 20.0)
    assert "the scheduler" in rig.news.wait(TaskEvicted, job="j1").why


def test_nothing_outlives_a_lease_without_home(rig: Watched) -> None:
    """With its engine gone for long a runner ends its tasks by itself, and tells so later."""
    started(rig, "j1")
    rig.engine.close()
    began_s = time.monotonic()
    eventually(lambda: not scripts_of(rig.folder), "the tasks end")
    assert time.monotonic() - began_s < LEASE_S + 4.0
    rig.open()
    why = rig.news.wait(TaskEvicted, job="j1").why
    said = re.fullmatch(r"home was silent for (\d+) s, and the lease of 12 s ends in (\d+) s", why)
    assert said is not None, why
    silent_s, left_s = map(int, said.groups())
    assert silent_s + left_s <= LEASE_S + 1, "the grace comes out of the lease"
    assert left_s >= LEASE_S / 2 - 2


def test_a_second_runner_of_a_part_is_refused(rig: Watched) -> None:
    """The scheduler runs a part again while it runs, and after its end: nothing starts."""
    script = "echo up; while [ ! -e $TOPMAST_CHECKPOINT_DIR/go ]; do sleep 0.02; done"
    started(rig, "j1", script)
    (file,) = (rig.folder / "scheduler" / "parts").glob("*.json")
    ticket = json.dumps(json.loads(file.read_text())["ticket"])

    def again() -> int:
        command = [
            sys.executable,
            "-I",
            "-S",
            str(rig.folder / "scheduler" / "runner.py"),
            "-",
            HOSTS[0],
        ]
        return subprocess.run(command, input=ticket.encode(), timeout=60, check=False).returncode

    assert again() == 3
    (rig.folder / "checkpoints" / "j1" / "go").touch()
    rig.end_of("j1")
    assert again() == 3
    assert rig.log("j1") == "up\n"
    assert len(rig.news.all(TaskStarted)) == 1


FORGED: dict[str, tuple[str, dict[str, object], int]] = {
    "an exit status beyond those of processes": (
        "end",
        {"rank": 0, "code": 10**40, "at_s": 0.0},
        400,
    ),
    "a rank that is none": ("end", {"rank": -1, "code": 0, "at_s": 0.0}, 400),
    "a rank of many digits": ("end", {"rank": 10**300, "code": 0, "at_s": 0.0}, 400),
    "no nonce": ("claim", {"nonce": ""}, 400),
    "the nonce of another": ("claim", {"nonce": "a1"}, 409),
    "an end of what another runs": ("end", {"rank": 0, "code": 0, "at_s": 0.0, "nonce": "a1"}, 409),
    "a host of very many digits": ("beat", {"host": "9" * 5000, "version": 0}, 400),
    "a host of another part": ("beat", {"host": HOSTS[1], "version": 0}, 410),
    "a port that is none": ("claim", {"port": 1 << 40}, 400),
    "output far behind the end": (
        "log?host=h0&nonce=a1&rank=0&kind=log&offset=" + "9" * 400,
        {},
        400,
    ),
    "output of no kind": ("log?host=h0&nonce=a1&rank=0&kind=../facts&offset=0", {}, 409),
}


def test_what_a_task_says_in_the_name_of_its_runner_is_bounded(rig: Watched) -> None:
    """It can read the runner's token: no word of it ends another attempt, the engine or a file."""
    started(rig, "j1", "echo up; while [ ! -e $TOPMAST_CHECKPOINT_DIR/go ]; do sleep 0.02; done")
    (file,) = (rig.folder / "scheduler" / "parts").glob("*.json")
    home = Home(json.loads(file.read_text())["ticket"])
    for story, (path, fields, want) in FORGED.items():
        body = {"host": HOSTS[0], "nonce": "a1", **fields}
        assert home.call(path, json.dumps(body).encode())[0] == want, story
    home.hang_up()
    assert not told(rig, "j1")
    (rig.folder / "checkpoints" / "j1" / "go").touch()
    assert rig.end_of("j1").code == 0
    assert len(rig.news.all(TaskStarted)) == 1


def test_a_task_takes_no_room_from_the_runners_of_others(rig: Watched) -> None:
    """It asks for orders in the name of its runner, more often than any runner does."""
    script = "echo $TOPMAST_TASK; while [ ! -e $TOPMAST_CHECKPOINT_DIR/go ]; do sleep 0.02; done"
    rig.engine.start_gang(order("j1", script))
    eventually(lambda: "." in rig.log("j1"), "its nonce")
    (file,) = (rig.folder / "scheduler" / "parts").glob("*.json")
    ticket = json.loads(file.read_text())["ticket"]
    body = {"host": HOSTS[0], "nonce": rig.log("j1").partition(".")[0], "version": -1}
    status, answer = Home(ticket).call("beat", json.dumps(body).encode())
    assert status == 200
    body["version"] = json.loads(answer)["orders"]["version"]

    def ask(_: int) -> int:
        return Home(ticket).call("beat", json.dumps(body).encode())[0]

    with ThreadPoolExecutor(40) as pool:
        said = Counter(pool.map(ask, range(40)))
    assert said[429] >= 40 - CALLS_OF_A_HOST
    assert said.keys() == {200, 429}
    assert not told(rig, "j1")
    (rig.folder / "checkpoints" / "j1" / "go").touch()
    assert rig.end_of("j1").code == 0


def test_a_runner_leaves_nothing_behind(rig: Watched) -> None:
    """No process, and no folder."""
    rig.engine.start_gang(order("j1", "pwd; touch here"))
    rig.end_of("j1")
    work = Path(rig.log("j1").strip())
    eventually(lambda: not of_folder(rig.folder), "the runner ended")
    assert work.name == "work"
    assert not work.parent.exists()


def test_a_later_runner_deletes_what_a_killed_one_left(tmp_path: Path) -> None:
    """A day after it was found so; what a task still works in stays."""
    (work := tmp_path / "work").mkdir()  # its own: runners of other tests look around in /tmp
    with opened(
        lambda rig: far_with(rig, lease_s=LEASE_S, work=str(work)), tmp_path, Watched
    ) as rig:
        assert isinstance(rig, Watched)
        for job in ("killed", "lives"):
            started(rig, job, f"pwd; {STUBBORN}")
        folders = {job: Path(rig.log(job).split()[0]).parent for job in ("killed", "lives")}
        kill_all(rig, "killed")
        eventually(lambda: told(rig, "killed") and not alive_of(rig, "killed"), "killed is told")
        for folder in folders.values():
            with (folder / "kept").open("a") as file:
                file.write("1")  # as if a runner had looked long ago, and nothing had held it
        rig.engine.start_gang(order("later", "true"))
        rig.end_of("later")
        eventually(lambda: not folders["killed"].exists(), "what was left is deleted")
        assert (folders["lives"] / "0.log").exists()
        assert not told(rig, "lives")


def test_a_host_without_a_place_for_the_work_is_lost_with_the_reason(tmp_path: Path) -> None:
    """The folder of the option cannot be made there."""
    (tmp_path / "file").write_text("")
    work = str(tmp_path / "file" / "below")
    with opened(lambda rig: far_with(rig, lease_s=LEASE_S, work=work), tmp_path) as rig:
        rig.engine.start_gang(order("j1", "echo ran"))
        error = rig.lost("j1").error
        assert "the host cannot be prepared" in error
        assert "Not a directory" in error
        assert work in rig.lost("j1").error
        assert rig.lost("j1").unprepared
        closed = rig.news.wait(HostClosed)
        assert (closed.host, closed.why) == (HOSTS[0], f"{error}; it is tried again after 60 s")


def archive_of_zeros() -> bytes:
    """Half a kilobyte that becomes a file of 100 kB."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 100_000
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    return content.getvalue()


@pytest.mark.parametrize(
    ("blob", "want"),
    [
        pytest.param(bytes(100_000), "[Errno 28] No space left", id="fetched"),
        pytest.param(archive_of_zeros(), "the work folder: No space left", id="unpacked"),
    ],
)
def test_a_host_whose_work_folder_is_full_takes_no_new_work(
    full: Path, tmp_path: Path, blob: bytes, want: str
) -> None:
    """A disk of its own, without a byte left: with the archive of a work folder, as jobs have."""
    with opened(lambda rig: far_with(rig, lease_s=LEASE_S, work=str(full)), tmp_path) as rig:
        rig.blobs["b"] = tmp_path / "blob"
        rig.blobs["b"].write_bytes(blob)
        rig.engine.start_gang(order("j1", "echo ran", workdir="b"))
        assert want in rig.lost("j1").error
        closed = rig.news.wait(HostClosed)
        assert closed.host == HOSTS[0]
        assert f"the host cannot be prepared: {want} on device" in closed.why


def test_a_log_without_end_holds_up_no_end(tmp_path: Path) -> None:
    """A file of holes costs a task nothing, and reading it all takes days."""
    with opened(lambda rig: far_with(rig, log_max_bytes=100_000), tmp_path) as rig:
        rig.engine.start_gang(order("j1", "truncate -s 3T ../0.log"))
        assert rig.end_of("j1").code == 0
