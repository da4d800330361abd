"""Keeps the parts of one fleet on a host, for as long as one SSH connection lasts.

It is sent over the connection as one text with `machine`, `files` and `living`, and never
installed: standard library only, Python 3.8 or newer. It reads requests from standard input and
answers each; a message is its length in bytes, a line end, and that many bytes of JSON.

What it knows is in a private folder of the account on the host, so that the next connection finds
the same, and neither a crash nor a reboot makes a part start twice::

    FOLDER/runner-DIGEST.py
    FOLDER/FLEET/HOST/home          a link to the socket of the newest connection
    FOLDER/FLEET/HOST/parts/NAME/   part.json, ticket.json, lock, errors; later released, ...

A part is *held* until there is a file ``released``, which says in which boot it was started. The
runner holds a lock on ``lock`` while it lives. When the lock is free, the part has ended once no
process of this boot bears its name in the environment: a number of a process alone proves nothing.

A job has the account of its runner, and may delete all that. So the environment says as well which
part it is: what a first listing, or one that lacks what ran before, finds there alone is listed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import py_compile
import re
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from topmast.adapters.engines.far.ssh.files import (
    NO_FILE,
    NO_ROOM,
    alone,
    document,
    hindrance,
    identity,
    inner_folder,
    lock,
    private_folder,
    put,
    read,
    sync,
    write,
)
from topmast.adapters.engines.far.ssh.living import (
    MARK,
    PLACE,
    began,
    command,
    kill,
    parents,
    processes,
    send,
    variable,
)
from topmast.adapters.engines.far.ssh.machine import (
    Json,
    Refused,
    boot_id,
    boot_s,
    claim,
    facts,
    serve,
)

ADDRESS = "TOPMAST_ADDRESS"
"""By which other hosts reach this one: the address that the connection came to."""
LONGEST_SOCKET_BYTES = 107
TAIL_BYTES = 400
QUIET_S = 180.0
"""A connection over which nothing was asked for so long keeps its host from no other Topmast."""
PROBE_BYTES = 1 << 16
"""A disk that takes so much has room for parts again."""
_SSHD = re.compile(rb"sshd(-session)?: [^\0]*@")


# --- runners --------------------------------------------------------------------------------------


def compiled(runner: Path) -> Path:
    """What starts faster than the text, if it can be made."""
    made = runner.with_suffix(f".{sys.implementation.cache_tag}.pyc")
    try:
        if not made.is_file():
            draft = made.with_name(f".{made.name}.{secrets.token_hex(4)}")
            py_compile.compile(str(runner), str(draft), "runner.py", doraise=True)
            sync(draft)
            draft.replace(made)
    except (OSError, py_compile.PyCompileError):
        return runner
    return made


def become(part: Path, held: list[int], runner: Path, host: str, place: str) -> NoReturn:
    """Be the runner of a part, in a session of its own that no hang-up reaches.

    ``held``: descriptors that stay open as long as it lives. ``place`` is told by its environment.
    """
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        errors = os.open(part / "errors", how, 0o600)
        for source, target in ((null, 0), (errors, 1), (errors, 2)):
            os.dup2(source, target)
        for number in held:
            os.set_inheritable(number, True)
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SSH_")}
        ours[MARK], ours[PLACE] = part.name, place
        there = os.environ.get("SSH_CONNECTION", "").split()
        if len(there) == 4:
            ours[ADDRESS] = there[2]
        python = [sys.executable, "-I", "-S"]
        program = [*python, str(compiled(runner)), str(part / "ticket.json"), host]
        os.execve(program[0], program, ours)  # noqa: S606
    finally:
        os._exit(126)


# --- the parts ------------------------------------------------------------------------------------


class Lost(Exception):
    """The folder is not the one that this connection began with."""


class Keeper:
    """Answers requests about the parts of one fleet on this host."""

    def __init__(self, folder: str, fleet: str, host: str) -> None:
        self.host = host
        self.fleet = fleet
        self.where = f"{fleet}/{host}/"
        self.top = private_folder(Path(folder).expanduser().absolute())
        inner_folder(self.top / fleet)
        self.base = inner_folder(self.top / fleet / host)
        self.parts = inner_folder(self.base / "parts")
        self.claimed: socket.socket | None = None
        """While it is open, here or in a runner, the machine serves as no other host."""
        self.instance = ""
        """Of the process that asks."""
        self.serving: socket.socket | None = None
        """While it is open, no other Topmast uses the machine as this host."""
        self.kills: dict[str, float] = {}
        """When what is left of a cancelled part is killed, should the disk be full."""
        self.ran: set[str] | None = None
        """The parts that the last listing said to run; None: there was none."""
        self.full = ""
        """Why the disk took no part when one came last; empty: it did, or takes files again."""
        self.identity = self._identity()

    def answer(self, request: Json) -> Json:
        """Do one request. Raises Lost when the folder was deleted: jobs can do that."""
        handler = getattr(self, "do_" + request.pop("op"))
        try:
            if self._identity() == self.identity:
                with alone(self.base / "mutex"):
                    return handler(**request)
        except FileNotFoundError:
            if self._identity() == self.identity:
                raise
        except OSError as error:
            self._note(error)
            raise
        raise Lost(
            f"{self.base} was deleted while it was in use, and is made anew: jobs of the account "
            f"must leave the folder alone (option `folder`)"
        )

    def _identity(self) -> list[int]:
        """Of the folders, as long as they are there."""
        try:
            return [folder.stat().st_ino for folder in (self.base, self.parts)]
        except OSError:
            return []

    def serve(self) -> None:
        """Say that a Topmast uses the machine. Raises Refused when another one does."""
        if self.instance and self.serving is None:
            self.serving = serve(self.host, self.fleet, self.instance)

    def rest(self) -> None:
        """Nothing was asked for long: what asked may be gone, and the connection not know it."""
        if self.serving is not None:
            self.serving.close()
            self.serving = None

    def _note(self, error: OSError) -> None:
        """The disk may have refused: while it does, listings say so."""
        if error.errno in NO_ROOM:
            self.full = f"{self.base} cannot be written: {error.strerror}"

    def _look_for_room(self) -> None:
        if self.full:
            file = self.base / ".probe"
            with contextlib.suppress(OSError):
                write(file, "-" * PROBE_BYTES)
                file.unlink()
                self.full = ""

    # --- the connection ---------------------------------------------------------------------------

    def do_open(self, instance: str) -> Json:
        """Take over from the connection that the same process had before, which may hang."""
        before = document(self.base / "session")
        pid = before.get("pid", 0)
        if (
            before.get("instance") == instance
            and pid != os.getppid()
            and began(pid) == before.get("began")
            and _SSHD.match(command(pid))
        ):
            send([pid], signal.SIGTERM)
        self.instance = instance
        self.serve()
        self.claimed = claim(self.host)
        ours = {"instance": instance, "pid": os.getppid(), "began": began(os.getppid())}
        try:
            write(self.base / "session", json.dumps(ours))
        except OSError as error:  # all that is lost is that a connection that hangs is ended early
            if error.errno not in NO_ROOM:
                raise
            self._note(error)
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
        put(draft, self.base / "home")
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
        if not self._runner(runner).is_file():
            return {"missing": runner}
        draft = self.base / f".{name}.{secrets.token_hex(4)}"
        facts = {"id": secrets.token_hex(8), "submitted_s": time.time(), "runner": runner}
        try:
            draft.mkdir(mode=0o700)
            write(draft / "part.json", json.dumps(facts))
            write(draft / "ticket.json", json.dumps(ticket))
            os.close(os.open(draft / "lock", os.O_WRONLY | os.O_CREAT, 0o600))
            there = self.parts / name
            if there.exists() and not identity(there):
                there.rename(self.base / f".{name}.{secrets.token_hex(4)}")  # of no use any more
            if not there.exists():
                draft.rename(there)
        except OSError as error:
            self._note(error)
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
        facts = identity(part)
        locked = lock(part, os.O_CREAT)
        if locked is None:
            return {}
        try:
            if (part / "released").exists():  # by another connection, since it was looked at
                return {}
            # If the start fails from now on, it is lost, and not repeated.
            write(part / "released", boot_id())
            held = [locked, *([self.claimed.fileno()] if self.claimed else [])]
            child = os.fork()
            if child == 0:
                place = f"{self.where}{id}/{facts['submitted_s']!r}"
                become(part, held, self._runner(facts["runner"]), self.host, place)
            os.waitpid(child, 0)
        finally:
            os.close(locked)
        return {}

    def do_cancel(self, name: str, id: str, grace_s: float) -> Json:
        """End a part; listings see to it that the grace does too."""
        part = self._part(name, id)
        now = self._state(part, processes) if part else self._stray(processes().get(name, []), id)
        if now is None:
            return {}
        kill_s = self.kills[id] = min(boot_s() + grace_s, self._kill_s(name, id))
        if now["state"] == "running":  # whether the disk is full or not
            own = processes().get(name, [])
            parent_of = parents()
            send([pid for pid in own if parent_of.get(pid) not in own], signal.SIGTERM)
            self._kill_in_time(name, id)
        if part is not None:
            write(part / "cancelled", str(kill_s))
        return {}

    def do_list(self) -> Json:
        """Everything there is, also what runs and of which the folder was deleted or damaged."""
        names = sorted(path.name for path in self.parts.iterdir())
        look = functools.lru_cache(None)(processes)
        states = (self._state(self.parts / name, look) for name in names)
        parts = [told for told in states if told is not None]
        known = {told["name"] for told in parts}
        if self.ran is None or self.ran - known:
            strays = (self._stray(pids) for name, pids in look().items() if name not in known)
            parts += [told for told in strays if told is not None]
        running = [told for told in parts if told["state"] == "running"]
        self.ran = {told["name"] for told in running}
        for told in running:
            self._kill_in_time(told["name"], told["id"])
        self._look_for_room()
        return {"parts": parts, "closed": self.full}

    def do_forget(self, name: str, id: str) -> Json:
        """Delete what is here of a part that has ended."""
        part = self._part(name, id)
        now = self._state(part, processes) if part else None
        if part is not None and now is not None and now["state"] == "ended":
            gone = self.base / f".{name}.{secrets.token_hex(4)}"
            part.rename(gone)
            self.kills.pop(id, None)
            shutil.rmtree(gone, ignore_errors=True)
        return {}

    # --- states -----------------------------------------------------------------------------------

    def _part(self, name: str, id: str) -> Path | None:
        """The part with this name and id."""
        part = self.parts / name
        return part if identity(part).get("id") == id else None

    def _stray(self, pids: list[int], id: str = "") -> Json:
        """A part that its processes alone tell of, if they are of this host, and of that id."""
        for pid in pids:
            told = variable(pid, PLACE)
            if told.startswith(self.where + id):
                its_id, _, submitted = told[len(self.where) :].partition("/")
                return {
                    "name": variable(pid, MARK), "id": its_id, "submitted_s": float(submitted),
                    "state": "running", "why": "its folder on the host was deleted or damaged",
                }  # fmt: skip
        return None

    def _state(self, part: Path, look: Callable[[], dict[str, list[int]]]) -> Json:
        """How far a part is; None where nothing says which it is.

        ``look`` finds the processes of parts: only now is it known that the runner has let go of
        its lock, so what it left is there or has ended.
        """
        facts = identity(part)
        if not facts:
            return None
        told = {"name": part.name, "id": facts["id"], "submitted_s": facts["submitted_s"]}
        cancelled = (part / "cancelled").exists()
        released = read(part / "released")
        if released in ("", boot_id()):
            lives = self._lives(part, released, look)
            if lives is not None:
                return {**told, "state": "running", "why": lives}
        if (part / "ended").exists():
            return {**told, "state": "ended", "why": read(part / "ended"), "cancelled": cancelled}
        if not released:
            why = "cancelled before it started" if cancelled else ""
            state = "ended" if cancelled else "held"
            return {**told, "state": state, "why": why, "cancelled": cancelled}
        why = _last(part) if released == boot_id() else "the host was restarted"
        with contextlib.suppress(OSError):  # on a full disk: told again as now
            write(part / "ended", why)
        return {**told, "state": "ended", "why": why, "cancelled": cancelled}

    def _lives(
        self, part: Path, released: str, look: Callable[[], dict[str, list[int]]]
    ) -> str | None:  # fmt: skip
        """Whether anything of a part lives, and what is unusual about that; None: nothing does."""
        try:
            locked = lock(part)
            if locked is None:
                return ""
            os.close(locked)
            if not released:
                return None
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
        return "its runner was killed, and processes of it live" if look().get(part.name) else None

    def _kill_s(self, name: str, id: str) -> float:
        """When what is left of a part is killed, in seconds of this boot."""
        kill_s = self.kills.get(id, float("inf"))
        with contextlib.suppress(ValueError):
            kill_s = min(kill_s, float(read(self.parts / name / "cancelled")))
        return kill_s

    def _kill_in_time(self, name: str, id: str) -> None:
        if boot_s() >= self._kill_s(name, id):
            kill(name)


def _last(part: Path) -> str:
    """The last line that the runner wrote, which says why it failed."""
    lines = read(part / "errors")[-TAIL_BYTES:].strip().splitlines()
    return lines[-1] if lines else "its runner has ended"


def main() -> None:
    """Answer until the connection ends. The first request names the folder, fleet and host."""
    source, out = sys.stdin.buffer, sys.stdout.buffer
    keeper: Keeper | None = None
    trial: tempfile.TemporaryDirectory[str] | None = None
    """For a socket that is forwarded to see whether it can be; it goes with the connection."""
    reply: Json
    while True:
        if keeper is not None and not select.select([source], [], [], QUIET_S)[0]:
            keeper.rest()
        size = source.readline()
        if not size:
            return
        request = json.loads(source.read(int(size)))
        try:
            if request["op"] == "begin":
                keeper = Keeper(request["folder"], request["fleet"], request["host"])
                reply = {"ok": {"began": True}}
            elif request["op"] == "facts":
                folder = Path(request["folder"]).expanduser().absolute()
                reply = {"ok": {**facts(), "hindrance": hindrance(folder)}}
            elif request["op"] == "trial":
                trial = tempfile.TemporaryDirectory(prefix="topmast-")
                reply = {"ok": {"socket": f"{trial.name}/s"}}
            else:
                assert keeper is not None
                if request["op"] in ("submit", "list"):
                    keeper.serve()
                reply = {"ok": keeper.answer(request)}
        except Refused as error:
            reply = {"refused": str(error)}
        except Lost as error:
            reply = {"lost": str(error)}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        body = json.dumps(reply).encode()
        out.write(b"%d\n" % len(body) + body)
        out.flush()


if __name__ == "__main__":
    main()
