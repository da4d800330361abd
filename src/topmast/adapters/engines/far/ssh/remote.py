"""Keeps the parts of one fleet on a host, for as long as one SSH connection lasts.

It is sent over the connection as one text with `machine`, and is never installed: standard library
only, Python 3.8 or newer. It reads requests from standard input and answers each; a message
is its length in bytes, a line end, and that many bytes of JSON.

What it knows is in a private folder of the account on the host, so that the next connection finds
the same, and neither a crash nor a reboot makes a part start twice::

    FOLDER/runner-DIGEST.py
    FOLDER/FLEET/HOST/home          a link to the socket of the newest connection
    FOLDER/FLEET/HOST/parts/NAME/   part.json, ticket.json, lock, errors; later released, ...

A part is *held* until there is a file ``released``, which says in which boot it was started. The
runner holds a lock on ``lock`` while it lives. When the lock is free, the part has ended once no
process of this boot bears its name in the environment: a number of a process alone proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import py_compile
import re
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from topmast.adapters.engines.far.ssh.machine import Json, Refused, boot_id, boot_s, claim, facts

PROC = "/proc"
MARK = "TOPMAST_PART"
"""Names a part in the environment of all its processes."""
ADDRESS = "TOPMAST_ADDRESS"
"""By which other hosts reach this one: the address that the connection came to."""
LONGEST_SOCKET_BYTES = 107
KILL_ROUNDS = 50
SETTLE_S = 0.02
TAIL_BYTES = 400
_SSHD = re.compile(rb"sshd(-session)?: [^\0]*@")


# --- files ----------------------------------------------------------------------------------------


def private_folder(folder: Path) -> Path:
    """Make a folder that only this account can use. Raises Refused when others can write there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "a file has its place" if folder.exists() else os.strerror(error.errno or 0)
        raise Refused(f"option folder: {folder} cannot be made: {why}") from None
    seen = folder.stat()
    if seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise Refused(f"{folder} can be changed by others: `chmod 700` it, or set option `folder`")
    return folder


def write(file: Path, text: str) -> None:
    """A new file, as a whole and durably, for our eyes only."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink()
        raise
    sync(file.parent)


def sync(path: Path) -> None:
    """Have the names in a folder, or what is in a file, on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read(file: Path) -> str:
    """What a file says; empty without the file."""
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Nothing else that takes the same lock runs meanwhile: connections may overlap."""
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def lock(part: Path) -> int | None:
    """A descriptor that holds the lock of a part; None when its runner holds it."""
    number = os.open(part / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    return number


# --- processes ------------------------------------------------------------------------------------


def processes() -> dict[str, list[int]]:
    """Those of parts, by the name of the part."""
    found: dict[str, list[int]] = {}
    for name in os.listdir(PROC):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(f"{MARK}=".encode()):
                part = os.fsdecode(variable).partition("=")[2]
                found.setdefault(part, []).append(int(name))
    return found


def parents() -> dict[int, int]:
    """The parent of each process that is not dead."""
    found = {}
    for name in os.listdir(PROC):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_bytes()
                fields = text[text.rindex(b")") + 2 :].split()
                if fields[0] not in b"ZX":
                    found[int(name)] = int(fields[1])
    return found


def send(pids: list[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill(name: str) -> None:
    """End everything of a part: the tasks first, the runner that would lose sight of them last."""
    for round_ in range(KILL_ROUNDS):
        parent_of = parents()
        own = set(processes().get(name, ()))
        tree = {pid for pid in parent_of if own.intersection(_line(pid, parent_of))}
        if not tree:
            return
        runners = {pid for pid in tree if b"/runner-" in _command(pid)}
        tasks = sorted(tree - runners)
        if not tasks or round_ > KILL_ROUNDS // 2:
            tasks = sorted(tree)
        send(tasks, signal.SIGKILL)
        time.sleep(SETTLE_S)


def _line(pid: int, parent_of: dict[int, int]) -> Iterator[int]:
    while pid in parent_of:
        yield pid
        pid = parent_of[pid]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _began(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return text[text.rindex(b")") + 2 :].split()[19].decode()


def compiled(runner: Path) -> Path:
    """What starts faster than the text, if it can be made."""
    made = runner.with_suffix(f".{sys.implementation.cache_tag}.pyc")
    try:
        if not made.exists():
            draft = made.with_name(f".{made.name}.{secrets.token_hex(4)}")
            py_compile.compile(str(runner), str(draft), "runner.py", doraise=True)
            sync(draft)
            draft.replace(made)
    except (OSError, py_compile.PyCompileError):
        return runner
    return made


def become(part: Path, held: list[int], runner: Path, host: str) -> NoReturn:
    """Be the runner of a part, in a session of its own that no hang-up reaches.

    ``held``: descriptors that stay open as long as it lives.
    """
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(part / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (errors, 1), (errors, 2)):
            os.dup2(source, target)
        for number in held:
            os.set_inheritable(number, True)
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SSH_")}
        ours[MARK] = part.name
        there = os.environ.get("SSH_CONNECTION", "").split()
        if len(there) == 4:
            ours[ADDRESS] = there[2]
        python = [sys.executable, "-I", "-S"]
        program = [*python, str(compiled(runner)), str(part / "ticket.json"), host]
        os.execve(program[0], program, ours)  # noqa: S606
    finally:
        os._exit(126)


# --- the parts ------------------------------------------------------------------------------------


class Keeper:
    """Answers requests about the parts of one fleet on this host."""

    def __init__(self, folder: str, fleet: str, host: str) -> None:
        self.host = host
        self.top = private_folder(Path(folder).expanduser().absolute())
        self.base = private_folder(self.top / fleet / host)
        self.parts = private_folder(self.base / "parts")
        self.claimed: socket.socket | None = None
        """While it is open, here or in a runner, the machine serves as no other host."""
        self.kills: dict[str, float] = {}
        """When what is left of a cancelled part is killed, should the disk be full."""

    def answer(self, request: Json) -> Json:
        """Do one request."""
        handler = getattr(self, "do_" + request.pop("op"))
        with alone(self.base / "mutex"):
            return handler(**request)

    # --- the connection ---------------------------------------------------------------------------

    def do_open(self, instance: str) -> Json:
        """Take over from the connection that the same process had before, which may hang."""
        before = json.loads(read(self.base / "session") or "{}")
        pid = before.get("pid", 0)
        if (
            before.get("instance") == instance
            and pid != os.getppid()
            and _began(pid) == before.get("began")
            and _SSHD.match(_command(pid))
        ):
            send([pid], signal.SIGTERM)
        self.claimed = claim(self.host)
        ours = {"instance": instance, "pid": os.getppid(), "began": _began(os.getppid())}
        write(self.base / "session", json.dumps(ours))
        socket, home = self.base / f"s.{secrets.token_hex(4)}", self.base / "home"
        if len(os.fsencode(str(socket))) > LONGEST_SOCKET_BYTES:
            raise Refused(
                f"{socket} is too long for a socket: set option `folder` to a shorter one"
            )
        return {"socket": str(socket), "home": str(home)}

    def do_home(self, socket: str) -> Json:
        """From now on runners reach home by this socket."""
        draft = self.base / f".home.{secrets.token_hex(4)}"
        draft.symlink_to(socket)
        draft.replace(self.base / "home")
        for other in self.base.glob("s.*"):
            if str(other) != socket:
                other.unlink()
        return {}

    # --- the launcher's calls ---------------------------------------------------------------------

    def do_runner(self, digest: str, text: str) -> Json:
        """Keep a version of the runner."""
        write(self._runner(digest), text)
        return {}

    def _runner(self, digest: str) -> Path:
        return self.top / f"runner-{digest}.py"

    def do_submit(self, name: str, runner: str, ticket: Json) -> Json:
        """Have a part of this name, held, unless there is one in whatever state."""
        if not self._runner(runner).exists():
            return {"missing": runner}
        draft = self.base / f".{name}.{secrets.token_hex(4)}"
        facts = {"id": secrets.token_hex(8), "submitted_s": time.time(), "runner": runner}
        try:
            draft.mkdir(mode=0o700)
            write(draft / "part.json", json.dumps(facts))
            write(draft / "ticket.json", json.dumps(ticket))
            if not (self.parts / name).exists():
                draft.rename(self.parts / name)
        except OSError as error:
            raise Refused(f"{draft}: {error.strerror}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync(self.parts)
        return {}

    def do_release(self, name: str, id: str) -> Json:
        """Start the runner of a held part."""
        part = self._part(name, id)
        if part is None or (part / "released").exists() or (part / "cancelled").exists():
            return {}
        facts = json.loads(read(part / "part.json"))
        locked = lock(part)
        if locked is None:
            return {}
        try:
            # If the start fails from now on, it is lost, and not repeated.
            write(part / "released", boot_id())
            held = [locked, *([self.claimed.fileno()] if self.claimed else [])]
            child = os.fork()
            if child == 0:
                become(part, held, self._runner(facts["runner"]), self.host)
            os.waitpid(child, 0)
        finally:
            os.close(locked)
        return {}

    def do_cancel(self, name: str, id: str, grace_s: float) -> Json:
        """End a part; listings see to it that the grace does too."""
        part = self._part(name, id)
        if part is None:
            return {}
        kill_s = self.kills[id] = min(boot_s() + grace_s, self._kill_s(part, id))
        if self._state(part, processes)["state"] == "running":  # whether the disk is full or not
            own = processes().get(name, [])
            parent_of = parents()
            send([pid for pid in own if parent_of.get(pid) not in own], signal.SIGTERM)
            self._kill_in_time(part, id)
        write(part / "cancelled", str(kill_s))
        return {}

    def do_list(self) -> Json:
        """Everything there is."""
        names = sorted(path.name for path in self.parts.iterdir())
        look, parts = functools.lru_cache(None)(processes), []
        for part in (self.parts / name for name in names):
            parts.append(self._state(part, look))
            if parts[-1]["state"] == "running":
                self._kill_in_time(part, parts[-1]["id"])
        return {"parts": parts}

    def do_forget(self, name: str, id: str) -> Json:
        """Delete what is here of a part that has ended."""
        part = self._part(name, id)
        if part is not None and self._state(part, processes)["state"] == "ended":
            gone = self.base / f".{name}.{secrets.token_hex(4)}"
            part.rename(gone)
            self.kills.pop(id, None)
            shutil.rmtree(gone, ignore_errors=True)
        return {}

    # --- states -----------------------------------------------------------------------------------

    def _part(self, name: str, id: str) -> Path | None:
        """The part with this name and id."""
        part = self.parts / name
        return part if json.loads(read(part / "part.json") or "{}").get("id") == id else None

    def _state(self, part: Path, look: Callable[[], dict[str, list[int]]]) -> Json:
        """How far a part is. ``look`` finds the processes of parts: only now is it known that the
        runner has let go of its lock, so what it left is there or has ended.
        """
        facts = json.loads(read(part / "part.json"))
        told = {"name": part.name, "id": facts["id"], "submitted_s": facts["submitted_s"]}
        cancelled = (part / "cancelled").exists()
        released = read(part / "released")
        if not released:
            why = "cancelled before it started" if cancelled else ""
            state = "ended" if cancelled else "held"
            return {**told, "state": state, "why": why, "cancelled": cancelled}
        if not (part / "ended").exists():
            if released == boot_id():
                locked = lock(part)
                if locked is None:
                    return {**told, "state": "running", "why": ""}
                os.close(locked)
                if look().get(part.name):
                    why = "its runner was killed, and processes of it live"
                    return {**told, "state": "running", "why": why}
            rebooted = released != boot_id()
            why = "the host was restarted" if rebooted else _last(part)
            with contextlib.suppress(OSError):  # on a full disk: told again as now
                write(part / "ended", why)
            return {**told, "state": "ended", "why": why, "cancelled": cancelled}
        return {**told, "state": "ended", "why": read(part / "ended"), "cancelled": cancelled}

    def _kill_s(self, part: Path, id: str) -> float:
        """When what is left of a part is killed, in seconds of this boot."""
        kill_s = self.kills.get(id, float("inf"))
        with contextlib.suppress(ValueError):
            kill_s = min(kill_s, float(read(part / "cancelled")))
        return kill_s

    def _kill_in_time(self, part: Path, id: str) -> None:
        if boot_s() >= self._kill_s(part, id):
            kill(part.name)


def _last(part: Path) -> str:
    """The last line that the runner wrote, which says why it failed."""
    lines = read(part / "errors")[-TAIL_BYTES:].strip().splitlines()
    return lines[-1] if lines else "its runner has ended"


def main() -> None:
    """Answer until the connection ends. The first request names the folder, fleet and host."""
    source, out = sys.stdin.buffer, sys.stdout.buffer
    keeper: Keeper | None = None
    reply: Json
    while True:
        size = source.readline()
        if not size:
            return
        request = json.loads(source.read(int(size)))
        try:
            if request["op"] == "begin":
                keeper = Keeper(request["folder"], request["fleet"], request["host"])
                reply = {"ok": {"began": True}}
            elif request["op"] == "facts":
                reply = {"ok": facts()}
            else:
                assert keeper is not None
                reply = {"ok": keeper.answer(request)}
        except Refused as error:
            reply = {"refused": str(error)}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        body = json.dumps(reply).encode()
        out.write(b"%d\n" % len(body) + body)
        out.flush()


if __name__ == "__main__":
    main()
