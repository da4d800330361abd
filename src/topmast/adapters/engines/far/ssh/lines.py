"""One connection to each host: kept up, forwarded through, and asked by."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
import structlog
from msgspec.structs import replace

from topmast.adapters.engines.far import runner
from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.files.source import kind_of_file
from topmast.model.units import show

KEEPALIVE_S = 3
KEEPALIVES = 3
"""So often a host may leave a keepalive unanswered: a cut is noticed after nine seconds."""
BACKOFF_S = 0.5
BACKOFF_MOST_S = 8.0
STEADY_S = 10.0
"""A connection that held for so long was good: the next is tried at once."""
NOISE_MOST_LINES = 200
"""Of what a login shell may print before our program speaks."""
SAID_MOST_BYTES = 2000
ANSWER_MOST_BYTES = 64 << 20
HELLO = b"topmast is here\n"
BOOT = (
    "import sys; "
    "sys.exit('Python %d.%d is too old' % sys.version_info[:2]) "
    "if sys.version_info < (3, 8) else None; "
    f"sys.stdout.write({HELLO.decode()!r}); sys.stdout.flush(); "
    "text = sys.stdin.buffer.read(int(sys.stdin.buffer.readline())); "
    'exec(compile(text, "topmast", "exec"))'
)
"""Runs what it is sent."""
USUAL_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")

BESIDE = {"Public key mismatch": ".pub", "Certificate key mismatch": "-cert.pub"}
"""What a file is called that asyncssh loads with a private key, by what it says of a wrong one."""

FAILURES = (
    OSError, asyncssh.Error, asyncssh.ChannelListenError, asyncssh.KeyEncryptionError,
    asyncssh.KeyImportError,
)  # fmt: skip
"""Of a connection, for which there may be a remedy."""

INSTANCE = secrets.token_hex(8)
"""Of this process: a new connection of its own replaces an older one on the host."""

log = structlog.get_logger(__name__)


class NotUsable(Exception):
    """A connection cannot be made, or is of no use; the text says why, and what to do."""


class Line:
    """A host, asked over a connection that is made anew when it breaks."""

    def __init__(self, name: str, options: SshOptions, fleet: str, home: str) -> None:
        """``home`` is the path of the socket that the host's is forwarded to; empty: none."""
        self.name = name
        self._options = options
        self._fleet = fleet
        self._home = home
        self._asking = asyncio.Lock()
        self._channel: Channel | None = None
        self._tried = asyncio.Event()
        self.why = "not connected yet"
        """Why there is no connection; empty: there is one."""
        self._silent = ""
        """Why it did not answer the last listing; empty: it did."""
        self.closed = ""
        """Why the host takes no new part, as it told in the last listing; empty: it does."""
        self.home_there = ""
        """The path by which runners on the host reach home."""

    @property
    def trouble(self) -> str:
        """Why the host cannot be asked, or did not answer the last listing; empty: neither."""
        return self.why or self._silent

    async def keep(self, slots: asyncio.Semaphore) -> None:
        """Keep a connection up until cancelled."""
        pause_s = BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            why = await self._use(slots)
            if why != self.why:
                log.warning("a host is cut off", host=self.name, why=why)
            self.why = why
            self._tried.set()
            steady = loop.time() - began_s > STEADY_S
            pause_s = BACKOFF_S if steady else min(2 * pause_s, BACKOFF_MOST_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    async def _use(self, slots: asyncio.Semaphore) -> str:
        """Connect, and wait until the connection is over; why it is."""
        try:
            async with AsyncExitStack() as stack:
                async with slots:
                    channel = await stack.enter_async_context(connected(self._where()))
                    async with asyncio.timeout(self._options.connect_s):
                        await self._begin(channel)
                self._channel = channel
                self.why = ""
                self._tried.set()
                log.info("a host is connected", host=self.name)
                return await channel.over()
        except TimeoutError:
            return f"no answer within {self._options.connect_s:g} s after the login"
        except (Refused, Unreachable, NotUsable) as error:
            return str(error)
        except FAILURES as error:
            return self._where().explain(error)
        except Exception as error:
            log.exception("a connection failed", host=self.name)
            return repr(error)
        finally:
            self._channel = None

    def _where(self) -> Where:
        return Where(self._options.address.get(self.name, self.name), self._options)

    async def _begin(self, channel: Channel) -> None:
        options = self._options
        await channel.ask(op="begin", folder=options.folder, fleet=self._fleet, host=self.name)
        place = await channel.ask(op="open", instance=INSTANCE)
        self.home_there = place["home"]
        if self._home:
            await channel.forward(place["socket"], self._home)
            await channel.ask(op="home", socket=place["socket"])

    async def ready(self) -> None:
        """Wait for the first attempt to connect. Raises `Unreachable` when there is none now."""
        await self._tried.wait()
        if self._channel is None:
            raise Unreachable(f"{self.name}: {self.why}")

    async def ask(self, **request: Any) -> Any:
        """What the host answers. Raises `Refused`, `Unreachable`."""
        await self.ready()
        limit_s = self._options.command_s
        try:
            async with asyncio.timeout(limit_s):
                async with self._asking:
                    if self._channel is None:
                        raise Unreachable(f"{self.name}: {self.why}")
                    return await self._channel.ask(**request)
        except TimeoutError:
            # An answer that comes later would be taken for that to the next question.
            if self._channel is not None:
                self._channel.abort(f"it did not answer within {limit_s:g} s")
            raise Unreachable(f"{self.name} did not answer within {limit_s:g} s") from None

    async def listed(self) -> list[Any]:
        """The parts on the host; none when it does not answer, which ``trouble`` tells."""
        try:
            reply = await self.ask(op="list")
        except (Refused, Unreachable) as error:
            self._silent = str(error)
            return []
        self._silent = ""
        self.closed = reply["closed"]
        parts: list[Any] = reply["parts"]
        return parts


class Where:
    """Where a host is, and how to get in."""

    def __init__(self, address: str, options: SshOptions) -> None:
        self.address = address
        self.options = options
        files = [options.known_hosts] if options.known_hosts else USUAL_KNOWN_HOSTS
        self._known_files = [Path(file).expanduser() for file in files]

    def arguments(self) -> dict[str, Any]:
        """For `asyncssh.connect`, whatever the host: nothing of ``~/.ssh/config`` is used."""
        options = self.options
        given: dict[str, Any] = {
            "known_hosts": self._known_hosts(),
            "config": None,
            "preferred_auth": "publickey",
            "agent_forwarding": False,
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVES,
        }
        if options.user:
            given["username"] = options.user
        if options.identity:
            identity = Path(options.identity).expanduser()
            _require_file(identity, "identity")
            given["client_keys"] = [str(identity)]
            given["agent_path"] = None
        return given

    def _known_hosts(self) -> asyncssh.SSHKnownHosts:
        """Never nothing, which would be taken for any key."""
        files = [file for file in self._known_files if file.exists()]
        if self.options.known_hosts and not files:
            raise NotUsable(f"option known_hosts: there is no file {self.options.known_hosts}")
        for file in files:
            _require_file(file, "known_hosts")
        try:
            return asyncssh.import_known_hosts("\n".join(file.read_text() for file in files))
        except OSError as error:
            why = f"{error.filename} cannot be read: {error.strerror}"
        except ValueError as error:
            why = f"{' or '.join(map(str, files))} has more than keys of hosts: {error}"
        raise NotUsable(f"option known_hosts: {why}")

    def jumps(self) -> list[tuple[str, dict[str, Any]]]:
        """The hosts on the way, with what differs there."""
        found = []
        for hop in self.options.jump.split(",") if self.options.jump else ():
            user, _, place = hop.strip().rpartition("@")
            host, _, port = place.partition(":")
            given: dict[str, Any] = {"port": int(port or 22)}
            found.append((host, {**given, "username": user} if user else given))
        return found

    def jump(self, index: int) -> Where:
        """The same of a host on the way."""
        host, own = self.jumps()[index]
        before = ",".join(self.options.jump.split(",")[:index])
        user = own.get("username", self.options.user)
        return Where(host, replace(self.options, port=own["port"], user=user, jump=before))

    def explain(self, error: Exception) -> str:
        """Why a connection failed, and what to do."""
        options, name = self.options, self.address
        login = f"{options.user}@{name}" if options.user else name
        files = " or ".join(str(file) for file in self._known_files)
        match error:
            case asyncssh.HostKeyNotVerifiable() if self._is_known():
                return (
                    f"the key of {name} is not the one in {files}: the host was installed anew, or "
                    f"another one answers for it. Ask its people, and replace the line"
                )
            case asyncssh.HostKeyNotVerifiable():
                return (
                    f"{error.reason}. Compare it with what the host's people say, and add it to "
                    f"{files}: `{self._ssh(login)}` asks and does it"
                )
            case asyncssh.PermissionDenied():
                return (
                    f"{login} does not accept our key: add the public key to its "
                    f"~/.ssh/authorized_keys, and see options `user` and `identity`"
                )
            case ValueError() if "passphrase" in str(error).lower():
                return (
                    f"the key {options.identity or 'in ~/.ssh'} has a passphrase: use an agent, "
                    f"or a key without one that only Topmast can read"
                )
            case asyncssh.KeyImportError():
                return f"option identity: {options.identity} is not a private key"
            case FileNotFoundError() if options.identity and error.filename:
                return f"option identity: there is no file {error.filename}"
            case OSError() if options.identity and error.filename:
                return f"option identity: {error.filename} cannot be read: {error.strerror}"
            case UnicodeError():
                return f"{show(name)} is not the name of a host: see option `address`"
        return self._unreached(error)

    def _unreached(self, error: Exception) -> str:
        """The same of what stands between us and a host, or a session on it."""
        place = f"{self.address}, port {self.options.port}"
        match error:
            case asyncssh.ChannelListenError():
                return (
                    "its sshd does not forward sockets: set AllowStreamLocalForwarding to yes; "
                    "where authorized_keys has `restrict` before our key, add `port-forwarding`"
                )
            case asyncssh.ChannelOpenError():
                return f"{place}: no session ({error.reason}): see MaxSessions of its sshd"
            case asyncssh.ConnectionLost():
                return f"{place}: the connection broke before the login: is it an SSH server?"
            case asyncssh.Error():
                return f"{self.address}: {error.reason}"
            case TimeoutError():
                return (
                    f"{place}: no connection within {self.options.connect_s:g} s: it is down, a "
                    f"firewall drops what is sent, or its sshd hangs"
                )
            case OSError():
                known = error.errno in errno.errorcode
                why = os.strerror(error.errno or 0) if known else str(error)
                return f"{place}: {why}: is the host up, and does its sshd listen there?"
        return f"{self.address}: {error}"

    def stale_file(self, error: ValueError) -> str:
        """What to do where a file beside a private key is of another; empty for other errors."""
        beside = BESIDE.get(str(error))
        if beside is None:
            return ""
        usual = Path("~/.ssh").expanduser().glob("id_*")
        keys = [file for file in usual if file.suffix != ".pub"]
        if self.options.identity:
            keys = [Path(self.options.identity).expanduser()]
        stale = [str(key) for key in sorted(keys) if _is_refused(key, error)]
        files = " and ".join(f"{key}{beside}" for key in stale) or f"a file *{beside} in ~/.ssh"
        return f"{files} is of another key than the private key beside it: delete or replace it"

    def _ssh(self, login: str) -> str:
        """The command for people that does what we do."""
        options = self.options
        port = f"-p {options.port} " if options.port != 22 else ""
        known = f"-o UserKnownHostsFile={options.known_hosts} " if options.known_hosts else ""
        jump = f"-J {options.jump} " if options.jump else ""
        return f"ssh {port}{jump}{known}{login}"

    def _is_known(self) -> bool:
        """Whether there is a key for the host, though not the one that it shows."""
        port = self.options.port
        return any(self._known_hosts().match(self.address, "", port if port != 22 else None)[:2])


def _is_refused(key: Path, error: ValueError) -> bool:
    """Whether loading a private key ends with the same error."""
    try:
        asyncssh.load_keypairs(key, ignore_encrypted=True)
    except (OSError, ValueError) as found:
        return str(found) == str(error)
    return False


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[Channel]:
    """A connection to a host, with our program on it."""
    async with AsyncExitStack() as stack:
        shared, tunnel = where.arguments(), None
        hops = where.jumps()
        for index, (host, own) in enumerate([*hops, (where.address, {"port": where.options.port})]):
            try:
                async with asyncio.timeout(where.options.connect_s):
                    connection = await asyncssh.connect(host, tunnel=tunnel, **{**shared, **own})
            except (ValueError, *FAILURES) as error:
                if isinstance(error, ValueError) and (stale := where.stale_file(error)):
                    raise NotUsable(stale) from None
                if index < len(hops):
                    raise NotUsable(f"option jump: {where.jump(index).explain(error)}") from None
                raise NotUsable(where.explain(error)) from None
            stack.callback(connection.abort)
            tunnel = connection
        yield await _begun(connection, where)


async def _begun(connection: asyncssh.SSHClientConnection, where: Where) -> Channel:
    """Our program, started by the login shell. Raises NotUsable when it does not start in time."""
    limit_s, python = where.options.connect_s, where.options.python
    command = f"exec {shlex.quote(python)} -I -u -c {shlex.quote(BOOT)}"
    try:
        async with asyncio.timeout(limit_s):
            process = await connection.create_process(command, encoding=None)
            channel = Channel(connection, process, python)
            await channel.greet()
    except TimeoutError:
        raise NotUsable(
            f"its login shell does not start {python} within {limit_s:g} s: a file that it reads, "
            f"such as ~/.bashrc, may wait for something or print without end"
        ) from None
    return channel


class Channel:
    """Our program on a host."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, process: Any, python: str
    ) -> None:  # fmt: skip
        self._connection = connection
        self._process = process
        self._python = python
        self._aborted = ""

    async def greet(self) -> None:
        """Send the program, once the interpreter says that it is there.

        What the login shell prints before may lack the end of its last line.
        """
        noise = b""
        for _ in range(NOISE_MOST_LINES):
            line = await self._process.stdout.readline()
            if line.endswith(HELLO):
                break
            if not line.endswith(b"\n"):
                raise NotUsable(await self._complaint(noise + line))
            noise = line
        else:
            raise NotUsable(
                "its login shell prints too much: see the files that it reads, such as ~/.bashrc"
            )
        self._send(program())

    async def _complaint(self, noise: bytes) -> str:
        """Why there is no interpreter; a shell that lets no one in says it as output."""
        errors = await self._process.stderr.read(SAID_MOST_BYTES)
        for text in (errors, noise[-SAID_MOST_BYTES:]):
            said = [line.strip() for line in text.decode(errors="replace").splitlines()]
            if lines := [line for line in said if line]:
                why = f"{lines[0]} ... {lines[-1]}" if len(lines) > 1 else lines[0]
                break
        else:
            why = "the login shell ended"
        return f"{why} (is there Python 3.8 or newer? Set option `python`, now {self._python})"

    def _send(self, body: bytes) -> None:
        self._process.stdin.write(b"%d\n" % len(body) + body)

    async def ask(self, **request: Any) -> Any:
        """One request and its answer; the caller sees to it that they do not overlap."""
        try:
            self._send(json.dumps(request).encode())
            await self._process.stdin.drain()
            size = int(await self._process.stdout.readline() or 0)
            if not 0 < size < ANSWER_MOST_BYTES:
                raise Unreachable(self._aborted or "the connection broke")
            reply = json.loads(await self._process.stdout.readexactly(size))
        except (OSError, asyncssh.Error, ValueError, asyncio.IncompleteReadError) as error:
            self._connection.abort()
            raise Unreachable(self._aborted or f"the connection broke: {error}") from None
        if "refused" in reply:
            raise Refused(reply["refused"])
        if "lost" in reply:  # a new connection makes the folder anew
            self.abort(reply["lost"])
            raise Unreachable(reply["lost"])
        if "failed" in reply:
            raise Unreachable(reply["failed"])
        return reply["ok"]

    async def forward(self, there: str, here: str) -> None:
        """Whatever connects to a socket on the host is connected to one here."""
        await self._connection.forward_remote_path(there, here)

    def abort(self, why: str) -> None:
        """Give the connection up."""
        self._aborted = why
        self._connection.abort()

    async def over(self) -> str:
        """Wait until the connection or the program ends; why."""
        ends = [self._connection.wait_closed(), self._process.wait_closed()]
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return self._aborted or "the connection broke"


def _require_file(file: Path, option: str) -> None:
    """Raise NotUsable for what is there and no file: a device may be read without end."""
    if file.exists() and not file.is_file():
        kind = kind_of_file(file.stat().st_mode)
        raise NotUsable(f"option {option}: {file} cannot be read: it is {kind}")


@cache
def program() -> bytes:
    """What is sent to hosts, and answers there."""
    text = runner.joined(("machine", "files", "living", "remote"), __package__, later=())
    return f"from __future__ import annotations\nAny = NoReturn = object\n{text}".encode()


def local_socket(home: str) -> str:
    """The path in the URL of a unix socket here; empty for any other URL."""
    prefix = "unix:"
    return os.path.abspath(home[len(prefix) :]) if home.startswith(prefix) else ""  # noqa: PTH100
