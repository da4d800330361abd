"""What requests prove themselves with: certificates, and tokens that may come from a program."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from topmast.adapters.engines.far.kubernetes.kubeconfig import Login, Plugin, bytes_of
from topmast.model.errors import InvalidInput

_PLUGIN_S = 60.0
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_GROUP = "client.authentication.k8s.io/"
_TOKEN_LIVES_S = 60.0
"""How long a token of a file is taken as it is: Kubernetes writes new ones into it."""


class Credentials(Struct, frozen=True):
    """One state of them, good until ``until_s``."""

    token: str
    certificate: bytes
    """PEM, with ``key``; empty: none."""
    key: bytes
    until_s: float
    """Seconds since 1970: read them anew then. Infinite for those that do not end."""


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Printed(Struct, rename="camel"):
    api_version: str
    status: _Status | None = None


def obtain(login: Login, now_s: float) -> Credentials:
    """Credentials of today: files are read, and a plugin runs. Raises InvalidInput."""
    user, origin = login.user, login.origin
    certificate = _content(user.client_certificate_data, user.client_certificate, "cert", origin)
    key = _content(user.client_key_data, user.client_key, "key", origin)
    if user.plugin:
        return _of_plugin(user.plugin, login)
    if user.token_file:
        token = _read(user.token_file, "tokenFile", origin).decode(errors="replace").strip()
        return Credentials(_header(token, origin), certificate, key, now_s + _TOKEN_LIVES_S)
    return Credentials(_header(user.token, origin), certificate, key, float("inf"))


def tls_context(login: Login, credentials: Credentials) -> ssl.SSLContext:
    """How connections are made: its authority, and our certificate. Raises InvalidInput."""
    server = login.server
    authority = _content(
        server.certificate_authority_data, server.certificate_authority,
        "certificate-authority", login.origin,
    )  # fmt: skip
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise _refused("certificate-authority", str(error), login.origin) from None
    if server.insecure_skip_tls_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if credentials.certificate:
        # The library takes files only. Nothing but their owner can read these, and only for now.
        with tempfile.TemporaryDirectory(prefix="topmast-") as folder:
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_bytes(credentials.certificate + b"\n" + credentials.key)
            try:
                context.load_cert_chain(path)
            except (ssl.SSLError, ValueError) as error:
                raise _refused("client-certificate", str(error), login.origin) from None
    return context


def _of_plugin(plugin: Plugin, login: Login) -> Credentials:
    version = plugin.api_version.removeprefix(_GROUP)
    if version not in _VERSIONS:
        raise InvalidInput(
            f"the plugin '{plugin.command}' speaks '{plugin.api_version}'", where=login.origin,
            field="exec.apiVersion", remedy=f"known: {', '.join(_GROUP + v for v in _VERSIONS)}",
        )  # fmt: skip
    printed = _printed(plugin, login)
    try:
        found = msgspec.json.decode(printed, type=_Printed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _failed(plugin, login, f"printed no credentials: {error}") from None
    status = found.status
    if status is None or not (status.token or status.client_certificate_data):
        raise _failed(plugin, login, "printed no credentials")
    until = status.expiration_timestamp
    return Credentials(
        token=_header(status.token, login.origin),
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        until_s=until.astimezone(UTC).timestamp() if until else float("inf"),
    )


def _printed(plugin: Plugin, login: Login) -> bytes:
    environment = dict(os.environ)
    for variable in plugin.env or ():
        environment[variable.name] = variable.value
    asked: dict[str, object] = {
        "apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False},
    }  # fmt: skip
    if plugin.provide_cluster_info:
        server = login.server
        authority = _content(
            server.certificate_authority_data, server.certificate_authority,
            "certificate-authority", login.origin,
        )  # fmt: skip
        asked["spec"] = {
            "interactive": False,
            "cluster": {
                "server": server.server,
                "tls-server-name": server.tls_server_name,
                "certificate-authority-data": msgspec.to_builtins(authority),
            },
        }
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(asked)
    command = plugin.command
    if "/" in command:  # relative to the kubeconfig, as kubectl has it
        command = str(Path(login.origin.split(os.pathsep)[0]).absolute().parent / command)
    try:
        done = subprocess.run(
            [command, *(plugin.args or ())], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_PLUGIN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _failed(plugin, login, f"did not end within {_PLUGIN_S:g} s") from None
    except OSError as error:
        raise _failed(plugin, login, f"cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[-500:]
        raise _failed(plugin, login, f"failed with exit code {done.returncode}: {said}")
    return done.stdout


def _failed(plugin: Plugin, login: Login, how: str) -> InvalidInput:
    hint = " ".join(plugin.install_hint.split())[:500]
    return InvalidInput(
        f"the credentials plugin '{plugin.command}' {how}", where=login.origin,
        field="exec", remedy=hint or "run it by hand to see why",
    )  # fmt: skip


def _content(data: str, path: str, name: str, origin: str) -> bytes:
    """What stands in the kubeconfig itself, else in the file that it names."""
    return bytes_of(data, name, origin) if data else _read(path, name, origin) if path else b""


def _read(path: str, name: str, origin: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _refused(name, f"{path}: {error.strerror}", origin) from None


def _refused(name: str, what: str, origin: str) -> InvalidInput:
    return InvalidInput(what, where=origin, field=name, remedy="renew the credentials")


def _header(token: str, origin: str) -> str:
    """The token, if it can stand in a header."""
    if not token.isascii() or not token.isprintable():
        raise _refused("token", "the token has characters that no token has", origin)
    return token
