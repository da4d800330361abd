"""The program that is sent to a host: its parts, which survive it, and what it says of them."""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from topmast.adapters.engines.far.ssh import files, lines, living, machine, remote

PATIENCE_S = 20.0
FLEET = f"fleet{os.getpid()}"
"""Its parts are found on the whole machine, where the same tests may run once more."""
NAME = f"tm-{FLEET}-j1-1-0"
OTHER = f"tm-{FLEET}-j2-1-0"
RUNNER = """
import json, os, signal, subprocess, sys, time
ticket = json.load(open(sys.argv[1]))
how = ticket["part"]
if how == "fails":
    sys.exit("no Python here")
if how == "leaves":
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(ticket["url"], "a") as out:
    print(json.dumps([os.getpid(), sys.argv[2], dict(os.environ)]), file=out)
while True:
    time.sleep(0.05)
"""


class Program:
    """The program, as it is started over a connection."""

    def __init__(self, folder: Path, host: str = "h0", account: str = "parts", quiet_s: float = 9.0
    ) -> None:  # fmt: skip
        self.folder = folder
        sent = folder / "sent.py"
        claims = f'CLAIMS = "t{hashlib.sha256(bytes(folder)).hexdigest()[:16]}"'.encode()
        assert b'CLAIMS = "topmast-ssh"' in lines.program()
        # Every test has a machine of its own.
        text = lines.program().replace(b'CLAIMS = "topmast-ssh"', claims)
        assert b"QUIET_S = 180.0" in text
        sent.write_bytes(text.replace(b"QUIET_S = 180.0", f"QUIET_S = {quiet_s}".encode()))
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(sent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "TEST_FOLDER": str(folder), "SSH_CONNECTION": "10.0.0.1 999 10.0.0.7 22", "SSH_TTY": "none"},
        )  # fmt: skip
        self.reply(op="begin", folder=str(folder / account), fleet=FLEET, host=host)

    def reply(self, **request: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        body = json.dumps(request).encode()
        self.process.stdin.write(b"%d\n" % len(body) + body)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.read(int(self.process.stdout.readline())))

    def ask(self, **request: Any) -> Any:
        return self.reply(**request)["ok"]

    def submit(self, how: str = "", name: str = NAME) -> Any:
        """Submit a part and say how it is listed."""
        self.ask(op="runner", digest="d1", text=RUNNER)
        ticket = {"url": str(self.folder / "notes"), "part": how}
        assert self.ask(op="submit", name=name, runner="d1", ticket=ticket) == {}
        return self.part(name)

    def runs(self, how: str = "") -> Any:
        """Submit and release a part, and wait for its runner."""
        part = self.submit(how)
        self.ask(op="release", name=NAME, id=part["id"])
        eventually(lambda: self.notes(), "no runner")
        return self.part()

    def part(self, name: str = NAME) -> Any:
        (found,) = [part for part in self.ask(op="list")["parts"] if part["name"] == name]
        return found

    def notes(self) -> list[Any]:
        file = self.folder / "notes"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def end(self) -> None:
        """The connection ends."""
        self.process.communicate()


def eventually(what: Callable[[], object], story: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s, story
        time.sleep(0.02)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.end()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(tmp_path) in " ".join([*process.cmdline(), *process.environ().values()]):
                process.kill()


def test_a_part_is_held_until_it_is_released_and_outlives_the_connection(
    program: Program, tmp_path: Path
) -> None:
    """Its runner is told where its ticket is and which host it is on; a new connection finds it."""
    held = program.submit()
    assert (held["state"], held["why"]) == ("held", "")
    assert not program.notes()
    running = program.runs()
    assert (running["state"], running["id"]) == ("running", held["id"])
    program.end()
    again = Program(tmp_path)
    assert again.part() == running
    ((pid, host, env),) = program.notes()
    again.end()
    assert host == "h0"
    assert (env["TOPMAST_PART"], env["TOPMAST_ADDRESS"]) == (NAME, "10.0.0.7")
    assert not [name for name in env if name.startswith("SSH_")]
    assert os.getsid(pid) != os.getsid(0), "a hang-up reaches it"


def test_a_name_that_is_there_is_left_as_it_is(program: Program) -> None:
    """In whatever state it is: held, running, ended."""
    held = program.submit()
    assert program.submit() == held
    running = program.runs()
    assert program.submit()["state"] == "running"
    os.kill(program.notes()[0][0], signal.SIGKILL)
    eventually(lambda: program.part()["state"] == "ended", "it is dead")
    assert program.submit()["state"] == "ended"
    program.ask(op="release", name=NAME, id=running["id"])
    assert len(program.notes()) == 1


def test_the_runner_is_asked_for_once(program: Program) -> None:
    """Nothing is made of a part whose runner is not there."""
    request = {"op": "submit", "name": NAME, "runner": "d0", "ticket": {}}
    assert program.ask(**request) == {"missing": "d0"}
    assert program.ask(op="list")["parts"] == []


def test_secrets_are_for_one_account(program: Program, tmp_path: Path) -> None:
    """Nobody else can read a ticket, and no argument or variable has it."""
    program.submit()
    for path in (tmp_path / "parts").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path.is_dir(), path
    assert (tmp_path / "parts").stat().st_mode & 0o077 == 0
    (tmp_path / "parts").chmod(0o777)
    other = {"op": "begin", "folder": str(tmp_path / "parts"), "fleet": "f", "host": "h"}
    assert "can be changed by others" in program.reply(**other)["refused"]


def test_another_id_is_another_part(program: Program) -> None:
    """A call about one that was forgotten does nothing to its successor."""
    part = program.submit()
    for op in ("release", "forget"):
        program.ask(op=op, name=NAME, id="other")
    program.ask(op="cancel", name=NAME, id="other", grace_s=0.0)
    assert program.part() == part


def test_a_held_part_that_is_cancelled_never_starts(program: Program) -> None:
    part = program.submit()
    program.ask(op="cancel", name=NAME, id=part["id"], grace_s=5.0)
    program.ask(op="release", name=NAME, id=part["id"])
    ended = program.part()
    assert (ended["state"], ended["cancelled"]) == ("ended", True)
    assert not program.notes()
    program.ask(op="forget", name=NAME, id=part["id"])
    assert program.ask(op="list")["parts"] == []


@pytest.mark.parametrize("how", ["", "leaves", "stubborn"])
def test_a_running_part_that_is_cancelled_has_its_grace(program: Program, how: str) -> None:
    """SIGTERM at once; SIGKILL to all that is left when a listing finds the grace over."""
    part = program.runs(how)
    (pid, *_), *_ = program.notes()
    children = psutil.Process(pid).children()
    program.ask(op="cancel", name=NAME, id=part["id"], grace_s=1.0)
    if how:
        assert program.part()["state"] == "running", "the grace is not over"
    eventually(lambda: program.part()["state"] == "ended", "it does not end")
    assert program.part()["cancelled"]
    assert not [child for child in children if living.parents().get(child.pid)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one, where parts are kept."""
    (folder := tmp_path / "parts").mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "parts", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def test_a_part_is_ended_though_the_disk_is_full(disk: Path, program: Program) -> None:
    """That it was cancelled cannot be kept, and is told; it is listed and killed all the same."""
    part = program.runs("stubborn")
    fill(disk)
    told = program.reply(op="cancel", name=NAME, id=part["id"], grace_s=0.3)
    assert "No space left" in told["failed"]
    eventually(lambda: program.part()["state"] == "ended", "it does not end")
    assert not list(disk.rglob(".cancelled*"))


def test_a_part_that_a_full_disk_held_up_is_released_later(disk: Path, program: Program) -> None:
    """Nothing but a runner keeps the lock of a part."""
    part = program.submit()
    fill(disk)
    told = program.reply(op="release", name=NAME, id=part["id"])
    assert "No space left" in told["failed"]
    assert program.part()["state"] == "held"
    (disk / "filler").unlink()
    assert program.runs()["state"] == "running"


def test_a_host_is_closed_while_its_disk_is_full(disk: Path, program: Program) -> None:
    """From the first part that it does not take until there is room, also over a new connection."""
    program.runs()
    assert program.ask(op="list")["closed"] == ""
    fill(disk)
    refused = program.reply(op="submit", name=OTHER, runner="d1", ticket={})["refused"]
    assert "No space left on device" in refused
    full = program.ask(op="list")
    assert "cannot be written: No space left on device" in full["closed"]
    assert [part["state"] for part in full["parts"]] == ["running"]
    program.ask(op="open", instance="i2")
    assert program.ask(op="list")["closed"] == full["closed"]
    (disk / "filler").unlink()
    assert program.ask(op="list")["closed"] == ""


def test_a_second_grace_can_be_shorter(program: Program) -> None:
    part = program.runs("stubborn")
    program.ask(op="cancel", name=NAME, id=part["id"], grace_s=1000.0)
    assert program.part()["state"] == "running"
    program.ask(op="cancel", name=NAME, id=part["id"], grace_s=0.0)
    program.ask(op="cancel", name=NAME, id=part["id"], grace_s=1000.0)
    eventually(lambda: program.part()["state"] == "ended", "it does not end")


def test_what_a_killed_runner_left_is_not_the_end(program: Program) -> None:
    """The lock is free, and yet a process of the part lives: it has not ended."""
    part = program.runs("leaves")
    (pid, *_), *_ = program.notes()
    (child,) = psutil.Process(pid).children()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "was killed" in program.part()["why"], "the killed runner is seen")
    assert program.part()["state"] == "running"
    program.ask(op="forget", name=NAME, id=part["id"])
    assert program.part()["state"] == "running", "what lives is not forgotten"
    child.kill()
    eventually(lambda: program.part()["state"] == "ended", "nothing is left")


def test_a_runner_that_dies_while_it_is_listed_is_not_taken_for_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes are looked for when the lock is known to be free, not before."""
    keeper = remote.Keeper(str(tmp_path), FLEET, "h0")
    keeper.do_runner("d1", RUNNER)
    keeper.do_submit(NAME, "d1", {})
    part = keeper.parts / NAME
    files.write(part / "released", machine.boot_id())
    held, lock = [files.lock(part)], files.lock

    def dies_after_one_look(of: Path, make: int = 0) -> int | None:
        """The runner holds its lock when it is looked at first, and dies then."""
        found = lock(of, make)
        if held:
            os.close(held.pop() or 0)
        return found

    monkeypatch.setattr(remote, "lock", dies_after_one_look)
    monkeypatch.setattr(remote, "processes", lambda: {} if held else {NAME: [4711]})
    told = [keeper.do_list()["parts"][0] for _ in range(2)]
    assert [one["state"] for one in told] == ["running", "running"]
    assert told[-1]["why"] == "its runner was killed, and processes of it live"


def test_a_deleted_folder_hides_nothing_that_runs(program: Program, tmp_path: Path) -> None:
    """It is told as such, once; a new connection makes it anew, and its first listing finds the part."""
    part = program.runs("stubborn")
    shutil.rmtree(tmp_path / "parts")
    for op in ("list", "submit"):
        told = program.reply(op=op)["lost"]
        assert "was deleted while it was in use, and is made anew" in told
        assert "option `folder`" in told
    other = Program(tmp_path)
    try:
        for _ in range(2):
            found = other.part()
            assert (found["state"], found["id"]) == ("running", part["id"])
            assert found["submitted_s"] == part["submitted_s"]
        elsewhere = Program(tmp_path, host="h1", account="others")
        assert elsewhere.ask(op="list")["parts"] == [], "it is of another host"
        elsewhere.end()
        other.ask(op="forget", name=NAME, id=part["id"])
        other.ask(op="cancel", name=NAME, id="another", grace_s=0.0)
        time.sleep(0.3)
        assert other.part()["state"] == "running"
        other.ask(op="cancel", name=NAME, id=part["id"], grace_s=0.3)
        eventually(lambda: other.ask(op="list")["parts"] == [], "it does not end")
    finally:
        other.end()


@pytest.mark.parametrize("deleted", [("part.json",), ("released",), ("lock", "released"), ()])
def test_a_damaged_part_that_runs_is_listed(
    program: Program, tmp_path: Path, deleted: tuple[str, ...]
) -> None:
    """Also by the connection that knew it whole, and when all of it is gone; others as before."""
    part = program.runs()
    beside = program.submit(name=OTHER)
    folder = tmp_path / "parts" / FLEET / "h0/parts" / NAME
    for name in deleted:
        (folder / name).unlink()
    if not deleted:
        shutil.rmtree(folder)
    other = Program(tmp_path)
    for asked in (program, other):
        for _ in range(2):
            found = asked.part()
            assert (found["state"], found["id"]) == ("running", part["id"])
            assert asked.part(OTHER) == beside
    other.end()
    psutil.Process(program.notes()[0][0]).kill()
    eventually(lambda: all(p["state"] != "running" for p in program.ask(op="list")["parts"]), "?")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["part.json", "released", "lock", "errors"])
def test_what_is_no_file_in_a_part_keeps_no_host(
    program: Program, tmp_path: Path, name: str, kind: str
) -> None:
    """A job may put it there; to read it would never end, also for those that ask after its end."""
    part = program.runs()
    beside = program.submit(name=OTHER)
    file = tmp_path / "parts" / FLEET / "h0/parts" / NAME / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    limit = ("prlimit", "--as=2000000000", f"--pid={program.process.pid}")
    subprocess.run(limit, check=True)  # a device has no end
    found = _within_time(program, program.part)
    assert (found["state"], found["id"]) == ("running", part["id"])
    assert program.part(OTHER) == beside
    psutil.Process(program.notes()[0][0]).kill()
    eventually(lambda: all(p["state"] != "running" for p in program.ask(op="list")["parts"]), "?")


def _hold(file: Path) -> None:
    """Hold a lock for ever, as a process that nobody knows."""
    code = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); time.sleep(999)"
    words = [sys.executable, "-c", code, str(file)]
    held = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert held.stdout
    held.stdout.readline()


def _folder(file: Path) -> None:
    """Put a folder with something in it in the place of a file."""
    file.unlink()
    (file / "more").mkdir(parents=True)


def _file(folder: Path) -> None:
    """Put a file in the place of a folder."""
    folder.rename(folder.with_name("elsewhere"))
    folder.touch()


@pytest.mark.parametrize(
    ("name", "damage"),
    [("mutex", _hold), ("mutex", _folder), ("session", _folder), ("parts", _file), (".", _file)],
    ids=["held", "mutex", "session", "parts", "host"],
)
def test_what_a_job_does_to_the_folder_keeps_no_part_alive(
    program: Program, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """It has the account, so it can hold a lock for ever and put anything anywhere."""
    program.ask(op="open", instance="one")
    part = program.runs("stubborn")
    damage(tmp_path / "parts" / FLEET / "h0" / name)
    other = Program(tmp_path)
    try:
        other.ask(op="open", instance="one")
        assert other.part()["id"] == part["id"]
        other.ask(op="cancel", name=NAME, id=part["id"], grace_s=0.0)
        eventually(
            lambda: {one["state"] for one in other.ask(op="list")["parts"]} <= {"ended"},
            "it does not end",
        )
        assert other.submit(name=OTHER)["state"] == "held"
    finally:
        other.end()


def test_a_part_starts_once_though_a_job_holds_the_lock_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection released it, and its runner ended, since this one looked."""
    keeper = remote.Keeper(str(tmp_path), FLEET, "h0")
    keeper.do_runner("d1", RUNNER)
    keeper.do_submit(NAME, "d1", {})
    (part,), lock = keeper.do_list()["parts"], files.lock

    def after_another(of: Path, make: int = 0) -> int | None:
        """The lock, when it is free again."""
        files.write(of / "released", machine.boot_id())
        return lock(of, make)

    started: list[bool] = []
    monkeypatch.setattr(remote, "lock", after_another)
    monkeypatch.setattr(remote, "become", lambda *_: started.append(True))
    monkeypatch.setattr(os, "fork", lambda: 0)
    keeper.do_release(NAME, part["id"])
    assert not started


def test_an_end_that_a_job_wrote_is_none(program: Program, tmp_path: Path) -> None:
    """As long as anything of the part lives it runs, and so can be cancelled."""
    program.runs()
    (tmp_path / "parts" / FLEET / "h0/parts" / NAME / "ended").write_text("forged")
    assert program.part()["state"] == "running"
    psutil.Process(program.notes()[0][0]).kill()
    eventually(lambda: program.part()["state"] == "ended", "it does not end")


def _within_time(program: Program, ask: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        try:
            return answer.result(timeout=PATIENCE_S / 2)
        except TimeoutError:
            program.process.kill()
            raise


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id": "x"}', None])
def test_a_damaged_part_hides_no_other(
    program: Program, tmp_path: Path, content: str | None
) -> None:
    """Nothing of it runs: it is as if it were not there, and can be submitted again."""
    program.submit()
    beside = program.submit(name=OTHER)
    parts = tmp_path / "parts" / FLEET / "h0/parts"
    file = parts / NAME / "part.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    (parts / "stray").write_text("")
    (parts.parent / "session").write_text(content or "{")
    assert program.ask(op="list")["parts"] == [beside]
    assert program.ask(op="open", instance="i")["home"]
    assert program.submit()["state"] == "held"


def test_a_runner_that_fails_says_why(program: Program) -> None:
    part = program.submit("fails")
    program.ask(op="release", name=NAME, id=part["id"])
    eventually(lambda: program.part()["state"] == "ended", "it does not end")
    assert program.part()["why"] == "no Python here"


def test_a_restart_of_the_host_is_an_end(program: Program, tmp_path: Path) -> None:
    """Whatever has the number or the lock of the runner now; what was held is still held."""
    program.runs()
    other = program.submit(name=OTHER)
    (tmp_path / "parts" / FLEET / "h0/parts" / NAME / "released").write_text("another boot")
    ended = program.part()
    assert (ended["state"], ended["why"]) == ("ended", "the host was restarted")
    assert program.part(OTHER) == other


def test_home_is_the_newest_socket(program: Program, tmp_path: Path) -> None:
    """Runners find it by one name; what earlier connections left is removed."""
    base = tmp_path / "parts" / FLEET / "h0"
    for _ in range(2):
        place = program.ask(op="open", instance="i1")
        Path(place["socket"]).touch()
        program.ask(op="home", socket=place["socket"])
        assert str(Path(place["home"]).readlink()) == place["socket"]
        assert [str(path) for path in base.glob("s.*")] == [place["socket"]]


def test_a_folder_with_a_long_name_is_refused(program: Program, tmp_path: Path) -> None:
    deep = str(tmp_path / ("deep" * 20))
    program.reply(op="begin", folder=deep, fleet=FLEET, host="h0")
    assert "option `folder`" in program.reply(op="open", instance="i1")["refused"]


# --- one machine, one host ------------------------------------------------------------------------


def test_a_machine_serves_as_one_host(program: Program, tmp_path: Path) -> None:
    """Another host of the fleet is refused there, whatever its folder; the first connects anew."""
    program.ask(op="open", instance="i1")
    second = Program(tmp_path, "h1", "other")
    assert (
        "this machine is in use as host h0 already"
        in second.reply(op="open", instance="i1")["refused"]
    )
    again = Program(tmp_path)
    again.ask(op="open", instance="i2")
    again.end()
    second.end()


def test_a_machine_is_kept_by_what_runs_there(program: Program, tmp_path: Path) -> None:
    """A connection that broke leaves runners behind: until they end, no other host may begin."""
    program.ask(op="open", instance="i1")
    program.runs()
    program.end()
    second = Program(tmp_path, "h1", "other")
    assert "in use as host h0" in second.reply(op="open", instance="i1")["refused"]
    runner, _, _ = program.notes()[-1]
    os.kill(runner, signal.SIGKILL)
    eventually(lambda: "ok" in second.reply(op="open", instance="i1"), "it is kept for nothing")
    assert "in use as host h1" in Program(tmp_path).reply(op="open", instance="i1")["refused"]
    second.end()


def test_another_cluster_may_take_a_host_over(program: Program, tmp_path: Path) -> None:
    """Hosts move between clusters, and keep their names; what ran there may still end."""
    program.ask(op="open", instance="i1")
    second = Program(tmp_path, account="other")
    second.ask(op="begin", folder=str(tmp_path / "other"), fleet="another", host="h0")
    second.ask(op="open", instance="i1")
    second.end()


def test_two_topmasts_do_not_share_a_host(program: Program, tmp_path: Path) -> None:
    """Though they call it the same: the second begins when the first has ended, or is silent."""
    program.ask(op="open", instance="i1")
    second = Program(tmp_path, account="other", quiet_s=0.3)
    second.ask(op="begin", folder=str(tmp_path / "other"), fleet="another", host="h0")
    told = second.reply(op="open", instance="i2")["refused"]
    assert "in use as host h0 already, by another Topmast" in told
    first = Program(tmp_path)
    program.end()
    eventually(lambda: "ok" in second.reply(op="open", instance="i2"), "it is kept for nothing")
    assert "another Topmast" in first.reply(op="open", instance="i3")["refused"]
    time.sleep(0.6)  # nothing asks the second
    first.ask(op="open", instance="i3")
    assert "another Topmast" in second.reply(op="list")["refused"]
    first.end()
    second.ask(op="list")
    second.end()


def test_of_two_that_claim_a_machine_at_once_one_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However close they are; names of any length fit."""
    monkeypatch.setattr(machine, "CLAIMS", f"t{secrets.token_hex(4)}")

    def tried(number: int) -> socket.socket | None:
        try:
            return machine.claim(f"h{number}" + "x" * 250)
        except machine.Refused:
            return None

    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            claimed = [one for one in pool.map(tried, range(4)) if one is not None]
        assert len(claimed) == 1
        claimed[0].close()


# --- what a host has ------------------------------------------------------------------------------


def test_the_gpus_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nvidia-smi says, and in plain words why it says nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.graphics() == ([], "there is no nvidia-smi")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'\necho 'odd, [N/A]'\n")
    smi.chmod(0o755)
    assert machine.graphics() == (
        [{"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 81559 << 20},
         {"name": "odd", "memory_bytes": 0}],
        "",
    )  # fmt: skip
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert machine.graphics() == ([], "nvidia-smi: NVIDIA-SMI has failed")
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert machine.graphics() == ([], "nvidia-smi: it ended with code 9")
    smi.write_text("not a program")
    assert machine.graphics()[1] == "nvidia-smi cannot be started: Exec format error"
    monkeypatch.setattr(machine, "SMI_S", 0.2)
    smi.write_text(f"#!/bin/sh\nexec {shutil.which('sleep', path='/usr/bin:/bin')} 60\n")
    assert machine.graphics()[1].startswith("nvidia-smi does not answer within 0.2 s")


@pytest.mark.parametrize(
    "line", ["GPU is lost, reboot", "H100, \u00b2", "H100, " + "9" * 30, "\x1b["]
)
def test_what_nvidia_smi_says_beside_gpus_is_no_gpu(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as it is."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho 'H100, 81559'\ncat <<END\n\n{line}\nEND\n")
    smi.chmod(0o755)
    h100 = {"name": "H100", "memory_bytes": 81559 << 20}
    assert machine.graphics() == ([h100], f"nvidia-smi: {line}")
    smi.write_text(f"#!/bin/sh\ncat <<END\n{line}\nEND\n")
    assert machine.graphics() == ([], f"nvidia-smi: {line}")


def test_a_full_disk_is_a_hindrance(disk: Path) -> None:
    """It is told before a server starts; nothing is made to find it."""
    assert files.hindrance(disk / "x") == ""
    fill(disk)
    assert files.hindrance(disk / "x").startswith(f"option folder: the disk with {disk} is full")
    assert not (disk / "x").exists()


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    """A file in its place, or above it."""
    file = tmp_path / "file"
    file.touch()
    for folder, why in ((file, "a file has its place"), (file / "x", "Not a directory")):
        with pytest.raises(
            machine.Refused, match=f"^option folder: {folder} cannot be made: {why}"
        ):
            files.private_folder(folder)
