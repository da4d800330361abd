"""How requests come in: on loopback without login, or over TLS with one."""

from __future__ import annotations

import getpass
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from topmast.accounts import Accounts
from topmast.adapters.breakglass import end_break_glass, is_break_glass
from topmast.adapters.clock import elapsed_s, wall_s
from topmast.adapters.oidc import OpenId
from topmast.adapters.secretfile import require_private
from topmast.adapters.store import SqlJournal
from topmast.adapters.tls import Certificate
from topmast.api.guard import Gate, Login, LoginGate, LoopbackGate, Network, StandbyGate
from topmast.api.standby import GUARDED
from topmast.app.server import bind
from topmast.cli.rootoptions import ServeOptions
from topmast.client.address import checked_url
from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.accountsfile import AccountsFile, read_accounts
from topmast.model.fleet import Fleet
from topmast.service.limits import Rate, Rates
from topmast.service.logins import FollowedLogins
from topmast.service.service import Service
from topmast.web import STATIC

OPEN_PATHS = ("/auth/", f"{STATIC}/")
"""What takes part in logging in, and the files of pages, which are the same for all."""
LOCAL_ENGINE = "local"


LOGIN = "login"
"""The option of a journal of which the server has had a login."""


class Entry(Struct, frozen=True):
    """The ways into a server, as its options say."""

    accounts: AccountsFile | None = None
    """None: no login is asked for."""
    public_url: str = ""
    listener: socket.socket | None = None
    """The one that other machines reach."""
    certificate: Certificate | None = None
    proxies: tuple[Network, ...] = ()

    def tls(self, listener: socket.socket) -> ssl.SSLContext | None:
        """What the connections of a listener are greeted with."""
        if listener is not self.listener or self.certificate is None:
            return None
        return self.certificate.context()

    def standby_gate(self, state: Path, accounts: Callable[[], Accounts | None]) -> Gate:
        """What lets requests in while another server leads; ``accounts``: as far as followed."""
        if self.accounts is None:
            return LoopbackGate()
        logins = FollowedLogins(accounts, _break_glass_of(state), wall_s)
        return StandbyGate(self._login_gate(logins), GUARDED)

    def openid(self) -> OpenId | None:
        """The provider that people log in with. Raises InvalidInput."""
        provider = self.accounts.oidc if self.accounts is not None else None
        if provider is None:
            return None
        if find_spec("joserfc") is None:
            raise InvalidInput(
                "the module joserfc is missing", field="--accounts",
                remedy="pip install 'topmast[oidc]'",
            )  # fmt: skip
        secret = _secret(Path(provider.client_secret_file)) if provider.client_secret_file else ""
        back = f"{self.public_url}/auth/callback"
        return OpenId(provider, secret, back, wall_s, elapsed_s)

    def gate(self, service: Service, options: ServeOptions) -> Gate:
        """What lets requests in to a service."""
        if self.accounts is None:
            return LoopbackGate(_own_name())
        service.set_limits(_rates(self.accounts))
        service.logins.is_break_glass = _break_glass_of(options.state)
        service.logins.end_break_glass = partial(end_break_glass, options.state)
        return self._login_gate(service.logins, OPEN_PATHS)

    def _login_gate(self, login: Login, open_paths: Sequence[str] = ()) -> LoginGate:
        has_provider = self.accounts is not None and self.accounts.oidc is not None
        return LoginGate(
            login, self.public_url, (), self.proxies, open_paths, has_provider=has_provider
        )


def open_entry(given: Entry, options: ServeOptions, stack: ExitStack, url: str) -> Entry:
    """What `check_entry` returned, of a server with the loopback address ``url``, listening.

    Raises InvalidInput.
    """
    if options.accounts is None and options.listen is None:
        return Entry()
    if options.listen is None:
        return Entry(given.accounts, given.public_url or url, proxies=given.proxies)
    host, port = split_address(options.listen, "--listen")
    listener = stack.enter_context(bind(host, port, login=True, field="--listen"))
    public = given.public_url
    if not public:
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise InvalidInput(
                "clients must know the server by a name", field="--public-url",
                remedy="--public-url https://HOST:PORT, as the certificate names it",
            )  # fmt: skip
        public = f"https://{host_in_url(host)}:{listener.getsockname()[1]}"
    return Entry(given.accounts, public, listener, given.certificate, given.proxies)


def check_entry(options: ServeOptions, faults: Faults) -> Entry:
    """What the options say of the ways in, before anything listens; ``faults`` takes what is wrong.

    It opens nothing.
    """
    if options.accounts is None and options.listen is None:
        for value, name in (
            (options.public_url, "--public-url"), (options.tls_cert, "--tls-cert"),
            (options.tls_key, "--tls-key"), (options.trusted_proxies, "--trusted-proxy"),
        ):  # fmt: skip
            if value:
                faults.add("goes with --listen or --accounts", name)
        return Entry()
    file, listen, cert, key = options.accounts, options.listen, options.tls_cert, options.tls_key
    accounts = faults.of(lambda: read_accounts(file) if file else AccountsFile())
    proxies = tuple(faults.of(partial(_proxies, text)) for text in options.trusted_proxies)
    public = faults.of(lambda: _public_url(options))
    if listen is None:
        return Entry(accounts, public, proxies=proxies)
    certificate = None
    if cert is None or key is None:
        faults.add(
            "other machines are answered over TLS only", "--listen",
            "--tls-cert FILE --tls-key FILE",
        )  # fmt: skip
    else:
        certificate = faults.of(lambda: Certificate(cert, key))
    faults.of(lambda: split_address(listen, "--listen"))
    return Entry(accounts, public, None, certificate, proxies)


def _public_url(options: ServeOptions) -> str:
    """What clients call the server; empty if it is not given. Raises InvalidInput."""
    if not options.public_url:
        return ""
    public = checked_url(options.public_url, "--public-url")
    if urlsplit(public).path:
        raise InvalidInput(
            "the server has a host of its own: there can be no path", field="--public-url",
            remedy=public.removesuffix(urlsplit(public).path),
        )  # fmt: skip
    if options.listen is not None and urlsplit(public).scheme != "https":
        raise InvalidInput("must begin with https://", field="--public-url")
    return public


def refuse_local_engines(fleet: Fleet, options: ServeOptions) -> None:
    """Raise InvalidInput if other people's tasks would run as the server's own user."""
    ways = {
        "--listen": options.listen,
        "--public-url": options.public_url,
        "--trusted-proxy": options.trusted_proxies,
    }
    taken = [option for option, given in ways.items() if given]
    if not taken or options.everyone_is_trusted:
        return
    clusters = [c for region in fleet.regions for c in region.clusters]
    local = [c.name for c in clusters if c.engine == LOCAL_ENGINE]
    if local:
        raise InvalidInput(
            f"the tasks of cluster {local[0]} run as the user of the server: each can read the "
            "journal and stop every other",
            field=taken[0],
            remedy="use clusters of another engine, or say that all that may submit may do that: "
            "--everyone-is-trusted",
        )


def require_login(entry: Entry, kept: SqlJournal) -> None:
    """Refuse to open without a login what another start of its server, or its leader, has with one.

    Raises InvalidInput.
    """
    if entry.accounts is None and kept.option(LOGIN) is not None:
        raise InvalidInput(
            "this server has had a login until now: without one, each program of this machine "
            "would be its administrator",
            field="--accounts", remedy="--accounts FILE, as before; an empty file will do",
        )  # fmt: skip


def keep_login(entry: Entry, kept: SqlJournal) -> None:
    """Note that there is a login, for later starts and other servers."""
    if entry.accounts is not None and kept.option(LOGIN) is None:
        kept.set_option(LOGIN, "yes")


def _break_glass_of(state: Path) -> Callable[[str], bool]:
    return lambda token: is_break_glass(state, token, wall_s())


def split_address(address: str, field: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``. Raises InvalidInput."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(
            f"'{address}' is not HOST:PORT", field=field, remedy="such as 10.0.0.5:6279"
        )
    return host.strip("[]"), int(port)


def host_in_url(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def _secret(file: Path) -> str:
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", field="client_secret_file") from None
    require_private(file, "client_secret_file")
    return secret


def network_of(text: str, field: str) -> Network:
    """A network of addresses. Raises InvalidInput."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidInput(
            f"'{text[:60]}' is not a network", field=field, remedy="such as 10.0.0.0/28"
        ) from None


def _proxies(text: str) -> Network:
    found = network_of(text, "--trusted-proxy")
    if found.prefixlen == 0:
        raise InvalidInput(
            "everybody would be trusted to name the address of a client", field="--trusted-proxy",
            remedy="name the network of the proxies alone, such as 10.0.0.0/28",
        )  # fmt: skip
    return found


def _rates(accounts: AccountsFile) -> Rates:
    given = {kind: Rate(rate.per_s, rate.burst) for kind, rate in accounts.limits.items()}
    return Rates(**given)


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
